// SPDX-License-Identifier: Apache-2.0
// Which slots of the draft model's KV arena hold what: of sequences that run, and, as long as
// nobody needs the room, of those that have ended, so that a session's next turn computes only what
// it adds. Bounded by the arena; shares nothing with the served model's KV.
// Owner: the engine thread.
//
// 1. Whole blocks of a context are in the index and pinned; equal ones are held once.
// 2. Guessed tokens never fill a block, so that a wrong one is undone by counting fewer tokens.
// 3. All blocks keep the slots of layers with a window.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "sidecar/engine/kv_arena.h"
#include "sidecar/kv/block_pool.h"
#include "sidecar/kv/prefix_index.h"

namespace kairos {

// Of one sequence. An empty one holds nothing.
struct DraftContext {
  PrefixIndex::Run whole;        // the blocks that are full
  std::vector<SlotId> slots;     // of these and of the one that fills next, as a Segment's
  std::vector<SlotId> open;      // of the latter, as a Segment's
  uint32_t computed = 0;         // tokens of the sequence whose KV is there
  std::vector<TokenId> ahead;    // guessed tokens whose KV follows
  uint32_t known = 0;            // tokens that were seen to be in the draft model's vocabulary
  uint32_t steps_unused = 0;     // since something was computed for it
  bool was_looked_up = false;    // whether earlier sequences left something of it
};

class DraftKv {
 public:
  // `arena` outlives it.
  explicit DraftKv(const KvArena& arena);

  // Takes over blocks that others left, where `context` stands at the end of a block: those that
  // follow in `tokens`, but for the last token. Sequences of equal `kin` may share.
  void Extend(const BlockKey& kin, std::span<const TokenId> tokens, DraftContext* context);
  // Slots for the first `tokens` tokens. False where those who run hold all; what was had is kept.
  [[nodiscard]] bool Reserve(uint32_t tokens, DraftContext* context);
  // KV of the first `computed` of `tokens` is there, all of them certain. Indexes full blocks.
  void Store(const BlockKey& kin, std::span<const TokenId> tokens, uint32_t computed,
             DraftContext* context);
  // Empties it. Its whole blocks stay until their room is needed.
  void Release(DraftContext* context);

  // Whether the arena could hold so many tokens of one sequence, if nobody else used it.
  bool CouldHold(uint64_t tokens) const {
    const uint64_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
    return (blocks + 2) * block_slots_ <= pool_.slots_total();
  }
  uint32_t slots_free() const { return pool_.slots_free(); }
  uint32_t blocks_kept() const { return index_.blocks_cached(); }

 private:
  static uint32_t WholeTokens(const DraftContext& context) {
    return static_cast<uint32_t>(context.whole.blocks.size()) * kBlockTokens;
  }
  BlockKey ParentOf(const BlockKey& kin, const DraftContext& context) const;
  bool Allocate(uint32_t slots, std::vector<SlotId>* out);
  // Gives back the slots of the block that is not full.
  void ReleaseUnfinished(DraftContext* context);

  const uint32_t block_slots_;
  BlockPool pool_;
  PrefixIndex index_;
};

}  // namespace kairos
