// SPDX-License-Identifier: Apache-2.0
// Logits of whole sequences from the forward pass alone, without the engine's batch.
#pragma once

#include <cstdint>
#include <vector>

#include "sidecar/engine/models/model.h"
#include "sidecar/engine/sequence.h"

namespace kairos {

// All logits of one sequence, [tokens, vocabulary], computed in segments of `chunk` tokens.
std::vector<float> AllLogits(const Model& model, const std::vector<TokenId>& tokens, uint32_t chunk,
                             Fidelity fidelity, uint32_t threads);

}  // namespace kairos
