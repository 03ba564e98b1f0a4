// SPDX-License-Identifier: Apache-2.0
// Turns from request to final record through the real conductor, one stage at a time.
#include <random>

#include "tests/sim/sidecar_sim.h"

namespace kairos {
namespace {

ChatMessage User(std::string content) {
  ChatMessage message;
  message.role = "user";
  message.content = std::move(content);
  return message;
}

ChatMessage Assistant(std::string content) {
  ChatMessage message = User(std::move(content));
  message.role = "assistant";
  return message;
}

void ExpectTokensAddUp(const kairos_final_t& final) {
  EXPECT_EQ(final.prompt_tokens, final.new_tokens + final.reused_tokens + final.recomputed_tokens);
  uint64_t recomputed = 0;
  for (const uint64_t tokens : final.recomputed_by) recomputed += tokens;
  EXPECT_EQ(final.recomputed_tokens, recomputed);
}

TEST(TurnSim, CreatesASessionAndComputesOnlyWhatIsNew) {
  SidecarSim sim;
  const auto& first = sim.Play(SessionId{}, {User("hello there")});
  ASSERT_TRUE(first.final());
  const SessionId session = first.last()->session;
  const uint64_t log = first.figures().prompt_tokens + first.figures().generated_tokens;

  const auto& second = sim.Play(session, {User("and again")});

  ASSERT_TRUE(second.final());
  ExpectTokensAddUp(second.figures());
  EXPECT_EQ(second.figures().version, 2u);
  EXPECT_EQ(second.figures().reused_tokens, log - 1);  // the last sampled token has no KV
  EXPECT_EQ(second.figures().recomputed_tokens, 0u);
}

TEST(TurnSim, TheFirstEventNamesTheSessionAndItsBaseVersion) {
  SidecarSim sim;
  const auto& turn = sim.Play(SessionId{}, {User("hello")});

  ASSERT_GE(turn.replies.size(), 2u);
  EXPECT_EQ(turn.replies[0].kind, ReplyKind::kAccepted);
  EXPECT_NE(turn.replies[0].session.value, 0u);
  EXPECT_EQ(turn.replies[0].version, 0u);
}

TEST(TurnSim, ContinuesWithTheSameTokensAfterARestart) {
  SidecarSim unbroken;
  SidecarSim broken;
  const SessionId a = unbroken.Play(SessionId{}, {User("one")}).last()->session;
  const SessionId b = broken.Play(SessionId{}, {User("one")}).last()->session;
  const uint64_t log = broken.Run(SidecarSim::Operation(RequestKind::kSessionStat, b))
                           .last()->sessions[0].token_count;
  broken.Restart();

  const std::string expected = unbroken.Play(a, {User("two")}).text;
  const auto& resumed = broken.Play(b, {User("two")});

  EXPECT_EQ(resumed.text, expected);
  EXPECT_EQ(resumed.figures().recomputed_by[KAIROS_REASON_RESTART], log - 1);
  ExpectTokensAddUp(resumed.figures());
}

TEST(TurnSim, TurnsOfOneSessionRunInOrder) {
  SidecarSim sim;
  const SessionId session = sim.Create();
  const RequestId first = sim.SendTurn(session, {User("first")});
  const RequestId second = sim.SendTurn(session, {User("second")});
  sim.Rounds(200);

  EXPECT_EQ(sim.outcome(first).figures().version, 1u);
  EXPECT_EQ(sim.outcome(second).figures().version, 2u);
}

TEST(TurnSim, RefusesAStaleVersionAndLeavesTheSession) {
  SidecarSim sim;
  const SessionId session = sim.Play(SessionId{}, {User("one")}).last()->session;
  Request stale = SidecarSim::TurnOf(session, {User("two")});
  stale.if_version = 0;

  const auto& refused = sim.Run(std::move(stale));

  EXPECT_EQ(refused.last()->kind, ReplyKind::kError);
  EXPECT_EQ(refused.last()->code, KAIROS_FAILED_PRECONDITION);
  EXPECT_EQ(refused.last()->detail, KAIROS_DETAIL_STALE_VERSION);
  EXPECT_EQ(sim.Play(session, {User("three")}).figures().version, 2u);
}

TEST(TurnSim, HidesSessionsOfOtherUidsAndNamespaces) {
  SidecarSim sim;
  const SessionId session = sim.Play(SessionId{}, {User("mine")}).last()->session;
  Request other_uid = SidecarSim::TurnOf(session, {User("x")});
  other_uid.uid = 7;
  Request other_space = SidecarSim::Operation(RequestKind::kSessionMessages, session);
  other_space.name_space = "elsewhere";

  EXPECT_EQ(sim.Run(std::move(other_uid)).last()->code, KAIROS_NOT_FOUND);
  EXPECT_EQ(sim.Run(std::move(other_space)).last()->code, KAIROS_NOT_FOUND);
}

TEST(TurnSim, AReloadGivesAndTakesGrantsAndAnswersWhoAsked) {
  SidecarSim sim;
  const SessionId session = sim.Create();
  Request stat = SidecarSim::Operation(RequestKind::kSessionStat, session);
  stat.uid = 77;
  ASSERT_EQ(sim.Run(stat).last()->code, KAIROS_NOT_FOUND);
  ConductorSettings settings;
  settings.grants = {{77, "default"}};

  const ControlReply reply = sim.Reload(settings);

  EXPECT_EQ(reply.text, "[]");
  EXPECT_EQ(sim.Run(stat).last()->code, KAIROS_OK);
  sim.Reload(ConductorSettings());
  EXPECT_EQ(sim.Run(stat).last()->code, KAIROS_NOT_FOUND);
}

TEST(TurnSim, AReloadHoldsForTurnsThatHaveNotBegunToGenerate) {
  SidecarSim sim;
  ConductorSettings settings;
  settings.turns.max_tokens_default = 3;
  sim.Reload(settings);
  sim.engine().script = "one two three";

  EXPECT_EQ(sim.Play(SessionId{}, {User("count")}, 0).figures().generated_tokens, 3u);
}

TEST(TurnSim, SharesBlocksInsideANamespaceOnly) {
  SidecarSim sim;
  const std::string manual(400, 'm');
  sim.Play(SessionId{}, {User(manual)});

  const auto& same = sim.Play(SessionId{}, {User(manual)});
  Request other = SidecarSim::TurnOf(SessionId{}, {User(manual)});
  other.name_space = "tenant-b";

  EXPECT_GE(same.figures().shared_tokens, 384u);
  EXPECT_EQ(sim.Run(std::move(other)).figures().reused_tokens, 0u);
}

TEST(TurnSim, AForkReusesTheWholeLogAndLeavesItsSourceAlone) {
  SidecarSim sim;
  const SessionId source = sim.Play(SessionId{}, {User("plan a trip")}).last()->session;
  const SessionId fork =
      sim.Run(SidecarSim::Operation(RequestKind::kSessionFork, source)).last()->session;
  ASSERT_NE(fork.value, 0u);

  const auto& forked = sim.Play(fork, {User("by train")});
  const auto& original = sim.Play(source, {User("by boat")});

  EXPECT_EQ(forked.figures().recomputed_tokens, 0u);
  EXPECT_EQ(original.figures().recomputed_tokens, 0u);
  EXPECT_NE(sim.Messages(fork), sim.Messages(source));
}

TEST(TurnSim, ARewoundSessionAnswersAsItDidBefore) {
  SidecarSim sim;
  const SessionId session = sim.Play(SessionId{}, {User("one")}).last()->session;
  const std::string before = sim.Play(session, {User("two")}).text;
  ASSERT_EQ(sim.Run(SidecarSim::Operation(RequestKind::kSessionRewind, session, 1)).last()->code,
            0);

  const auto& again = sim.Play(session, {User("two")});

  EXPECT_EQ(again.text, before);
  EXPECT_EQ(again.figures().version, 3u);
  EXPECT_LT(again.figures().recomputed_tokens, kBlockTokens);
  EXPECT_EQ(again.figures().recomputed_tokens,
            again.figures().recomputed_by[KAIROS_REASON_BLOCK_BOUNDARY]);
}

TEST(TurnSim, AResentHistoryReusesEqualMessagesAndNamesTheFirstDifference) {
  SidecarSim sim;
  const auto& first = sim.Play(SessionId{}, {User("question one")});
  const SessionId session = first.last()->session;
  const std::string answer = first.text;

  const auto& same = sim.Play(session, {User("question one"), Assistant(answer), User("more")}, 20,
                              KAIROS_TURN_WHOLE_HISTORY);
  EXPECT_EQ(same.figures().first_difference, -1);
  EXPECT_EQ(same.figures().recomputed_tokens, 0u);

  const auto& edited = sim.Play(session, {User("question one"), Assistant("edited"), User("more")},
                                20, KAIROS_TURN_WHOLE_HISTORY);
  EXPECT_EQ(edited.figures().first_difference, 1);
  EXPECT_GT(edited.figures().recomputed_by[KAIROS_REASON_HISTORY_CHANGED], 0u);
  ExpectTokensAddUp(edited.figures());
}

TEST(TurnSim, AChangedToolListIsTheReasonOfTheRecomputation) {
  SidecarSim sim;
  const SessionId session = sim.Play(SessionId{}, {User("hello")}).last()->session;
  Request turn = SidecarSim::TurnOf(session, {User("use a tool")});
  turn.turn->has_tools = true;
  turn.turn->tools_json = R"([{"name":"clock","description":"time","parameters":{}}])";

  const auto& changed = sim.Run(std::move(turn));

  ASSERT_TRUE(changed.final());
  EXPECT_GT(changed.figures().recomputed_by[KAIROS_REASON_TOOLS_CHANGED], 0u);
  EXPECT_EQ(sim.Play(session, {User("again")}).figures().recomputed_tokens, 0u);
}

TEST(TurnSim, ReuseOffRecomputesEverythingAndSaysSo) {
  SidecarSim sim;
  const SessionId session = sim.Play(SessionId{}, {User("one")}).last()->session;

  const auto& turn = sim.Play(session, {User("two")}, 20, KAIROS_TURN_NO_REUSE);

  EXPECT_EQ(turn.figures().reused_tokens, 0u);
  EXPECT_GT(turn.figures().recomputed_by[KAIROS_REASON_REUSE_OFF], 0u);
  ExpectTokensAddUp(turn.figures());
}

TEST(TurnSim, ACancelledTurnKeepsTheMessageAndTheTextSoFar) {
  SidecarSim sim;
  const SessionId session = sim.Create();
  const RequestId turn = sim.SendTurn(session, {User("tell me a long story")}, 500);
  while (sim.outcome(turn).text.size() < 2 && !sim.outcome(turn).final()) sim.Round();
  Request cancel = SidecarSim::Operation(RequestKind::kTurnCancel, session);
  cancel.target = turn;
  sim.Send(std::move(cancel));
  const auto& cancelled = sim.Settle(turn);

  ASSERT_TRUE(cancelled.final());
  if (cancelled.figures().finish == KAIROS_FINISH_CANCELLED) {
    EXPECT_NE(sim.Messages(session).find("\"cancelled\":true"), std::string::npos);
  }
  EXPECT_EQ(cancelled.figures().version, 1u);
  EXPECT_NE(sim.Messages(session).find("tell me a long story"), std::string::npos);
  EXPECT_EQ(sim.Play(session, {User("go on")}).figures().recomputed_tokens, 0u);
}

TEST(TurnSim, ADiscardedCancelLeavesTheSessionAsItWas) {
  SidecarSim sim;
  const SessionId session = sim.Create();
  sim.engine().held = true;
  Request turn = SidecarSim::TurnOf(session, {User("never mind")}, 500);
  turn.turn->on_cancel = KAIROS_ON_CANCEL_DISCARD;
  const RequestId id = sim.Send(std::move(turn));
  sim.Rounds(10);
  Request cancel = SidecarSim::Operation(RequestKind::kTurnCancel, session);
  cancel.target = id;
  sim.Send(std::move(cancel));
  sim.Rounds(5);
  sim.engine().held = false;

  const auto& cancelled = sim.Settle(id);

  EXPECT_EQ(cancelled.figures().finish, KAIROS_FINISH_CANCELLED);
  EXPECT_EQ(cancelled.figures().version, 0u);
  EXPECT_EQ(sim.Messages(session), "[]");
}

TEST(TurnSim, AWaitingTurnThatIsCancelledEndsWithAnError) {
  SidecarSim sim;
  const SessionId session = sim.Create();
  sim.engine().held = true;
  sim.SendTurn(session, {User("first")});
  const RequestId second = sim.SendTurn(session, {User("second")});
  sim.Rounds(10);
  Request cancel = SidecarSim::Operation(RequestKind::kTurnCancel, session);
  cancel.target = second;
  sim.Send(std::move(cancel));
  sim.Rounds(5);

  ASSERT_NE(sim.outcome(second).last(), nullptr);
  EXPECT_EQ(sim.outcome(second).last()->code, KAIROS_CANCELLED);
}

TEST(TurnSim, ADeadClientsTurnIsCommittedAndItsDetachIsConfirmed) {
  SidecarSim sim;
  const SessionId session = sim.Create();
  sim.engine().held = true;
  sim.SendTurn(session, {User("who is there")});
  sim.Rounds(10);
  Request detach = SidecarSim::Operation(RequestKind::kDetach, SessionId{});
  sim.Send(std::move(detach));
  sim.Rounds(5);
  EXPECT_EQ(sim.detached, 0);
  sim.engine().held = false;
  sim.Rounds(20);

  EXPECT_EQ(sim.detached, 1);
  EXPECT_NE(sim.Messages(session).find("who is there"), std::string::npos);
}

TEST(TurnSim, AnIdempotencyKeyIsAnsweredOnceEvenAfterARestart) {
  SidecarSim sim;
  Request turn = SidecarSim::TurnOf(SessionId{}, {User("pay once")});
  turn.turn->idempotency_key = "order-1";
  const auto first = sim.Run(Request(turn));
  const int computed = sim.engine().submitted;
  sim.Restart();

  const auto& again = sim.Run(std::move(turn));

  EXPECT_EQ(again.figures().replayed, 1);
  EXPECT_EQ(again.text, first.text);
  EXPECT_EQ(again.last()->session, first.last()->session);
  EXPECT_EQ(again.figures().version, first.figures().version);
  EXPECT_EQ(sim.engine().submitted, 0);
  EXPECT_EQ(computed, 1);
}

TEST(TurnSim, AKeyOfAnotherSessionIsRefusedAndNothingIsAnsweredFromThere) {
  SidecarSim sim;
  const SessionId a = sim.Create();
  const SessionId b = sim.Create();
  Request first = SidecarSim::TurnOf(a, {User("my name is Alice")});
  first.turn->idempotency_key = "turn-1";
  ASSERT_TRUE(sim.Run(Request(first)).final());
  Request other = SidecarSim::TurnOf(b, {User("what is my name?")});
  other.turn->idempotency_key = "turn-1";

  const auto& refused = sim.Run(std::move(other));

  EXPECT_EQ(refused.last()->code, KAIROS_INVALID_ARGUMENT);
  EXPECT_NE(refused.last()->text.find("idempotency_key was used before"), std::string::npos);
  EXPECT_TRUE(refused.text.empty());
  // The session itself, or none, is answered.
  EXPECT_EQ(sim.Run(Request(first)).figures().replayed, 1);
  first.session = SessionId{};
  EXPECT_EQ(sim.Run(std::move(first)).figures().replayed, 1);
}

TEST(TurnSim, ARepeatedKeyInFlightWaitsForTheSameReply) {
  SidecarSim sim;
  Request turn = SidecarSim::TurnOf(SessionId{}, {User("pay once")});
  turn.turn->idempotency_key = "order-2";
  const RequestId first = sim.Send(Request(turn));
  const RequestId second = sim.Send(std::move(turn));
  sim.Rounds(200);

  EXPECT_EQ(sim.engine().submitted, 1);
  EXPECT_EQ(sim.outcome(first).figures().replayed, 0);
  EXPECT_EQ(sim.outcome(second).figures().replayed, 1);
  EXPECT_EQ(sim.outcome(second).text, sim.outcome(first).text);
}

TEST(TurnSim, TurnsWaitForKvAndAreNeverRefusedWhileOthersRun) {
  SidecarSim sim(24);
  std::vector<RequestId> turns;
  for (int i = 0; i < 12; ++i) {
    turns.push_back(
        sim.SendTurn(SessionId{}, {User(std::string(200, static_cast<char>('a' + i)))}));
  }
  sim.Rounds(600);

  for (const RequestId turn : turns) EXPECT_TRUE(sim.outcome(turn).final());
}

TEST(TurnSim, ATurnThatCanNeverFitIsRefusedWithTheNumbers) {
  SidecarSim sim(8);
  const auto& turn = sim.Play(SessionId{}, {User(std::string(1000, 'x'))});

  EXPECT_EQ(turn.last()->code, KAIROS_RESOURCE_EXHAUSTED);
  EXPECT_EQ(turn.last()->detail, KAIROS_DETAIL_KV_FULL);
}

TEST(TurnSim, APromptLongerThanTheContextIsRefusedWithTheNumbers) {
  SidecarSim sim;
  const SessionId session = sim.Create();
  const auto& turn = sim.Play(session, {User(std::string(5000, 'x'))});

  EXPECT_EQ(turn.last()->detail, KAIROS_DETAIL_CONTEXT_FULL);
  EXPECT_NE(turn.last()->text.find("4096"), std::string::npos);
  EXPECT_TRUE(sim.Play(session, {User("short")}).final());
}

TEST(TurnSim, APromptOfMoreBytesThanTheContextCanHoldIsRefusedUnread) {
  SidecarSim sim;
  const SessionId session = sim.Create();
  const auto& turn = sim.Play(session, {User(std::string(1 << 20, 'x'))});

  EXPECT_EQ(turn.last()->detail, KAIROS_DETAIL_CONTEXT_FULL);
  EXPECT_NE(turn.last()->text.find("the messages have 1048576 bytes; the model's context is 4096"),
            std::string::npos)
      << turn.last()->text;
  EXPECT_TRUE(sim.Play(session, {User("short")}).final());
}

TEST(TurnSim, StagesTakeNoNegativeTimeWhenIngressReadTheClockLater) {
  SidecarSim sim;
  sim.ingress_ahead_ns = 50'000'000;
  const auto& turn = sim.Play(SessionId{}, {User("hello")});

  ASSERT_TRUE(turn.final());
  const kairos_final_t& final = turn.figures();
  EXPECT_LT(final.total_ns, 10'000'000'000u);
  for (const uint64_t stage_ns : final.stage_ns) EXPECT_LE(stage_ns, final.total_ns);
}

TEST(TurnSim, DeletingFreesTheSessionAndItsBlocks) {
  SidecarSim sim;
  const SessionId session = sim.Play(SessionId{}, {User(std::string(300, 'q'))}).last()->session;
  ASSERT_EQ(sim.Run(SidecarSim::Operation(RequestKind::kSessionDelete, session)).last()->code, 0);

  EXPECT_EQ(sim.Run(SidecarSim::Operation(RequestKind::kSessionStat, session)).last()->code,
            KAIROS_NOT_FOUND);
  EXPECT_EQ(sim.Play(SessionId{}, {User(std::string(300, 'q'))}).figures().reused_tokens, 0u);
  sim.Restart();
  EXPECT_EQ(sim.Run(SidecarSim::Operation(RequestKind::kSessionStat, session)).last()->code,
            KAIROS_NOT_FOUND);
}

TEST(TurnSim, AWrittenTaskContextIsANewVersionThatARewindUndoes) {
  SidecarSim sim;
  const SessionId session = sim.Play(SessionId{}, {User("plan")}).last()->session;
  Request write = SidecarSim::Operation(RequestKind::kContextWrite, session);
  write.json = R"({"goal":"see Lisbon"})";
  const auto& written = sim.Run(std::move(write));
  ASSERT_EQ(written.last()->code, 0) << written.last()->text;
  EXPECT_EQ(written.last()->version, 2u);

  const auto read = [&] {
    return sim.Run(SidecarSim::Operation(RequestKind::kContextRead, session)).last()->text;
  };
  EXPECT_NE(read().find("see Lisbon"), std::string::npos);
  sim.Run(SidecarSim::Operation(RequestKind::kSessionRewind, session, 1));
  EXPECT_EQ(read().find("see Lisbon"), std::string::npos);
}

kairos_session_t Stat(SidecarSim* sim, SessionId session) {
  return sim->Run(SidecarSim::Operation(RequestKind::kSessionStat, session)).last()->sessions[0];
}

std::string Context(SidecarSim* sim, SessionId session) {
  return sim->Run(SidecarSim::Operation(RequestKind::kContextRead, session)).last()->text;
}

// A session whose head waits for the tool "clock".
SessionId WaitForClock(SidecarSim* sim) {
  sim->engine().script = R"(<tool_call>{"name":"clock","arguments":{}}</tool_call>)";
  Request turn = SidecarSim::TurnOf(SessionId{}, {User("what time is it")}, 100);
  turn.turn->has_tools = true;
  turn.turn->tools_json = R"([{"name":"clock","description":"time","parameters":{}}])";
  const SessionId session = sim->Run(std::move(turn)).last()->session;
  sim->engine().script.clear();
  EXPECT_EQ(Stat(sim, session).phase, KAIROS_PHASE_WAITING_TOOL);
  return session;
}

constexpr uint64_t kToolTimeoutMs = 60'000;

ConductorSettings WithPhases(PhaseLimits phases) {
  ConductorSettings settings;
  settings.phases = phases;
  return settings;
}

TEST(TurnSim, AToolThatTakesTooLongGivesTheSessionBackToItsUser) {
  SidecarSim sim;
  sim.Reload(WithPhases({.tool_ms = kToolTimeoutMs}));
  const SessionId session = WaitForClock(&sim);
  const std::string messages = sim.Messages(session);
  sim.Pass(kToolTimeoutMs - 1000);
  EXPECT_EQ(Stat(&sim, session).phase, KAIROS_PHASE_WAITING_TOOL);

  sim.Pass(2000);

  const kairos_session_t after = Stat(&sim, session);
  EXPECT_EQ(after.phase, KAIROS_PHASE_WAITING_USER);
  EXPECT_EQ(after.waiting_for[0], 0);
  EXPECT_EQ(after.version, 2u);
  EXPECT_EQ(sim.Messages(session), messages);
  EXPECT_NE(Context(&sim, session).find(R"("timed_out_after_ms":60000)"), std::string::npos);
  sim.Pass(10 * kToolTimeoutMs);
  EXPECT_EQ(Stat(&sim, session).version, 2u);
  sim.Restart();
  EXPECT_EQ(Stat(&sim, session).phase, KAIROS_PHASE_WAITING_USER);
}

TEST(TurnSim, AResultThatComesAfterTheTimeOutIsTakenLikeAnyOther) {
  SidecarSim sim;
  sim.Reload(WithPhases({.tool_ms = kToolTimeoutMs}));
  const SessionId session = WaitForClock(&sim);
  sim.Pass(2 * kToolTimeoutMs);
  ASSERT_EQ(Stat(&sim, session).phase, KAIROS_PHASE_WAITING_USER);

  ChatMessage result;
  result.role = "tool";
  result.name = "clock";
  result.content = "noon";
  EXPECT_TRUE(sim.Play(session, {result}).final());

  const std::string context = Context(&sim, session);
  EXPECT_NE(context.find(R"("pending_actions":[])"), std::string::npos) << context;
  EXPECT_NE(context.find("noon"), std::string::npos) << context;
}

ChatMessage ResultOf(const char* content, const char* id = "") {
  ChatMessage result;
  result.role = "tool";
  result.content = content;
  result.tool_call_id = id;
  return result;
}

TEST(TurnSim, AResultWithoutANameAnswersTheOnlyCallAndIsKeptAsIfNamed) {
  SidecarSim sim;
  const SessionId session = WaitForClock(&sim);

  EXPECT_TRUE(sim.Play(session, {ResultOf("noon")}).final());

  EXPECT_NE(Context(&sim, session).find(R"("pending_actions":[])"), std::string::npos);
  EXPECT_NE(sim.Messages(session).find(R"("tool_call_id":"call_1_0")"), std::string::npos)
      << sim.Messages(session);
}

TEST(TurnSim, AResultOfNoPendingCallIsRefusedAndChangesNothing) {
  SidecarSim sim;
  const SessionId session = WaitForClock(&sim);

  const auto& outcome = sim.Play(session, {User("Here:"), ResultOf("noon", "call_9_0")});

  EXPECT_EQ(outcome.last()->code, static_cast<int32_t>(Code::kInvalidArgument));
  EXPECT_EQ(outcome.last()->text,
            "messages[1].tool_call_id: \"call_9_0\" is of no pending call; pending: call_1_0 "
            "(clock)");
  EXPECT_EQ(Stat(&sim, session).phase, KAIROS_PHASE_WAITING_TOOL);
  EXPECT_EQ(Stat(&sim, session).version, 1u);
}

TEST(TurnSim, OldResultsOfAResentHistoryAnswerNothingAndAreNotRefused) {
  SidecarSim sim;
  const SessionId session = WaitForClock(&sim);
  const std::string call = R"(<tool_call>{"name":"clock","arguments":{}}</tool_call>)";
  sim.engine().script = call;
  EXPECT_TRUE(sim.Play(session, {ResultOf("noon")}, 100).final());
  sim.engine().script.clear();
  ChatMessage answer = User(call.c_str());
  answer.role = "assistant";

  Request turn = SidecarSim::TurnOf(
      session, {User("what is the time"), answer, ResultOf("one", "mine-1"), answer,
                ResultOf("two", "mine-2")}, 16);
  turn.turn->flags |= KAIROS_TURN_WHOLE_HISTORY;
  EXPECT_TRUE(sim.Run(std::move(turn)).final());

  EXPECT_NE(Context(&sim, session).find(R"("pending_actions":[])"), std::string::npos)
      << Context(&sim, session);
}

TEST(TurnSim, AResultThatIsRenderedAgainForOtherToolsAnswersNoLaterCall) {
  SidecarSim sim;
  const SessionId session = WaitForClock(&sim);
  sim.engine().script = R"(<tool_call>{"name":"clock","arguments":{}}</tool_call>)";
  EXPECT_TRUE(sim.Play(session, {ResultOf("noon")}, 100).final());
  sim.engine().script.clear();

  Request turn = SidecarSim::TurnOf(session, {User("go on")}, 16);
  turn.turn->has_tools = true;
  turn.turn->tools_json = R"([{"name":"bell","parameters":{}}])";
  EXPECT_TRUE(sim.Run(std::move(turn)).final());

  const std::string context = Context(&sim, session);
  EXPECT_NE(context.find(R"("tool":"clock","tool_call_id":"call_2_0")"), std::string::npos)
      << context;
  EXPECT_EQ(context.find("noon"), context.rfind("noon")) << context;
}

TEST(TurnSim, WaitsForAToolForEverUnlessToldOtherwise) {
  SidecarSim sim;
  const SessionId session = WaitForClock(&sim);
  sim.Pass(365ull * 86'400'000);
  EXPECT_EQ(Stat(&sim, session).phase, KAIROS_PHASE_WAITING_TOOL);
}

TEST(TurnSim, AUserWhoStaysAwayLeavesAnIdleSessionThatGoesOnAsItWas) {
  SidecarSim sim;
  sim.Reload(WithPhases({.user_ms = 5000}));
  const SessionId session = sim.Play(SessionId{}, {User("hello")}).last()->session;
  EXPECT_EQ(Stat(&sim, session).phase, KAIROS_PHASE_WAITING_USER);

  sim.Pass(6000);

  EXPECT_EQ(Stat(&sim, session).phase, KAIROS_PHASE_IDLE);
  EXPECT_EQ(Stat(&sim, session).version, 1u);
  EXPECT_EQ(sim.Play(session, {User("back")}).figures().version, 2u);
  EXPECT_EQ(Stat(&sim, session).phase, KAIROS_PHASE_WAITING_USER);
}

TEST(TurnSim, AForkOfAWaitingVersionWaitsAnewAlsoWhereItIsNotTheHead) {
  SidecarSim sim;
  sim.Reload(WithPhases({.tool_ms = kToolTimeoutMs}));
  const SessionId source = WaitForClock(&sim);
  const kairos_session_t waiting = Stat(&sim, source);
  EXPECT_TRUE(sim.Play(source, {User("never mind")}).final());
  ASSERT_EQ(Stat(&sim, source).phase, KAIROS_PHASE_WAITING_USER);

  const SessionId fork =
      sim.Run(SidecarSim::Operation(RequestKind::kSessionFork, source, 1)).last()->session;

  const kairos_session_t forked = Stat(&sim, fork);
  EXPECT_EQ(forked.phase, KAIROS_PHASE_WAITING_TOOL);
  EXPECT_STREQ(forked.waiting_for, "clock");
  EXPECT_EQ(forked.token_count, waiting.token_count);
  EXPECT_EQ(forked.message_count, waiting.message_count);
  sim.Pass(kToolTimeoutMs - 1000);
  EXPECT_EQ(Stat(&sim, fork).phase, KAIROS_PHASE_WAITING_TOOL);
  sim.Pass(2000);
  EXPECT_EQ(Stat(&sim, fork).phase, KAIROS_PHASE_WAITING_USER);
}

TEST(TurnSim, ARewindToAWaitingVersionBeginsTheWaitAnew) {
  SidecarSim sim;
  sim.Reload(WithPhases({.tool_ms = kToolTimeoutMs}));
  const SessionId session = WaitForClock(&sim);
  sim.Pass(2 * kToolTimeoutMs);
  sim.Run(SidecarSim::Operation(RequestKind::kSessionRewind, session, 1));
  sim.Pass(kToolTimeoutMs - 5000);
  EXPECT_EQ(Stat(&sim, session).phase, KAIROS_PHASE_WAITING_TOOL);
  sim.Pass(10'000);
  EXPECT_EQ(Stat(&sim, session).version, 3u);
}

TEST(TurnSim, ASessionDiesAfterItsTimeToLiveWithoutATurn) {
  SidecarSim sim;
  Request create = SidecarSim::Operation(RequestKind::kSessionCreate, SessionId{});
  create.ttl_seconds = 100;
  const SessionId session = sim.Run(std::move(create)).last()->session;
  sim.Pass(90'000);
  ASSERT_TRUE(sim.Play(session, {User("still here")}).final());
  sim.Pass(90'000);
  EXPECT_EQ(Stat(&sim, session).version, 1u);

  sim.Pass(20'000);

  EXPECT_EQ(sim.Run(SidecarSim::Operation(RequestKind::kSessionStat, session)).last()->code,
            KAIROS_NOT_FOUND);
}

TEST(TurnSim, StartingOverDropsTheDialogueOnlyWhenTheClientAllowsIt) {
  SidecarSim sim;
  const SessionId session =
      sim.Play(SessionId{}, {User("remember the number seven")}).last()->session;
  EXPECT_EQ(sim.Play(session, {User("Start over.")}).figures().plan, KAIROS_PLAN_FULL_COMPUTE);
  EXPECT_NE(sim.Messages(session).find("seven"), std::string::npos);
  Request turn = SidecarSim::TurnOf(session, {User("Start over.")});
  turn.turn->generation_flags = KAIROS_AUTO_CONTEXT;

  const auto& reset = sim.Run(std::move(turn));

  ASSERT_TRUE(reset.final());
  EXPECT_EQ(sim.Messages(session).find("seven"), std::string::npos);
  sim.Run(SidecarSim::Operation(RequestKind::kSessionRewind, session, 2));
  EXPECT_NE(sim.Messages(session).find("seven"), std::string::npos);
}

TEST(TurnSim, RawTokensAreTheLogItself) {
  SidecarSim sim;
  Request turn = SidecarSim::TurnOf(SessionId{}, {});
  for (const char letter : std::string("raw tokens")) turn.turn->tokens.push_back(letter);

  const auto& raw = sim.Run(std::move(turn));

  ASSERT_TRUE(raw.final());
  EXPECT_EQ(raw.figures().prompt_tokens, 10u);
  Request bad = SidecarSim::TurnOf(SessionId{}, {});
  bad.turn->tokens = {100000};
  EXPECT_EQ(sim.Run(std::move(bad)).last()->code, KAIROS_INVALID_ARGUMENT);
}

// Random clients against few slots, with restarts: the fake engine checks every reused slot, and
// what clients were told is what the sessions hold.
TEST(TurnSim, LosesNoAcknowledgedTurnOverRandomRuns) {
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const BlockLayout windowed{.full_slots = 1, .window_slots = 2, .window_tokens = 70,
                               .ring_blocks = (70 + 64 + 64) / 32};
    const BlockLayout layout = seed % 2 == 0 ? windowed : BlockLayout{};
    SidecarSim sim((40 + random() % 60) * layout.slots(), false, "", layout);
    struct Agent {
      SessionId id;
      std::vector<std::string> versions{"[]"};  // messages by version, as told
      uint64_t head = 0;
    };
    std::vector<Agent> agents;
    agents.reserve(16);  // references into it stay valid
    for (int step = 0; step < 60; ++step) {
      const uint32_t what = random() % 10;
      if (agents.size() < 3 || (what == 0 && agents.size() < 8)) {
        agents.push_back({sim.Create(static_cast<int32_t>(random() % 2)), {"[]"}, 0});
        continue;
      }
      Agent& agent = agents[random() % agents.size()];
      if (what == 1 && agent.head > 0) {
        const uint64_t target = random() % agent.head + 1;
        const auto& rewound =
            sim.Run(SidecarSim::Operation(RequestKind::kSessionRewind, agent.id, target));
        ASSERT_EQ(rewound.last()->code, 0) << rewound.last()->text;
        agent.head = target;
      } else if (what == 2 && agents.size() < 8) {
        const auto& forked = sim.Run(SidecarSim::Operation(RequestKind::kSessionFork, agent.id));
        ASSERT_EQ(forked.last()->code, 0) << forked.last()->text;
        Agent child{forked.last()->session, {"[]"}, 0};
        if (agent.head > 0) {
          child.versions.push_back(agent.versions[agent.head]);
          child.head = 1;
        }
        agents.push_back(std::move(child));
      } else if (what == 3) {
        sim.Restart();
      } else {
        const std::string said(random() % 90 + 1, static_cast<char>('a' + random() % 3));
        const auto& turn = sim.Play(agent.id, {User(said)}, random() % 30 + 1);
        ASSERT_TRUE(turn.final()) << turn.last()->text;
        ExpectTokensAddUp(turn.figures());
        std::string told = agent.versions[agent.head];
        told.pop_back();
        if (told.size() > 1) told += ',';
        told += R"({"role":"user","content":")" + said + R"("},{"role":"assistant","content":")" +
                turn.text + "\"}]";
        ASSERT_EQ(turn.figures().version, agent.versions.size());
        agent.versions.push_back(told);
        agent.head = turn.figures().version;
      }
      ASSERT_EQ(sim.Messages(agent.id), agent.versions[agent.head]);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace kairos
