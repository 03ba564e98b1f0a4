// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/bpe_merges.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace kairos {
namespace {

// Up to here looking through all pairs for each merge is quicker than keeping a heap.
constexpr size_t kShortSymbols = 32;

uint64_t KeyOf(TokenId left, TokenId right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

}  // namespace

BpeMerges::BpeMerges(size_t count)
    : slots_(std::bit_ceil(std::max<size_t>(count, 8) * 2)),
      shift_(64 - static_cast<uint32_t>(std::countr_zero(slots_.size()))) {}

// The slot that holds `key`, or the empty one where it belongs.
size_t BpeMerges::SlotOf(uint64_t key) const {
  size_t slot = (key * 0x9E3779B97F4A7C15u) >> shift_;
  while (slots_[slot].key != key && slots_[slot].key != ~uint64_t{0}) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

bool BpeMerges::Insert(TokenId left, TokenId right, Merge merge) {
  KAIROS_CHECK(left >= 0 && right >= 0);
  const uint64_t key = KeyOf(left, right);
  Slot& slot = slots_[SlotOf(key)];
  if (slot.key == key) return false;
  slot = {key, merge};
  return true;
}

// A pair of two kNoToken has the key of empty slots, whose merge says kNoRank, as it should.
BpeMerges::Merge BpeMerges::Find(TokenId left, TokenId right) const {
  return slots_[SlotOf(KeyOf(left, right))].merge;
}

size_t BpeMerges::Apply(std::span<TokenId> tokens, BpeScratch& scratch) const {
  KAIROS_CHECK(tokens.size() <= kSymbolsMax);
  if (tokens.size() < 2) return tokens.size();
  return tokens.size() <= kShortSymbols ? ApplyShort(tokens) : ApplyLong(tokens, scratch);
}

size_t BpeMerges::ApplyShort(std::span<TokenId> tokens) const {
  Merge pairs[kShortSymbols];  // pairs[i] joins tokens[i] and tokens[i + 1]
  size_t count = tokens.size();
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = Find(tokens[i], tokens[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == kNoRank) break;
    tokens[best] = pairs[best].merged;
    std::move(tokens.begin() + best + 2, tokens.begin() + count, tokens.begin() + best + 1);
    if (best + 2 < count) {
      std::move(pairs + best + 2, pairs + count - 1, pairs + best + 1);
    }
    --count;
    if (best > 0) pairs[best - 1] = Find(tokens[best - 1], tokens[best]);
    if (best + 1 < count) pairs[best] = Find(tokens[best], tokens[best + 1]);
  }
  return count;
}

// Notes the merge of the symbol at `index` with the one after it and appends it to the queue; false
// when there is none.
bool BpeMerges::Link(BpeScratch& scratch, uint32_t index) const {
  BpeScratch::Symbol& symbol = scratch.symbols[index];
  symbol.rank = kNoRank;
  if (symbol.next >= scratch.symbols.size()) return false;
  symbol.rank = Find(symbol.token, scratch.symbols[symbol.next].token).rank;
  if (symbol.rank == kNoRank) return false;
  scratch.queue.push_back((uint64_t{symbol.rank} << 32) | index);
  return true;
}

size_t BpeMerges::ApplyLong(std::span<TokenId> tokens, BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  const auto count = static_cast<uint32_t>(tokens.size());
  symbols.resize(count);
  queue.clear();
  for (uint32_t i = 0; i < count; ++i) symbols[i] = {tokens[i], kNoRank, i - 1, i + 1};
  for (uint32_t i = 0; i < count; ++i) Link(scratch, i);
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  const auto link = [&](uint32_t index) {
    if (Link(scratch, index)) std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const auto index = static_cast<uint32_t>(queue.back());
    const auto rank = static_cast<uint32_t>(queue.back() >> 32);
    queue.pop_back();
    // Where the rank is no longer the symbol's own, a neighbour has changed or the symbol was
    // merged away, and the entry is void. Where it is, the pair that is there now has that rank.
    BpeScratch::Symbol& symbol = symbols[index];
    if (symbol.rank != rank) continue;
    BpeScratch::Symbol& gone = symbols[symbol.next];
    symbol.token = Find(symbol.token, gone.token).merged;
    symbol.next = gone.next;
    gone.rank = kNoRank;
    if (symbol.next < count) symbols[symbol.next].previous = index;
    link(index);
    if (index > 0) link(symbol.previous);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i < count; i = symbols[i].next) tokens[kept++] = symbols[i].token;
  return kept;
}

}  // namespace kairos
