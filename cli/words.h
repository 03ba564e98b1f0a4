// SPDX-License-Identifier: Apache-2.0
// Numbers, codes and reasons in the words that people read. Pure, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kairos/kairos.h"

namespace kairos {

// "512 B", "1.5 MiB".
std::string BytesText(double bytes);
// "12 s", "3 min", "2 h", "5 d"; "-" for 0, and "0 s" for a time that is still to come.
std::string AgeText(uint64_t unix_ms, uint64_t now_unix_ms);
// A session id as it is shown and typed: 16 hex digits.
std::string SessionText(uint64_t id);
// Reads up to 16 hex digits; false for anything else and for zero.
bool ParseSessionText(std::string_view text, uint64_t* id);

const char* PhaseText(int32_t phase);
const char* FinishText(int32_t finish);
const char* PlanText(int32_t plan);
const char* LabelText(int32_t label);
const char* ReasonText(uint32_t reason);   // by index of kairos_final.recomputed_by
const char* ReasonWords(uint32_t reason);  // the same as a sentence's end
const char* StageText(uint32_t stage);     // by index of kairos_final.stage_ns

// Why something was not done: code and detail of kairos.h, and words that may come from elsewhere.
struct Fault {
  int32_t code = 0;  // or minus it
  int32_t detail = 0;
  std::string words;
  std::string advice = {};  // what to do, where the caller knows more than code and detail tell
};
// "not found: no such session", and a second line with what to do where that is known. Printable.
std::string FaultText(const Fault& fault);
// {"ok":false,"code":5,"detail":0,"error":"not found: no such session"}
std::string FaultJson(const Fault& fault);

}  // namespace kairos
