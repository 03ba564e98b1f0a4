// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <chrono>
#include <map>
#include <thread>

#include "tests/unit/capi/client_fixture.h"

namespace kairos {
namespace {

bool Readable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

// ---- Opening ------------------------------------------------------------------------------------

TEST(ClientOpen, SaysThatNobodyListens) {
  kairos_client_options_t options;
  kairos_client_options_init(&options);
  const std::string path = "/tmp/kairos-no-such-socket/kairos.sock";
  options.socket_path = {path.data(), path.size()};
  kairos_client_t* client = reinterpret_cast<kairos_client_t*>(1);

  EXPECT_EQ(kairos_client_open(&options, &client), -KAIROS_UNAVAILABLE);

  EXPECT_EQ(client, nullptr);
  EXPECT_EQ(kairos_last_detail(), 0);
  EXPECT_NE(LastError().find(path), std::string::npos);
}

TEST(ClientOpen, TakesThePathFromTheEnvironment) {
  FakeSidecar sidecar;
  setenv("KAIROS_SOCKET", sidecar.path().c_str(), 1);
  kairos_client_t* client = nullptr;

  EXPECT_EQ(kairos_client_open(nullptr, &client), 0) << LastError();

  EXPECT_GT(kairos_client_ping(client, 8, 0, kPatienceMs), 0);
  kairos_client_close(client);
  unsetenv("KAIROS_SOCKET");
}

TEST_F(ClientTest, PingsAllSizesParkedAndSpinning) {
  for (uint32_t size : {0u, 1u, 64u, 4096u, 65536u}) {
    for (int32_t spin : {0, 1}) {
      EXPECT_GT(kairos_client_ping(client_, size, spin, kPatienceMs), 0) << size << LastError();
    }
  }
  EXPECT_EQ(kairos_client_ping(client_, 65537, 0, kPatienceMs), -KAIROS_INVALID_ARGUMENT);
}

TEST_F(ClientTest, PingTimesOutWhileTheSidecarIsStopped) {
  sidecar_.Pause();

  EXPECT_EQ(kairos_client_ping(client_, 8, 0, 20), -KAIROS_DEADLINE_EXCEEDED);
  EXPECT_EQ(kairos_client_ping(client_, 8, 1, 20), -KAIROS_DEADLINE_EXCEEDED);
  EXPECT_EQ(kairos_client_ping(client_, 8, 0, 0), -KAIROS_DEADLINE_EXCEEDED);
  sidecar_.Resume();

  EXPECT_GT(kairos_client_ping(client_, 8, 0, kPatienceMs), 0) << "late pongs are not mixed up";
}

// ---- Sessions -----------------------------------------------------------------------------------

TEST_F(ClientTest, CreatesForksRewindsListsAndDeletesSessions) {
  kairos_session_options_t options;
  kairos_session_options_init(&options);
  options.label = {"planner", 7};
  uint64_t session = 0, fork = 0;
  ASSERT_EQ(kairos_session_create(client_, &options, &session, kPatienceMs), 0) << LastError();
  ASSERT_NE(session, 0u);
  ASSERT_EQ(kairos_session_fork(client_, session, 0, &fork, kPatienceMs), 0) << LastError();
  EXPECT_NE(fork, session);
  EXPECT_EQ(kairos_session_rewind(client_, fork, 3, kPatienceMs), 0);

  kairos_session_t record{};
  record.struct_size = sizeof(record);
  ASSERT_EQ(kairos_session_stat(client_, fork, &record, kPatienceMs), 0) << LastError();
  EXPECT_EQ(record.id, fork);
  EXPECT_EQ(record.parent_id, session);
  EXPECT_EQ(record.version, 3u);
  EXPECT_EQ(std::string(record.label, record.label_size), "planner");

  kairos_session_t records[4] = {};
  records[0].struct_size = sizeof(records[0]);
  EXPECT_EQ(kairos_session_list(client_, 0, records, 4, kPatienceMs), 2);
  EXPECT_EQ(records[1].id, fork);
  EXPECT_EQ(kairos_session_list(client_, session, records, 4, kPatienceMs), 1);
  EXPECT_EQ(records[0].id, fork);

  EXPECT_EQ(kairos_session_release(client_, session, kPatienceMs), 0);
  EXPECT_EQ(kairos_session_delete(client_, session, kPatienceMs), 0);
  EXPECT_EQ(kairos_session_open(client_, session, nullptr, kPatienceMs), -KAIROS_NOT_FOUND);
  EXPECT_EQ(LastError(), "no session");
}

TEST_F(ClientTest, ReadsAndWritesTheTaskContext) {
  uint64_t session = 0, version = 0;
  ASSERT_EQ(kairos_session_create(client_, nullptr, &session, kPatienceMs), 0);
  const std::string json = R"({"goal":"ship"})";

  ASSERT_EQ(kairos_context_write(client_, session, 0, {json.data(), json.size()}, &version,
                                 kPatienceMs), 0) << LastError();

  EXPECT_EQ(version, 1u);
  kairos_event_t* out = nullptr;
  ASSERT_EQ(kairos_context_read(client_, session, 0, &out, kPatienceMs), 0);
  const Event reply(out);
  EXPECT_EQ(Text(reply), json);
  EXPECT_EQ(kairos_event_type(out), KAIROS_EVENT_REPLY);
  EXPECT_EQ(kairos_context_write(client_, session, 0, {json.data(), json.size()}, nullptr,
                                 kPatienceMs), -KAIROS_FAILED_PRECONDITION);
  EXPECT_EQ(kairos_last_detail(), KAIROS_DETAIL_STALE_VERSION);
}

// ---- Turns --------------------------------------------------------------------------------------

TEST_F(ClientTest, ReasoningIsAnEventOfItsOwnAndABrokenCallHasADetail) {
  uint64_t request = 0;
  ASSERT_EQ(Submit(client_, "reasoning", &request), 0) << LastError();

  Next(client_);
  Event reasoning = Next(client_);
  EXPECT_EQ(kairos_event_type(reasoning.get()), KAIROS_EVENT_REASONING);
  EXPECT_EQ(kairos_event_code(reasoning.get()), KAIROS_OK);
  EXPECT_EQ(Text(reasoning), "hm");
  Event broken = Next(client_);
  EXPECT_EQ(kairos_event_type(broken.get()), KAIROS_EVENT_TEXT);
  EXPECT_EQ(kairos_event_detail(broken.get()), KAIROS_DETAIL_CALL_UNFINISHED);
  EXPECT_EQ(Text(broken), "<tool_call>{");
}

TEST_F(ClientTest, TurnEndsWithItsNumbers) {
  uint64_t request = 0;
  ASSERT_EQ(Submit(client_, "hello there", &request), 0) << LastError();

  Event accepted = Next(client_);
  ASSERT_EQ(kairos_event_type(accepted.get()), KAIROS_EVENT_ACCEPTED);
  const uint64_t session = kairos_event_session(accepted.get());
  EXPECT_NE(session, 0u);
  Event text = Next(client_);
  ASSERT_EQ(kairos_event_type(text.get()), KAIROS_EVENT_TEXT);
  EXPECT_EQ(Text(text), "hello there");
  EXPECT_EQ(kairos_event_session(text.get()), session);
  uint32_t count = 0;
  const int32_t* tokens = kairos_event_tokens(text.get(), &count);
  ASSERT_EQ(count, 2u);
  EXPECT_EQ(tokens[1], 7);
  kairos_final_t numbers{};
  numbers.struct_size = sizeof(numbers);
  EXPECT_EQ(kairos_event_final(text.get(), &numbers), -KAIROS_FAILED_PRECONDITION);
  Event last = Next(client_);
  ASSERT_EQ(kairos_event_type(last.get()), KAIROS_EVENT_FINAL);
  ASSERT_EQ(kairos_event_final(last.get(), &numbers), 0) << LastError();
  EXPECT_EQ(numbers.finish, KAIROS_FINISH_STOP);
  EXPECT_EQ(numbers.session_id, session);
  EXPECT_EQ(numbers.new_tokens, 3u);
  EXPECT_EQ(numbers.first_difference, -1);

  kairos_event_t* none = nullptr;
  EXPECT_EQ(kairos_event_next(client_, 0, &none), 0);
  EXPECT_EQ(none, nullptr);
}

TEST_F(ClientTest, FailedTurnEndsWithAnErrorEvent) {
  uint64_t request = 0;
  ASSERT_EQ(Submit(client_, "fail", &request), 0);

  Event accepted = Next(client_);
  Event error = Next(client_);

  ASSERT_EQ(kairos_event_type(error.get()), KAIROS_EVENT_ERROR);
  EXPECT_EQ(kairos_event_code(error.get()), KAIROS_RESOURCE_EXHAUSTED);
  EXPECT_EQ(kairos_event_detail(error.get()), KAIROS_DETAIL_QUOTA);
  EXPECT_EQ(Text(error), "quota: turns");
  EXPECT_EQ(kairos_event_session(error.get()), kairos_event_session(accepted.get()));
}

TEST_F(ClientTest, CancelFromAnotherThreadEndsTheTurn) {
  uint64_t request = 0;
  ASSERT_EQ(Submit(client_, "hang", &request), 0);
  ASSERT_EQ(kairos_event_type(Next(client_).get()), KAIROS_EVENT_ACCEPTED);

  std::thread other([&] { EXPECT_EQ(kairos_turn_cancel(client_, request), 0) << LastError(); });
  Event last = Next(client_);
  other.join();

  kairos_final_t numbers{};
  numbers.struct_size = sizeof(numbers);
  ASSERT_EQ(kairos_event_final(last.get(), &numbers), 0);
  EXPECT_EQ(numbers.finish, KAIROS_FINISH_CANCELLED);
  EXPECT_EQ(kairos_turn_cancel(client_, request), 0) << "a finished turn is no error";
}

TEST_F(ClientTest, RawTokenTurnCarriesItsTokens) {
  const std::vector<int32_t> tokens(5000, 3);
  kairos_turn_options_t options;
  kairos_turn_options_init(&options);
  options.tokens = tokens.data();
  options.token_count = static_cast<uint32_t>(tokens.size());
  uint64_t request = 0;
  ASSERT_EQ(kairos_turn_submit(client_, &options, &request), 0) << LastError();

  Next(client_);

  EXPECT_EQ(Text(Next(client_)), "tokens 5000");
}

TEST(ClientRings, CarryATurnManyTimesLargerThanTheRing) {
  FakeSidecar sidecar;
  kairos_client_t* client = OpenClient(sidecar.path(), 64u << 10);
  std::string content(3u << 20, 'x');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>('a' + i * 7 % 26);
  uint64_t request = 0;
  ASSERT_EQ(Submit(client, content, &request), 0) << LastError();

  EXPECT_EQ(kairos_event_type(Next(client).get()), KAIROS_EVENT_ACCEPTED);
  EXPECT_EQ(Text(Next(client)), content);
  EXPECT_EQ(kairos_event_type(Next(client).get()), KAIROS_EVENT_FINAL);
  EXPECT_GT(kairos_client_ping(client, 64, 0, kPatienceMs), 0);

  kairos_client_close(client);
}

TEST(ClientRings, RefuseWhenFullAndGoOnWhenRead) {
  FakeSidecar sidecar;
  kairos_client_t* client = OpenClient(sidecar.path(), 64u << 10);
  sidecar.Pause();
  const std::string content(4000, 'y');
  uint64_t request = 0;
  uint32_t queued = 0;
  while (Submit(client, content, &request) == 0) ++queued;
  EXPECT_EQ(kairos_last_detail(), KAIROS_DETAIL_RING_FULL);
  EXPECT_GT(queued, 8u);
  EXPECT_LT(queued, 17u);

  sidecar.Resume();
  uint32_t finals = 0;
  while (finals < queued) {
    Event event = Next(client);
    ASSERT_NE(event, nullptr) << LastError();
    finals += kairos_event_type(event.get()) == KAIROS_EVENT_FINAL ? 1 : 0;
  }
  EXPECT_EQ(Submit(client, content, &request), 0) << LastError();
  EXPECT_EQ(TypesOfTurn(client, request).back(), KAIROS_EVENT_FINAL);

  kairos_client_close(client);
}

TEST(ClientRings, BlockingCallWaitsForRoom) {
  FakeSidecar sidecar;
  kairos_client_t* client = OpenClient(sidecar.path(), 64u << 10);
  sidecar.Pause();
  uint64_t request = 0;
  while (Submit(client, std::string(4000, 'y'), &request) == 0) {
  }
  EXPECT_EQ(kairos_client_ping(client, 4096, 0, 10), -KAIROS_RESOURCE_EXHAUSTED);

  std::thread other([&] { sidecar.Resume(); });
  EXPECT_GT(kairos_client_ping(client, 4096, 0, kPatienceMs), 0) << LastError();

  other.join();
  kairos_client_close(client);
}

TEST_F(ClientTest, DeliversMoreEventsThanTheRingHolds) {
  uint64_t request = 0;
  ASSERT_EQ(Submit(client_, "burst 40000", &request), 0);

  const std::vector<int32_t> types = TypesOfTurn(client_, request);

  EXPECT_EQ(types.size(), 40002u);
  EXPECT_EQ(types.back(), KAIROS_EVENT_FINAL);
}

// ---- Threads ------------------------------------------------------------------------------------

TEST_F(ClientTest, GivesEveryThreadItsOwnReplies) {
  constexpr int kThreads = 4, kRounds = 200;
  std::atomic<int> finals{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const std::string label = std::to_string(t) + "/" + std::to_string(i);
        kairos_session_options_t options;
        kairos_session_options_init(&options);
        options.label = {label.data(), label.size()};
        uint64_t session = 0, request = 0;
        ASSERT_EQ(kairos_session_create(client_, &options, &session, kPatienceMs), 0)
            << LastError();
        kairos_session_t record{};
        record.struct_size = sizeof(record);
        ASSERT_EQ(kairos_session_stat(client_, session, &record, kPatienceMs), 0) << LastError();
        ASSERT_EQ(std::string(record.label, record.label_size), label);
        ASSERT_EQ(Submit(client_, "x", &request, session), 0) << LastError();
      }
    });
  }
  threads.emplace_back([&] {
    while (finals < kThreads * kRounds) {
      Event event = Next(client_);
      ASSERT_NE(event, nullptr) << LastError();
      if (kairos_event_type(event.get()) == KAIROS_EVENT_FINAL) ++finals;
    }
  });
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(finals, kThreads * kRounds);
}

