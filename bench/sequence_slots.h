// SPDX-License-Identifier: Apache-2.0
// Slots for a sequence that a bench runs without a sidecar.
#pragma once

#include <cstdint>

#include "sidecar/engine/kv_arena.h"
#include "sidecar/engine/sequence.h"

namespace kairos {

// Slots from `next` on for `tokens` tokens in default fidelity, each block in its own, appended to
// those that *spec has; and its open block's. Returns the next free one.
inline uint32_t TakeSlots(const KvGeometry& geometry, uint64_t tokens, uint32_t next,
                          SequenceSpec* spec) {
  const uint64_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  for (uint64_t i = 0; i < blocks * geometry.slots_per_block(); ++i) {
    spec->slots.push_back(SlotId{next++});
  }
  spec->open.clear();
  for (uint32_t i = 0; i < 2 * geometry.slots_per_block(); ++i) {
    spec->open.push_back(SlotId{next++});
  }
  return next;
}

}  // namespace kairos
