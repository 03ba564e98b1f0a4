// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/kv_lease.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "tests/support/slot_contents.h"

namespace kairos {
namespace {

const BlockKey kRoot = HashBytes128("root", 4);

std::vector<TokenId> Tokens(size_t count, TokenId first = 0) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

struct Memory {
  explicit Memory(uint32_t slots, const BlockLayout& layout = {})
      : pool(slots),
        index(pool, layout),
        leaser(layout, pool, index, [this] { return DropTail(); }) {}

  bool DropTail() {
    for (OpenBlock* tail : idle_tails) {
      if (tail->empty()) continue;
      leaser.ReleaseTail(tail);
      return true;
    }
    return false;
  }

  std::optional<KvLease> Acquire(std::span<const TokenId> tokens, uint32_t total, OpenBlock* tail,
                                 Fidelity fidelity = Fidelity::kDefault, bool reuse = true) {
    return leaser.Acquire({kRoot, tokens, total, fidelity, reuse}, tail);
  }

  BlockPool pool;
  PrefixIndex index;
  KvLeaser leaser;
  std::vector<OpenBlock*> idle_tails;
};

class KvLeaseTest : public testing::TestWithParam<Fidelity> {};

TEST_P(KvLeaseTest, ReusesEverythingButTheLastTokenOfAnUnchangedLog) {
  Memory memory(64);
  OpenBlock tail;
  const auto log = Tokens(100);
  auto first = memory.Acquire(log, 110, &tail, GetParam());
  memory.leaser.Settle(std::move(*first), log, static_cast<uint32_t>(log.size()), &tail);

  auto next = Tokens(120);
  auto second = memory.Acquire(next, 130, &tail, GetParam());

  EXPECT_EQ(second->computed, 100u);
  memory.leaser.Settle(std::move(*second), next, static_cast<uint32_t>(next.size()), &tail);
  memory.leaser.ReleaseTail(&tail);
  while (memory.index.EvictColdest()) {
  }
  EXPECT_EQ(memory.pool.slots_free(), 64u);
}

TEST_P(KvLeaseTest, KeepsTheEqualPartOfTheOpenBlockAfterARewind) {
  Memory memory(64);
  OpenBlock tail;
  const auto log = Tokens(60);
  auto first = memory.Acquire(log, 60, &tail, GetParam());
  memory.leaser.Settle(std::move(*first), log, static_cast<uint32_t>(log.size()), &tail);

  auto changed = Tokens(60);
  changed[50] = -1;
  auto second = memory.Acquire(changed, 70, &tail, GetParam());

  EXPECT_EQ(second->computed, 50u);
  EXPECT_TRUE(second->open_source.empty());
  memory.leaser.Settle(std::move(*second), changed, static_cast<uint32_t>(changed.size()), &tail);
}

TEST_P(KvLeaseTest, RecomputesFromTheBlocksFirstTokenWhenTheLogEndsInsideASealedBlock) {
  Memory memory(64);
  OpenBlock tail;
  const auto log = Tokens(100);
  auto first = memory.Acquire(log, 100, &tail, GetParam());
  memory.leaser.Settle(std::move(*first), log, static_cast<uint32_t>(log.size()), &tail);

  const auto rewound = Tokens(50);
  auto second = memory.Acquire(rewound, 60, &tail, GetParam());

  EXPECT_EQ(second->computed, 32u);
  memory.leaser.Settle(std::move(*second), rewound, static_cast<uint32_t>(rewound.size()), &tail);
}

TEST_P(KvLeaseTest, CopiesTheTailThatAForkShares) {
  Memory memory(64);
  OpenBlock parent;
  const auto log = Tokens(40);
  auto first = memory.Acquire(log, 40, &parent, GetParam());
  memory.leaser.Settle(std::move(*first), log, static_cast<uint32_t>(log.size()), &parent);
  OpenBlock child = memory.leaser.ShareTail(parent);

  const auto next = Tokens(45);
  auto lease = memory.Acquire(next, 50, &child, GetParam());
  SequenceSpec spec;
  memory.leaser.FillSpec(*lease, &spec);

  EXPECT_EQ(lease->computed, 40u);
  EXPECT_EQ(spec.open_source[0], parent.slots[0]);
  const SlotId target = GetParam() == Fidelity::kExact ? spec.slots[2] : spec.open[0];
  EXPECT_NE(target, parent.slots[0]);
  memory.leaser.Settle(std::move(*lease), next, static_cast<uint32_t>(next.size()), &child);
  EXPECT_EQ(memory.pool.users(parent.slots[0]), 1u);
}

TEST_P(KvLeaseTest, ChangesNothingWhenThereIsNoRoom) {
  Memory memory(8);
  OpenBlock tail;
  const auto log = Tokens(40);
  auto running = memory.Acquire(log, 40, &tail, GetParam());
  const uint32_t free = memory.pool.slots_free();

  OpenBlock other;
  const auto large = Tokens(31 * kBlockTokens, 5000);

  EXPECT_FALSE(memory.Acquire(large, 31 * kBlockTokens, &other, GetParam()).has_value());
  EXPECT_EQ(memory.pool.slots_free(), free);
  memory.leaser.Settle(std::move(*running), log, static_cast<uint32_t>(log.size()), &tail);
}

TEST_P(KvLeaseTest, DropsIdleTailsWhenNothingElseIsLeft) {
  Memory memory(4);
  OpenBlock idle;
  memory.idle_tails.push_back(&idle);
  const auto log = Tokens(10);
  auto first = memory.Acquire(log, 10, &idle, GetParam());
  memory.leaser.Settle(std::move(*first), log, static_cast<uint32_t>(log.size()), &idle);
  ASSERT_FALSE(idle.empty());

  OpenBlock other;
  const auto wanted = Tokens(GetParam() == Fidelity::kExact ? 64 : 60, 900);
  auto second = memory.Acquire(wanted, static_cast<uint32_t>(wanted.size()), &other, GetParam());

  EXPECT_TRUE(second.has_value());
  EXPECT_TRUE(idle.empty());
  memory.leaser.Settle(std::move(*second), wanted, static_cast<uint32_t>(wanted.size()), &other);
}

TEST_P(KvLeaseTest, ReusesNothingWhenAskedNotTo) {
  Memory memory(64);
  OpenBlock tail;
  const auto log = Tokens(100);
  auto first = memory.Acquire(log, 100, &tail, GetParam());
  memory.leaser.Settle(std::move(*first), log, static_cast<uint32_t>(log.size()), &tail);

  auto second = memory.Acquire(log, 100, &tail, GetParam(), false);

  EXPECT_EQ(second->computed, 0u);
  EXPECT_TRUE(second->pinned.blocks.empty());
  memory.leaser.Settle(std::move(*second), log, static_cast<uint32_t>(log.size()), &tail);
}

struct Agent {
  std::vector<TokenId> log;
  OpenBlock tail;
};

// Rewinds the log, makes it a fork of another's, or neither; then it grows.
void ChangeLog(Memory& memory, std::vector<Agent>& agents, Agent& agent, std::mt19937& random) {
  const uint32_t act = random() % 6;
  if (act == 0) agent.log.resize(random() % (agent.log.size() + 1));
  if (act == 1) {
    const Agent& source = agents[random() % agents.size()];
    if (&source != &agent) {
      memory.leaser.ReleaseTail(&agent.tail);
      agent.log = source.log;
      agent.tail = memory.leaser.ShareTail(source.tail);
    }
  }
  if (agent.log.size() > 150) agent.log.resize(20);
  for (uint32_t added = random() % 50 + 1; added > 0; --added) {
    agent.log.push_back(static_cast<TokenId>(random() % 2));
  }
}

constexpr uint32_t kChunkTokens = 48;
constexpr BlockLayout kWindowed{.full_slots = 1, .window_slots = 2, .window_tokens = 70,
                                .ring_blocks = (70 + kChunkTokens + 64) / 32};

// Random sessions against a model of what each slot holds: a reused slot always holds exactly the
// tokens it is reused for, none is written over while it is seen, and no slot is ever lost.
TEST_P(KvLeaseTest, NeverReusesASlotForTokensItDoesNotHold) {
  constexpr uint32_t kSeed = 77;
  SCOPED_TRACE(kSeed);
  for (const BlockLayout& layout : {BlockLayout{}, kWindowed}) {
    std::mt19937 random(kSeed);
    const uint32_t slots = 40 * layout.slots();
    Memory memory(slots, layout);
    std::vector<Agent> agents(5);
    for (Agent& agent : agents) memory.idle_tails.push_back(&agent.tail);
    SlotContents contents(layout, kChunkTokens);
    int leased = 0;
    uint64_t reused = 0;

    for (int step = 0; step < 4000; ++step) {
      Agent& agent = agents[random() % agents.size()];
      ChangeLog(memory, agents, agent, random);
      const auto total = static_cast<uint32_t>(agent.log.size() + random() % 300);
      auto lease = memory.Acquire(agent.log, total, &agent.tail, GetParam());
      if (!lease) continue;
      ++leased;
      SequenceSpec spec;
      memory.leaser.FillSpec(*lease, &spec);
      ASSERT_EQ(spec.slots.size(),
                (total + kBlockTokens - 1) / kBlockTokens * contents.PerBlock(spec));
      ASSERT_LT(spec.computed, agent.log.size());
      ASSERT_LE(lease->slots_taken(), memory.leaser.SlotsNeeded(total, GetParam()));
      reused += spec.computed;
      // What is generated is part of the log afterwards, but for what a cut takes off again.
      std::vector<TokenId> said = agent.log;
      for (uint32_t i = random() % (total - agent.log.size() + 1); i > 0; --i) {
        said.push_back(static_cast<TokenId>(random() % 2));
      }
      ASSERT_NO_FATAL_FAILURE(contents.CheckReuse(spec, said)) << "step " << step;
      // A cancel may cut the computing short.
      const auto computed =
          static_cast<uint32_t>(spec.computed + random() % (said.size() - spec.computed + 1));
      ASSERT_NO_FATAL_FAILURE(contents.Compute(spec, said, computed)) << "step " << step;
      uint32_t kept = computed;
      if (random() % 8 == 0) {
        kept = std::max(spec.computed / kBlockTokens * kBlockTokens,
                        KvLeaser::Keepable(computed, random() % (computed + 1)));
      }
      agent.log.assign(said.begin(), said.begin() + std::max<size_t>(kept, 1));
      const std::vector<BlockKey> keys = memory.leaser.Settle(
          std::move(*lease), std::span(agent.log).first(kept), computed, &agent.tail);
      const uint32_t seen = layout.FirstSeen(static_cast<uint32_t>(keys.size()));
      for (uint32_t i = 0; i < seen && random() % 2 == 0; ++i) memory.index.LoosenWindow(keys[i]);
    }
    EXPECT_GT(leased, 1000);
    EXPECT_GT(reused, 50'000u);
    for (Agent& agent : agents) memory.leaser.ReleaseTail(&agent.tail);
    while (memory.index.EvictColdest()) {
    }
    EXPECT_EQ(memory.pool.slots_free(), slots);
    EXPECT_EQ(memory.index.slots_cached(), 0u);
  }
}

// A turn that needs all of memory gets it, whatever windows its own blocks still have.
TEST_P(KvLeaseTest, ALongSessionWithWindowsFitsWhereItsLayoutSaysSo) {
  OpenBlock tail;
  std::vector<TokenId> log;
  const uint32_t most = 900;
  const uint32_t slots = Memory(1, kWindowed).leaser.SlotsNeeded(most, GetParam());
  EXPECT_LT(slots, Memory(1, {.full_slots = 3}).leaser.SlotsNeeded(most, GetParam()));
  Memory memory(slots, kWindowed);
  memory.idle_tails.push_back(&tail);
  SlotContents contents(kWindowed, kChunkTokens);
  while (log.size() < most) {
    const auto more =
        Tokens(std::min<size_t>(37, most - log.size()), static_cast<TokenId>(log.size()));
    log.insert(log.end(), more.begin(), more.end());
    const auto total = static_cast<uint32_t>(log.size());
    auto lease = memory.Acquire(log, total, &tail, GetParam());
    ASSERT_TRUE(lease.has_value()) << log.size();
    EXPECT_GE(lease->computed + 37 + kBlockTokens, log.size()) << "it is gone on from";
    SequenceSpec spec;
    memory.leaser.FillSpec(*lease, &spec);
    ASSERT_NO_FATAL_FAILURE(contents.CheckReuse(spec, log));
    ASSERT_NO_FATAL_FAILURE(contents.Compute(spec, log, total));
    memory.leaser.Settle(std::move(*lease), log, total, &tail);
  }
  memory.leaser.ReleaseTail(&tail);
}

INSTANTIATE_TEST_SUITE_P(Fidelities, KvLeaseTest,
                         testing::Values(Fidelity::kDefault, Fidelity::kExact),
                         [](const auto& info) {
                           return info.param == Fidelity::kExact ? "Exact" : "Default";
                         });

TEST(KvLeaser, ACutKeepsTheOpenBlockOnlyWhereTheCutIsInIt) {
  EXPECT_EQ(KvLeaser::Keepable(40, 50), 40u);
  EXPECT_EQ(KvLeaser::Keepable(40, 35), 35u);
  EXPECT_EQ(KvLeaser::Keepable(70, 35), 32u);
  EXPECT_EQ(KvLeaser::Keepable(64, 40), 32u);  // the second block is sealed
  EXPECT_EQ(KvLeaser::Keepable(31, 7), 7u);
  EXPECT_EQ(KvLeaser::Keepable(64, 31), 0u);
}

}  // namespace
}  // namespace kairos
