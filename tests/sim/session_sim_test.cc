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

TEST(SessionSim, ATurnWhoseSessionIsDeletedNamesNoVersion) {
  SidecarSim sim;
  const SessionId session = sim.Play(SessionId{}, {User("one")}).last()->session;
  sim.engine().held = true;
  const RequestId turn = sim.SendTurn(session, {User("two")}, 500);
  sim.Rounds(10);
  const RequestId gone = sim.Send(SidecarSim::Operation(RequestKind::kSessionDelete, session));
  sim.Rounds(3);
  sim.engine().held = false;

  EXPECT_EQ(sim.Settle(gone).last()->code, 0);
  ASSERT_TRUE(sim.outcome(turn).final());
  EXPECT_EQ(sim.outcome(turn).figures().version, 0u);
  EXPECT_EQ(sim.outcome(turn).figures().finish, KAIROS_FINISH_CANCELLED);
}

// A turn with a key that has generated a little and is held there.
RequestId BeginWithKey(SidecarSim* sim, SessionId session) {
  Request turn = SidecarSim::TurnOf(session, {User("tell me a long story")}, 500);
  turn.turn->idempotency_key = "story";
  const RequestId id = sim->Send(std::move(turn));
  while (sim->outcome(id).text.size() < 2 && !sim->outcome(id).final()) sim->Round();
  EXPECT_FALSE(sim->outcome(id).final());
  sim->engine().held = true;
  return id;
}

Request AgainFromAnotherClient(SessionId session) {
  Request turn = SidecarSim::TurnOf(session, {User("tell me a long story")});
  turn.turn->idempotency_key = "story";
  turn.attachment = AttachmentId{2};
  return turn;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(SessionSim, ATurnWithAKeyWhoseClientDiedRunsWholeWhenItIsSentAgain) {
  for (const bool waits : {false, true}) {  // for the first one's reply when that client dies
    SidecarSim sim;
    const SessionId session = sim.Create();
    BeginWithKey(&sim, session);
    RequestId again{};
    if (waits) again = sim.Send(AgainFromAnotherClient(session));
    sim.Rounds(3);
    sim.Send(SidecarSim::Operation(RequestKind::kDetach, SessionId{}));
    sim.Rounds(3);
    sim.engine().held = false;
    sim.Rounds(50);
    if (!waits) again = sim.Send(AgainFromAnotherClient(session));

    const auto& whole = sim.Settle(again);

    ASSERT_TRUE(whole.final());
    EXPECT_EQ(sim.detached, 1);
    EXPECT_EQ(whole.figures().replayed, 0);
    EXPECT_NE(whole.figures().finish, KAIROS_FINISH_CANCELLED);
    EXPECT_EQ(whole.figures().version, 1u);
    EXPECT_EQ(Count(sim.Messages(session), "tell me a long story"), 1u);
  }
}

TEST(SessionSim, ATurnWithAKeyThatItsClientCancelledIsAnsweredWithWhatThereWas) {
  SidecarSim sim;
  const SessionId session = sim.Create();
  const RequestId first = BeginWithKey(&sim, session);
  Request cancel = SidecarSim::Operation(RequestKind::kTurnCancel, session);
  cancel.target = first;
  sim.Send(std::move(cancel));
  sim.engine().held = false;
  ASSERT_EQ(sim.Settle(first).figures().finish, KAIROS_FINISH_CANCELLED);

  const auto& again = sim.Run(AgainFromAnotherClient(session));

  EXPECT_EQ(again.figures().replayed, 1);
  EXPECT_EQ(again.text, sim.outcome(first).text);
}

TEST(SessionSim, ATurnWithAKeyThatWasCutByItsDeadlineRunsWholeWhenItIsSentAgain) {
  SidecarSim sim(16);
  const SessionId other = sim.Create();
  const SessionId session = sim.Create();
  sim.engine().held = true;
  sim.SendTurn(other, {User("takes all of the memory")}, 400);
  sim.Rounds(10);
  Request turn = SidecarSim::TurnOf(session, {User("tell me a long story")});
  turn.turn->idempotency_key = "story";
  turn.turn->deadline_ns = 2'000'000'000;
  const RequestId late = sim.Send(std::move(turn));
  sim.Rounds(10);
  sim.Pass(2000);
  ASSERT_TRUE(sim.outcome(late).final());
  EXPECT_EQ(sim.outcome(late).figures().finish, KAIROS_FINISH_DEADLINE);
  EXPECT_EQ(sim.outcome(late).figures().version, 0u);
  sim.engine().held = false;
  sim.Rounds(200);

  const auto& again = sim.Run(AgainFromAnotherClient(session));

  EXPECT_EQ(again.figures().replayed, 0);
  EXPECT_EQ(again.figures().version, 1u);
}

}  // namespace
}  // namespace kairos
