// SPDX-License-Identifier: Apache-2.0
// Decides how a turn relates to what its session holds, and the plan that follows. First form:
// forcing rules in English and Chinese. A learned classifier slots in behind the same interface;
// rules override it. A wrong verdict may cost time, never correctness: only fields that the client
// sent as auto are touched.
// Pure; any thread; never blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kairos/kairos.h"

namespace kairos {

struct FilterInput {
  std::string_view role;          // of the turn's last message
  std::string_view text;          // its content
  bool first_turn = false;
  int32_t phase = 0;              // KAIROS_PHASE_* before the turn
  uint64_t idle_ms = 0;           // since the last turn
};

struct FilterVerdict {
  int32_t label = KAIROS_LABEL_UNKNOWN;
  int32_t plan = KAIROS_PLAN_CONTINUATION;
  const char* rule = "";          // static name of the rule that decided; at most 47 bytes
  bool wants_reset = false;       // start over: drop the dialogue, keep system prompt and tools
  float temperature = -1.0f;      // for KAIROS_AUTO_TEMPERATURE; negative: no opinion
  uint32_t max_tokens = 0;        // for KAIROS_AUTO_MAX_TOKENS; 0: no opinion
};

class ContextFilter {
 public:
  virtual ~ContextFilter() = default;
  virtual FilterVerdict Classify(const FilterInput& input) const = 0;
};

// The forcing rules alone.
const ContextFilter& RuleFilter();

}  // namespace kairos