// ---- Descriptor ---------------------------------------------------------------------------------

TEST_F(ClientTest, DescriptorIsReadableExactlyWhileThereAreEvents) {
  const int fd = kairos_client_fd(client_);
  ASSERT_GE(fd, 0) << LastError();
  EXPECT_EQ(kairos_client_fd(client_), fd);
  EXPECT_FALSE(Readable(fd, 0));
  for (int round = 0; round < 100; ++round) {
    uint64_t request = 0;
    ASSERT_EQ(Submit(client_, "hello", &request), 0);
    uint32_t seen = 0;
    while (seen < 3) {
      ASSERT_TRUE(Readable(fd, kPatienceMs)) << "round " << round << " after " << seen;
      while (Event event = Next(client_, 0)) ++seen;
    }
    kairos_event_t* none = nullptr;
    EXPECT_EQ(kairos_event_next(client_, 0, &none), 0);
    EXPECT_FALSE(Readable(fd, 0)) << "round " << round;
  }
}

TEST_F(ClientTest, DescriptorShowsEventsThatABlockingCallRead) {
  const int fd = kairos_client_fd(client_);
  uint64_t request = 0;
  ASSERT_EQ(Submit(client_, "hello", &request), 0);

  ASSERT_GT(kairos_client_ping(client_, 8, 0, kPatienceMs), 0);

  EXPECT_TRUE(Readable(fd, 0));
  EXPECT_EQ(TypesOfTurn(client_, request).size(), 3u);
  EXPECT_EQ(Next(client_, 0), nullptr);
  EXPECT_FALSE(Readable(fd, 0));
  // The ring is announced as asleep again: later records come with a doorbell.
  ASSERT_EQ(Submit(client_, "hello", &request), 0);
  EXPECT_TRUE(Readable(fd, kPatienceMs));
}

