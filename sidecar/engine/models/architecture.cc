// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/models/architecture.h"

namespace kairos {
namespace {

// Mistral's converted files say "llama".
constexpr Architecture kArchitectures[] = {
    {.name = "llama", .pairs_neighbours = true},
    {.name = "qwen2", .qkv_bias = true},
    {.name = "qwen3", .head_norms = true},
    {.name = "gemma3",
     .head_norms = true,
     .post_norms = true,
     .scaled_embedding = true,
     .activation = Activation::kGeluTanh,
     .full_layer_every = 6,
     .window_rope_base = 10000.0,
     .layers_scaled_by_width = 62},
};

}  // namespace

const Architecture* FindArchitecture(std::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
  }
  return nullptr;
}

std::string SupportedArchitectures() {
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    names += names.empty() ? "" : ", ";
    names += architecture.name;
  }
  return names;
}

}  // namespace kairos
