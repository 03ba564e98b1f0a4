// SPDX-License-Identifier: Apache-2.0
// A turn that fits kv.memory gets its slots when nothing runs, whoever holds open blocks.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "sidecar/session/kv_lease.h"
#include "sidecar/session/session_router.h"

namespace kairos {
namespace {

const BlockKey kRoot = HashBytes128("root", 4);

std::vector<TokenId> Tokens(size_t count, TokenId first = 0) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// All of memory, for a turn of 55 tokens.
uint32_t TotalTokens(Fidelity fidelity) {
  return (fidelity == Fidelity::kExact ? 4 : 6) * kBlockTokens;
}

class KvRoomTest : public testing::TestWithParam<Fidelity> {
 protected:
  KvRoomTest()
      : pool_(8), index_(pool_), router_({}, {}), leaser_({}, pool_, index_, [this] {
          Session* coldest = router_.ColdestTail(nullptr);
          if (coldest != nullptr) leaser_.ReleaseTail(&coldest->tail);
          return coldest != nullptr;
        }) {}

  Session& NewSession() { return **router_.Create(0, "default"); }
  std::optional<KvLease> Acquire(const std::vector<TokenId>& tokens, uint32_t total,
                                 Session& session) {
    return leaser_.Acquire({kRoot, tokens, total, GetParam(), true}, &session.tail);
  }
  // A turn of `count` tokens that leaves an open block.
  void LeaveTail(Session& session, size_t count, TokenId first) {
    const auto log = Tokens(count, first);
    auto lease = Acquire(log, static_cast<uint32_t>(count), session);
    ASSERT_TRUE(lease.has_value());
    leaser_.Settle(std::move(*lease), log, static_cast<uint32_t>(log.size()), &session.tail);
    ASSERT_FALSE(session.tail.empty());
  }

  BlockPool pool_;
  PrefixIndex index_;
  SessionRouter router_;
  KvLeaser leaser_;
};

TEST_P(KvRoomTest, GivesUpItsOwnTailWhenTheTurnNeedsAllMemory) {
  ASSERT_EQ(leaser_.SlotsNeeded(TotalTokens(GetParam()), GetParam()), pool_.slots_total());
  Session& session = NewSession();
  LeaveTail(session, 50, 0);
  const auto next = Tokens(55);

  auto lease = Acquire(next, TotalTokens(GetParam()), session);

  ASSERT_TRUE(lease.has_value()) << "it would wait for itself";
  EXPECT_EQ(lease->computed, 32u) << "the sealed block is kept";
  leaser_.Settle(std::move(*lease), next, static_cast<uint32_t>(next.size()), &session.tail);
}

TEST_P(KvRoomTest, TakesTheTailOfAnotherTurnThatWaits) {
  Session& waiting = NewSession();
  LeaveTail(waiting, 10, 900);
  waiting.open_turn = 7;
  Session& session = NewSession();
  const auto next = Tokens(55);

  auto lease = Acquire(next, TotalTokens(GetParam()), session);

  ASSERT_TRUE(lease.has_value()) << "two turns would wait for each other";
  EXPECT_TRUE(waiting.tail.empty());
  leaser_.Settle(std::move(*lease), next, static_cast<uint32_t>(next.size()), &session.tail);
}

TEST_P(KvRoomTest, TakesTheTailsOfIdleSessionsFirst) {
  Session& waiting = NewSession();
  LeaveTail(waiting, 10, 900);
  waiting.open_turn = 7;
  Session& idle = NewSession();
  LeaveTail(idle, 10, 500);
  idle.idle_since_ns = 1'000;

  EXPECT_EQ(router_.ColdestTail(nullptr), &idle);
}

TEST_P(KvRoomTest, KeepsItsTailWhileARunningTurnHoldsTheRoom) {
  Session& session = NewSession();
  LeaveTail(session, 10, 0);
  Session& running = NewSession();
  const auto other = Tokens(40, 900);
  auto held = Acquire(other, 40, running);
  ASSERT_TRUE(held.has_value());
  const auto next = Tokens(15);

  EXPECT_FALSE(Acquire(next, TotalTokens(GetParam()), session).has_value());

  EXPECT_FALSE(session.tail.empty());
  leaser_.Settle(std::move(*held), other, static_cast<uint32_t>(other.size()), &running.tail);
}

INSTANTIATE_TEST_SUITE_P(Fidelities, KvRoomTest,
                         testing::Values(Fidelity::kDefault, Fidelity::kExact));

}  // namespace
}  // namespace kairos
