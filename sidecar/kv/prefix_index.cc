// SPDX-License-Identifier: Apache-2.0
#include "sidecar/kv/prefix_index.h"

#include <algorithm>
#include <cstring>
#include <utility>

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

// The blocks of the longest run that can be gone on from.
std::vector<PrefixIndex::Handle> PrefixIndex::Find(const BlockKey& root,
                                                   std::span<const TokenId> tokens) const {
  std::vector<Handle> run;
  BlockKey parent = root;
  uint32_t usable = 0;
  uint32_t after_gap = 0;  // the block after the last one without window slots
  for (size_t at = 0; at + kBlockTokens <= tokens.size(); at += kBlockTokens) {
    const auto block_tokens = tokens.subspan(at, kBlockTokens);
    const BlockKey key = ChainKey(parent, block_tokens);
    const Handle block = Find(parent, key, block_tokens);
    if (block == kNone) break;
    run.push_back(block);
    parent = key;
    const auto length = static_cast<uint32_t>(run.size());
    if (!blocks_[block].slots.has_windows()) after_gap = length;
    if (after_gap <= layout_.FirstSeen(length)) usable = length;
  }
  run.resize(usable);
  return run;
}

PrefixIndex::Run PrefixIndex::MatchAndPin(const BlockKey& root, std::span<const TokenId> tokens) {
  Run run;
  run.blocks = Find(root, tokens);
  run.windows_from = layout_.FirstSeen(static_cast<uint32_t>(run.blocks.size()));
  for (uint32_t i = 0; i < run.blocks.size(); ++i) {
    Pin(run.blocks[i]);
    if (i >= run.windows_from) PinWindow(run.blocks[i]);
  }
  return run;
}

uint32_t PrefixIndex::CountMatch(const BlockKey& root, std::span<const TokenId> tokens) const {
  return static_cast<uint32_t>(Find(root, tokens).size());
}

