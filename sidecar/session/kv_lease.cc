// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/kv_lease.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kairos {
namespace {

uint32_t BlocksFor(uint32_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }
// Keys and values in one slot where the block is sealed, and in one each where it stays in 16 bits.
uint32_t Halves(Fidelity fidelity) { return fidelity == Fidelity::kExact ? 2 : 1; }

}  // namespace

uint32_t KvLeaser::SlotsNeeded(uint32_t total_tokens, Fidelity fidelity) const {
  const uint32_t blocks = BlocksFor(total_tokens);
  const uint32_t whole =
      blocks * layout_.full_slots + layout_.WindowBlocks(blocks) * layout_.window_slots;
  // The 16-bit tail beside the sealed slots; exact sessions keep it in place.
  const uint32_t tail = fidelity == Fidelity::kExact ? 0 : 2 * layout_.slots();
  return whole * Halves(fidelity) + tail;
}

// What the fewest can miss goes first: windows that nobody is known to need, cold blocks, and at
// last what others may want of the blocks that turns hold.
bool KvLeaser::MakeRoom(uint32_t slots) {
  while (pool_.slots_free() < slots) {
    if (!index_.EvictLooseWindow() && !index_.EvictColdest() && !index_.EvictKeptWindow() &&
        !drop_idle_tail_()) {
      return false;
    }
  }
  return true;
}

void KvLeaser::Allocate(uint32_t slots, std::vector<SlotId>* out) {
  for (uint32_t i = 0; i < slots; ++i) out->push_back(pool_.Allocate());
}

void KvLeaser::Release(std::vector<SlotId>* slots) {
  for (const SlotId slot : *slots) pool_.Release(slot);
  slots->clear();
}

std::optional<KvLease> KvLeaser::Acquire(const Ask& ask, OpenBlock* tail) {
  KAIROS_CHECK(!ask.tokens.empty() && ask.total_tokens >= ask.tokens.size());
  KvLease lease;
  lease.fidelity = ask.fidelity;
  lease.root = ask.root;
  // One token has to be computed for its logits, so the last one is never reused.
  if (ask.reuse) {
    lease.pinned = index_.MatchAndPin(ask.root, ask.tokens.first(ask.tokens.size() - 1));
  }
  const auto reused = static_cast<uint32_t>(lease.pinned.blocks.size());
  lease.computed = reused * kBlockTokens;
  lease.fresh_blocks = BlocksFor(ask.total_tokens) - reused;

  const uint32_t halves = Halves(ask.fidelity);
  const uint32_t full = lease.fresh_blocks * layout_.full_slots * halves;
  const uint32_t ring =
      std::min(lease.fresh_blocks, layout_.ring_blocks) * layout_.window_slots * halves;
  const uint32_t open = ask.fidelity == Fidelity::kExact ? 0 : 2 * layout_.slots();
  const uint32_t need = full + ring + open;
  // The session's own tail must outlive the search for room, which may drop idle tails.
  OpenBlock own = std::exchange(*tail, OpenBlock{});
  if (!MakeRoom(need)) {
    // Nobody else can give anything now. Where its own tail is what is missing, the turn gives
    // that up: with a lease of all memory it would wait for itself.
    const bool own_frees = !own.empty() && pool_.users(own.slots[0]) == 1;
    const auto freed = own_frees ? static_cast<uint32_t>(own.slots.size()) : 0;
    if (pool_.slots_free() + freed < need) {
      *tail = std::move(own);
      Abandon(&lease);
      return std::nullopt;
    }
    ReleaseTail(&own);
  }
  Allocate(full, &lease.fresh);
  Allocate(ring, &lease.ring);
  Allocate(open, &lease.open);
  if (ask.reuse) ReuseTail(ask, &own, &lease);
  ReleaseTail(&own);
  lease.held = true;
  return lease;
}

template <typename Lease, typename Use>
void KvLeaser::EachSlotOfFresh(Lease& lease, uint32_t block, Use&& use) const {
  const uint32_t halves = Halves(lease.fidelity);
  const uint32_t full = layout_.full_slots * halves;
  const uint32_t window = layout_.window_slots * halves;
  for (uint32_t i = 0; i < full; ++i) use(lease.fresh[block * full + i]);
  for (uint32_t i = 0; i < window; ++i) {
    use(lease.ring[block % layout_.ring_blocks * window + i]);
  }
}

void KvLeaser::ReuseTail(const Ask& ask, OpenBlock* tail, KvLease* lease) {
  if (tail->empty()) return;
  const BlockKey& here =
      lease->pinned.blocks.empty() ? lease->root : index_.key(lease->pinned.blocks.back());
  if (!(tail->parent == here)) return;
  const auto rest = ask.tokens.subspan(lease->computed);
  uint32_t equal = 0;
  while (equal < tail->tokens.size() && equal + 1 < rest.size() &&
         tail->tokens[equal] == rest[equal]) {
    ++equal;
  }
  if (equal == 0) return;
  lease->computed += equal;
  if (pool_.users(tail->slots[0]) > 1) {
    // A fork shares this tail: the engine copies it before it writes.
    lease->open_source = std::exchange(tail->slots, {});
    return;
  }
  if (lease->fidelity == Fidelity::kExact) {
    size_t i = 0;
    EachSlotOfFresh(*lease, 0, [&](SlotId& slot) { std::swap(slot, tail->slots[i++]); });
  } else {
    std::swap(lease->open, tail->slots);
  }
  Release(&tail->slots);
}

