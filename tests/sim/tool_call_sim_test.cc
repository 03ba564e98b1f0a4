// SPDX-License-Identifier: Apache-2.0
// What clients are told of an answer with calls and reasoning, and whether what is stored, resent
// and replayed agrees with it.
#include <gtest/gtest.h>

#include "tests/sim/sidecar_sim.h"

namespace kairos {
namespace {

constexpr char kCall[] =
    "<tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\": 1}}\n</tool_call>";

ChatMessage Message(const char* role, std::string content) {
  ChatMessage message;
  message.role = role;
  message.content = std::move(content);
  return message;
}

// Neighbours that clients may see joined or apart are joined.
std::string Told(const SidecarSim::Outcome& outcome) {
  std::string told;
  ReplyKind last = ReplyKind::kFinal;
  for (const Reply& reply : outcome.replies) {
    const bool is_text = reply.kind == ReplyKind::kText || reply.kind == ReplyKind::kReasoning;
    if (!is_text && reply.kind != ReplyKind::kToolCall) continue;
    if (is_text && reply.text.empty()) continue;
    const bool joins = is_text && reply.kind == last && reply.detail == 0;
    if (!joins && reply.kind == ReplyKind::kText) told += "\ntext ";
    if (!joins && reply.kind == ReplyKind::kReasoning) told += "\nreasoning ";
    if (!joins && reply.kind == ReplyKind::kToolCall) told += "\ncall ";
    if (reply.detail != 0) told += "(" + std::to_string(reply.detail) + ") ";
    told += reply.text;
    last = reply.detail == 0 ? reply.kind : ReplyKind::kFinal;
  }
  return told;
}

const SidecarSim::Outcome& Say(SidecarSim& sim, const std::string& script,
                               SessionId session = SessionId{}) {
  sim.engine().script = script;
  return sim.Play(session, {Message("user", "what time is it")}, 400);
}

TEST(ToolCallSim, ACallIsToldOnceItIsWholeAndItsMarkupIsNoText) {
  SidecarSim sim;

  const auto& outcome = Say(sim, "Let me look. " + std::string(kCall) + "\nThat is all.");

  EXPECT_EQ(Told(outcome),
            "\ntext Let me look. "
            "\ncall {\"id\":\"call_1_0\",\"name\":\"clock\",\"arguments\":{\"zone\":1}}"
            "\ntext That is all.");
  EXPECT_EQ(outcome.figures().finish, KAIROS_FINISH_TOOL_CALL);
  EXPECT_EQ(outcome.figures().phase, KAIROS_PHASE_WAITING_TOOL);
}

TEST(ToolCallSim, EveryTokenIsInOneRecordInOrderAndNoTextIsEmpty) {
  SidecarSim sim;
  const std::string script = "<think>hm</think>yes " + std::string(kCall) + " ok";

  const auto& outcome = Say(sim, script);

  std::string tokens;
  size_t with_tokens = 0;
  for (const Reply& reply : outcome.replies) {
    const bool tells = reply.kind == ReplyKind::kText || reply.kind == ReplyKind::kReasoning ||
                       reply.kind == ReplyKind::kToolCall;
    EXPECT_EQ(reply.text.empty(), !tells);
    EXPECT_TRUE(reply.tokens.empty() || tells || reply.kind == ReplyKind::kFinal);
    with_tokens += !reply.tokens.empty();
    for (const TokenId token : reply.tokens) {
      if (token < 256) tokens += static_cast<char>(token);
    }
  }
  EXPECT_EQ(tokens, script);
  EXPECT_GT(with_tokens, 3u);
  EXPECT_TRUE(Told(outcome).starts_with("\nreasoning hm\ntext yes \ncall ")) << Told(outcome);
}

TEST(ToolCallSim, ABrokenCallComesBackAsTextWithTheReason) {
  SidecarSim sim;

  const auto& outcome = Say(sim, "a <tool_call>{\"name\":\"clock\",\"arguments\":{\"zone\"");

  EXPECT_EQ(Told(outcome),
            "\ntext a \ntext (20) <tool_call>{\"name\":\"clock\",\"arguments\":{\"zone\"");
  EXPECT_EQ(outcome.figures().finish, KAIROS_FINISH_STOP);
  EXPECT_EQ(outcome.figures().phase, KAIROS_PHASE_WAITING_USER);
}

TEST(ToolCallSim, OnlyToolsOfTheListAreCalled) {
  SidecarSim sim;
  sim.engine().script = kCall;
  Request turn = SidecarSim::TurnOf(SessionId{}, {Message("user", "time")}, 400);
  turn.turn->has_tools = true;
  turn.turn->tools_json = R"([{"type":"function","function":{"name":"weather"}}])";

  const auto& outcome = sim.Run(std::move(turn));

  EXPECT_EQ(outcome.text, kCall);
  EXPECT_EQ(outcome.figures().finish, KAIROS_FINISH_STOP);
  EXPECT_NE(Told(outcome).find("(21)"), std::string::npos);
}

TEST(ToolCallSim, WhatWasToldIsKnownAgainWhenItIsResent) {
  SidecarSim sim;
  const SessionId session =
      Say(sim, "<think>\nhm\n</think>\n\nLet me look. " + std::string(kCall)).last()->session;
  ChatMessage answer = Message("assistant", "Let me look. ");
  answer.tool_calls_json =
      R"([{"id":"call_1_0","type":"function",)"
      R"("function":{"name":"clock","arguments":"{\"zone\":1}"}}])";

  const auto& next =
      sim.Play(session, {Message("user", "what time is it"), answer, Message("tool", "noon")}, 400,
               KAIROS_TURN_WHOLE_HISTORY);

  EXPECT_EQ(next.figures().first_difference, -1);
  EXPECT_EQ(next.figures().recomputed_tokens, 0u);
}

