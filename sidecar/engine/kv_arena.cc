// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/kv_arena.h"

#include <algorithm>

#include <fmt/format.h>

#include "sidecar/engine/kernels/kernel_table.h"

namespace kairos {

uint64_t SlotBytes(const KvGeometry& geometry) {
  const uint64_t tile =
      std::max(SealedTileBytes(geometry.head_dim), HalfTileBytes(geometry.head_dim));
  return (tile * geometry.layers * geometry.kv_heads + 63) / 64 * 64;
}

Result<uint32_t> KvSlotCount(uint64_t kv_bytes, const KvGeometry& geometry, std::string* error) {
  constexpr uint64_t kSlotsMin = 4;
  constexpr uint64_t kSlotsMax = 0xfffffff0u;
  const uint64_t slot_bytes = SlotBytes(geometry);
  const uint64_t slots = slot_bytes == 0 ? 0 : kv_bytes / slot_bytes;
  if (slots >= kSlotsMin && slots <= kSlotsMax) return static_cast<uint32_t>(slots);
  *error = fmt::format("kv.memory of {} bytes holds {} blocks of {} bytes; at least {} are needed",
                       kv_bytes, slots, slot_bytes, kSlotsMin);
  return Status(Code::kInvalidArgument, "kv.memory does not fit the model");
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
