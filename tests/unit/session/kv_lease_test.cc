// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/kv_lease.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>

namespace kairos {
namespace {

const BlockKey kRoot = HashBytes128("root", 4);

std::vector<TokenId> Tokens(size_t count, TokenId first = 0) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

struct Memory {
  explicit Memory(uint32_t slots)
      : pool(slots), index(pool), leaser(pool, index, [this] { return DropTail(); }) {}

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
  memory.leaser.Settle(std::move(*first), log, &tail);

  auto next = Tokens(120);
  auto second = memory.Acquire(next, 130, &tail, GetParam());

  EXPECT_EQ(second->computed, 100u);
  memory.leaser.Settle(std::move(*second), next, &tail);
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
  memory.leaser.Settle(std::move(*first), log, &tail);

  auto changed = Tokens(60);
  changed[50] = -1;
  auto second = memory.Acquire(changed, 70, &tail, GetParam());

  EXPECT_EQ(second->computed, 50u);
  EXPECT_EQ(second->open_source[0], kNoSlot);
  memory.leaser.Settle(std::move(*second), changed, &tail);
}

TEST_P(KvLeaseTest, RecomputesFromTheBlocksFirstTokenWhenTheLogEndsInsideASealedBlock) {
  Memory memory(64);
  OpenBlock tail;
  const auto log = Tokens(100);
  auto first = memory.Acquire(log, 100, &tail, GetParam());
  memory.leaser.Settle(std::move(*first), log, &tail);

  const auto rewound = Tokens(50);
  auto second = memory.Acquire(rewound, 60, &tail, GetParam());

  EXPECT_EQ(second->computed, 32u);
  memory.leaser.Settle(std::move(*second), rewound, &tail);
}

TEST_P(KvLeaseTest, CopiesTheTailThatAForkShares) {
  Memory memory(64);
  OpenBlock parent;
  const auto log = Tokens(40);
  auto first = memory.Acquire(log, 40, &parent, GetParam());
  memory.leaser.Settle(std::move(*first), log, &parent);
  OpenBlock child = memory.leaser.ShareTail(parent);

  const auto next = Tokens(45);
  auto lease = memory.Acquire(next, 50, &child, GetParam());
  SequenceSpec spec;
  memory.leaser.FillSpec(*lease, &spec);

  EXPECT_EQ(lease->computed, 40u);
  EXPECT_EQ(spec.open_source[0], parent.slots[0]);
  const SlotId target = GetParam() == Fidelity::kExact ? spec.slots[2] : spec.open[0];
  EXPECT_NE(target, parent.slots[0]);
  memory.leaser.Settle(std::move(*lease), next, &child);
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
  memory.leaser.Settle(std::move(*running), log, &tail);
}

TEST_P(KvLeaseTest, DropsIdleTailsWhenNothingElseIsLeft) {
  Memory memory(4);
  OpenBlock idle;
  memory.idle_tails.push_back(&idle);
  const auto log = Tokens(10);
  auto first = memory.Acquire(log, 10, &idle, GetParam());
  memory.leaser.Settle(std::move(*first), log, &idle);
  ASSERT_FALSE(idle.empty());

  OpenBlock other;
  const auto wanted = Tokens(GetParam() == Fidelity::kExact ? 64 : 60, 900);
  auto second = memory.Acquire(wanted, static_cast<uint32_t>(wanted.size()), &other, GetParam());

  EXPECT_TRUE(second.has_value());
  EXPECT_TRUE(idle.empty());
  memory.leaser.Settle(std::move(*second), wanted, &other);
}

TEST_P(KvLeaseTest, ReusesNothingWhenAskedNotTo) {
  Memory memory(64);
  OpenBlock tail;
  const auto log = Tokens(100);
  auto first = memory.Acquire(log, 100, &tail, GetParam());
  memory.leaser.Settle(std::move(*first), log, &tail);

  auto second = memory.Acquire(log, 100, &tail, GetParam(), false);

  EXPECT_EQ(second->computed, 0u);
  EXPECT_TRUE(second->pinned.empty());
  memory.leaser.Settle(std::move(*second), log, &tail);
}

struct Agent {
  std::vector<TokenId> log;
  OpenBlock tail;
};

// What the engine wrote, by slot: the whole prefix of tokens that the block stands for.
class SlotContents {
 public:
  explicit SlotContents(Fidelity fidelity) : fidelity_(fidelity) {}

