// SPDX-License-Identifier: Apache-2.0
// The merges of a BPE vocabulary and their application to one piece of text, as token ids.
// Filled once, then immutable; any thread may apply it with a scratch of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"

namespace kairos {

// Stands for a byte that has no token. It never merges, so text on its two sides stays apart.
inline constexpr TokenId kNoToken = -1;

// Working memory of BpeMerges::Apply and its users, kept between pieces so that it is not allocated
// for each.
struct BpeScratch {
  struct Symbol {
    TokenId token;
    uint32_t rank;      // of the merge with the next symbol
    uint32_t previous;  // indices of neighbours that are still there
    uint32_t next;
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> queue;  // binary heap of rank << 32 | index, smallest first
  std::vector<TokenId> tokens;  // the users': what a piece is before it is merged
};

class BpeMerges {
 public:
  static constexpr uint32_t kNoRank = 0xffffffffu;
  // Symbols that one call of Apply takes; indices are 32-bit.
  static constexpr size_t kSymbolsMax = size_t{1} << 30;

  struct Merge {
    uint32_t rank = kNoRank;  // kNoRank: the pair does not merge
    TokenId merged = kNoToken;
  };

  // Room for `count` merges.
  explicit BpeMerges(size_t count);

  // False when the pair is already there. At most `count` calls. Tokens are not negative; pairs may
  // have equal ranks.
  bool Insert(TokenId left, TokenId right, Merge merge);
  Merge Find(TokenId left, TokenId right) const;

  // Merges neighbours in `tokens`, lowest rank first and leftmost among equals, until none is left,
  // and returns how many tokens remain at its front. O(n log n). `tokens` has at most kSymbolsMax.
  size_t Apply(std::span<TokenId> tokens, BpeScratch& scratch) const;

 private:
  struct Slot {
    uint64_t key = ~uint64_t{0};
    Merge merge;
  };
  size_t ApplyShort(std::span<TokenId> tokens) const;
  size_t ApplyLong(std::span<TokenId> tokens, BpeScratch& scratch) const;
  bool Link(BpeScratch& scratch, uint32_t index) const;
  size_t SlotOf(uint64_t key) const;

  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  uint32_t shift_ = 0;
};

}  // namespace kairos
