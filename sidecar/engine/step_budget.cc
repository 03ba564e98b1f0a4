// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/step_budget.h"

#include <algorithm>
#include <limits>

namespace kairos {
namespace {

constexpr double kNewestWeight = 0.25;
constexpr uint32_t kTokensBeforeMeasured = 64;
// How much longer than without a prompt a step may take for those that decode in it: what they
// feel, whatever the machine's speed. The p99 of real steps lies some 15 % above what is aimed at.
constexpr double kStretch = 2.5;
constexpr uint32_t kGrain = 8;       // tokens; fewer rows than that fill no tile of the kernels
constexpr uint32_t kTokensMin = 16;  // so that a prompt always advances, and not by too little

void Update(double* average, double value) {
  *average = *average == 0.0 ? value : *average + kNewestWeight * (value - *average);
}

}  // namespace

double StepBudget::DecodeNs(uint32_t decode_rows) const {
  return decode_rows == 0 ? 0.0 : decode_step_ns_;
}

double StepBudget::NsLeft(uint32_t decode_rows) const {
  if (budget_ns_ == 0) return std::numeric_limits<double>::infinity();
  const double decode = DecodeNs(decode_rows);
  const double step = static_cast<double>(budget_ns_);
  return (decode > 0.0 ? std::min(step, kStretch * decode) : step) - decode;
}

uint32_t StepBudget::PrefillTokens(uint32_t decode_rows, uint64_t spent_ns) const {
  if (budget_ns_ == 0) return tokens_max_;
  uint32_t tokens = kTokensBeforeMeasured;
  if (prefill_token_ns_ > 0.0) {
    const double left = NsLeft(decode_rows) - static_cast<double>(spent_ns);
    const double fit = std::clamp(left / prefill_token_ns_, 0.0, static_cast<double>(tokens_max_));
    tokens = static_cast<uint32_t>(fit) / kGrain * kGrain;
  }
  return std::min(std::max(tokens, kTokensMin), tokens_max_);
}

void StepBudget::Observe(uint32_t decode_rows, uint32_t prefill_tokens, uint64_t ns) {
  if (prefill_tokens == 0) {
    if (decode_rows > 0) Update(&decode_step_ns_, static_cast<double>(ns));
    return;
  }
  const double prefill_ns = std::max(static_cast<double>(ns) - DecodeNs(decode_rows), ns * 0.1);
  Update(&prefill_token_ns_, prefill_ns / prefill_tokens);
}

}  // namespace kairos
