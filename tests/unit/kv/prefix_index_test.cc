// SPDX-License-Identifier: Apache-2.0
#include "sidecar/kv/prefix_index.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>

#include "sidecar/kv/block_pool.h"

namespace kairos {
namespace {

std::vector<TokenId> Tokens(uint32_t count, TokenId first = 0) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

const BlockKey kRoot = HashBytes128("root", 4);
const BlockKey kOtherRoot = HashBytes128("other", 5);

BlockSlots OneSlot(SlotId slot) {
  BlockSlots slots;
  slots.ids[0] = slot;
  slots.count = slots.window_from = 1;
  return slots;
}

// Inserts every whole block of `tokens`; returns the pinned handles.
std::vector<PrefixIndex::Handle> InsertAll(PrefixIndex& index, BlockPool& pool,
                                           const BlockKey& root,
                                           std::span<const TokenId> tokens) {
  std::vector<PrefixIndex::Handle> handles;
  BlockKey parent = root;
  for (size_t at = 0; at + kBlockTokens <= tokens.size(); at += kBlockTokens) {
    const auto block = tokens.subspan(at, kBlockTokens);
    handles.push_back(index.InsertAndPin(parent, block, OneSlot(pool.Allocate())));
    parent = ChainKey(parent, block);
  }
  return handles;
}

TEST(BlockPool, HandsOutEverySlotOnceAndTakesItBack) {
  BlockPool pool(3);
  std::set<uint32_t> seen;

  for (int i = 0; i < 3; ++i) seen.insert(pool.Allocate().value);

  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(pool.Allocate(), kNoSlot);
  pool.Share(SlotId{1});
  pool.Release(SlotId{1});
  EXPECT_EQ(pool.slots_free(), 0u);
  pool.Release(SlotId{1});
  EXPECT_EQ(pool.Allocate(), SlotId{1});
}

TEST(BlockPoolDeathTest, AbortsOnDoubleRelease) {
  BlockPool pool(1);
  const SlotId slot = pool.Allocate();
  pool.Release(slot);

  EXPECT_DEATH(pool.Release(slot), "check failed");
}

TEST(PrefixIndex, FindsTheLongestSharedRun) {
  BlockPool pool(16);
  PrefixIndex index(pool);
  const auto stored = Tokens(4 * kBlockTokens);
  InsertAll(index, pool, kRoot, stored);

  auto asked = stored;
  asked[2 * kBlockTokens + 5] = -7;  // differs inside the third block

  EXPECT_EQ(index.MatchAndPin(kRoot, asked).blocks.size(), 2u);
  EXPECT_EQ(index.CountMatch(kRoot, stored), 4u);
  EXPECT_EQ(index.CountMatch(kRoot, std::span(stored).first(3 * kBlockTokens + 31)), 3u);
}

TEST(PrefixIndex, NeverMatchesAcrossRoots) {
  BlockPool pool(16);
  PrefixIndex index(pool);
  const auto stored = Tokens(2 * kBlockTokens);
  InsertAll(index, pool, kRoot, stored);

  EXPECT_EQ(index.CountMatch(kOtherRoot, stored), 0u);
}

TEST(PrefixIndex, NeverMatchesTheSameBlockAtAnotherPosition) {
  BlockPool pool(16);
  PrefixIndex index(pool);
  const auto stored = Tokens(2 * kBlockTokens);
  InsertAll(index, pool, kRoot, stored);

  EXPECT_EQ(index.CountMatch(kRoot, std::span(stored).subspan(kBlockTokens)), 0u);
}

TEST(PrefixIndex, KeepsOneCopyOfEqualBlocks) {
  BlockPool pool(4);
  PrefixIndex index(pool);
  const auto tokens = Tokens(kBlockTokens);

  const auto first = InsertAll(index, pool, kRoot, tokens);
  const auto second = InsertAll(index, pool, kRoot, tokens);

  EXPECT_EQ(first, second);
  EXPECT_EQ(pool.slots_free(), 3u);
}

TEST(PrefixIndex, EvictsColdestFirstAndNeverPinned) {
  BlockPool pool(4);
  PrefixIndex index(pool);
  const auto a = Tokens(kBlockTokens, 0);
  const auto b = Tokens(kBlockTokens, 1000);
  const auto c = Tokens(kBlockTokens, 2000);
  const auto pinned = InsertAll(index, pool, kRoot, a);
  index.Unpin(InsertAll(index, pool, kRoot, b)[0]);
  index.Unpin(InsertAll(index, pool, kRoot, c)[0]);
  index.Unpin(index.MatchAndPin(kRoot, b));  // b is warmer than c now

  EXPECT_TRUE(index.EvictColdest());
  EXPECT_EQ(index.CountMatch(kRoot, c), 0u);
  EXPECT_EQ(index.CountMatch(kRoot, b), 1u);
  EXPECT_TRUE(index.EvictColdest());
  EXPECT_FALSE(index.EvictColdest());
  EXPECT_EQ(index.CountMatch(kRoot, a), 1u);
  EXPECT_EQ(pool.slots_free(), 3u);
}

// Two slots a block, the second of layers that see 40 tokens: from whole blocks on, the last two.
constexpr BlockLayout kWindowed{.full_slots = 1, .window_slots = 1, .window_tokens = 40,
                                .ring_blocks = 8};

BlockSlots TwoSlots(BlockPool& pool, bool has_window = true) {
  BlockSlots slots;
  slots.ids[0] = pool.Allocate();
  slots.ids[1] = has_window ? pool.Allocate() : kNoSlot;
  slots.count = 2;
  slots.window_from = 1;
  return slots;
}

// A chain that nobody has pinned; of blocks in `without` there are no window slots.
std::vector<BlockKey> InsertChain(PrefixIndex& index, BlockPool& pool,
                                  std::span<const TokenId> tokens,
                                  const std::set<size_t>& without = {}) {
  PrefixIndex::Run run;
  std::vector<BlockKey> keys;
  for (size_t i = 0; i < tokens.size() / kBlockTokens; ++i) {
    run.blocks.push_back(index.InsertAndPin(i == 0 ? kRoot : keys.back(),
                                            tokens.subspan(i * kBlockTokens, kBlockTokens),
                                            TwoSlots(pool, !without.contains(i))));
    keys.push_back(index.key(run.blocks.back()));
  }
  run.windows_from = static_cast<uint32_t>(run.blocks.size());
  index.Unpin(std::move(run));
  return keys;
}

TEST(PrefixIndex, ARunEndsWhereTheLayersWithAWindowHaveAllTheySee) {
  BlockPool pool(64);
  PrefixIndex index(pool, kWindowed);
  const auto tokens = Tokens(8 * kBlockTokens);

  InsertChain(index, pool, tokens, {0, 1, 6});

  EXPECT_EQ(index.CountMatch(kRoot, tokens), 6u);  // blocks 4 and 5 are there
  EXPECT_EQ(index.CountMatch(kRoot, std::span(tokens).first(4 * kBlockTokens)), 4u);
  EXPECT_EQ(index.CountMatch(kRoot, std::span(tokens).first(3 * kBlockTokens)), 0u);
  EXPECT_EQ(index.CountMatch(kRoot, std::span(tokens).first(kBlockTokens)), 0u);
}

TEST(PrefixIndex, ComputedAgainABlockTakesTheWindowSlotsItLacks) {
  BlockPool pool(64);
  PrefixIndex index(pool, kWindowed);
  const auto tokens = Tokens(3 * kBlockTokens);
  InsertChain(index, pool, tokens, {1});
  ASSERT_EQ(index.CountMatch(kRoot, tokens), 1u);
  const uint32_t before = pool.slots_free();

  InsertChain(index, pool, tokens);

  EXPECT_EQ(index.CountMatch(kRoot, tokens), 3u);
  EXPECT_EQ(pool.slots_free(), before - 1);
  EXPECT_EQ(index.slots_cached(), 6u);
}

TEST(PrefixIndex, LooseWindowsGoBeforeBlocksAndNeverThoseOfARunThatIsPinned) {
  BlockPool pool(64);
  PrefixIndex index(pool, kWindowed);
  const auto tokens = Tokens(6 * kBlockTokens);
  const std::vector<BlockKey> keys = InsertChain(index, pool, tokens);
  const auto shared = Tokens(3 * kBlockTokens, 5000);
  const std::vector<BlockKey> shared_keys = InsertChain(index, pool, shared);
  for (const BlockKey& key : keys) index.AddOwner(key);
  for (int i = 0; i < 2; ++i) index.AddOwner(shared_keys[0]);
  EXPECT_FALSE(index.EvictLooseWindow());

  for (size_t i = 0; i < 4; ++i) index.LoosenWindow(keys[i]);
  index.LoosenWindow(shared_keys[0]);  // two sessions own it
  // One that rewinds to the fourth block needs the windows of the third and the fourth.
  PrefixIndex::Run run = index.MatchAndPin(kRoot, std::span(tokens).first(4 * kBlockTokens));
  ASSERT_EQ(run.blocks.size(), 4u);
  EXPECT_TRUE(index.EvictLooseWindow());
  EXPECT_TRUE(index.EvictLooseWindow());
  EXPECT_FALSE(index.EvictLooseWindow());
  EXPECT_EQ(index.CountMatch(kRoot, tokens), 6u);
  EXPECT_EQ(index.CountMatch(kRoot, std::span(tokens).first(2 * kBlockTokens)), 0u);
  EXPECT_EQ(index.CountMatch(kRoot, shared), 3u);

  // Nothing but the pinned run is left; what it does not see is gone already.
  while (index.EvictColdest()) {
  }
  EXPECT_FALSE(index.EvictKeptWindow());
  EXPECT_EQ(pool.slots_free(), 64u - 6u);
  index.Unpin(std::move(run));
  EXPECT_EQ(index.slots_cached(), 6u);
  while (index.EvictColdest()) {
  }
  EXPECT_EQ(pool.slots_free(), 64u);
}

TEST(PrefixIndex, WindowsThatAPinnedRunDoesNotSeeCanBeHad) {
  BlockPool pool(64);
  PrefixIndex index(pool, kWindowed);
  const auto tokens = Tokens(6 * kBlockTokens);
  InsertChain(index, pool, tokens);
  PrefixIndex::Run run = index.MatchAndPin(kRoot, tokens);

  for (int i = 0; i < 4; ++i) EXPECT_TRUE(index.EvictKeptWindow());

  EXPECT_FALSE(index.EvictKeptWindow());
  EXPECT_EQ(index.CountMatch(kRoot, tokens), 6u);
  index.Unpin(std::move(run));
}

// How often each block is pinned: the naive model of the test below.
class PinCounts {
 public:
  void Add(const std::vector<PrefixIndex::Handle>& run) {
    for (const PrefixIndex::Handle block : run) ++counts_[block];
  }
  void Remove(PrefixIndex::Handle block) {
    if (--counts_[block] == 0) counts_.erase(block);
  }
  size_t blocks() const { return counts_.size(); }