uint32_t KvLeaser::Keepable(uint32_t computed, uint32_t kept) {
  if (kept >= computed) return computed;
  const bool in_open_block = kept / kBlockTokens == computed / kBlockTokens;
  return in_open_block ? kept : kept / kBlockTokens * kBlockTokens;
}

void KvLeaser::FillSpec(const KvLease& lease, SequenceSpec* spec) const {
  spec->fidelity = lease.fidelity;
  spec->computed = lease.computed;
  spec->kin = lease.root;
  spec->slots.clear();
  for (const PrefixIndex::Handle block : lease.pinned.blocks) {
    const auto slots = index_.slots(block).all();
    spec->slots.insert(spec->slots.end(), slots.begin(), slots.end());
  }
  for (uint32_t i = 0; i < lease.fresh_blocks; ++i) {
    EachSlotOfFresh(lease, i, [&](SlotId slot) { spec->slots.push_back(slot); });
  }
  spec->open = lease.open;
  spec->open_source = lease.open_source;
}

std::vector<BlockKey> KvLeaser::Settle(KvLease&& lease, std::span<const TokenId> tokens,
                                       uint32_t computed, OpenBlock* tail) {
  KAIROS_CHECK(lease.held && tail->empty() && computed >= tokens.size());
  const bool exact = lease.fidelity == Fidelity::kExact;
  const auto reused = static_cast<uint32_t>(lease.pinned.blocks.size());
  const auto whole = std::max(static_cast<uint32_t>(tokens.size()) / kBlockTokens, reused);
  // Fresh blocks whose slots the engine wrote: in 16 bits also of the one that is not full.
  const uint32_t written =
      std::max(exact ? BlocksFor(computed) : computed / kBlockTokens, reused) - reused;
  std::vector<BlockKey> keys;
  for (const PrefixIndex::Handle block : lease.pinned.blocks) keys.push_back(index_.key(block));

  // What is handed over here is taken out of the lease, and Abandon releases the rest.
  const auto take = [&](uint32_t block) {
    BlockSlots slots;
    slots.window_from = layout_.full_slots * Halves(lease.fidelity);
    const bool has_windows = block + layout_.ring_blocks >= written;
    EachSlotOfFresh(lease, block, [&](SlotId& slot) {
      const bool is_there = slots.count < slots.window_from || has_windows;
      slots.ids[slots.count++] = is_there ? std::exchange(slot, kNoSlot) : kNoSlot;
    });
    return slots;
  };
  PrefixIndex::Run added;
  bool chained = true;
  for (uint32_t i = reused; i < whole && chained; ++i) {
    const auto block_tokens = tokens.subspan(uint64_t{i} * kBlockTokens, kBlockTokens);
    const PrefixIndex::Handle block = index_.InsertAndPin(
        keys.empty() ? lease.root : keys.back(), block_tokens, take(i - reused));
    chained = block != PrefixIndex::kNone;
    if (!chained) break;
    added.blocks.push_back(block);
    keys.push_back(index_.key(block));
  }

  const auto rest = tokens.subspan(std::min<size_t>(tokens.size(), uint64_t{whole} * kBlockTokens));
  if (!rest.empty() && chained) {
    if (exact) {
      const BlockSlots slots = take(whole - reused);
      tail->slots.assign(slots.all().begin(), slots.all().end());
    } else {
      tail->slots = std::exchange(lease.open, {});
    }
    tail->parent = keys.empty() ? lease.root : keys.back();
    tail->tokens.assign(rest.begin(), rest.end());
  }
  added.windows_from = static_cast<uint32_t>(added.blocks.size());
  index_.Unpin(std::move(added));
  Abandon(&lease);
  return keys;
}

void KvLeaser::Abandon(KvLease* lease) {
  index_.Unpin(std::move(lease->pinned));
  for (const auto* slots : {&lease->fresh, &lease->ring, &lease->open, &lease->open_source}) {
    for (const SlotId slot : *slots) {
      if (slot != kNoSlot) pool_.Release(slot);
    }
  }
  *lease = KvLease{};
}

void KvLeaser::ReleaseTail(OpenBlock* tail) {
  Release(&tail->slots);
  *tail = OpenBlock{};
}

OpenBlock KvLeaser::ShareTail(const OpenBlock& tail) {
  for (const SlotId slot : tail.slots) pool_.Share(slot);
  return tail;
}

}  // namespace kairos
