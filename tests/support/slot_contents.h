// SPDX-License-Identifier: Apache-2.0
// What an engine would have written into each slot: the tokens that the KV there stands for. Tells
// whether what a sequence is told to reuse is there, and whether what it reads still is when it
// reads it: wrong state cannot pass unseen.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "sidecar/engine/sequence.h"
#include "sidecar/kv/block_layout.h"

namespace kairos {

class SlotContents {
 public:
  explicit SlotContents(const BlockLayout& layout = {}, uint32_t chunk_tokens = 64)
      : layout_(layout), chunk_tokens_(chunk_tokens) {}

  uint32_t PerBlock(const SequenceSpec& spec) const { return layout_.slots() * Halves(spec); }

  // What `spec` reuses of `log` is there.
  void CheckReuse(const SequenceSpec& spec, std::span<const TokenId> log) {
    ASSERT_NO_FATAL_FAILURE(CheckSeen(spec, log, spec.computed, spec.computed / kBlockTokens));
    if (spec.computed % kBlockTokens == 0) return;
    const std::vector<SlotId> open =
        spec.open_source.empty() ? OpenSlots(spec, spec.computed) : spec.open_source;
    ASSERT_EQ(open.size(), 2 * layout_.slots());
    for (const SlotId slot : open) {
      const std::vector<TokenId>& held = held_[slot.value];
      ASSERT_GE(held.size(), spec.computed);
      ASSERT_TRUE(std::equal(log.begin(), log.begin() + spec.computed, held.begin()));
    }
  }

  // The engine computes `log` up to the token `computed`, in steps of the largest size.
  void Compute(const SequenceSpec& spec, std::span<const TokenId> log, uint32_t computed) {
    if (!spec.open_source.empty()) {
      for (const SlotId slot : OpenSlots(spec, spec.computed)) {
        held_[slot.value] = Prefix(log, spec.computed);
      }
    }
    for (uint32_t at = spec.computed; at < computed;) {
      const uint32_t end = std::min(computed, at + chunk_tokens_);
      for (uint32_t block = at / kBlockTokens; block < end / kBlockTokens; ++block) {
        for (const SlotId slot : BlockOf(spec, block)) {
          held_[slot.value] = Prefix(log, (block + 1) * kBlockTokens);
        }
      }
      if (end % kBlockTokens != 0) {
        for (const SlotId slot : OpenSlots(spec, end)) held_[slot.value] = Prefix(log, end);
      }
      ASSERT_NO_FATAL_FAILURE(CheckSeen(spec, log, at, end / kBlockTokens));
      at = end;
    }
  }

 private:
  static uint32_t Halves(const SequenceSpec& spec) {
    return spec.fidelity == Fidelity::kExact ? 2 : 1;
  }
  static std::vector<TokenId> Prefix(std::span<const TokenId> log, uint32_t tokens) {
    return {log.begin(), log.begin() + tokens};
  }
  std::span<const SlotId> BlockOf(const SequenceSpec& spec, uint32_t block) const {
    return std::span(spec.slots).subspan(uint64_t{block} * PerBlock(spec), PerBlock(spec));
  }
  // Of the block that holds the token before `end`, while it is in 16 bits.
  std::vector<SlotId> OpenSlots(const SequenceSpec& spec, uint32_t end) const {
    if (spec.fidelity != Fidelity::kExact) return spec.open;
    const auto slots = BlockOf(spec, end / kBlockTokens);
    return {slots.begin(), slots.end()};
  }

  // Of the first `blocks` blocks, those that the token at `position` sees hold their tokens.
  void CheckSeen(const SequenceSpec& spec, std::span<const TokenId> log, uint32_t position,
                 uint32_t blocks) {
    const uint32_t first_token =
        position + 1 < layout_.window_tokens ? 0 : position + 1 - layout_.window_tokens;
    for (uint32_t block = 0; block < blocks; ++block) {
      auto slots = BlockOf(spec, block);
      if (block < first_token / kBlockTokens) {
        slots = slots.first(layout_.full_slots * Halves(spec));
      }
      for (const SlotId slot : slots) {
        ASSERT_NE(slot, kNoSlot) << "block " << block;
        ASSERT_EQ(held_[slot.value], Prefix(log, (block + 1) * kBlockTokens))
            << "block " << block << " of " << blocks << ", seen from token " << position;
      }
    }
  }

  const BlockLayout layout_;
  const uint32_t chunk_tokens_;
  std::map<uint32_t, std::vector<TokenId>> held_;
};

}  // namespace kairos
