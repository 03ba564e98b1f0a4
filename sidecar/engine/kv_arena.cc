// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/kv_arena.h"

#include <algorithm>

#include <fmt/format.h>

#include "sidecar/engine/kernels/kernel_table.h"

namespace kairos {

KvGeometry KvGeometryOf(uint32_t kv_heads, uint32_t head_dim, uint32_t window,
                        const std::vector<bool>& sliding) {
  KvGeometry geometry;
  geometry.kv_heads = kv_heads;
  geometry.head_dim = head_dim;
  const auto slots_for = [](uint32_t layers, uint32_t per_slot) {
    return (layers + per_slot - 1) / per_slot;
  };
  const auto windowed = static_cast<uint32_t>(std::count(sliding.begin(), sliding.end(), true));
  const auto full = static_cast<uint32_t>(sliding.size()) - windowed;
  geometry.layers = full == 0 || windowed == 0 ? full + windowed : std::min(full, windowed);
  while (2 * (slots_for(full, geometry.layers) + slots_for(windowed, geometry.layers)) >
         BlockSlots::kMax) {
    ++geometry.layers;
  }
  geometry.full_slots = slots_for(full, geometry.layers);
  geometry.window_slots = slots_for(windowed, geometry.layers);
  geometry.window = windowed == 0 ? 0 : window;
  return geometry;
}

BlockLayout KvBlockLayout(const KvGeometry& geometry, uint32_t chunk_tokens) {
  BlockLayout layout;
  layout.full_slots = geometry.full_slots;
  layout.window_slots = geometry.window_slots;
  layout.window_tokens = geometry.window;
  // A step stores all its tokens before it reads: the last block that it may write must not be in
  // the place of one that its first token sees.
  if (geometry.window_slots > 0) {
    layout.ring_blocks = (geometry.window + chunk_tokens + 2 * kBlockTokens) / kBlockTokens;
  }
  return layout;
}

uint64_t SlotBytes(const KvGeometry& geometry) {
  const uint64_t tile =
      std::max(SealedTileBytes(geometry.head_dim), HalfTileBytes(geometry.head_dim));
  return (tile * geometry.layers * geometry.kv_heads + 63) / 64 * 64;
}

Result<uint32_t> KvSlotCount(uint64_t kv_bytes, const KvGeometry& geometry, std::string* error,
                             std::string_view setting) {
  constexpr uint64_t kBlocksMin = 4;
  constexpr uint64_t kSlotsMax = 0xfffffff0u;
  const uint64_t slot_bytes = SlotBytes(geometry);
  const uint64_t slots = slot_bytes == 0 ? 0 : kv_bytes / slot_bytes;
  const uint64_t blocks = slots / geometry.slots_per_block();
  if (blocks >= kBlocksMin && slots <= kSlotsMax) return static_cast<uint32_t>(slots);
  *error = fmt::format("{} of {} bytes holds {} blocks of {} bytes; at least {} are needed",
                       setting, kv_bytes, blocks, slot_bytes * geometry.slots_per_block(),
                       kBlocksMin);
  return Status(Code::kInvalidArgument, "KV memory does not fit the model");
}

Result<std::unique_ptr<KvArena>> KvArena::Create(const KvGeometry& geometry, uint32_t slots) {
  const uint64_t slot_bytes = SlotBytes(geometry);
  uint64_t bytes = 0;
  if (slot_bytes == 0 || slots == 0 ||
      __builtin_mul_overflow(slot_bytes, uint64_t{slots}, &bytes)) {
    return Status(Code::kResourceExhausted, "KV arena of no or too many bytes");
  }
  KAIROS_ASSIGN_OR_RETURN(DeviceMemory memory, HostDevice().Allocate(bytes));
  std::unique_ptr<KvArena> arena(new KvArena);
  arena->geometry_ = geometry;
  arena->slot_bytes_ = slot_bytes;
  arena->slots_ = slots;
  arena->memory_ = std::move(memory);
  return arena;
}

}  // namespace kairos
