// SPDX-License-Identifier: Apache-2.0
// The KV of one running turn: pinned blocks that are reused, and slots for what will be computed.
// Owner: conductor.
//
// 1. A lease covers every token the turn may come to have, so a running turn never waits for
//    memory.
// 2. Acquire either succeeds whole or changes nothing.
// 3. Settle hands every slot of the lease to the prefix index, to the session's open block or back
//    to the pool; a settled lease holds nothing.
// 4. Of layers with a window, a lease covers only as many blocks as are in use at once; the engine
//    writes over those that the window has left.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "sidecar/engine/sequence.h"
#include "sidecar/kv/block_layout.h"
#include "sidecar/kv/block_pool.h"
#include "sidecar/kv/prefix_index.h"

namespace kairos {

// The unsealed tail of a session's KV: a 16-bit block that is not full.
struct OpenBlock {
  std::vector<SlotId> slots;     // those of keys each followed by that of values
  BlockKey parent;               // key of the block before it
  std::vector<TokenId> tokens;   // 1..31 tokens whose KV it holds
  bool empty() const { return slots.empty(); }
};

struct KvLease {
  Fidelity fidelity = Fidelity::kDefault;
  BlockKey root;
  PrefixIndex::Run pinned;       // leading blocks
  uint32_t fresh_blocks = 0;     // those after them
  std::vector<SlotId> fresh;     // for each of these: slots of the layers that see everything
  std::vector<SlotId> ring;      // of layers with a window, for as many as are in use at once
  std::vector<SlotId> open;         // default fidelity
  std::vector<SlotId> open_source;  // shared tail to copy from
  uint32_t computed = 0;            // tokens reused
  bool held = false;

  uint64_t slots_taken() const { return fresh.size() + ring.size() + open.size(); }
};

class KvLeaser {
 public:
  // `drop_idle_tail` frees one idle session's open block; false when there is none left.
  KvLeaser(const BlockLayout& layout, BlockPool& pool, PrefixIndex& index,
           std::function<bool()> drop_idle_tail)
      : layout_(layout), pool_(pool), index_(index), drop_idle_tail_(std::move(drop_idle_tail)) {}

  struct Ask {
    BlockKey root;
    std::span<const TokenId> tokens;  // the context; at least one of them stays to be computed
    uint32_t total_tokens = 0;        // context and everything that may be generated
    Fidelity fidelity = Fidelity::kDefault;
    bool reuse = true;
  };
  // Takes over *tail where it fits. Empty when the slots cannot be had now.
  std::optional<KvLease> Acquire(const Ask& ask, OpenBlock* tail);
  // Slots that a turn of `total_tokens` may come to hold, whatever it reuses.
  uint32_t SlotsNeeded(uint32_t total_tokens, Fidelity fidelity) const;

  // Of `computed` tokens with KV, how many of the first `kept` keep it when the rest is cut off:
  // the open block is the last one that was computed, those before it are sealed.
  static uint32_t Keepable(uint32_t computed, uint32_t kept);
  // The engine's view of a lease.
  void FillSpec(const KvLease& lease, SequenceSpec* spec) const;
  // `tokens` are those whose KV is kept, of `computed` that were stored. Their whole blocks are
  // indexed, the rest becomes *tail (which must be empty). Returns the keys of the whole blocks in
  // order.
  std::vector<BlockKey> Settle(KvLease&& lease, std::span<const TokenId> tokens, uint32_t computed,
                               OpenBlock* tail);

  void ReleaseTail(OpenBlock* tail);
  // A second user of the same tail (fork).
  OpenBlock ShareTail(const OpenBlock& tail);
  uint32_t slots_total() const { return pool_.slots_total(); }
  const BlockLayout& layout() const { return layout_; }

 private:
  bool MakeRoom(uint32_t slots);
  void ReuseTail(const Ask& ask, OpenBlock* tail, KvLease* lease);
  void Abandon(KvLease* lease);
  void Allocate(uint32_t slots, std::vector<SlotId>* out);
  void Release(std::vector<SlotId>* slots);
  // Calls use(slot) for those of one of the fresh blocks, in the order of BlockSlots.
  template <typename Lease, typename Use>
  void EachSlotOfFresh(Lease& lease, uint32_t block, Use&& use) const;

  const BlockLayout layout_;
  BlockPool& pool_;
  PrefixIndex& index_;
  std::function<bool()> drop_idle_tail_;
};

}  // namespace kairos
