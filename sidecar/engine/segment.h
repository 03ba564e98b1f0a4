// SPDX-License-Identifier: Apache-2.0
// What one step computes of one sequence: consecutive tokens and where their KV lives.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "sidecar/engine/sequence.h"

namespace kairos {

struct Segment {
  const TokenId* tokens = nullptr;  // the tokens to compute
  uint32_t position = 0;            // of the first of them; KV before it is in place
  uint32_t count = 0;
  uint32_t logit_rows = 0;  // trailing tokens whose logits are wanted
  Fidelity fidelity = Fidelity::kDefault;
  const SlotId* slots = nullptr;  // as in SequenceSpec
  const SlotId* open = nullptr;   // as in SequenceSpec; null: the step ends no block unfinished
};

}  // namespace kairos
