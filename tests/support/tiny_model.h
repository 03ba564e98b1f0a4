// SPDX-License-Identifier: Apache-2.0
// A small llama model of seeded random weights as a GGUF image, and a forward pass over it in
// double precision that shares no code with the engine: no cache, no batch, no quantised
// activations.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "sidecar/engine/models/model.h"

namespace kairos {

class GgufWriter;

struct TinyShape {
  uint32_t layers = 2;
  uint32_t hidden = 128;
  uint32_t feed_forward = 192;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 32;
  uint32_t vocabulary = 288;
  uint32_t context = 2048;
  uint32_t matrix_type = 3;     // Q4_1; GGUF's numbers
  uint32_t embedding_type = 8;  // Q8_0
  bool separate_head = false;
  bool rope_factors = false;
  uint64_t seed = 1;
};

// The GGUF image; `break_tensor` names a tensor whose first scale becomes infinite, `add_values`
// writes further metadata, such as a vocabulary.
std::vector<uint8_t> BuildTinyGguf(const TinyShape& shape, const std::string& break_tensor = "",
                                   const std::function<void(GgufWriter*)>& add_values = {});
// Loaded with the named tier, or the best of this machine. Aborts the test program when loading
// fails.
std::unique_ptr<Model> LoadTinyModel(const TinyShape& shape, const char* kernels = nullptr);

// Weights of a GGUF image as doubles, and the plain forward pass.
class ReferenceModel {
 public:
  ReferenceModel(const TinyShape& shape, const std::vector<uint8_t>& gguf);
  ~ReferenceModel();
  // Logits of every position, [tokens, vocabulary].
  std::vector<std::vector<double>> Forward(const std::vector<TokenId>& tokens) const;

 private:
  struct Weights;
  std::unique_ptr<Weights> weights_;
  TinyShape shape_;
};

}  // namespace kairos
