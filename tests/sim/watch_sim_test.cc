// SPDX-License-Identifier: Apache-2.0
// What clients that watch sessions are told, and who is told nothing.
#include <gtest/gtest.h>

#include "tests/sim/sidecar_sim.h"

namespace kairos {
namespace {

constexpr AttachmentId kWatcher{9};

ChatMessage User(std::string content) {
  ChatMessage message;
  message.role = "user";
  message.content = std::move(content);
  return message;
}

Request WatchRequest(uint32_t flags, AttachmentId attachment = kWatcher, uint32_t uid = 0,
                     std::string name_space = "default") {
  Request request;
  request.kind = RequestKind::kWatch;
  request.watch_flags = flags;
  request.attachment = attachment;
  request.uid = uid;
  request.name_space = std::move(name_space);
  return request;
}

void Watch(SidecarSim& sim, AttachmentId attachment = kWatcher, uint32_t uid = 0,
           std::string name_space = "default") {
  ASSERT_EQ(sim.Run(WatchRequest(KAIROS_WATCH_SESSIONS, attachment, uid, std::move(name_space)))
                .last()->kind,
            ReplyKind::kResult);
}

// Records that belong to no request, as "version phase [skipped]" each.
std::string Told(SidecarSim& sim, SessionId session, AttachmentId watcher = kWatcher) {
  static constexpr const char* kPhases[] = {"idle", "running", "tool", "user", "closed"};
  std::string told;
  for (const Reply& reply : sim.outcome(RequestId{}).replies) {
    EXPECT_EQ(reply.kind, ReplyKind::kSession);
    EXPECT_TRUE(reply.text.empty());
    EXPECT_TRUE(reply.tokens.empty());
    if (!(reply.attachment == watcher) || !(reply.session == session)) continue;
    const kairos_session_t& state = reply.sessions.at(0);
    EXPECT_EQ(state.id, session.value);
    told += std::to_string(state.version) + " " + kPhases[state.phase];
    if (state.waiting_for[0] != '\0') told += std::string(" ") + state.waiting_for;
    told += reply.detail == KAIROS_DETAIL_SKIPPED ? " skipped; " : "; ";
  }
  return told;
}

size_t CountTold(SidecarSim& sim, AttachmentId watcher = kWatcher) {
  const auto& replies = sim.outcome(RequestId{}).replies;
  return static_cast<size_t>(std::count_if(replies.begin(), replies.end(), [&](const Reply& one) {
    return one.attachment == watcher;
  }));
}

TEST(WatchSim, TellsEveryPhaseOfASessionFromItsFirstTurnToItsEnd) {
  SidecarSim sim;
  Watch(sim);

  const SessionId session = sim.Play(SessionId{}, {User("hello")}).last()->session;
  sim.engine().script = "<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>";
  sim.Play(session, {User("what time is it")}, 400);
  sim.Run(SidecarSim::Operation(RequestKind::kSessionDelete, session));

  EXPECT_EQ(Told(sim, session),
            "0 running; 1 user; 1 running; 2 tool clock; 0 closed; ");
}

TEST(WatchSim, TellsOfMadeForkedRewoundAndRewrittenSessions) {
  SidecarSim sim;
  Watch(sim);

  const SessionId session = sim.Create();
  sim.Play(session, {User("one")});
  sim.Play(session, {User("two")});
  sim.Run(SidecarSim::Operation(RequestKind::kSessionRewind, session, 1));
  Request write = SidecarSim::Operation(RequestKind::kContextWrite, session);
  write.json = "{}";
  sim.Run(std::move(write));
  const SessionId fork =
      sim.Run(SidecarSim::Operation(RequestKind::kSessionFork, session)).last()->session;

  EXPECT_EQ(Told(sim, session),
            "0 idle; 0 running; 1 user; 1 running; 2 user; 1 user; 3 user; ");
  EXPECT_EQ(Told(sim, fork), "1 user; ");
}

TEST(WatchSim, TellsNothingOfWhatChangesNothing) {
  SidecarSim sim;
  const SessionId session = sim.Play(SessionId{}, {User("one")}).last()->session;
  Watch(sim);

  Request stale = SidecarSim::TurnOf(session, {User("two")});
  stale.if_version = 0;
  sim.Run(std::move(stale));
  sim.Run(SidecarSim::Operation(RequestKind::kSessionStat, session));
  sim.Run(SidecarSim::Operation(RequestKind::kSessionMessages, session));
  sim.Run(SidecarSim::Operation(RequestKind::kSessionRewind, session, 1));

  EXPECT_EQ(Told(sim, session), "");
}

TEST(WatchSim, ASessionWhoseFirstTurnFailsIsToldToBeGone) {
  SidecarSim sim;
  Watch(sim);

  const auto& refused = sim.Play(SessionId{}, {User(std::string(20'000, 'x'))});

  ASSERT_EQ(refused.last()->kind, ReplyKind::kError);
  EXPECT_EQ(Told(sim, refused.last()->session), "0 running; 0 closed; ");
}

TEST(WatchSim, TellsOnlyThoseWhoMaySeeTheSession) {
  SidecarSim sim;
  Watch(sim, AttachmentId{20}, 7);
  Watch(sim, AttachmentId{21}, 0, "elsewhere");
  Watch(sim, AttachmentId{22});

  sim.Play(SessionId{}, {User("mine")});

  EXPECT_EQ(CountTold(sim, AttachmentId{20}), 0u) << "another uid";
  EXPECT_EQ(CountTold(sim, AttachmentId{21}), 0u) << "another namespace";
  EXPECT_EQ(CountTold(sim, AttachmentId{22}), 2u);
}

TEST(WatchSim, AGrantOpensANamespaceToItsWatchersToo) {
  SidecarSim sim;
  ConductorSettings settings;
  settings.grants = {{7, "default"}};
  sim.Reload(settings);
  Watch(sim, kWatcher, 7);

  const SessionId session = sim.Play(SessionId{}, {User("shared")}).last()->session;

  EXPECT_EQ(Told(sim, session), "0 running; 1 user; ");
}

TEST(WatchSim, IsSilentAfterTheEndOfWatchingAndOfTheClient) {
  SidecarSim sim;
  Watch(sim, AttachmentId{20});
  Watch(sim, AttachmentId{21});
  sim.Run(WatchRequest(0, AttachmentId{20}));
  Request detach = SidecarSim::Operation(RequestKind::kDetach, SessionId{});
  detach.attachment = AttachmentId{21};
  sim.Run(std::move(detach));

  sim.Play(SessionId{}, {User("hello")});

  EXPECT_EQ(sim.detached, 1);
  EXPECT_EQ(CountTold(sim, AttachmentId{20}), 0u);
  EXPECT_EQ(CountTold(sim, AttachmentId{21}), 0u);
}

TEST(WatchSim, AReadOfTheHeadThatTheClientHasSendsNoText) {
  SidecarSim sim;
  const SessionId session = sim.Play(SessionId{}, {User("one")}).last()->session;
  sim.Play(session, {User("two")});
  const auto read = [&](RequestKind kind, uint64_t version, uint64_t known) {
    Request request = SidecarSim::Operation(kind, session, version);
    request.known_version = known;
    const Reply reply = *sim.Run(std::move(request)).last();
    EXPECT_EQ(reply.code, 0);
    EXPECT_EQ(reply.text.empty(), reply.not_changed);
    return std::to_string(reply.version) + (reply.not_changed ? " same" : " text");
  };

  for (const RequestKind kind : {RequestKind::kSessionMessages, RequestKind::kContextRead}) {
    EXPECT_EQ(read(kind, 0, 2), "2 same");
    EXPECT_EQ(read(kind, 2, 2), "2 same");
    EXPECT_EQ(read(kind, 0, 1), "2 text");
    EXPECT_EQ(read(kind, 1, 2), "1 text");
    EXPECT_EQ(read(kind, 1, 1), "1 text") << "not the head: it has to be looked for";
    EXPECT_EQ(read(kind, 0, 0), "2 text");
  }
}

TEST(WatchSim, AKnownVersionOpensNoSessionOfOthers) {
  SidecarSim sim;
  const SessionId session = sim.Play(SessionId{}, {User("mine")}).last()->session;
  Request request = SidecarSim::Operation(RequestKind::kSessionMessages, session);
  request.known_version = 1;
  request.uid = 7;

  EXPECT_EQ(sim.Run(std::move(request)).last()->code, KAIROS_NOT_FOUND);
}

}  // namespace
}  // namespace kairos
