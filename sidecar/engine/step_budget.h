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

  // What a step that decodes `decode_rows` leaves of the budget while `prompts` wait for it: no
  // more than makes it 2.5 times as long, or as many times more as more prompts wait than sequences
  // decode. Infinite without a budget.
  double NsLeft(uint32_t decode_rows, uint32_t prompts) const;
  // Tokens of the prompts for such a step that has taken `spent_ns` already: as many as fit into
  // what is left. But 16 at least, or a block where more wait than decode, and as many as decode,
  // so that a prompt always advances.
  uint32_t PrefillTokens(uint32_t decode_rows, uint32_t prompts, uint64_t spent_ns = 0) const;
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
