// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/draft_kv.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kairos {
namespace {

BlockLayout LayoutWithoutWindows(const KvGeometry& geometry) {
  BlockLayout layout;
  layout.full_slots = geometry.slots_per_block();
  return layout;
}

}  // namespace

DraftKv::DraftKv(const KvArena& arena)
    : block_slots_(arena.geometry().slots_per_block()),
      pool_(arena.slots()),
      index_(pool_, LayoutWithoutWindows(arena.geometry())) {}

BlockKey DraftKv::ParentOf(const BlockKey& kin, const DraftContext& context) const {
  return context.whole.blocks.empty() ? kin : index_.key(context.whole.blocks.back());
}

bool DraftKv::Allocate(uint32_t slots, std::vector<SlotId>* out) {
  while (out->size() < slots) {
    const SlotId slot = pool_.Allocate();
    if (slot != kNoSlot) {
      out->push_back(slot);
    } else if (!index_.EvictColdest()) {
      return false;
    }
  }
  return true;
}

void DraftKv::ReleaseUnfinished(DraftContext* context) {
  const size_t whole = context->whole.blocks.size() * block_slots_;
  for (size_t i = whole; i < context->slots.size(); ++i) pool_.Release(context->slots[i]);
  context->slots.resize(std::min(whole, context->slots.size()));
  for (const SlotId slot : context->open) pool_.Release(slot);
  context->open.clear();
}

void DraftKv::Extend(const BlockKey& kin, std::span<const TokenId> tokens, DraftContext* context) {
  const uint32_t from = WholeTokens(*context);
  if (context->computed != from || !context->ahead.empty() || tokens.size() <= from + 1) return;
  PrefixIndex::Run run = index_.MatchAndPin(ParentOf(kin, *context),
                                            tokens.subspan(from, tokens.size() - from - 1));
  if (run.blocks.empty()) return;
  ReleaseUnfinished(context);
  for (const PrefixIndex::Handle block : run.blocks) {
    context->whole.blocks.push_back(block);
    const auto slots = index_.slots(block).all();
    context->slots.insert(context->slots.end(), slots.begin(), slots.end());
  }
  context->computed = WholeTokens(*context);
}

bool DraftKv::Reserve(uint32_t tokens, DraftContext* context) {
  const uint32_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  return Allocate(2 * block_slots_, &context->open) &&
         Allocate(blocks * block_slots_, &context->slots);
}

void DraftKv::Store(const BlockKey& kin, std::span<const TokenId> tokens, uint32_t computed,
                    DraftContext* context) {
  KAIROS_CHECK(computed <= tokens.size());
  context->computed = computed;
  while (WholeTokens(*context) + kBlockTokens <= computed) {
    const uint32_t from = WholeTokens(*context);
    const size_t first = context->whole.blocks.size() * block_slots_;
    BlockSlots block;
    block.count = block_slots_;
    block.window_from = block_slots_;
    std::copy_n(context->slots.begin() + static_cast<ptrdiff_t>(first), block_slots_,
                block.ids.begin());
    const PrefixIndex::Handle handle = index_.InsertAndPin(
        ParentOf(kin, *context), tokens.subspan(from, kBlockTokens), block);
    if (handle == PrefixIndex::kNone) {
      // Another block has this key: a collision of 128 bits. What follows cannot be found by it.
      context->slots.erase(context->slots.begin() + static_cast<ptrdiff_t>(first),
                           context->slots.begin() + static_cast<ptrdiff_t>(first + block_slots_));
      context->computed = from;
      return;
    }
    context->whole.blocks.push_back(handle);
    const auto slots = index_.slots(handle).all();  // of an equal block, where there was one
    std::copy(slots.begin(), slots.end(), context->slots.begin() + static_cast<ptrdiff_t>(first));
  }
}

void DraftKv::Release(DraftContext* context) {
  ReleaseUnfinished(context);
  // Windows are never pinned here: they count among the slots of layers that see everything.
  index_.Unpin(std::move(context->whole));
  *context = DraftContext{};
}

}  // namespace kairos