TEST_F(ClientTest, DescriptorCarriesALargeTurnWithoutBlockingCalls) {
  const int fd = kairos_client_fd(client_);
  const std::string content(6u << 20, 'z');
  uint64_t request = 0;
  ASSERT_EQ(Submit(client_, content, &request), 0);

  std::string text;
  bool done = false;
  while (!done) {
    ASSERT_TRUE(Readable(fd, kPatienceMs));
    while (Event event = Next(client_, 0)) {
      if (kairos_event_type(event.get()) == KAIROS_EVENT_TEXT) text += Text(event);
      done = kairos_event_type(event.get()) == KAIROS_EVENT_FINAL;
    }
  }

  EXPECT_EQ(text, content);
}

// ---- Losing the sidecar -------------------------------------------------------------------------

TEST_F(ClientTest, EveryOpenTurnGetsOneErrorWhenTheSidecarDies) {
  const int fd = kairos_client_fd(client_);
  std::map<uint64_t, int> errors;
  uint64_t request = 0;
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(Submit(client_, "hang", &request), 0);
    errors[request] = 0;
    ASSERT_EQ(kairos_event_type(Next(client_).get()), KAIROS_EVENT_ACCEPTED);
  }

  sidecar_.DropClients();

  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(Readable(fd, kPatienceMs));
    Event event = Next(client_);
    ASSERT_EQ(kairos_event_type(event.get()), KAIROS_EVENT_ERROR);
    EXPECT_EQ(kairos_event_code(event.get()), KAIROS_UNAVAILABLE);
    EXPECT_EQ(kairos_event_detail(event.get()), KAIROS_DETAIL_SIDECAR_LOST);
    EXPECT_NE(kairos_event_session(event.get()), 0u);
    ++errors[kairos_event_request(event.get())];
  }
  for (const auto& [id, count] : errors) EXPECT_EQ(count, 1) << id;
  kairos_event_t* none = nullptr;
  EXPECT_EQ(kairos_event_next(client_, -1, &none), -KAIROS_UNAVAILABLE);
  EXPECT_EQ(kairos_last_detail(), KAIROS_DETAIL_SIDECAR_LOST);
  EXPECT_EQ(Submit(client_, "x", &request), -KAIROS_UNAVAILABLE);
  EXPECT_EQ(kairos_turn_cancel(client_, 1), -KAIROS_UNAVAILABLE);
  EXPECT_EQ(kairos_client_ping(client_, 8, 0, -1), -KAIROS_UNAVAILABLE);
  EXPECT_TRUE(Readable(fd, 0));
}

