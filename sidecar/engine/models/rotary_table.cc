// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/models/rotary_table.h"

#include <cmath>

namespace kairos {

RotaryTable::RotaryTable(const HyperParameters& parameters, bool sliding)
    : half_(parameters.head_dim / 2), frequencies_(half_) {
  const bool own_base = sliding && parameters.window_rope_base > 0.0;
  for (uint32_t i = 0; i < half_; ++i) {
    const double exponent = -2.0 * i / parameters.head_dim;
    if (own_base) {
      frequencies_[i] = std::pow(parameters.window_rope_base, exponent);
      continue;
    }
    frequencies_[i] = std::pow(parameters.rope_base, exponent) * parameters.rope_position_scale;
    if (!parameters.rope_factors.empty()) frequencies_[i] /= parameters.rope_factors[i];
  }
}

void RotaryTable::Grow(uint32_t positions) {
  constexpr uint32_t kStep = 256;
  if (positions <= positions_) return;
  positions = (positions + kStep - 1) / kStep * kStep;
  rows_.resize(uint64_t{positions} * 2 * half_);
  for (uint32_t position = positions_; position < positions; ++position) {
    float* row = rows_.data() + uint64_t{position} * 2 * half_;
    for (uint32_t i = 0; i < half_; ++i) {
      const double angle = position * frequencies_[i];
      row[i] = static_cast<float>(std::cos(angle));
      row[half_ + i] = static_cast<float>(std::sin(angle));
    }
  }
  positions_ = positions;
}

}  // namespace kairos
