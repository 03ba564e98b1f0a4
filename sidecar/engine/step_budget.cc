// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/step_budget.h"

#include <algorithm>
#include <limits>

#include "base/units.h"

namespace kairos {
namespace {

constexpr double kNewestWeight = 0.25;
constexpr uint32_t kTokensBeforeMeasured = 64;

void Update(double* average, double value) {
  *average = *average == 0.0 ? value : *average + kNewestWeight * (value - *average);
}

}  // namespace

double StepBudget::DecodeNs(uint32_t decode_rows) const {
  return decode_rows == 0 ? 0.0 : decode_step_ns_;
}

double StepBudget::NsLeft(uint32_t decode_rows) const {
  if (budget_ns_ == 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(budget_ns_) - DecodeNs(decode_rows);
}

uint32_t StepBudget::PrefillTokens(uint32_t decode_rows, uint64_t spent_ns) const {
  if (budget_ns_ == 0) return tokens_max_;
  uint32_t tokens = kTokensBeforeMeasured;
  if (prefill_token_ns_ > 0.0) {
    const double left = NsLeft(decode_rows) - static_cast<double>(spent_ns);
    const double fit = std::clamp(left / prefill_token_ns_, 0.0, static_cast<double>(tokens_max_));
    tokens = static_cast<uint32_t>(fit) / kBlockTokens * kBlockTokens;
  }
  return std::min(std::max(tokens, kBlockTokens), tokens_max_);
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