 private:
  std::map<PrefixIndex::Handle, uint32_t> counts_;
};

// Few distinct blocks, so that sharing is common.
std::vector<TokenId> RandomRun(std::mt19937& random) {
  std::vector<TokenId> tokens;
  for (uint32_t blocks = random() % 4 + 1; blocks > 0; --blocks) {
    const auto block = Tokens(kBlockTokens, static_cast<TokenId>(random() % 3 * 100));
    tokens.insert(tokens.end(), block.begin(), block.end());
  }
  return tokens;
}

// Random operations against a naive model: slots are conserved, pins hold, matches are true.
TEST(PrefixIndex, MatchesNaiveModel) {
  constexpr uint32_t kSeed = 20240611;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  constexpr uint32_t kSlots = 24;
  // At times all slots are pinned, at times most can be evicted.
  constexpr size_t kRunsPinnedMax = 12;
  BlockPool pool(kSlots);
  PrefixIndex index(pool);
  std::vector<std::vector<PrefixIndex::Handle>> pinned;
  PinCounts pins;
  int evicted = 0;
  int refused = 0;

  for (int step = 0; step < 20000; ++step) {
    if (random() % 3 != 0 && pinned.size() < kRunsPinnedMax) {
      const auto tokens = RandomRun(random);
      const BlockKey& root = random() % 2 ? kRoot : kOtherRoot;
      auto run = index.MatchAndPin(root, tokens).blocks;
      BlockKey parent = run.empty() ? root : index.key(run.back());
      for (size_t at = run.size() * kBlockTokens; at < tokens.size(); at += kBlockTokens) {
        while (pool.slots_free() == 0 && index.EvictColdest()) ++evicted;
        const SlotId slot = pool.Allocate();
        if (slot == kNoSlot) {
          ++refused;
          break;
        }
        const auto block = std::span(tokens).subspan(at, kBlockTokens);
        run.push_back(index.InsertAndPin(parent, block, OneSlot(slot)));
        parent = ChainKey(parent, block);
      }
      ASSERT_GE(index.CountMatch(root, tokens), run.size()) << "step " << step;
      pins.Add(run);
      pinned.push_back(std::move(run));
    } else if (!pinned.empty()) {
      std::swap(pinned[random() % pinned.size()], pinned.back());
      for (size_t i = pinned.back().size(); i-- > 0;) {
        index.Unpin(pinned.back()[i]);
        pins.Remove(pinned.back()[i]);
      }
      pinned.pop_back();
    }
    ASSERT_EQ(index.blocks_total(), pins.blocks() + index.blocks_cached()) << "step " << step;
    ASSERT_EQ(pool.slots_free() + index.blocks_total(), kSlots) << "step " << step;
  }
  EXPECT_GT(evicted, 1000);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace kairos
