// SPDX-License-Identifier: Apache-2.0
// How many prefill tokens fit into a step's time, from the measured cost of earlier steps.
// Affects when tokens are computed, never what they are.
#pragma once

#include <cstdint>

namespace kairos {

class StepBudget {
 public:
  // `budget_ns` 0: no limit but `tokens_max`.
  StepBudget(uint64_t budget_ns, uint32_t tokens_max)
      : budget_ns_(budget_ns), tokens_max_(tokens_max) {}

  // Prefill tokens for a step that also decodes `decode_rows` and has taken `spent_ns` already: as
  // many as keep the step within the budget, and within 2.5 times what it takes without them; but
  // 16 at least, so that a prompt always advances.
  uint32_t PrefillTokens(uint32_t decode_rows, uint64_t spent_ns = 0) const;
  // What these limits leave beside the decode; infinite where the budget is none.
  double NsLeft(uint32_t decode_rows) const;
  double prefill_token_ns() const { return prefill_token_ns_; }  // 0: not measured yet
  // What a step cost.
  void Observe(uint32_t decode_rows, uint32_t prefill_tokens, uint64_t ns);

 private:
  double DecodeNs(uint32_t decode_rows) const;

  const uint64_t budget_ns_;
  const uint32_t tokens_max_;
  double decode_step_ns_ = 0.0;  // of a step without prefill; 0: not measured yet
  double prefill_token_ns_ = 0.0;
};

}  // namespace kairos
