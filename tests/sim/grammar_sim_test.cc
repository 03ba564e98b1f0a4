// SPDX-License-Identifier: Apache-2.0
// Turns with grammars that take long to compile: nobody else waits, and whoever waits can leave.
#include "tests/sim/sidecar_sim.h"

namespace kairos {
namespace {

Request Constrained(SessionId session, std::string regex) {
  ChatMessage message;
  message.role = "user";
  message.content = "hello";
  Request request = SidecarSim::TurnOf(session, {message});
  request.turn->constraint_kind = KAIROS_CONSTRAINT_REGEX;
  request.turn->constraint = std::move(regex);
  return request;
}

TEST(GrammarSim, OthersGoOnWhileAGrammarIsCompiled) {
  SidecarSim sim;
  sim.compiler_stalls = true;
  const RequestId waits = sim.Send(Constrained(SessionId{}, "yes|no"));
  ChatMessage message;
  message.role = "user";
  message.content = "hello";
  EXPECT_TRUE(sim.Play(SessionId{}, {message}).final());
  EXPECT_FALSE(sim.outcome(waits).final());
  sim.compiler_stalls = false;
  EXPECT_TRUE(sim.Settle(waits).final());
}

TEST(GrammarSim, AGrammarThatWasCompiledBeforeWaitsForNoOther) {
  SidecarSim sim;
  EXPECT_TRUE(sim.Run(Constrained(SessionId{}, "yes|no")).final());
  sim.compiler_stalls = true;
  const RequestId waits = sim.Send(Constrained(SessionId{}, "a|b"));
  EXPECT_TRUE(sim.Run(Constrained(SessionId{}, "yes|no")).final());
  EXPECT_FALSE(sim.outcome(waits).final());
}

TEST(GrammarSim, ATurnThatWaitsForItsGrammarEndsAtOnceWhenItIsCancelledOrLate) {
  SidecarSim sim;
  const SessionId session = sim.Create();
  sim.compiler_stalls = true;
  const RequestId cancelled = sim.Send(Constrained(session, "a|b"));
  sim.Rounds(20);
  EXPECT_FALSE(sim.outcome(cancelled).final());
  Request cancel = SidecarSim::Operation(RequestKind::kTurnCancel, session);
  cancel.target = cancelled;
  sim.Send(std::move(cancel));
  sim.Rounds(20);
  ASSERT_TRUE(sim.outcome(cancelled).final());
  EXPECT_EQ(sim.outcome(cancelled).figures().finish, KAIROS_FINISH_CANCELLED);

  Request hurried = Constrained(session, "c|d");
  hurried.turn->deadline_ns = 5'000'000'000;
  const RequestId late = sim.Send(std::move(hurried));
  sim.Pass(100'000);
  ASSERT_TRUE(sim.outcome(late).final());
  EXPECT_EQ(sim.outcome(late).figures().finish, KAIROS_FINISH_DEADLINE);
  // And what was compiled for nobody disturbs nothing.
  sim.compiler_stalls = false;
  EXPECT_TRUE(sim.Run(Constrained(session, "a|b")).final());
}

TEST(GrammarSim, ARefusedGrammarLeavesTheSessionAsItWas) {
  SidecarSim sim;
  const SessionId session = sim.Create();
  const auto& refused = sim.Run(Constrained(session, "a$b"));
  ASSERT_EQ(refused.last()->kind, ReplyKind::kError);
  EXPECT_EQ(refused.last()->detail, KAIROS_DETAIL_GRAMMAR);
  const auto& next = sim.Run(Constrained(session, "a|b"));
  ASSERT_TRUE(next.final());
  EXPECT_EQ(next.figures().version, 1u);
}

}  // namespace
}  // namespace kairos
