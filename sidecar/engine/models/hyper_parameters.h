// SPDX-License-Identifier: Apache-2.0
// Shape of a model as its GGUF file states it, checked for sanity before anything is sized by it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "sidecar/engine/models/architecture.h"

namespace kairos {

class GgufFile;

struct HyperParameters {
  const Architecture* architecture = nullptr;
  uint32_t layers = 0;
  uint32_t hidden = 0;        // multiple of 32
  uint32_t feed_forward = 0;  // multiple of 32
  uint32_t heads = 0;
  uint32_t kv_heads = 0;  // divides heads
  uint32_t head_dim = 0;  // multiple of 32
  uint32_t vocabulary = 0;
  uint32_t context = 0;  // tokens the model was trained for
  float norm_epsilon = 0.0f;
  double rope_base = 10000.0;
  double rope_position_scale = 1.0;  // 1 / factor of linear scaling
  std::vector<float> rope_factors;   // [head_dim / 2] divisors of the frequencies, or empty
  // Tokens that a query of a sliding layer sees, its own included; 0: no layer slides.
  uint32_t window = 0;
  std::vector<bool> sliding;         // [layers] whether the layer has the window
  double window_rope_base = 0.0;     // of sliding layers, unscaled; 0: rope as in the others
  float query_scale = 0.0f;          // of scores, usually 1 / sqrt(head_dim)

  uint32_t group() const { return heads / kv_heads; }
  uint32_t query_dim() const { return heads * head_dim; }
  uint32_t kv_dim() const { return kv_heads * head_dim; }
};

// Reads and checks all but rope_factors, which is a tensor. `error` names the key and the limit.
Result<HyperParameters> ReadHyperParameters(const GgufFile& file, std::string* error);

}  // namespace kairos
