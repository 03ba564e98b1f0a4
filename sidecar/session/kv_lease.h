// SPDX-License-Identifier: Apache-2.0
// The KV of one running turn: pinned blocks that are reused, and slots for what will be computed.
// Owner: conductor.
//
// 1. A lease covers every token the turn may come to have, so a running turn never waits for
//    memory.
// 2. Acquire either succeeds whole or changes nothing.
// 3. Settle hands every slot of the lease to the prefix index, to the session's open block or back
//    to the pool; a settled lease holds nothing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "sidecar/engine/sequence.h"
#include "sidecar/kv/block_pool.h"
#include "sidecar/kv/prefix_index.h"

namespace kairos {

// The unsealed tail of a session's KV: a 16-bit block that is not full.
struct OpenBlock {
  std::array<SlotId, 2> slots{kNoSlot, kNoSlot};
  BlockKey parent;               // key of the block before it
  std::vector<TokenId> tokens;   // 1..31 tokens whose KV it holds
  bool empty() const { return slots[0] == kNoSlot; }
};

struct KvLease {
  Fidelity fidelity = Fidelity::kDefault;
  BlockKey root;
  std::vector<PrefixIndex::Handle> pinned;  // leading blocks
  std::vector<SlotId> fresh;                // for the blocks after them: 1 or 2 each
  std::array<SlotId, 2> open{kNoSlot, kNoSlot};         // default fidelity
  std::array<SlotId, 2> open_source{kNoSlot, kNoSlot};  // shared tail to copy from
  uint32_t computed = 0;                    // tokens reused
  bool held = false;
};

class KvLeaser {
 public:
  // `drop_idle_tail` frees one idle session's open block; false when there is none left.
  KvLeaser(BlockPool& pool, PrefixIndex& index, std::function<bool()> drop_idle_tail)
      : pool_(pool), index_(index), drop_idle_tail_(std::move(drop_idle_tail)) {}

  struct Ask {
    BlockKey root;
    std::span<const TokenId> tokens;  // the context; at least one of them stays to be computed
    uint32_t total_tokens = 0;        // context and everything that may be generated
    Fidelity fidelity = Fidelity::kDefault;
    bool reuse = true;
  };
  // Takes over *tail where it fits. Empty when the slots cannot be had now.
  std::optional<KvLease> Acquire(const Ask& ask, OpenBlock* tail);
  // Slots that `total_tokens` need when nothing is reused.
  static uint32_t SlotsNeeded(uint32_t total_tokens, Fidelity fidelity);

  // Of `computed` tokens with KV, how many of the first `kept` keep it when the rest is cut off:
  // the open block is the last one that was computed, those before it are sealed.
  static uint32_t Keepable(uint32_t computed, uint32_t kept);
  // The engine's view of a lease.
  void FillSpec(const KvLease& lease, SequenceSpec* spec) const;
  // `tokens` are those whose KV is stored. Their whole blocks are indexed, the rest becomes *tail
  // (which must be empty). Returns the keys of the whole blocks in order.
  std::vector<BlockKey> Settle(KvLease&& lease, std::span<const TokenId> tokens, OpenBlock* tail);

  void ReleaseTail(OpenBlock* tail);
  // A second user of the same tail (fork).
  OpenBlock ShareTail(const OpenBlock& tail);
  uint32_t slots_total() const { return pool_.slots_total(); }

 private:
  bool MakeRoom(uint32_t slots);
  void ReuseTail(const Ask& ask, OpenBlock* tail, KvLease* lease);
  void Abandon(KvLease* lease);

  BlockPool& pool_;
  PrefixIndex& index_;
  std::function<bool()> drop_idle_tail_;
};

}  // namespace kairos