  uint32_t per_block() const { return fidelity_ == Fidelity::kExact ? 2 : 1; }

  // What `spec` reuses is there.
  void Check(const SequenceSpec& spec, std::span<const TokenId> log) {
    const uint32_t whole = spec.computed / kBlockTokens;
    for (uint32_t block = 0; block < whole; ++block) {
      ASSERT_EQ(held_[spec.slots[block * per_block()].value],
                Prefix(log, (block + 1) * kBlockTokens));
    }
    if (spec.computed % kBlockTokens == 0) return;
    const SlotId from =
        spec.open_source[0] != kNoSlot ? spec.open_source[0] : OpenSlot(spec, spec.computed);
    const std::vector<TokenId>& open = held_[from.value];
    ASSERT_GE(open.size(), spec.computed);
    ASSERT_TRUE(std::equal(log.begin(), log.begin() + spec.computed, open.begin()));
  }

  // The engine computes up to the token `computed`.
  void Write(const SequenceSpec& spec, std::span<const TokenId> log, uint32_t computed) {
    for (uint32_t block = spec.computed / kBlockTokens; block < computed / kBlockTokens; ++block) {
      held_[spec.slots[block * per_block()].value] = Prefix(log, (block + 1) * kBlockTokens);
    }
    if (computed % kBlockTokens == 0) return;
    held_[OpenSlot(spec, computed).value] = Prefix(log, computed);
  }

 private:
  static std::vector<TokenId> Prefix(std::span<const TokenId> log, uint32_t tokens) {
    return {log.begin(), log.begin() + tokens};
  }
  SlotId OpenSlot(const SequenceSpec& spec, uint32_t computed) const {
    return fidelity_ == Fidelity::kExact ? spec.slots[computed / kBlockTokens * 2] : spec.open[0];
  }

  Fidelity fidelity_;
  std::map<uint32_t, std::vector<TokenId>> held_;
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

// Random sessions against a model of what each slot holds: a reused slot always holds exactly the
// tokens it is reused for, and no slot is ever lost.
TEST_P(KvLeaseTest, NeverReusesASlotForTokensItDoesNotHold) {
  constexpr uint32_t kSeed = 77;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  constexpr uint32_t kSlots = 40;
  Memory memory(kSlots);
  std::vector<Agent> agents(5);
  for (Agent& agent : agents) memory.idle_tails.push_back(&agent.tail);
  SlotContents contents(GetParam());
  int leased = 0;

  for (int step = 0; step < 4000; ++step) {
    Agent& agent = agents[random() % agents.size()];
    ChangeLog(memory, agents, agent, random);
    const auto total = static_cast<uint32_t>(agent.log.size() + random() % 40);
    auto lease = memory.Acquire(agent.log, total, &agent.tail, GetParam());
    if (!lease) continue;
    ++leased;
    SequenceSpec spec;
    memory.leaser.FillSpec(*lease, &spec);
    ASSERT_EQ(spec.slots.size(),
              (total + kBlockTokens - 1) / kBlockTokens * contents.per_block());
    ASSERT_LT(spec.computed, agent.log.size());
    ASSERT_NO_FATAL_FAILURE(contents.Check(spec, agent.log)) << "step " << step;
    // A cancel may cut the computing short.
    const auto computed = static_cast<uint32_t>(
        spec.computed + random() % (agent.log.size() - spec.computed + 1));
    contents.Write(spec, agent.log, computed);
    memory.leaser.Settle(std::move(*lease), std::span(agent.log).first(computed), &agent.tail);
  }
  EXPECT_GT(leased, 1000);
  for (Agent& agent : agents) memory.leaser.ReleaseTail(&agent.tail);
  while (memory.index.EvictColdest()) {
  }
  EXPECT_EQ(memory.pool.slots_free(), kSlots);
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
