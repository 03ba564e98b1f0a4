// SPDX-License-Identifier: Apache-2.0
// Cosine and sine rows of the rotary embedding, computed in double per position and kept.
// Belongs to one thread while it grows; rows may be read by others until the next Grow.
#pragma once

#include <cstdint>
#include <vector>

#include "sidecar/engine/models/hyper_parameters.h"

namespace kairos {

class RotaryTable {
 public:
  // Of the layers that see all tokens, or of those with a window.
  RotaryTable(const HyperParameters& parameters, bool sliding);

  // Makes rows of positions [0, positions) available.
  void Grow(uint32_t positions);
  const float* cos(uint32_t position) const {
    return rows_.data() + uint64_t{position} * 2 * half_;
  }
  const float* sin(uint32_t position) const { return cos(position) + half_; }

 private:
  uint32_t half_;
  uint32_t positions_ = 0;
  std::vector<double> frequencies_;  // [half]
  std::vector<float> rows_;          // [positions][cos of half, sin of half]
};

}  // namespace kairos
