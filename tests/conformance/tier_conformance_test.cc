// SPDX-License-Identifier: Apache-2.0
// What every tier must do, run against each implementation. A tier is filled through a small
// adaptor, since how bytes get in differs (slots on the device, copies below).
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>

#include "sidecar/tier/device_tier.h"

namespace kairos {
namespace {

constexpr uint64_t kBlockBytes = 1000;

struct TierUnderTest {
  std::unique_ptr<Tier> tier;
  // Puts the block in, unpinned or pinned; false when there is no room.
  std::function<bool(const BlockKey& parent, std::span<const TokenId>, bool pinned)> put;
};

TierUnderTest MakeDevice(uint32_t blocks) {
  auto device = std::make_unique<DeviceTier>(blocks, kBlockBytes);
  DeviceTier* raw = device.get();
  TierUnderTest made;
  made.tier = std::move(device);
  made.put = [raw](const BlockKey& parent, std::span<const TokenId> tokens, bool pinned) {
    if (!raw->MakeRoom(kBlockBytes)) return false;
    BlockSlots slots;
    slots.ids[0] = raw->pool().Allocate();
    slots.count = slots.window_from = 1;
    const auto block = raw->index().InsertAndPin(parent, tokens, slots);
    if (!pinned) raw->index().Unpin(block);
    return true;
  };
  return made;
}

struct Implementation {
  const char* name;
  TierUnderTest (*make)(uint32_t blocks);
};

class TierConformance : public testing::TestWithParam<Implementation> {
 protected:
  static std::vector<TokenId> Block(TokenId first) {
    std::vector<TokenId> tokens(kBlockTokens);
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  }
  const BlockKey root_ = HashBytes128("root", 4);
};

TEST_P(TierConformance, FindsWhatWasPutUnderItsRootOnly) {
  TierUnderTest made = GetParam().make(4);
  const auto tokens = Block(7);
  ASSERT_TRUE(made.put(root_, tokens, false));

  EXPECT_EQ(made.tier->CountMatch(root_, tokens), 1u);
  EXPECT_EQ(made.tier->CountMatch(HashBytes128("else", 4), tokens), 0u);
  EXPECT_TRUE(made.tier->Contains(ChainKey(root_, tokens)));
  EXPECT_FALSE(made.tier->Contains(root_));
}

TEST_P(TierConformance, StaysWithinItsBudgetToTheBlock) {
  TierUnderTest made = GetParam().make(4);
  for (TokenId i = 0; i < 20; ++i) {
    ASSERT_TRUE(made.put(root_, Block(100 * i), false));
    ASSERT_LE(made.tier->bytes_used(), made.tier->bytes_total());
  }

  EXPECT_EQ(made.tier->bytes_used(), 4 * kBlockBytes);
  EXPECT_EQ(made.tier->CountMatch(root_, Block(1900)), 1u);
  EXPECT_EQ(made.tier->CountMatch(root_, Block(0)), 0u);
}

TEST_P(TierConformance, NeverDropsAPinnedBlock) {
  TierUnderTest made = GetParam().make(3);
  ASSERT_TRUE(made.put(root_, Block(0), true));
  ASSERT_TRUE(made.put(root_, Block(100), true));
  for (TokenId i = 2; i < 9; ++i) ASSERT_TRUE(made.put(root_, Block(100 * i), false));

  EXPECT_EQ(made.tier->CountMatch(root_, Block(0)), 1u);
  EXPECT_EQ(made.tier->CountMatch(root_, Block(100)), 1u);
  EXPECT_FALSE(made.tier->MakeRoom(2 * kBlockBytes));
  EXPECT_TRUE(made.tier->MakeRoom(kBlockBytes));
}

TEST_P(TierConformance, AccountsReturnToTheStart) {
  constexpr uint32_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  TierUnderTest made = GetParam().make(16);
  for (int i = 0; i < 2000; ++i) {
    const auto tokens = Block(static_cast<TokenId>(random() % 40 * 100));
    ASSERT_TRUE(made.put(root_, tokens, false));
    ASSERT_EQ(made.tier->CountMatch(root_, tokens), 1u);
    ASSERT_LE(made.tier->bytes_cached(), made.tier->bytes_used());
  }

  EXPECT_TRUE(made.tier->MakeRoom(made.tier->bytes_total()));
  EXPECT_EQ(made.tier->bytes_used(), 0u);
  EXPECT_EQ(made.tier->bytes_cached(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Tiers, TierConformance,
                         testing::Values(Implementation{"Device", &MakeDevice}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kairos
