// SPDX-License-Identifier: Apache-2.0
// How the KV of one block of tokens lies in slots. All slots are equally large and hold a few
// layers each: those of the layers that see every token, then those of the layers with a window.
// The second are of use only while the window reaches back to them, and are given up before the
// first.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "base/units.h"

namespace kairos {

struct BlockLayout {
  uint32_t full_slots = 1;    // of a sealed block; in 16 bits it takes twice as many
  uint32_t window_slots = 0;
  uint32_t window_tokens = 0;  // that a query with a window sees, its own included
  // Blocks whose window slots a turn has at a time for what it computes: after that many it writes
  // over its own. Enough for the window and all that one step may add.
  uint32_t ring_blocks = 0;

  uint32_t slots() const { return full_slots + window_slots; }
  // The first block of whose layers with a window the tokens from `blocks` whole blocks on see
  // anything.
  uint32_t FirstSeen(uint32_t blocks) const {
    const uint64_t tokens = uint64_t{blocks} * kBlockTokens;
    if (window_slots == 0 || tokens < window_tokens) return 0;
    return static_cast<uint32_t>((tokens - window_tokens + 1) / kBlockTokens);
  }
  // Window slots that are in use at once by a turn of so many blocks, what it reuses included.
  uint32_t WindowBlocks(uint32_t blocks) const {
    if (window_slots == 0) return 0;
    return std::min(blocks, (window_tokens + kBlockTokens - 1) / kBlockTokens + ring_blocks);
  }
};

// Slots of one whole block, those of layers with a window last; in 16 bits each slot of keys is
// followed by that of values.
struct BlockSlots {
  static constexpr uint32_t kMax = 16;

  std::array<SlotId, kMax> ids{};
  uint32_t count = 0;
  uint32_t window_from = 0;  // the first of those of layers with a window

  std::span<const SlotId> all() const { return std::span(ids).first(count); }
  std::span<const SlotId> windows() const { return all().subspan(window_from); }
  std::span<SlotId> windows() { return std::span(ids).first(count).subspan(window_from); }
  uint32_t window_count() const { return count - window_from; }
  // Also where no layer has a window.
  bool has_windows() const { return window_from == count || ids[window_from] != kNoSlot; }
};

}  // namespace kairos