TEST_F(ClientTest, EventsSentBeforeDeathStillArrive) {
  uint64_t first = 0, second = 0;
  ASSERT_EQ(Submit(client_, "burst 50", &first), 0);
  ASSERT_EQ(Submit(client_, "die", &second), 0);

  std::map<uint64_t, std::vector<int32_t>> types;
  kairos_event_t* event = nullptr;
  while (kairos_event_next(client_, kPatienceMs, &event) == 1) {
    types[kairos_event_request(event)].push_back(kairos_event_type(event));
    kairos_event_release(event);
  }

  EXPECT_EQ(types[first].size(), 52u);
  EXPECT_EQ(types[first].back(), KAIROS_EVENT_FINAL);
  EXPECT_EQ(types[second], (std::vector<int32_t>{KAIROS_EVENT_ACCEPTED, KAIROS_EVENT_ERROR}));
}

TEST_F(ClientTest, BlockedCallsEndWhenTheSidecarDies) {
  sidecar_.Pause();
  std::thread waiter([&] {
    kairos_event_t* event = nullptr;
    EXPECT_EQ(kairos_event_next(client_, -1, &event), -KAIROS_UNAVAILABLE);
  });
  const auto ping = [&](int32_t spin) {
    EXPECT_EQ(kairos_client_ping(client_, 8, spin, -1), -KAIROS_UNAVAILABLE);
  };
  std::thread pinger(ping, 0);
  std::thread spinner(ping, 1);

  sidecar_.DropClients();

  waiter.join();
  pinger.join();
  spinner.join();
}

