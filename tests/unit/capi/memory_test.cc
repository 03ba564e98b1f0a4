// SPDX-License-Identifier: Apache-2.0
// Every allocation of every call is made to fail once: the call says RESOURCE_EXHAUSTED, nothing is
// lost, and the same call then works.
#include <functional>

#include "tests/unit/capi/client_fixture.h"
#include "tests/unit/capi/failing_allocation.h"

namespace kairos {
namespace {

constexpr int kAllocationsOfACallMax = 200;

// Runs `call` with its first, second, ... allocation failing until it runs without a failure left.
// `may_do_without`: some of what it allocates only makes later calls cheaper.
template <typename CallBody>
int FailEach(CallBody call, bool may_do_without = false) {
  int failures = 0;
  for (int n = 1; n < kAllocationsOfACallMax; ++n) {
    FailAllocation(n);
    const int64_t result = call();
    if (!AllocationFailed()) {
      EXPECT_GE(result, 0) << LastError();
      return failures;
    }
    ++failures;
    if (may_do_without && result >= 0) continue;
    EXPECT_EQ(result, -KAIROS_RESOURCE_EXHAUSTED) << "allocation " << n << ": " << LastError();
  }
  ADD_FAILURE() << "the call never ran through";
  return failures;
}

TEST(Memory, OpenSurvivesEveryFailedAllocation) {
  FakeSidecar sidecar;
  const std::string path = sidecar.path();
  kairos_client_options_t options;
  kairos_client_options_init(&options);
  options.socket_path = {path.data(), path.size()};
  kairos_client_t* client = nullptr;

  EXPECT_GT(FailEach([&] { return kairos_client_open(&options, &client); }), 0);

  EXPECT_GT(kairos_client_ping(client, 8, 0, kPatienceMs), 0);
  kairos_client_close(client);
}

TEST(Memory, TurnLosesNoEventWhenAllocationsFail) {
  FakeSidecar sidecar;
  kairos_client_t* client = OpenClient(sidecar.path());
  for (int round = 0; round < 20; ++round) {
    uint64_t request = 0;
    EXPECT_GT(FailEach([&] { return Submit(client, "burst 3", &request); }), 0);
    std::vector<int32_t> types;
    while (types.empty() || types.back() != KAIROS_EVENT_FINAL) {
      kairos_event_t* event = nullptr;
      FailEach([&] { return kairos_event_next(client, kPatienceMs, &event); });
      ASSERT_NE(event, nullptr);
      types.push_back(kairos_event_type(event));
      kairos_event_release(event);
    }
    EXPECT_EQ(types.size(), 5u);
  }
  kairos_client_close(client);
}

TEST(Memory, LostTurnsKeepTheirErrorEventWhenAllocationsFail) {
  FakeSidecar sidecar;
  kairos_client_t* client = OpenClient(sidecar.path());
  uint64_t request = 0;
  ASSERT_EQ(Submit(client, "hang", &request), 0);
  Next(client);
  sidecar.DropClients();

  kairos_event_t* event = nullptr;
  EXPECT_GT(FailEach([&] { return kairos_event_next(client, kPatienceMs, &event); }), 0);

  EXPECT_EQ(kairos_event_type(event), KAIROS_EVENT_ERROR);
  EXPECT_EQ(kairos_event_request(event), request);
  kairos_event_release(event);
  kairos_client_close(client);
}

struct Call {
  const char* name;
  std::function<int64_t(kairos_client_t*, uint64_t session)> call;
  bool may_do_without = false;
};

// Every call that waits for an answer, with good arguments.
std::vector<Call> CallsOfSession() {
  static uint64_t id = 0;
  static std::vector<kairos_session_t> records(300);
  static kairos_event_t* event = nullptr;
  static const std::string context = R"({"goal":")" + std::string(100'000, 'x') + R"("})";
  records[0].struct_size = sizeof(records[0]);
  const auto text = [](int32_t result) {
    kairos_event_release(event);
    event = nullptr;
    return result;
  };
  return {
      // Of the largest size first: the reply grows the reassembly buffer while allocations fail.
      {"ping",
       [](auto* c, uint64_t) { return kairos_client_ping(c, 65536, 0, kPatienceMs); }},
      {"create",
       [](auto* c, uint64_t) { return kairos_session_create(c, nullptr, &id, kPatienceMs); }},
      {"open",
       [](auto* c, uint64_t s) { return kairos_session_open(c, s, nullptr, kPatienceMs); }},
      {"write",
       [](auto* c, uint64_t s) {
         return kairos_context_write(c, s, -1, {context.data(), context.size()}, &id, kPatienceMs);
       }},
      {"read",
       [text](auto* c, uint64_t s) {
         return text(kairos_context_read(c, s, 0, &event, kPatienceMs));
       },
       true},
      {"messages",
       [text](auto* c, uint64_t s) {
         return text(kairos_session_messages(c, s, 0, &event, kPatienceMs));
       },
       true},
      {"stat",
       [](auto* c, uint64_t s) { return kairos_session_stat(c, s, &records[0], kPatienceMs); }},
      {"list",
       [](auto* c, uint64_t) { return kairos_session_list(c, 0, &records[0], 300, kPatienceMs); }},
      {"fork",
       [](auto* c, uint64_t s) { return kairos_session_fork(c, s, 0, &id, kPatienceMs); }},
      {"rewind",
       [](auto* c, uint64_t s) { return kairos_session_rewind(c, s, 1, kPatienceMs); }},
      {"release",
       [](auto* c, uint64_t s) { return kairos_session_release(c, s, kPatienceMs); }},
      {"read again",
       [text](auto* c, uint64_t s) {
         const int32_t first = text(kairos_context_write(c, s, 0, {"{}", 2}, &id, kPatienceMs));
         if (first < 0 && kairos_last_detail() != KAIROS_DETAIL_STALE_VERSION) return first;
         const int32_t read = text(kairos_context_read(c, s, 0, &event, kPatienceMs));
         return read < 0 ? read : text(kairos_context_read(c, s, 0, &event, kPatienceMs));
       },
       true},
      {"watch",
       [](auto* c, uint64_t) {
         const int32_t result = kairos_watch(c, KAIROS_WATCH_SESSIONS, kPatienceMs);
         return result < 0 ? result : kairos_watch_next(c, 0, &event);
       }},
      {"cancel", [](auto* c, uint64_t) { return kairos_turn_cancel(c, 1); }},
      {"fd", [](auto* c, uint64_t) { return kairos_client_fd(c); }},
      {"next", [](auto* c, uint64_t) { return kairos_event_next(c, 0, &event); }},
  };
}

TEST(Memory, EveryCallSurvivesEveryFailedAllocation) {
  FakeSidecar sidecar;
  for (const Call& one : CallsOfSession()) {
    kairos_client_t* client = OpenClient(sidecar.path());
    uint64_t session = 0;
    ASSERT_EQ(kairos_session_create(client, nullptr, &session, kPatienceMs), 0);

    FailEach([&] { return one.call(client, session); }, one.may_do_without);

    EXPECT_GT(kairos_client_ping(client, 65536, 0, kPatienceMs), 0) << one.name;
    EXPECT_EQ(kairos_session_open(client, session, nullptr, kPatienceMs), 0) << one.name;
    kairos_client_close(client);
  }
}

TEST(Memory, TurnLargerThanTheRingArrivesWholeWhenAllocationsFail) {
  FakeSidecar sidecar;
  kairos_client_t* client = OpenClient(sidecar.path(), 64 << 10);
  const std::string text(500'000, 'x');
  uint64_t request = 0;
  EXPECT_GT(FailEach([&] { return Submit(client, text, &request); }), 0);
  std::string echoed;
  for (int32_t type = 0; type != KAIROS_EVENT_FINAL;) {
    kairos_event_t* event = nullptr;
    FailEach([&] { return kairos_event_next(client, kPatienceMs, &event); });
    ASSERT_NE(event, nullptr);
    type = kairos_event_type(event);
    if (type == KAIROS_EVENT_TEXT) echoed.append(kairos_event_text(event).data, 500'000);
    kairos_event_release(event);
  }

  EXPECT_EQ(echoed, text);
  kairos_client_close(client);
}

}  // namespace
}  // namespace kairos
