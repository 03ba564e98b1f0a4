// SPDX-License-Identifier: Apache-2.0
// The tier that sequences run on: slots of the KV arena, which of them are free, and the whole
// blocks among them by content. On a CPU-only host this is RAM.
// Owner: conductor. Bytes of the slots belong to the engine thread.
#pragma once

#include <cstdint>

#include "sidecar/kv/block_pool.h"
#include "sidecar/kv/prefix_index.h"
#include "sidecar/tier/tier.h"

namespace kairos {

class DeviceTier : public Tier {
 public:
  DeviceTier(uint32_t slots, uint64_t slot_bytes, const BlockLayout& layout = {})
      : pool_(slots), index_(pool_, layout), slot_bytes_(slot_bytes) {}

  const char* name() const override { return "device"; }
  uint64_t bytes_total() const override { return pool_.slots_total() * slot_bytes_; }
  uint64_t bytes_used() const override {
    return (pool_.slots_total() - pool_.slots_free()) * slot_bytes_;
  }
  uint64_t bytes_cached() const override { return index_.slots_cached() * slot_bytes_; }
  uint32_t CountMatch(const BlockKey& root, std::span<const TokenId> tokens) const override {
    return index_.CountMatch(root, tokens);
  }
  bool Contains(const BlockKey& key) const override { return index_.Contains(key); }
  bool MakeRoom(uint64_t bytes) override {
    while (pool_.slots_free() * slot_bytes_ < bytes) {
      if (!index_.EvictLooseWindow() && !index_.EvictColdest()) return false;
    }
    return true;
  }

  BlockPool& pool() { return pool_; }
  const BlockPool& pool() const { return pool_; }
  PrefixIndex& index() { return index_; }
  const PrefixIndex& index() const { return index_; }
  uint64_t slot_bytes() const { return slot_bytes_; }

 private:
  BlockPool pool_;
  PrefixIndex index_;
  uint64_t slot_bytes_;
};

}  // namespace kairos