TEST_F(ClientTest, RecordOfAnUnknownTypeEndsTheAttachment) {
  uint64_t request = 0;
  ASSERT_EQ(Submit(client_, "nonsense", &request), 0);

  EXPECT_EQ(TypesOfTurn(client_, request),
            (std::vector<int32_t>{KAIROS_EVENT_ACCEPTED, KAIROS_EVENT_ERROR}));
  EXPECT_EQ(kairos_client_ping(client_, 8, 0, kPatienceMs), -KAIROS_UNAVAILABLE);
  EXPECT_EQ(kairos_last_detail(), KAIROS_DETAIL_PROTOCOL);
}

// ---- Watching -----------------------------------------------------------------------------------

Event NextState(kairos_client_t* client, int32_t timeout_ms = kPatienceMs) {
  kairos_event_t* event = nullptr;
  kairos_watch_next(client, timeout_ms, &event);
  return Event(event);
}

// Has the sidecar send states, and waits until they were read from the ring.
void SendStates(kairos_client_t* client, int count) {
  uint64_t request = 0;
  ASSERT_EQ(Submit(client, "states " + std::to_string(count), &request), 0);
  TypesOfTurn(client, request);
}

TEST_F(ClientTest, WatchedStatesComeInOrderApartFromTheEventsOfTurns) {
  ASSERT_EQ(kairos_watch(client_, KAIROS_WATCH_SESSIONS, kPatienceMs), 0) << LastError();
  SendStates(client_, 5);

  for (uint64_t i = 1; i <= 5; ++i) {
    const Event event = NextState(client_);
    ASSERT_NE(event, nullptr);
    EXPECT_EQ(kairos_event_type(event.get()), KAIROS_EVENT_SESSION);
    EXPECT_EQ(kairos_event_request(event.get()), 0u);
    EXPECT_EQ(kairos_event_detail(event.get()), 0);
    kairos_session_t state{};
    state.struct_size = sizeof(state);
    ASSERT_EQ(kairos_event_summary(event.get(), &state), 0);
    EXPECT_EQ(state.id, kairos_event_session(event.get()));
    EXPECT_EQ(state.version, i);
  }
  EXPECT_EQ(NextState(client_, 0), nullptr);
}

