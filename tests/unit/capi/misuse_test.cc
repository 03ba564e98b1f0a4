// SPDX-License-Identifier: Apache-2.0
// Wrong uses of kairos.h get a code: null pointers, closed and invented handles, closing while
// other threads wait, and clients carried over a fork.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "tests/unit/capi/client_fixture.h"

namespace kairos {
namespace {

struct Call {
  const char* name;
  std::function<int64_t(kairos_client_t*)> call;
};

// Every call that takes a client, with otherwise good arguments.
std::vector<Call> CallsOfClient() {
  static uint64_t id = 0;
  static kairos_session_t record;
  static kairos_event_t* event = nullptr;
  record = {};
  record.struct_size = sizeof(record);
  return {
      {"fd", [](auto* c) { return kairos_client_fd(c); }},
      {"ping", [](auto* c) { return kairos_client_ping(c, 8, 0, 1); }},
      {"create", [](auto* c) { return kairos_session_create(c, nullptr, &id, 1); }},
      {"open", [](auto* c) { return kairos_session_open(c, 1, nullptr, 1); }},
      {"fork", [](auto* c) { return kairos_session_fork(c, 1, 0, &id, 1); }},
      {"rewind", [](auto* c) { return kairos_session_rewind(c, 1, 1, 1); }},
      {"release", [](auto* c) { return kairos_session_release(c, 1, 1); }},
      {"delete", [](auto* c) { return kairos_session_delete(c, 1, 1); }},
      {"list", [](auto* c) { return kairos_session_list(c, 0, &record, 1, 1); }},
      {"stat", [](auto* c) { return kairos_session_stat(c, 1, &record, 1); }},
      {"messages", [](auto* c) { return kairos_session_messages(c, 1, 0, &event, 1); }},
      {"read", [](auto* c) { return kairos_context_read(c, 1, 0, &event, 1); }},
      {"write", [](auto* c) { return kairos_context_write(c, 1, -1, {"{}", 2}, &id, 1); }},
      {"submit", [](auto* c) { return Submit(c, "hello", &id); }},
      {"cancel", [](auto* c) { return kairos_turn_cancel(c, 1); }},
      {"next", [](auto* c) { return kairos_event_next(c, 0, &event); }},
      {"watch", [](auto* c) { return kairos_watch(c, 0, 1); }},
      {"watch next", [](auto* c) { return kairos_watch_next(c, 0, &event); }},
  };
}

TEST(Misuse, NullClientIsRefusedEverywhere) {
  for (const Call& call : CallsOfClient()) {
    EXPECT_EQ(call.call(nullptr), -KAIROS_INVALID_ARGUMENT) << call.name;
    EXPECT_EQ(LastError(), "client: null pointer") << call.name;
  }
  kairos_client_close(nullptr);
}

TEST(Misuse, InventedHandlesAreRefusedEverywhere) {
  int something = 0;
  for (void* handle : {static_cast<void*>(&something), reinterpret_cast<void*>(~uintptr_t{0}),
                       reinterpret_cast<void*>(uintptr_t{1})}) {
    for (const Call& call : CallsOfClient()) {
      EXPECT_EQ(call.call(static_cast<kairos_client_t*>(handle)), -KAIROS_INVALID_ARGUMENT)
          << call.name;
    }
    kairos_client_close(static_cast<kairos_client_t*>(handle));
  }
}

TEST(Misuse, ClosedClientIsRefusedEverywhereAndClosingTwiceIsHarmless) {
  FakeSidecar sidecar;
  kairos_client_t* closed = OpenClient(sidecar.path());
  kairos_client_close(closed);
  kairos_client_t* later = OpenClient(sidecar.path());

  ASSERT_NE(later, closed) << "handles are not used again";
  for (const Call& call : CallsOfClient()) {
    EXPECT_EQ(call.call(closed), -KAIROS_INVALID_ARGUMENT) << call.name;
    EXPECT_EQ(LastError(), "client: not an open client") << call.name;
  }
  kairos_client_close(closed);
  EXPECT_GT(kairos_client_ping(later, 8, 0, kPatienceMs), 0) << LastError();
  kairos_client_close(later);
}

TEST(Misuse, NullOutputsAreRefused) {
  FakeSidecar sidecar;
  kairos_client_t* client = OpenClient(sidecar.path());
  kairos_session_t unsized_record{};
  const int32_t results[] = {
      kairos_client_open(nullptr, nullptr),
      kairos_session_create(client, nullptr, nullptr, 1),
      kairos_session_fork(client, 1, 0, nullptr, 1),
      kairos_session_list(client, 0, nullptr, 1, 1),
      kairos_session_list(client, 0, &unsized_record, 1, 1),
      kairos_session_stat(client, 1, nullptr, 1),
      kairos_session_stat(client, 1, &unsized_record, 1),
      kairos_session_open(client, 1, &unsized_record, 1),
      kairos_session_messages(client, 1, 0, nullptr, 1),
      kairos_context_read(client, 1, 0, nullptr, 1),
      kairos_context_write(client, 1, -1, {nullptr, 5}, nullptr, 1),
      kairos_turn_submit(client, nullptr, nullptr),
      kairos_event_next(client, 0, nullptr),
      kairos_event_final(nullptr, nullptr),
      kairos_event_summary(nullptr, &unsized_record),
      kairos_watch_next(client, 0, nullptr),
  };
  for (size_t i = 0; i < std::size(results); ++i) {
    EXPECT_EQ(results[i], -KAIROS_INVALID_ARGUMENT) << "call " << i;
  }
  uint64_t request = 0;
  EXPECT_EQ(kairos_turn_submit(client, nullptr, &request), -KAIROS_INVALID_ARGUMENT);
  kairos_client_close(client);
}

TEST(Misuse, NullEventsAndOptionsAreHarmless) {
  kairos_client_options_init(nullptr);
  kairos_session_options_init(nullptr);
  kairos_message_init(nullptr);
  kairos_generation_init(nullptr);
  kairos_turn_options_init(nullptr);
  kairos_event_release(nullptr);
  EXPECT_EQ(kairos_event_type(nullptr), 0);
  EXPECT_EQ(kairos_event_request(nullptr), 0u);
  EXPECT_EQ(kairos_event_session(nullptr), 0u);
  EXPECT_EQ(kairos_event_version(nullptr), 0u);
  EXPECT_EQ(kairos_event_code(nullptr), 0);
  EXPECT_EQ(kairos_event_detail(nullptr), 0);
  EXPECT_EQ(kairos_event_text(nullptr).size, 0u);
  EXPECT_EQ(kairos_event_tokens(nullptr, nullptr), nullptr);
  EXPECT_EQ(kairos_last_error(nullptr, 0), static_cast<int64_t>(LastError().size()));
  EXPECT_STREQ(kairos_strerror(INT32_MIN), "unknown code");
  EXPECT_STREQ(kairos_strerror(-KAIROS_NOT_FOUND), kairos_strerror(KAIROS_NOT_FOUND));
}

TEST(Misuse, LastErrorIsCutToTheCallersBuffer) {
  kairos_client_ping(nullptr, 0, 0, 0);
  char text[8] = "#######";

  EXPECT_EQ(kairos_last_error(text, sizeof(text)), 20);

  EXPECT_STREQ(text, "client:");
}

TEST(Misuse, CloseEndsCallsThatWait) {
  FakeSidecar sidecar;
  sidecar.Pause();
  for (int round = 0; round < 50; ++round) {
    kairos_client_t* client = OpenClient(sidecar.path());
    std::atomic<int> started{0};
    std::vector<int64_t> results(4);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < results.size(); ++t) {
      threads.emplace_back([&, t] {
        ++started;
        kairos_event_t* event = nullptr;
        results[t] = t % 2 == 0 ? kairos_event_next(client, -1, &event)
                                : kairos_client_ping(client, 8, t == 3, -1);
      });
    }
    while (started < static_cast<int>(results.size())) std::this_thread::yield();

    kairos_client_close(client);

    for (std::thread& thread : threads) thread.join();
    // A thread that had not entered its call yet finds the handle closed.
    for (int64_t result : results) {
      EXPECT_TRUE(result == -KAIROS_CANCELLED || result == -KAIROS_INVALID_ARGUMENT) << result;
    }
  }
}

TEST(Misuse, TwoThreadsMayCloseTheSameClient) {
  FakeSidecar sidecar;
  for (int round = 0; round < 50; ++round) {
    kairos_client_t* client = OpenClient(sidecar.path());
    std::thread other([&] { kairos_client_close(client); });
    kairos_client_close(client);
    other.join();
  }
}

TEST(Misuse, EventsOutliveTheirClient) {
  FakeSidecar sidecar;
  kairos_client_t* client = OpenClient(sidecar.path());
  uint64_t request = 0;
  ASSERT_EQ(Submit(client, "hello", &request), 0);
  Next(client);
  Event text = Next(client);
  kairos_client_close(client);

  EXPECT_EQ(Text(text), "hello");
}

TEST(Misuse, ClosingTellsTheSidecar) {
  FakeSidecar sidecar;
  kairos_client_t* client = OpenClient(sidecar.path());
  ASSERT_GT(kairos_client_ping(client, 8, 0, kPatienceMs), 0);
  const uint32_t before = sidecar.departures();

  kairos_client_close(client);

  while (sidecar.departures() == before) std::this_thread::yield();
}

// ---- Fork ---------------------------------------------------------------------------------------

// The child's verdict as an exit status: 0 is good, else the number of the check that failed.
int ChecksInChild(kairos_client_t* parents, const std::string& path) {
  int check = 1;
  for (const Call& call : CallsOfClient()) {
    if (call.call(parents) != -KAIROS_FAILED_PRECONDITION) return check;
    if (kairos_last_detail() != KAIROS_DETAIL_FORKED) return check;
    ++check;
  }
  kairos_client_t* own = OpenClient(path);
  if (kairos_client_ping(own, 8, 0, kPatienceMs) <= 0) return 100;
  kairos_client_close(parents);
  if (kairos_client_ping(own, 8, 0, kPatienceMs) <= 0) return 101;
  if (kairos_client_ping(parents, 8, 0, 1) != -KAIROS_INVALID_ARGUMENT) return 102;
  const pid_t grandchild = fork();
  if (grandchild == 0) _exit(kairos_last_detail() >= 0 && kairos_client_fd(own) < 0 ? 0 : 1);
  int status = 0;
  waitpid(grandchild, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return 103;
  kairos_client_close(own);
  return 0;
}

TEST(Fork, ChildCannotUseItsParentsClientAndOpensItsOwn) {
  FakeSidecar sidecar;
  kairos_client_t* client = OpenClient(sidecar.path());
  ASSERT_GE(kairos_client_fd(client), 0);
  uint64_t request = 0;
  ASSERT_EQ(Submit(client, "hang", &request), 0);

  const pid_t child = fork();
  if (child == 0) _exit(ChecksInChild(client, sidecar.path()));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);

  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "number of the check that failed";
  // The parent's attachment did not notice.
  ASSERT_EQ(kairos_turn_cancel(client, request), 0);
  EXPECT_EQ(TypesOfTurn(client, request).back(), KAIROS_EVENT_FINAL);
  kairos_client_close(client);
}

TEST(Fork, ChildMayForkWhileAnotherThreadWaits) {
  FakeSidecar sidecar;
  kairos_client_t* client = OpenClient(sidecar.path());
  std::thread waiter([&] {
    kairos_event_t* event = nullptr;
    const int32_t result = kairos_event_next(client, -1, &event);
    EXPECT_TRUE(result == -KAIROS_CANCELLED || result == -KAIROS_INVALID_ARGUMENT) << result;
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const bool refused = kairos_client_ping(client, 8, 0, -1) == -KAIROS_FAILED_PRECONDITION;
      kairos_client_close(client);
      _exit(refused ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  kairos_client_close(client);
  waiter.join();
}

}  // namespace
}  // namespace kairos
