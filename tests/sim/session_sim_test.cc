// SPDX-License-Identifier: Apache-2.0
// What is done to a session between its turns and beside them, through the real conductor.
#include "tests/sim/sidecar_sim.h"

namespace kairos {
namespace {

ChatMessage User(std::string content) { return {"user", std::move(content), "", "", ""}; }

Request ContextWrite(SessionId session, std::string json, int64_t if_version = -1) {
  Request request = SidecarSim::Operation(RequestKind::kContextWrite, session);
  request.json = std::move(json);
  request.if_version = if_version;
  return request;
}

TEST(SessionSim, ATaskContextWrittenBeforeTheFirstTurnSurvivesIt) {
  SidecarSim sim;
  const SessionId session = sim.Create();
  const std::string written = R"({"goal":"Book a hotel","facts":[{"text":"vegetarian"}]})";
  ASSERT_EQ(sim.Run(ContextWrite(session, written)).last()->version, 1u);

  ASSERT_TRUE(sim.Play(session, {User("Hi. See /etc/hosts")}).final());

  const std::string context =
      sim.Run(SidecarSim::Operation(RequestKind::kContextRead, session)).last()->text;
  EXPECT_NE(context.find(R"("goal":"Book a hotel")"), std::string::npos) << context;
  EXPECT_NE(context.find("vegetarian"), std::string::npos) << context;
}

TEST(SessionSim, OfTwoContextWritesOfOneVersionTheLaterIsStaleAlsoWhileTheFirstIsUnderWay) {
  SidecarSim sim;
  const SessionId session = sim.Play(SessionId{}, {User("plan")}).last()->session;
  const RequestId first = sim.Send(ContextWrite(session, R"({"goal":"A"})", 1));
  const RequestId second = sim.Send(ContextWrite(session, R"({"goal":"B"})", 1));
  const RequestId third = sim.Send(ContextWrite(session, R"({"goal":"C"})"));
  const RequestId turn = sim.SendTurn(session, {User("go on")});
  sim.Rounds(200);

  EXPECT_EQ(sim.outcome(first).last()->version, 2u);
  EXPECT_EQ(sim.outcome(second).last()->code, KAIROS_FAILED_PRECONDITION);
  EXPECT_EQ(sim.outcome(second).last()->detail, KAIROS_DETAIL_STALE_VERSION);
  EXPECT_EQ(sim.outcome(third).last()->version, 3u) << sim.outcome(third).last()->text;
  EXPECT_EQ(sim.outcome(turn).figures().version, 4u);
}

TEST(SessionSim, ARewindWaitsForTheContextWriteThatIsUnderWay) {
  SidecarSim sim;
  const SessionId session = sim.Play(SessionId{}, {User("plan")}).last()->session;
  sim.Send(ContextWrite(session, R"({"goal":"A"})"));
  const auto& rewound = sim.Run(SidecarSim::Operation(RequestKind::kSessionRewind, session, 1));

  EXPECT_EQ(rewound.last()->code, 0) << rewound.last()->text;
  EXPECT_EQ(rewound.last()->version, 1u);
}

TEST(SessionSim, AChangeThatWaitsForAnotherIsNotFoundWhenTheSessionIsDeletedMeanwhile) {
  SidecarSim sim;
  const SessionId session = sim.Play(SessionId{}, {User("plan")}).last()->session;
  sim.Send(ContextWrite(session, R"({"goal":"A"})"));
  const RequestId held = sim.Send(ContextWrite(session, R"({"goal":"B"})"));
  const auto& gone = sim.Run(SidecarSim::Operation(RequestKind::kSessionDelete, session));

  EXPECT_EQ(gone.last()->code, 0);
  EXPECT_EQ(sim.outcome(held).last()->code, KAIROS_NOT_FOUND);
}

}  // namespace
}  // namespace kairos
