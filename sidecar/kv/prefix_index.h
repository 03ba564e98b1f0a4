// SPDX-License-Identifier: Apache-2.0
// Finds whole KV blocks by what they hold. A block's key is a 128-bit chain over its parent's key
// and its 32 token ids; the chain's root stands for model fingerprint, fidelity, uid and namespace.
// A hit is confirmed by comparing token ids and parent, never by the hash alone.
// Owner: conductor.
//
// 1. A block in the index owns its slots in the pool (one user each).
// 2. Pinned blocks (pins > 0) are never evicted. A block with a pinned or present child is evicted
//    only after that child: children leave the recency list's cold end first.
// 3. Unpinned blocks form a list by recency; EvictColdest frees from its cold end.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/units.h"
#include "sidecar/kv/block_pool.h"

namespace kairos {

using BlockKey = Hash128;

struct BlockKeyHash {
  size_t operator()(const BlockKey& key) const noexcept { return static_cast<size_t>(key.low); }
};

// Key of the block that follows `parent` with these kBlockTokens tokens.
BlockKey ChainKey(const BlockKey& parent, std::span<const TokenId> tokens);

class PrefixIndex {
 public:
  // Names a pinned block until Unpin.
  using Handle = uint32_t;
  static constexpr Handle kNone = 0xffffffffu;

  explicit PrefixIndex(BlockPool& pool) : pool_(pool) {}

  // The longest run of indexed blocks from `root` for `tokens`, each pinned once more.
  std::vector<Handle> MatchAndPin(const BlockKey& root, std::span<const TokenId> tokens);
  // How many blocks MatchAndPin would find; pins nothing.
  uint32_t CountMatch(const BlockKey& root, std::span<const TokenId> tokens) const;
  // Adds a computed block and pins it; the index takes over one user of each slot. When an equal
  // block is there already, that one is pinned and the given slots are released. slots[1] is
  // kNoSlot in default fidelity.
  Handle InsertAndPin(const BlockKey& parent, std::span<const TokenId> tokens,
                      const std::array<SlotId, 2>& slots);
  // Most recently used from now on.
  void Unpin(Handle block);
  // As Unpin, but first to be evicted.
  void UnpinCold(Handle block);

  // A session that counts the block as its own, so that deleting the last owner frees it at once.
  // Blocks that are not indexed (any more) are ignored.
  void AddOwner(const BlockKey& key);
  void RemoveOwner(const BlockKey& key, bool evict_if_last);
  bool Contains(const BlockKey& key) const { return by_key_.contains(key); }

  const BlockKey& key(Handle block) const { return blocks_[block].key; }
  const std::array<SlotId, 2>& slots(Handle block) const { return blocks_[block].slots; }

  // Evicts the coldest unpinned block; false when there is none.
  bool EvictColdest();
  // Blocks that EvictColdest could free, and slots they hold.
  uint32_t blocks_cached() const { return blocks_cached_; }
  uint32_t slots_cached() const { return slots_cached_; }
  uint32_t blocks_total() const { return static_cast<uint32_t>(by_key_.size()); }

 private:
  struct Block {
    BlockKey key;
    BlockKey parent;
    std::array<TokenId, kBlockTokens> tokens;
    std::array<SlotId, 2> slots{kNoSlot, kNoSlot};
    uint32_t pins = 0;
    uint32_t owners = 0;
    Handle colder = kNone;   // neighbours in the recency list, only while unpinned
    Handle warmer = kNone;
  };

  Handle Find(const BlockKey& parent, const BlockKey& key, std::span<const TokenId> tokens) const;
  void Pin(Handle block);
  void Unlink(Handle block);
  void Evict(Handle block);

  BlockPool& pool_;
  std::vector<Block> blocks_;
  std::vector<Handle> unused_;
  std::unordered_map<BlockKey, Handle, BlockKeyHash> by_key_;
  Handle coldest_ = kNone;
  Handle warmest_ = kNone;
  uint32_t blocks_cached_ = 0;
  uint32_t slots_cached_ = 0;
};

}  // namespace kairos