TEST(ToolCallSim, AReplayTellsWhatTheTurnToldAlsoAfterARestart) {
  SidecarSim sim;
  sim.engine().script = "<think>hm</think>one " + std::string(kCall) + " two <tool_call>{";
  Request turn = SidecarSim::TurnOf(SessionId{}, {Message("user", "time")}, 400);
  turn.turn->idempotency_key = "once";
  turn.turn->has_tools = true;
  turn.turn->tools_json = R"([{"name":"clock"}])";
  const RequestId first = sim.Send(Request(turn));
  const RequestId follower = sim.Send(Request(turn));
  sim.Rounds(400);
  const std::string told = Told(sim.outcome(first));
  ASSERT_EQ(told.substr(0, 12), "\nreasoning h");

  EXPECT_EQ(Told(sim.outcome(follower)), told);
  EXPECT_EQ(sim.outcome(follower).figures().finish, KAIROS_FINISH_TOOL_CALL);
  sim.Restart();
  const auto& again = sim.Run(std::move(turn));
  EXPECT_EQ(again.figures().replayed, 1);
  EXPECT_EQ(Told(again), told);
}

TEST(ToolCallSim, ACutAnswerKeepsTheCallsThatWereTold) {
  SidecarSim sim;
  sim.engine().script = std::string(kCall) + std::string(300, 'x');
  const RequestId turn = sim.SendTurn(SessionId{}, {Message("user", "time")}, 400);
  sim.Rounds(150);
  ASSERT_EQ(Told(sim.outcome(turn)).substr(0, 5), "\ncall");
  Request cancel;
  cancel.kind = RequestKind::kTurnCancel;
  cancel.target = turn;
  sim.Send(std::move(cancel));
  sim.Rounds(20);

  const kairos_final_t& figures = sim.outcome(turn).figures();
  EXPECT_EQ(figures.finish, KAIROS_FINISH_CANCELLED);
  EXPECT_EQ(figures.phase, KAIROS_PHASE_WAITING_TOOL);
}

TEST(ToolCallSim, ReasoningThatThePromptOpensIsReasoning) {
  SidecarSim sim;
  sim.engine().script = "hm</think>yes";
  Request turn = SidecarSim::TurnOf(SessionId{}, {}, 400);
  for (const char byte : std::string("Q <think>\n")) turn.turn->tokens.push_back(byte);

  const auto& outcome = sim.Run(std::move(turn));

  EXPECT_EQ(Told(outcome), "\nreasoning hm\ntext yes");
  const std::string messages = sim.Messages(outcome.last()->session);
  EXPECT_NE(messages.find("<think>hm</think>yes"), std::string::npos) << messages;
}

