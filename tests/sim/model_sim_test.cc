// SPDX-License-Identifier: Apache-2.0
// Two models in one conductor: whose a session is, what is shared, and what happens where its model
// is not in memory.
#include "tests/sim/sidecar_sim.h"

namespace kairos {
namespace {

constexpr size_t kOther = 1;

ChatMessage User(std::string content) {
  ChatMessage message;
  message.role = "user";
  message.content = std::move(content);
  return message;
}

Request TurnUnder(const std::string& model, SessionId session, std::string text,
                  uint32_t flags = 0) {
  Request request = SidecarSim::TurnOf(session, {User(std::move(text))}, 20, flags);
  request.turn->model = model;
  return request;
}

SessionId CreateUnder(SidecarSim& sim, const std::string& model) {
  Request request = SidecarSim::Operation(RequestKind::kSessionCreate, SessionId{});
  request.model = model;
  return sim.Run(std::move(request)).last()->session;
}

std::string ModelOf(SidecarSim& sim, SessionId session) {
  const Reply* reply = sim.Run(SidecarSim::Operation(RequestKind::kSessionStat, session)).last();
  return reply->sessions.empty() ? "none" : reply->sessions[0].model;
}

TEST(ModelSim, ASessionIsOneOfTheModelThatItWasMadeFor) {
  SidecarSim sim(512, true);
  const SessionId tiny = sim.Create();
  const SessionId other = CreateUnder(sim, "other");

  const auto& of_tiny = sim.Play(tiny, {User("hello, all will be well")});
  const uint64_t tiny_tokens = of_tiny.figures().prompt_tokens;
  const auto& of_other = sim.Play(other, {User("hello, all will be well")});

  EXPECT_EQ(ModelOf(sim, tiny), "tiny");
  EXPECT_EQ(ModelOf(sim, other), "other");
  EXPECT_EQ(tiny_tokens, of_other.figures().prompt_tokens + 4);  // "ll" is one token of it
  EXPECT_EQ(sim.engine().submitted, 1);
  EXPECT_EQ(sim.engine(kOther).submitted, 1);
}

TEST(ModelSim, ATurnThatMakesItsSessionMayNameTheModel) {
  SidecarSim sim(512, true);

  const SessionId named = sim.Run(TurnUnder("other", SessionId{}, "hello")).last()->session;
  const SessionId plain = sim.Run(TurnUnder("", SessionId{}, "hello")).last()->session;

  EXPECT_EQ(ModelOf(sim, named), "other");
  EXPECT_EQ(ModelOf(sim, plain), "tiny");
}

TEST(ModelSim, ANameThatNoModelHasIsRefusedWithThoseThatThereAre) {
  SidecarSim sim(512, true);
  Request create = SidecarSim::Operation(RequestKind::kSessionCreate, SessionId{});
  create.model = "third";

  for (const Request& request : {create, TurnUnder("third", SessionId{}, "hello")}) {
    const Reply refused = *sim.Run(request).last();
    EXPECT_EQ(refused.code, KAIROS_NOT_FOUND);
    EXPECT_NE(refused.text.find("called third; there are: tiny, other"), std::string::npos)
        << refused.text;
  }
}

TEST(ModelSim, SaysTheSameBesideTheOtherModelAndAlone) {
  SidecarSim alone;
  SidecarSim both(512, true);
  const SessionId a = alone.Create();
  const SessionId b = both.Create();
  const SessionId beside = CreateUnder(both, "other");
  for (const char* text : {"tell me all", "and then", "a third time"}) {
    const std::string expected = alone.Play(a, {User(text)}).text;
    const RequestId turn = both.SendTurn(b, {User(text)});
    const RequestId neighbour = both.SendTurn(beside, {User(text)});
    both.Rounds(200);

    EXPECT_EQ(both.outcome(turn).text, expected);
    EXPECT_TRUE(both.outcome(neighbour).final());
  }
}

TEST(ModelSim, NothingIsSharedBetweenModels) {
  SidecarSim sim(512, true);
  const std::string manual(400, 'm');
  sim.Run(TurnUnder("tiny", SessionId{}, manual));

  const uint64_t under_other =
      sim.Run(TurnUnder("other", SessionId{}, manual)).figures().reused_tokens;
  const uint64_t under_tiny =
      sim.Run(TurnUnder("tiny", SessionId{}, manual)).figures().reused_tokens;

  EXPECT_EQ(under_other, 0u);
  EXPECT_GT(under_tiny, 0u);
}

TEST(ModelSim, MakesRoomInTheMemoryOfItsOwnModelOnly) {
  SidecarSim sim(24, true);
  const std::string text(300, 'x');
  const SessionId other = CreateUnder(sim, "other");
  sim.Play(other, {User(text)});
  for (int i = 0; i < 4; ++i) sim.Play(SessionId{}, {User(text + std::to_string(i))});

  const auto& next = sim.Play(other, {User("go on")});

  ASSERT_TRUE(next.final());
  EXPECT_EQ(next.figures().recomputed_tokens, 0u);
}

TEST(ModelSim, AWaitForTheMemoryOfOneModelDoesNotHoldUpTheOther) {
  SidecarSim sim(24, true);
  sim.engine().held = true;
  const RequestId first = sim.SendTurn(SessionId{}, {User("one")}, 400);
  const RequestId second = sim.SendTurn(SessionId{}, {User("two")}, 400);
  sim.Rounds(20);
  ASSERT_EQ(sim.engine().submitted, 1) << "there is no room for the second";

  EXPECT_TRUE(sim.Run(TurnUnder("other", SessionId{}, "hello")).final());

  sim.engine().held = false;
  sim.Rounds(900);
  EXPECT_TRUE(sim.outcome(first).final());
  EXPECT_TRUE(sim.outcome(second).final());
}

TEST(ModelSim, ASessionWhoseModelIsNotInMemoryIsRefusedAndKept) {
  SidecarSim sim(512, true);
  const SessionId session = CreateUnder(sim, "other");
  sim.Play(session, {User("remember this")});
  sim.RestartWith(1);

  const Reply turn = *sim.Play(session, {User("what was it")}).last();
  const Reply open = *sim.Run(SidecarSim::Operation(RequestKind::kSessionOpen, session)).last();

  for (const Reply& refused : {turn, open}) {
    EXPECT_EQ(refused.code, KAIROS_FAILED_PRECONDITION);
    EXPECT_EQ(refused.detail, KAIROS_DETAIL_OTHER_MODEL);
    EXPECT_NE(refused.text.find("print of other"), std::string::npos) << refused.text;
    EXPECT_NE(refused.text.find("tiny"), std::string::npos) << refused.text;
  }
  EXPECT_EQ(ModelOf(sim, session), "");
  EXPECT_NE(sim.Messages(session).find("remember this"), std::string::npos);
  sim.RestartWith(2);
  EXPECT_EQ(sim.Play(session, {User("what was it")}).figures().version, 2u);
}

TEST(ModelSim, ATurnUnderAnotherModelIsRefusedUnlessItMovesTheSession) {
  SidecarSim sim(512, true);
  const SessionId session = sim.Play(SessionId{}, {User("one")}).last()->session;

  const Reply refused = *sim.Run(TurnUnder("other", session, "two")).last();

  EXPECT_EQ(refused.code, KAIROS_FAILED_PRECONDITION);
  EXPECT_EQ(refused.detail, KAIROS_DETAIL_OTHER_MODEL);
  EXPECT_EQ(sim.Run(TurnUnder("tiny", session, "two")).figures().version, 2u);
}

TEST(ModelSim, AMovedSessionIsComputedAnewFromItsMessagesAndSaysWhy) {
  SidecarSim sim(512, true);
  const SessionId session = sim.Play(SessionId{}, {User("all is well")}).last()->session;

  const auto& moved = sim.Run(TurnUnder("other", session, "go on", KAIROS_TURN_MOVE_MODEL));

  ASSERT_TRUE(moved.final());
  const kairos_final_t& figures = moved.figures();
  EXPECT_EQ(figures.reused_tokens, 0u);
  EXPECT_GT(figures.recomputed_by[KAIROS_REASON_OTHER_FORMAT], 0u);
  EXPECT_EQ(figures.recomputed_by[KAIROS_REASON_OTHER_FORMAT], figures.recomputed_tokens);
  EXPECT_EQ(figures.prompt_tokens, figures.new_tokens + figures.recomputed_tokens);
  EXPECT_EQ(ModelOf(sim, session), "other");
  EXPECT_NE(sim.Messages(session).find("all is well"), std::string::npos);
  EXPECT_GT(sim.Play(session, {User("and again")}).figures().reused_tokens, 0u);
}

TEST(ModelSim, AMoveHoldsAfterARestartAndTakesTheVersionsBeforeIt) {
  SidecarSim sim(512, true);
  const SessionId session = sim.Play(SessionId{}, {User("one")}).last()->session;
  const uint64_t version =
      sim.Run(TurnUnder("other", session, "two", KAIROS_TURN_MOVE_MODEL)).figures().version;
  sim.RestartWith(2);

  const Reply rewound =
      *sim.Run(SidecarSim::Operation(RequestKind::kSessionRewind, session, version - 1)).last();

  EXPECT_EQ(rewound.code, KAIROS_NOT_FOUND);
  EXPECT_EQ(ModelOf(sim, session), "other");
  EXPECT_EQ(sim.Play(session, {User("three")}).figures().version, version + 1);
}

TEST(ModelSim, ASessionOfAnAbsentModelCanBeMoved) {
  SidecarSim sim(512, true);
  const SessionId session = CreateUnder(sim, "other");
  sim.Play(session, {User("one")});
  sim.RestartWith(1);

  EXPECT_TRUE(sim.Run(TurnUnder("tiny", session, "two", KAIROS_TURN_MOVE_MODEL)).final());

  EXPECT_EQ(ModelOf(sim, session), "tiny");
}

TEST(ModelSim, AMoveThatIsDiscardedLeavesTheSessionWithItsModel) {
  SidecarSim sim(512, true);
  const SessionId session = sim.Play(SessionId{}, {User("one")}).last()->session;
  const std::string messages = sim.Messages(session);
  Request move = TurnUnder("other", session, "two", KAIROS_TURN_MOVE_MODEL);
  move.turn->on_cancel = KAIROS_ON_CANCEL_DISCARD;
  sim.engine(kOther).held = true;
  const RequestId turn = sim.Send(std::move(move));
  sim.Rounds(10);
  Request cancel = SidecarSim::Operation(RequestKind::kTurnCancel, SessionId{});
  cancel.target = turn;
  sim.Send(std::move(cancel));
  sim.engine(kOther).held = false;
  sim.Rounds(100);

  EXPECT_EQ(ModelOf(sim, session), "tiny");
  EXPECT_EQ(sim.Messages(session), messages);
  EXPECT_EQ(sim.Play(session, {User("three")}).figures().version, 2u);
}

TEST(ModelSim, RawTokensDoNotGoOverToAnotherModel) {
  SidecarSim sim(512, true);
  Request raw = SidecarSim::TurnOf(SessionId{}, {});
  raw.turn->tokens = {'a', 'b', 'c'};
  const SessionId session = sim.Run(raw).last()->session;

  const Reply history =
      *sim.Run(TurnUnder("other", session, "two", KAIROS_TURN_MOVE_MODEL)).last();
  raw.session = sim.Create();
  raw.turn->model = "other";
  raw.turn->flags = KAIROS_TURN_MOVE_MODEL;
  const Reply turn = *sim.Run(raw).last();

  EXPECT_EQ(history.code, KAIROS_FAILED_PRECONDITION);
  EXPECT_EQ(turn.code, KAIROS_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace kairos