TEST_F(ClientTest, AnUnreadWatchKeepsTheLatestStateOfEachSessionAndStopsNoCall) {
  ASSERT_EQ(kairos_watch(client_, KAIROS_WATCH_SESSIONS, kPatienceMs), 0);
  SendStates(client_, 100'000);
  EXPECT_GE(kairos_client_ping(client_, 8, 0, kPatienceMs), 0) << LastError();

  uint64_t latest[4] = {};
  bool skipped[4] = {};
  size_t count = 0;
  while (const Event event = NextState(client_, 0)) {
    const uint64_t session = kairos_event_session(event.get());
    ASSERT_LE(session, 3u);
    EXPECT_GT(kairos_event_version(event.get()), latest[session]) << "never backwards";
    latest[session] = kairos_event_version(event.get());
    skipped[session] = kairos_event_detail(event.get()) == KAIROS_DETAIL_SKIPPED;
    ++count;
  }

  EXPECT_EQ(count, 1024u);
  for (uint64_t session = 1; session <= 3; ++session) {
    EXPECT_GT(latest[session], 99'997u);
    EXPECT_TRUE(skipped[session]);
  }
}

TEST_F(ClientTest, NothingIsHeardBeforeWatchingNorAfterIt) {
  EXPECT_EQ(NextState(client_, 0), nullptr);
  EXPECT_EQ(LastError(), "nothing is watched; call kairos_watch first");
  SendStates(client_, 3);
  ASSERT_EQ(kairos_watch(client_, KAIROS_WATCH_SESSIONS, kPatienceMs), 0);
  EXPECT_EQ(NextState(client_, 0), nullptr);
  SendStates(client_, 3);
  ASSERT_EQ(kairos_watch(client_, 0, kPatienceMs), 0);

  kairos_event_t* event = nullptr;
  EXPECT_EQ(kairos_watch_next(client_, 0, &event), -KAIROS_FAILED_PRECONDITION);
  EXPECT_EQ(kairos_watch(client_, 2, kPatienceMs), -KAIROS_INVALID_ARGUMENT);
}

TEST_F(ClientTest, DescriptorShowsWatchedStates) {
  ASSERT_EQ(kairos_watch(client_, KAIROS_WATCH_SESSIONS, kPatienceMs), 0);
  pollfd entry{kairos_client_fd(client_), POLLIN, 0};
  ASSERT_GE(entry.fd, 0);
  SendStates(client_, 2);

  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(poll(&entry, 1, kPatienceMs), 1);
    EXPECT_NE(NextState(client_, 0), nullptr);
  }
  EXPECT_EQ(NextState(client_, 0), nullptr);
  EXPECT_EQ(poll(&entry, 1, 0), 0);
}

TEST_F(ClientTest, AWaitingWatcherHearsOfTheSidecarsDeath) {
  ASSERT_EQ(kairos_watch(client_, KAIROS_WATCH_SESSIONS, kPatienceMs), 0);
  std::thread watcher([&] {
    kairos_event_t* event = nullptr;
    EXPECT_EQ(kairos_watch_next(client_, -1, &event), -KAIROS_UNAVAILABLE);
  });

  sidecar_.DropClients();

  watcher.join();
}

TEST(Watch, OfAnOlderSidecarIsRefusedWithoutAskingIt) {
  FakeSidecar old("", 0);
  kairos_client_t* client = OpenClient(old.path());

  EXPECT_EQ(kairos_watch(client, KAIROS_WATCH_SESSIONS, kPatienceMs), -KAIROS_UNIMPLEMENTED);
  EXPECT_GE(kairos_client_ping(client, 8, 0, kPatienceMs), 0);
  kairos_client_close(client);
}

// ---- What was read before -----------------------------------------------------------------------

std::string ReadContext(kairos_client_t* client, uint64_t session, uint64_t version = 0) {
  kairos_event_t* event = nullptr;
  EXPECT_EQ(kairos_context_read(client, session, version, &event, kPatienceMs), 0) << LastError();
  const Event owned(event);
  return std::to_string(kairos_event_version(event)) + Text(owned);
}

uint64_t SessionWithContext(kairos_client_t* client, const std::string& json) {
  uint64_t session = 0;
  EXPECT_EQ(kairos_session_create(client, nullptr, &session, kPatienceMs), 0);
  EXPECT_EQ(kairos_context_write(client, session, KAIROS_VERSION_ANY, {json.data(), json.size()},
                                 nullptr, kPatienceMs), 0);
  return session;
}

TEST_F(ClientTest, ReadsAgainWhatDidNotChangeWithoutItsText) {
  const uint64_t session = SessionWithContext(client_, "{\"a\":1}");
  ASSERT_EQ(ReadContext(client_, session), "1{\"a\":1}");
  ASSERT_EQ(sidecar_.not_changed(), 0u);

  EXPECT_EQ(ReadContext(client_, session), "1{\"a\":1}");
  EXPECT_EQ(ReadContext(client_, session, 1), "1{\"a\":1}");
  EXPECT_EQ(sidecar_.not_changed(), 2u);

  // By another client, so that this one cannot know.
  kairos_client_t* other = OpenClient(sidecar_.path());
  ASSERT_EQ(kairos_context_write(other, session, 1, {"{}", 2}, nullptr, kPatienceMs), 0);
  EXPECT_EQ(ReadContext(client_, session), "2{}");
  EXPECT_EQ(ReadContext(client_, session), "2{}");
  EXPECT_EQ(sidecar_.not_changed(), 3u);
  ASSERT_EQ(kairos_session_delete(other, session, kPatienceMs), 0);
  kairos_event_t* event = nullptr;
  EXPECT_EQ(kairos_context_read(client_, session, 0, &event, kPatienceMs), -KAIROS_NOT_FOUND);
  kairos_client_close(other);
}

TEST_F(ClientTest, KeepsABoundedNumberOfTextsAndTheLatestUsed) {
  std::vector<uint64_t> sessions;
  for (int i = 0; i < 70; ++i) sessions.push_back(SessionWithContext(client_, "{}"));
  for (const uint64_t session : sessions) ReadContext(client_, session);

  for (const uint64_t session : {sessions[69], sessions[6]}) ReadContext(client_, session);
  EXPECT_EQ(sidecar_.not_changed(), 2u);
  ReadContext(client_, sessions[5]);
  EXPECT_EQ(sidecar_.not_changed(), 2u) << "the 65th latest is not kept";
}

TEST_F(ClientTest, KeepsABoundedNumberOfBytes) {
  const std::string large = "\"" + std::string(900'000, 'x') + "\"";
  const std::string huge = "\"" + std::string(1u << 20, 'x') + "\"";
  std::vector<uint64_t> sessions;
  for (int i = 0; i < 5; ++i) sessions.push_back(SessionWithContext(client_, large));
  const uint64_t too_large = SessionWithContext(client_, huge);
  for (const uint64_t session : sessions) EXPECT_EQ(ReadContext(client_, session), "1" + large);
  EXPECT_EQ(ReadContext(client_, too_large), "1" + huge);

  EXPECT_EQ(ReadContext(client_, sessions[4]), "1" + large);
  EXPECT_EQ(ReadContext(client_, sessions[1]), "1" + large);
  EXPECT_EQ(sidecar_.not_changed(), 2u);
  EXPECT_EQ(ReadContext(client_, sessions[0]), "1" + large);
  EXPECT_EQ(ReadContext(client_, too_large), "1" + huge);
  EXPECT_EQ(sidecar_.not_changed(), 2u);
}

}  // namespace
}  // namespace kairos