PrefixIndex::Handle PrefixIndex::InsertAndPin(const BlockKey& parent,
                                              std::span<const TokenId> tokens,
                                              const BlockSlots& slots) {
  const BlockKey key = ChainKey(parent, tokens);
  const Handle present = Find(parent, key, tokens);
  if (present != kNone || by_key_.contains(key)) {
    uint32_t left = slots.count;
    if (present != kNone) {
      Pin(present);
      Block& block = blocks_[present];
      if (!block.slots.has_windows() && slots.has_windows() && block.slots.count == slots.count) {
        std::copy(slots.windows().begin(), slots.windows().end(), block.slots.windows().begin());
        left = slots.window_from;
        block.is_loose = false;
        AddWarmest(&kept_, present);
      }
    }
    for (const SlotId slot : slots.all().first(left)) {
      if (slot != kNoSlot) pool_.Release(slot);
    }
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
  block = Block{};
  block.key = key;
  block.parent = parent;
  std::copy(tokens.begin(), tokens.end(), block.tokens.begin());
  block.slots = slots;
  block.pins = 1;
  by_key_.emplace(key, handle);
  if (IsListed(block)) AddWarmest(&kept_, handle);
  return handle;
}

// ---- Pins ---------------------------------------------------------------------------------------

void PrefixIndex::Pin(Handle handle) {
  Block& block = blocks_[handle];
  if (block.pins == 0) {
    slots_cached_ -= Evictable(block);
    Remove(&unpinned_, handle);
    --blocks_cached_;
    block.pins = 1;
    slots_cached_ += Evictable(block);
  } else {
    ++block.pins;
  }
}

void PrefixIndex::Unpin(Handle handle) {
  Block& block = blocks_[handle];
  KAIROS_CHECK(block.pins > 0);
  slots_cached_ -= Evictable(block);
  if (--block.pins == 0) {
    AddWarmest(&unpinned_, handle);
    ++blocks_cached_;
  }
  slots_cached_ += Evictable(block);
}

void PrefixIndex::UnpinCold(Handle handle) {
  Unpin(handle);
  if (blocks_[handle].pins > 0 || unpinned_.coldest == handle) return;
  Remove(&unpinned_, handle);
  Links& links = blocks_[handle].order;
  links.warmer = unpinned_.coldest;
  blocks_[unpinned_.coldest].order.colder = handle;
  unpinned_.coldest = handle;
}

void PrefixIndex::Unpin(Run&& run) {
  for (size_t i = run.blocks.size(); i-- > 0;) {
    if (i >= run.windows_from) UnpinWindow(run.blocks[i]);
    Unpin(run.blocks[i]);
  }
  run = Run{};
}

void PrefixIndex::PinWindow(Handle handle) {
  Block& block = blocks_[handle];
  if (block.slots.window_count() == 0) return;
  if (block.window_pins++ > 0) return;
  slots_cached_ -= Evictable(block);
  Remove(&WindowList(block), handle);
  block.is_loose = false;
  slots_cached_ += Evictable(block);
}

void PrefixIndex::UnpinWindow(Handle handle) {
  Block& block = blocks_[handle];
  if (block.slots.window_count() == 0) return;
  KAIROS_CHECK(block.window_pins > 0);
  if (--block.window_pins == 0) AddWarmest(&kept_, handle);
}

void PrefixIndex::LoosenWindow(const BlockKey& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  Block& block = blocks_[found->second];
  if (block.owners > 1 || block.is_loose || !IsListed(block)) return;
  slots_cached_ -= Evictable(block);
  Remove(&kept_, found->second);
  block.is_loose = true;
  AddWarmest(&loose_, found->second);
  slots_cached_ += Evictable(block);
}

// ---- Lists --------------------------------------------------------------------------------------

// Whether the block has window slots that are in one of the lists.
bool PrefixIndex::IsListed(const Block& block) const {
  return block.slots.window_count() > 0 && block.slots.has_windows() && block.window_pins == 0;
}

// Slots that evicting the block, or its loose windows, would free.
uint32_t PrefixIndex::Evictable(const Block& block) const {
  const BlockSlots& slots = block.slots;
  if (block.pins == 0) return slots.has_windows() ? slots.count : slots.window_from;
  return block.is_loose ? slots.window_count() : 0;
}

void PrefixIndex::AddWarmest(List* list, Handle handle) {
  Links& links = blocks_[handle].*(list->links);
  links = {list->warmest, kNone};
  (list->warmest == kNone ? list->coldest : (blocks_[list->warmest].*(list->links)).warmer) =
      handle;
  list->warmest = handle;
}

void PrefixIndex::Remove(List* list, Handle handle) {
  Links& links = blocks_[handle].*(list->links);
  (links.colder == kNone ? list->coldest : (blocks_[links.colder].*(list->links)).warmer) =
      links.warmer;
  (links.warmer == kNone ? list->warmest : (blocks_[links.warmer].*(list->links)).colder) =
      links.colder;
  links = {};
}

uint32_t PrefixIndex::SlotsOf(const BlockKey& key) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return 0;
  const BlockSlots& slots = blocks_[found->second].slots;
  return slots.has_windows() ? slots.count : slots.window_from;
}

bool PrefixIndex::EvictColdest() {
  if (unpinned_.coldest == kNone) return false;
  Evict(unpinned_.coldest);
  return true;
}

bool PrefixIndex::EvictWindow(List* list) {
  if (list->coldest == kNone) return false;
  const Handle handle = list->coldest;
  Block& block = blocks_[handle];
  slots_cached_ -= Evictable(block);
  Remove(list, handle);
  for (SlotId& slot : block.slots.windows()) pool_.Release(std::exchange(slot, kNoSlot));
  block.is_loose = false;
  slots_cached_ += Evictable(block);
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
  Block& block = blocks_[handle];
  slots_cached_ -= Evictable(block);
  Remove(&unpinned_, handle);
  --blocks_cached_;
  if (IsListed(block)) Remove(&WindowList(block), handle);
  by_key_.erase(block.key);
  for (const SlotId slot : block.slots.all()) {
    if (slot != kNoSlot) pool_.Release(slot);
  }
  block.slots = BlockSlots{};
  block.owners = 0;
  unused_.push_back(handle);
}

}  // namespace kairos
