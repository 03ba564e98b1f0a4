// SPDX-License-Identifier: Apache-2.0
// What the families of models have differently, as a row of facts each. Whoever loads or runs a
// model asks these facts, never the family's name.
// Source: the tensor and metadata names of the ggml project's converter; the papers of the models.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kairos {

enum class Activation : uint8_t { kSilu, kGeluTanh };  // of the gate, before it multiplies `up`

struct Architecture {
  std::string_view name;          // general.architecture; prefix of its other keys
  bool pairs_neighbours = false;  // rope pairs rows 2i and 2i + 1 of a head, not i and i + dim / 2
  bool qkv_bias = false;          // vectors added to queries, keys and values
  bool head_norms = false;        // RMS norm of each query and key head, before rope
  bool post_norms = false;        // RMS norm of what attention and feed-forward give
  bool scaled_embedding = false;  // embeddings are multiplied by sqrt(hidden)
  Activation activation = Activation::kSilu;
  // Of layers with a window: every n-th sees all tokens, unless the file says which do. 0: where
  // the file names a window, all layers have it.
  uint32_t full_layer_every = 0;
  double window_rope_base = 0.0;  // of layers with a window, unless the file says; 0: as the others
  // Models of that many layers divide scores by sqrt(hidden / heads), others by sqrt(head_dim).
  uint32_t layers_scaled_by_width = 0;
};

// Null when it is not supported.
const Architecture* FindArchitecture(std::string_view name);
// "llama, qwen2, ..." for messages.
std::string SupportedArchitectures();

}  // namespace kairos
