// SPDX-License-Identifier: Apache-2.0
// What the newest turns of all sessions cost and why: their final records, for operators who ask.
// In memory only; gone with the process. Owner: conductor.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "base/units.h"
#include "kairos/kairos.h"

namespace kairos {

class TurnHistory {
 public:
  static constexpr size_t kTurnsMax = 1024;  // of all sessions; some 600 KiB

  // `finished_unix_ms` is now. The oldest turn goes when there are too many.
  void Add(const kairos_final_t& final, uint64_t finished_unix_ms);
  void Forget(SessionId session);
  // A JSON array of the session's turns, oldest first: the fields of kairos_final_t by their names,
  // numbers as they are, and finished_unix_ms.
  std::string Json(SessionId session) const;

 private:
  struct Entry {
    kairos_final_t final;
    uint64_t finished_unix_ms;
  };
  std::deque<Entry> turns_;
};

}  // namespace kairos
