// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/kv_lease.h"

#include <algorithm>

#include "base/check.h"

namespace kairos {
namespace {

uint32_t BlocksFor(uint32_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }
uint32_t SlotsPerBlock(Fidelity fidelity) { return fidelity == Fidelity::kExact ? 2 : 1; }
// The 16-bit tail beside the sealed slots; exact sessions keep it in place.
uint32_t TailSlots(Fidelity fidelity) { return fidelity == Fidelity::kExact ? 0 : 2; }

}  // namespace

uint32_t KvLeaser::SlotsNeeded(uint32_t total_tokens, Fidelity fidelity) {
  return BlocksFor(total_tokens) * SlotsPerBlock(fidelity) + TailSlots(fidelity);
}

bool KvLeaser::MakeRoom(uint32_t slots) {
  while (pool_.slots_free() < slots) {
    if (!index_.EvictColdest() && !drop_idle_tail_()) return false;
  }
  return true;
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
  const auto reused_blocks = static_cast<uint32_t>(lease.pinned.size());
  lease.computed = reused_blocks * kBlockTokens;

  const uint32_t per_block = SlotsPerBlock(ask.fidelity);
  const uint32_t need =
      (BlocksFor(ask.total_tokens) - reused_blocks) * per_block + TailSlots(ask.fidelity);
  // The session's own tail must outlive the search for room, which may drop idle tails.
  OpenBlock own = std::move(*tail);
  *tail = OpenBlock{};
  if (!MakeRoom(need)) {
    // Nobody else can give anything now. Where its own tail is what is missing, the turn gives
    // that up: with a lease of all memory it would wait for itself.
    const bool own_frees = !own.empty() && pool_.users(own.slots[0]) == 1;
    if (pool_.slots_free() + (own_frees ? 2 : 0) < need) {
      *tail = std::move(own);
      Abandon(&lease);
      return std::nullopt;
    }
    ReleaseTail(&own);
  }
  const uint32_t blocks = BlocksFor(ask.total_tokens) - reused_blocks;
  for (uint32_t i = 0; i < blocks * per_block; ++i) lease.fresh.push_back(pool_.Allocate());
  if (ask.fidelity == Fidelity::kDefault) lease.open = {pool_.Allocate(), pool_.Allocate()};
  if (ask.reuse) ReuseTail(ask, &own, &lease);
  ReleaseTail(&own);
  lease.held = true;
  return lease;
}

void KvLeaser::ReuseTail(const Ask& ask, OpenBlock* tail, KvLease* lease) {
  if (tail->empty()) return;
  const BlockKey& here = lease->pinned.empty() ? lease->root : index_.key(lease->pinned.back());
  if (!(tail->parent == here)) return;
  const auto rest = ask.tokens.subspan(lease->computed);
  uint32_t equal = 0;
  while (equal < tail->tokens.size() && equal + 1 < rest.size() &&
         tail->tokens[equal] == rest[equal]) {
    ++equal;
  }
  if (equal == 0) return;
  lease->computed += equal;
  std::array<SlotId, 2> target = lease->open;
  if (lease->fidelity == Fidelity::kExact) target = {lease->fresh[0], lease->fresh[1]};
  if (pool_.users(tail->slots[0]) > 1) {
    // A fork shares this tail: the engine copies it before it writes.
    lease->open_source = tail->slots;
    tail->slots = {kNoSlot, kNoSlot};
    return;
  }
  pool_.Release(target[0]);
  pool_.Release(target[1]);
  if (lease->fidelity == Fidelity::kExact) {
    lease->fresh[0] = tail->slots[0];
    lease->fresh[1] = tail->slots[1];
  } else {
    lease->open = tail->slots;
  }
  tail->slots = {kNoSlot, kNoSlot};
}

uint32_t KvLeaser::Keepable(uint32_t computed, uint32_t kept) {
  if (kept >= computed) return computed;
  const bool in_open_block = kept / kBlockTokens == computed / kBlockTokens;
  return in_open_block ? kept : kept / kBlockTokens * kBlockTokens;
}

void KvLeaser::FillSpec(const KvLease& lease, SequenceSpec* spec) const {
  spec->fidelity = lease.fidelity;
  spec->computed = lease.computed;
  spec->slots.clear();
  for (const PrefixIndex::Handle block : lease.pinned) {
    for (const SlotId slot : index_.slots(block)) {
      if (slot != kNoSlot) spec->slots.push_back(slot);
    }
  }
  spec->slots.insert(spec->slots.end(), lease.fresh.begin(), lease.fresh.end());
  std::copy(lease.open.begin(), lease.open.end(), spec->open);
  std::copy(lease.open_source.begin(), lease.open_source.end(), spec->open_source);
}

std::vector<BlockKey> KvLeaser::Settle(KvLease&& lease, std::span<const TokenId> tokens,
                                       OpenBlock* tail) {
  KAIROS_CHECK(lease.held && tail->empty());
  const uint32_t per_block = SlotsPerBlock(lease.fidelity);
  const auto reused = static_cast<uint32_t>(lease.pinned.size());
  const auto whole = std::max(static_cast<uint32_t>(tokens.size()) / kBlockTokens, reused);
  std::vector<BlockKey> keys;
  for (const PrefixIndex::Handle block : lease.pinned) keys.push_back(index_.key(block));

  size_t used = 0;  // of lease.fresh
  bool chained = true;
  for (uint32_t i = reused; i < whole; ++i, used += per_block) {
    const std::array<SlotId, 2> slots{lease.fresh[used],
                                      per_block == 2 ? lease.fresh[used + 1] : kNoSlot};
    const auto block_tokens = tokens.subspan(uint64_t{i} * kBlockTokens, kBlockTokens);
    PrefixIndex::Handle block = PrefixIndex::kNone;
    if (chained) {
      block = index_.InsertAndPin(keys.empty() ? lease.root : keys.back(), block_tokens, slots);
    } else {
      for (const SlotId slot : slots) {
        if (slot != kNoSlot) pool_.Release(slot);
      }
    }
    chained = chained && block != PrefixIndex::kNone;
    if (!chained) continue;
    lease.pinned.push_back(block);
    keys.push_back(index_.key(block));
  }

  const auto rest = tokens.subspan(std::min<size_t>(tokens.size(), uint64_t{whole} * kBlockTokens));
  std::array<SlotId, 2> tail_slots = lease.open;
  if (lease.fidelity == Fidelity::kExact && used + 1 < lease.fresh.size()) {
    tail_slots = {lease.fresh[used], lease.fresh[used + 1]};
    used += 2;
  }
  if (!rest.empty() && chained && tail_slots[0] != kNoSlot) {
    tail->slots = tail_slots;
    tail->parent = keys.empty() ? lease.root : keys.back();
    tail->tokens.assign(rest.begin(), rest.end());
  } else if (tail_slots[0] != kNoSlot) {
    pool_.Release(tail_slots[0]);
    pool_.Release(tail_slots[1]);
  }
  lease.open = {kNoSlot, kNoSlot};
  lease.fresh.erase(lease.fresh.begin(), lease.fresh.begin() + static_cast<ptrdiff_t>(used));
  Abandon(&lease);
  return keys;
}

void KvLeaser::Abandon(KvLease* lease) {
  // Tail first, so that a session's last block is evicted before the ones it hangs on.
  for (size_t i = lease->pinned.size(); i-- > 0;) index_.Unpin(lease->pinned[i]);
  for (const SlotId slot : lease->fresh) pool_.Release(slot);
  for (const auto& pair : {lease->open, lease->open_source}) {
    for (const SlotId slot : pair) {
      if (slot != kNoSlot) pool_.Release(slot);
    }
  }
  *lease = KvLease{};
}

void KvLeaser::ReleaseTail(OpenBlock* tail) {
  for (const SlotId slot : tail->slots) {
    if (slot != kNoSlot) pool_.Release(slot);
  }
  *tail = OpenBlock{};
}

OpenBlock KvLeaser::ShareTail(const OpenBlock& tail) {
  for (const SlotId slot : tail.slots) {
    if (slot != kNoSlot) pool_.Share(slot);
  }
  return tail;
}

}  // namespace kairos
