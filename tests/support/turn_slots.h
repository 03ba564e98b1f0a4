// SPDX-License-Identifier: Apache-2.0
// Slots for the blocks of a sequence as a turn has them: those of layers with a window come again
// after as many blocks as the layout says.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sidecar/engine/sequence.h"
#include "sidecar/kv/block_layout.h"

namespace kairos {

inline std::vector<SlotId> TurnSlots(const BlockLayout& layout, uint64_t blocks, Fidelity fidelity,
                                     const std::function<SlotId()>& new_slot) {
  const uint32_t halves = fidelity == Fidelity::kExact ? 2 : 1;
  const uint32_t per_block = layout.slots() * halves;
  const uint64_t ring = uint64_t{layout.ring_blocks} * per_block;
  std::vector<SlotId> slots;
  for (uint64_t i = 0; i < blocks * per_block; ++i) {
    const bool has_window = i % per_block >= layout.full_slots * halves;
    slots.push_back(has_window && i >= ring ? slots[i - ring] : new_slot());
  }
  return slots;
}

}  // namespace kairos
