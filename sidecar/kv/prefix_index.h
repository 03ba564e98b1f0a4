// SPDX-License-Identifier: Apache-2.0
// Finds whole KV blocks by what they hold. A block's key is a 128-bit chain over its parent's key
// and its 32 token ids; the chain's root stands for model fingerprint, fidelity, uid and namespace.
// A hit is confirmed by comparing token ids and parent, never by the hash alone.
// Owner: conductor; of a draft model's KV, the engine thread.
//
// 1. A block in the index owns its slots in the pool (one user each).
// 2. Pinned blocks (pins > 0) are never evicted. A block with a pinned or present child is evicted
//    only after that child: children leave the recency list's cold end first.
// 3. Unpinned blocks form a list by recency; EvictColdest frees from its cold end.
// 4. A block may be without its window slots. A run that ends in such blocks is no match: it ends
//    where the layers with a window still have all that the next token sees.
// 5. Window slots that no pinned run needs form two lists by recency: loose ones, which no session
//    is known to need, and the others.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/units.h"
#include "sidecar/kv/block_layout.h"
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

  // A match.
  struct Run {
    std::vector<Handle> blocks;   // each pinned once more
    uint32_t windows_from = 0;    // from this one on their window slots are pinned, too
  };

  explicit PrefixIndex(BlockPool& pool, const BlockLayout& layout = {})
      : pool_(pool), layout_(layout) {}

  // The longest run of indexed blocks from `root` for `tokens` that can be gone on from.
  Run MatchAndPin(const BlockKey& root, std::span<const TokenId> tokens);
  // How many blocks MatchAndPin would find; pins nothing.
  uint32_t CountMatch(const BlockKey& root, std::span<const TokenId> tokens) const;
  // Adds a computed block and pins it; the index takes over one user of each slot. When an equal
  // block is there already, that one is pinned, takes window slots that it lacks, and the other
  // slots are released.
  Handle InsertAndPin(const BlockKey& parent, std::span<const TokenId> tokens,
                      const BlockSlots& slots);
  // Most recently used from now on.
  void Unpin(Handle block);
  // As Unpin, but first to be evicted.
  void UnpinCold(Handle block);
  // All of a run, last block first: it is evicted before the ones it hangs on.
  void Unpin(Run&& run);

  // A session that counts the block as its own, so that deleting the last owner frees it at once.
  // Blocks that are not indexed (any more) are ignored.
  void AddOwner(const BlockKey& key);
  void RemoveOwner(const BlockKey& key, bool evict_if_last);
  bool Contains(const BlockKey& key) const { return by_key_.contains(key); }
  // Slots that the block holds; 0 where it is not indexed.
  uint32_t SlotsOf(const BlockKey& key) const;

  const BlockKey& key(Handle block) const { return blocks_[block].key; }
  const BlockSlots& slots(Handle block) const { return blocks_[block].slots; }

  // The session that owns the block has gone on so far that the block's window slots are of no use
  // to it: they are loose, unless another session owns the block as well.
  void LoosenWindow(const BlockKey& key);

  // Evicts the coldest unpinned block; false when there is none.
  bool EvictColdest();
  // Frees the coldest loose window slots, of pinned blocks too; false when there are none.
  bool EvictLooseWindow() { return EvictWindow(&loose_); }
  // As above, of those that are not loose: of use to others than the runs that are pinned.
  bool EvictKeptWindow() { return EvictWindow(&kept_); }
  // Blocks that EvictColdest could free, and slots that these and all loose windows hold.
  uint32_t blocks_cached() const { return blocks_cached_; }
  uint32_t slots_cached() const { return slots_cached_; }
  uint32_t blocks_total() const { return static_cast<uint32_t>(by_key_.size()); }

 private:
  struct Links {
    Handle colder = kNone;
    Handle warmer = kNone;
  };
  struct Block {
    BlockKey key;
    BlockKey parent;
    std::array<TokenId, kBlockTokens> tokens;
    BlockSlots slots;
    uint32_t pins = 0;
    uint32_t window_pins = 0;
    uint32_t owners = 0;
    bool is_loose = false;
    Links order;         // among unpinned blocks
    Links window_order;  // among windows of its kind that are not pinned
  };
  struct List {
    Links Block::*links;
    Handle coldest = kNone;
    Handle warmest = kNone;
  };

  std::vector<Handle> Find(const BlockKey& root, std::span<const TokenId> tokens) const;
  Handle Find(const BlockKey& parent, const BlockKey& key, std::span<const TokenId> tokens) const;
  void Pin(Handle block);
  void PinWindow(Handle block);
  void UnpinWindow(Handle block);
  void Evict(Handle block);
  bool EvictWindow(List* list);
  void AddWarmest(List* list, Handle block);
  void Remove(List* list, Handle block);
  bool IsListed(const Block& block) const;
  List& WindowList(const Block& block) { return block.is_loose ? loose_ : kept_; }
  uint32_t Evictable(const Block& block) const;

  BlockPool& pool_;
  const BlockLayout layout_;
  std::vector<Block> blocks_;
  std::vector<Handle> unused_;
  std::unordered_map<BlockKey, Handle, BlockKeyHash> by_key_;
  List unpinned_{&Block::order};
  List loose_{&Block::window_order};
  List kept_{&Block::window_order};
  uint32_t blocks_cached_ = 0;
  uint32_t slots_cached_ = 0;
};

}  // namespace kairos
