// SPDX-License-Identifier: Apache-2.0
// The memory that holds KV: an array of equal slots. A slot holds a few layers (usually all) of one
// sealed INT8 block, or of the K or the V half of a 16-bit block: layer, then KV head, then tile.
// Layers that see everything and layers with a window lie in slots of their own. Contents
// belong to the engine thread while a sequence uses them; which slot is whose is the conductor's
// (sidecar/kv/block_pool.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "sidecar/device/device.h"
#include "sidecar/kv/block_layout.h"

namespace kairos {

struct KvGeometry {
  uint32_t layers = 0;  // of a slot
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t full_slots = 1;    // of a block, for the layers that see everything
  uint32_t window_slots = 0;  // of a block, for those with a window
  uint32_t window = 0;        // tokens that these see

  uint32_t slots_per_block() const { return full_slots + window_slots; }
  friend bool operator==(const KvGeometry&, const KvGeometry&) = default;
};

// Of a model some of whose layers may have a window of `window` tokens.
KvGeometry KvGeometryOf(uint32_t kv_heads, uint32_t head_dim, uint32_t window,
                        const std::vector<bool>& sliding);
// `chunk_tokens` is the most that one step computes of one sequence.
BlockLayout KvBlockLayout(const KvGeometry& geometry, uint32_t chunk_tokens);

// Bytes of one slot, a multiple of 64.
uint64_t SlotBytes(const KvGeometry& geometry);

// How many slots `kv_bytes` hold. INVALID_ARGUMENT, with words that name `setting`, where these are
// too few to serve a turn or more than can be counted.
Result<uint32_t> KvSlotCount(uint64_t kv_bytes, const KvGeometry& geometry, std::string* error,
                             std::string_view setting = "kv.memory");

class KvArena {
 public:
  // Reserves `slots` slots of host memory, touched on first use. RESOURCE_EXHAUSTED when refused.
  static Result<std::unique_ptr<KvArena>> Create(const KvGeometry& geometry, uint32_t slots);
  KvArena(const KvArena&) = delete;
  KvArena& operator=(const KvArena&) = delete;

  const KvGeometry& geometry() const { return geometry_; }
  uint32_t slots() const { return slots_; }
  uint64_t slot_bytes() const { return slot_bytes_; }
  uint8_t* slot(SlotId id) { return memory_.data() + id.value * slot_bytes_; }

 private:
  KvArena() = default;
  KvGeometry geometry_;
  uint64_t slot_bytes_ = 0;
  uint32_t slots_ = 0;
  DeviceMemory memory_;
};

}  // namespace kairos
