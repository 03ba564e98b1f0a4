// SPDX-License-Identifier: Apache-2.0
#include "sidecar/kv/prefix_index.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace kairos {

BlockKey ChainKey(const BlockKey& parent, std::span<const TokenId> tokens) {
  KAIROS_CHECK(tokens.size() == kBlockTokens);
  struct {
    BlockKey parent;
    TokenId tokens[kBlockTokens];
  } link;
  link.parent = parent;
  std::memcpy(link.tokens, tokens.data(), sizeof(link.tokens));
  return HashBytes128(&link, sizeof(link));
}

PrefixIndex::Handle PrefixIndex::Find(const BlockKey& parent, const BlockKey& key,
                                      std::span<const TokenId> tokens) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return kNone;
  const Block& block = blocks_[found->second];
  // A colliding hash must be a miss: another session's block would be silently wrong state.
  if (!(block.parent == parent)) return kNone;
  if (!std::equal(tokens.begin(), tokens.end(), block.tokens.begin())) return kNone;
  return found->second;
}

std::vector<PrefixIndex::Handle> PrefixIndex::MatchAndPin(const BlockKey& root,
                                                          std::span<const TokenId> tokens) {
  std::vector<Handle> run;
  BlockKey parent = root;
  for (size_t at = 0; at + kBlockTokens <= tokens.size(); at += kBlockTokens) {
    const auto block_tokens = tokens.subspan(at, kBlockTokens);
    const BlockKey key = ChainKey(parent, block_tokens);
    const Handle block = Find(parent, key, block_tokens);
    if (block == kNone) break;
    Pin(block);
    run.push_back(block);
    parent = key;
  }
  return run;
}

uint32_t PrefixIndex::CountMatch(const BlockKey& root, std::span<const TokenId> tokens) const {
  uint32_t count = 0;
  BlockKey parent = root;
  for (size_t at = 0; at + kBlockTokens <= tokens.size(); at += kBlockTokens) {
    const auto block_tokens = tokens.subspan(at, kBlockTokens);
    const BlockKey key = ChainKey(parent, block_tokens);
    if (Find(parent, key, block_tokens) == kNone) break;
    ++count;
    parent = key;
  }
  return count;
}

PrefixIndex::Handle PrefixIndex::InsertAndPin(const BlockKey& parent,
                                              std::span<const TokenId> tokens,
                                              const std::array<SlotId, 2>& slots) {
  const BlockKey key = ChainKey(parent, tokens);
  const Handle present = Find(parent, key, tokens);
  if (present != kNone || by_key_.contains(key)) {
    for (const SlotId slot : slots) {
      if (slot != kNoSlot) pool_.Release(slot);
    }
    if (present != kNone) Pin(present);
    return present;
  }
  Handle handle;
  if (unused_.empty()) {
    handle = static_cast<Handle>(blocks_.size());
    blocks_.emplace_back();
  } else {
    handle = unused_.back();
    unused_.pop_back();
  }
  Block& block = blocks_[handle];
  block.key = key;
  block.parent = parent;
  std::copy(tokens.begin(), tokens.end(), block.tokens.begin());
  block.slots = slots;
  block.pins = 1;
  block.colder = block.warmer = kNone;
  by_key_.emplace(key, handle);
  return handle;
}

void PrefixIndex::Pin(Handle handle) {
  Block& block = blocks_[handle];
  if (block.pins++ == 0) Unlink(handle);
}

void PrefixIndex::Unlink(Handle handle) {
  Block& block = blocks_[handle];
  (block.colder == kNone ? coldest_ : blocks_[block.colder].warmer) = block.warmer;
  (block.warmer == kNone ? warmest_ : blocks_[block.warmer].colder) = block.colder;
  block.colder = block.warmer = kNone;
  --blocks_cached_;
  slots_cached_ -= block.slots[1] == kNoSlot ? 1 : 2;
}

void PrefixIndex::Unpin(Handle handle) {
  Block& block = blocks_[handle];
  KAIROS_CHECK(block.pins > 0);
  if (--block.pins != 0) return;
  block.colder = warmest_;
  (warmest_ == kNone ? coldest_ : blocks_[warmest_].warmer) = handle;
  warmest_ = handle;
  ++blocks_cached_;
  slots_cached_ += block.slots[1] == kNoSlot ? 1 : 2;
}

void PrefixIndex::UnpinCold(Handle handle) {
  Block& block = blocks_[handle];
  KAIROS_CHECK(block.pins > 0);
  if (--block.pins != 0) return;
  block.warmer = coldest_;
  (coldest_ == kNone ? warmest_ : blocks_[coldest_].colder) = handle;
  coldest_ = handle;
  ++blocks_cached_;
  slots_cached_ += block.slots[1] == kNoSlot ? 1 : 2;
}

bool PrefixIndex::EvictColdest() {
  if (coldest_ == kNone) return false;
  Evict(coldest_);
  return true;
}

void PrefixIndex::AddOwner(const BlockKey& key) {
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) ++blocks_[found->second].owners;
}

void PrefixIndex::RemoveOwner(const BlockKey& key, bool evict_if_last) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  Block& block = blocks_[found->second];
  // Zero happens where the block was evicted and computed again by somebody else since.
  if (block.owners > 0) --block.owners;
  if (evict_if_last && block.owners == 0 && block.pins == 0) Evict(found->second);
}

void PrefixIndex::Evict(Handle handle) {
  Unlink(handle);
  Block& block = blocks_[handle];
  by_key_.erase(block.key);
  for (const SlotId slot : block.slots) {
    if (slot != kNoSlot) pool_.Release(slot);
  }
  block.slots = {kNoSlot, kNoSlot};
  block.owners = 0;
  unused_.push_back(handle);
}

}  // namespace kairos
