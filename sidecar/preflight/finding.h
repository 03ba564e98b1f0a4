// SPDX-License-Identifier: Apache-2.0
// What one look at the host, the settings or the model found, in words for people. kairosd looks
// before it starts, `kairosctl doctor` whenever it is asked. Plain values.
#pragma once

#include <string>
#include <vector>

namespace kairos {

// Exit statuses of kairosd, beside 0, 1 (failure) and 2 (usage): those of sysexits.h.
inline constexpr int kExitNoInput = 66;       // model missing or not usable
inline constexpr int kExitOsError = 71;
inline constexpr int kExitCannotCreate = 73;  // socket or catalog
inline constexpr int kExitAlreadyRunning = 75;
inline constexpr int kExitConfig = 78;

enum class Severity { kOk, kWarn, kFail };

struct Finding {
  std::string check;   // one word: "catalog"
  Severity severity = Severity::kOk;
  std::string words;   // what is, with the limit that matters
  std::string remedy;  // what to change; empty where all is well
  int exit_status = 0; // that kairosd ends with for it; 0: it starts all the same
};

// Words and remedy as kairosd prints them.
inline std::string FaultWords(const Finding& finding) {
  return finding.words + (finding.remedy.empty() ? "" : "\n  " + finding.remedy);
}

}  // namespace kairos
