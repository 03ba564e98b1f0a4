// SPDX-License-Identifier: Apache-2.0
// The memory that holds KV: an array of equal slots. A slot holds one sealed INT8 block, or the K
// or the V half of a 16-bit block, all layers contiguous: layer, then KV head, then tile. Contents
// belong to the engine thread while a sequence uses them; which slot is whose is the conductor's
// (sidecar/kv/block_pool.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/units.h"
#include "sidecar/device/device.h"

namespace kairos {

struct KvGeometry {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
};

// Bytes of one slot, a multiple of 64.
uint64_t SlotBytes(const KvGeometry& geometry);

// How many slots `kv_bytes` hold. INVALID_ARGUMENT, with words that name kv.memory, where these are
// too few to serve a turn or more than can be counted.
Result<uint32_t> KvSlotCount(uint64_t kv_bytes, const KvGeometry& geometry, std::string* error);

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
