// SPDX-License-Identifier: Apache-2.0
// Who gets KV slots when many want them: nobody is starved, and no client takes all while others
// are there.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/sidecar_sim.h"

namespace kairos {
namespace {

constexpr AttachmentId kGreedy{1};
constexpr AttachmentId kNeighbour{2};
constexpr uint32_t kSlots = 64;
// 20 slots: a turn of 18 blocks and its open block.
constexpr uint32_t kLargeTokens = 500;
constexpr uint32_t kSmallTokens = 8;

ChatMessage Said(const std::string& text) {
  ChatMessage message;
  message.role = "user";
  message.content = text;
  return message;
}

void Attach(SidecarSim& sim, AttachmentId client) {
  Request request = SidecarSim::Operation(RequestKind::kAttach, SessionId{});
  request.attachment = client;
  sim.Send(std::move(request));
}

RequestId SendTurn(SidecarSim& sim, AttachmentId client, uint32_t max_tokens) {
  Request request = SidecarSim::TurnOf(SessionId{}, {Said("go on")}, max_tokens,
                                       KAIROS_TURN_NO_REUSE);
  request.attachment = client;
  return sim.Send(std::move(request));
}

TEST(FairShare, ClientThatWantsAllLeavesRoomForItsNeighbour) {
  SidecarSim sim(kSlots);
  Attach(sim, kGreedy);
  Attach(sim, kNeighbour);
  sim.engine().held = true;
  for (int i = 0; i < 20; ++i) SendTurn(sim, kGreedy, kLargeTokens);
  sim.Rounds(20);
  const int greedy = sim.engine().submitted;
  EXPECT_GT(greedy, 0);

  SendTurn(sim, kNeighbour, kSmallTokens);
  sim.Rounds(20);

  EXPECT_EQ(sim.engine().submitted, greedy + 1) << "it runs although no turn has ended";
}

TEST(FairShare, ClientThatIsAloneMayHaveAll) {
  SidecarSim sim(kSlots);
  Attach(sim, kGreedy);
  sim.engine().held = true;
  for (int i = 0; i < 20; ++i) SendTurn(sim, kGreedy, kLargeTokens);
  sim.Rounds(20);

  EXPECT_EQ(sim.engine().submitted, 3);
}

TEST(FairShare, OneTurnOfAnySizeThatFitsMayRun) {
  SidecarSim sim(kSlots);
  Attach(sim, kGreedy);
  Attach(sim, kNeighbour);
  sim.engine().held = true;
  SendTurn(sim, kGreedy, 1800);
  sim.Rounds(20);

  EXPECT_EQ(sim.engine().submitted, 1);
}

TEST(FairShare, LargeTurnIsNotStarvedBySmallOnesThatComeLater) {
  SidecarSim sim(kSlots);
  sim.engine().held = true;
  for (int i = 0; i < 3; ++i) SendTurn(sim, kGreedy, kLargeTokens);
  sim.Rounds(20);
  ASSERT_EQ(sim.engine().submitted, 3) << "no room for a fourth";
  const RequestId large = SendTurn(sim, kGreedy, kLargeTokens);
  sim.Rounds(20);
  ASSERT_EQ(sim.engine().submitted, 3);

  // There is room for these, but not before the one that waits.
  for (int i = 0; i < 10; ++i) SendTurn(sim, kNeighbour, kSmallTokens);
  sim.Rounds(20);

  EXPECT_EQ(sim.engine().submitted, 3);
  sim.engine().held = false;
  sim.Rounds(2000);
  EXPECT_TRUE(sim.outcome(large).final());
}

TEST(FairShare, WaitingClientsTakeTurns) {
  SidecarSim sim(kSlots);
  sim.engine().held = true;
  for (int i = 0; i < 3; ++i) SendTurn(sim, kGreedy, kLargeTokens);
  sim.Rounds(20);
  std::vector<RequestId> greedy;
  for (int i = 0; i < 12; ++i) greedy.push_back(SendTurn(sim, kGreedy, kLargeTokens));
  sim.Rounds(20);
  const RequestId neighbour = SendTurn(sim, kNeighbour, kLargeTokens);
  sim.Rounds(20);

  sim.engine().held = false;
  const auto done = [&] {
    return std::count_if(greedy.begin(), greedy.end(),
                         [&](RequestId turn) { return sim.outcome(turn).final(); });
  };
  while (sim.outcome(neighbour).replies.size() < 2 && done() < 12) sim.Round();

  EXPECT_LT(done(), 4) << "twelve waited before it, and one of them goes first";
}

TEST(FairShare, DepartedClientNoLongerCounts) {
  SidecarSim sim(kSlots);
  Attach(sim, kGreedy);
  Attach(sim, kNeighbour);
  Request leave = SidecarSim::Operation(RequestKind::kDetach, SessionId{});
  leave.attachment = kNeighbour;
  sim.Send(std::move(leave));
  sim.engine().held = true;
  for (int i = 0; i < 20; ++i) SendTurn(sim, kGreedy, kLargeTokens);
  sim.Rounds(20);

  EXPECT_EQ(sim.engine().submitted, 3);
}

}  // namespace
}  // namespace kairos