TEST(ToolCallSim, IdsOfCallsAreNotUsedTwiceInASession) {
  SidecarSim sim;
  const SessionId session = Say(sim, kCall).last()->session;
  EXPECT_NE(Told(Say(sim, kCall, session)).find("call_2_0"), std::string::npos);
  sim.Run(SidecarSim::Operation(RequestKind::kSessionRewind, session, 1));

  EXPECT_NE(Told(Say(sim, kCall, session)).find("call_3_0"), std::string::npos);
}

SessionId Create(SidecarSim& sim, uint32_t flags, int32_t fidelity = 0) {
  Request request = SidecarSim::Operation(RequestKind::kSessionCreate, SessionId{});
  request.session_flags = flags;
  request.fidelity = fidelity;
  return sim.Run(std::move(request)).last()->session;
}

// What is dropped is as if it had never been said: the next turns have the same prompts.
TEST(ToolCallSim, ASessionThatDropsReasoningKeepsTheAnswerAlone) {
  const std::string thoughts[] = {"hm", std::string(100, 'h'), ""};
  for (const int32_t fidelity : {KAIROS_FIDELITY_DEFAULT, KAIROS_FIDELITY_EXACT}) {
    for (const std::string& thought : thoughts) {
      SidecarSim drops;
      SidecarSim plain;
      const SessionId a = Create(drops, KAIROS_SESSION_DROP_REASONING, fidelity);
      const SessionId b = Create(plain, 0, fidelity);
      for (int turn = 0; turn < 4; ++turn) {
        const auto& said = Say(drops, "<think>" + thought + "</think>\n\nyes, twice", a);
        const auto& bare = Say(plain, "yes, twice", b);

        ASSERT_TRUE(said.final());
        EXPECT_EQ(Told(said),
                  (thought.empty() ? "" : "\nreasoning " + thought) + "\ntext yes, twice");
        EXPECT_EQ(said.figures().prompt_tokens, bare.figures().prompt_tokens);
        EXPECT_EQ(said.figures().prompt_tokens, said.figures().new_tokens +
                                                    said.figures().reused_tokens +
                                                    said.figures().recomputed_tokens);
        EXPECT_EQ(said.figures().reused_tokens > 0, turn > 0 && turn != 2) << turn;
        EXPECT_EQ(drops.Messages(a), plain.Messages(b));
        if (turn == 1) drops.Restart();  // the catalog knows of it
      }
    }
  }
}

// Templates that open the reasoning in the prompt leave the markers of it.
TEST(ToolCallSim, ReasoningThatThePromptOpenedIsDroppedFromBetweenItsMarkers) {
  SidecarSim sim(512, false,
                 "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
                 "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>"
                 "{% endif %}");
  const SessionId session = Create(sim, KAIROS_SESSION_DROP_REASONING);
  for (int turn = 0; turn < 3; ++turn) {
    const auto& said = Say(sim, "hm, or so</think>yes", session);
    ASSERT_TRUE(said.final());
    EXPECT_EQ(Told(said), "\nreasoning hm, or so\ntext yes");
  }
  const std::string messages = sim.Messages(session);
  EXPECT_EQ(messages.find("hm"), std::string::npos) << messages;
  EXPECT_NE(messages.find(R"("<think></think>yes")"), std::string::npos) << messages;
}

TEST(ToolCallSim, AnAnswerThatIsAllReasoningLeavesNothingWhereItIsDropped) {
  SidecarSim sim;
  const SessionId session = Create(sim, KAIROS_SESSION_DROP_REASONING);
  const auto& said = Say(sim, "<think>and so on", session);
  ASSERT_TRUE(said.final());
  EXPECT_NE(sim.Messages(session).find(R"("content":"")"), std::string::npos)
      << sim.Messages(session);
  EXPECT_TRUE(Say(sim, "yes", session).final());
}

TEST(ToolCallSim, ForksDropReasoningAsTheirSourceDoes) {
  SidecarSim sim;
  const SessionId session = Create(sim, KAIROS_SESSION_DROP_REASONING);
  ASSERT_TRUE(Say(sim, "<think>hm</think>yes", session).final());
  const SessionId fork =
      sim.Run(SidecarSim::Operation(RequestKind::kSessionFork, session)).last()->session;
  ASSERT_TRUE(Say(sim, "<think>ho</think>no", fork).final());
  EXPECT_EQ(sim.Messages(fork).find("think"), std::string::npos);
}

}  // namespace
}  // namespace kairos
