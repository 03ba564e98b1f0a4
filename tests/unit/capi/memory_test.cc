// SPDX-License-Identifier: Apache-2.0
// Every allocation of a call is made to fail once: the call says RESOURCE_EXHAUSTED, nothing is
// lost, and the same call then works. This program's malloc stands in front of the C library's.
#include <cstdlib>

#include "tests/unit/capi/client_fixture.h"

extern "C" void* __libc_malloc(size_t size);

namespace {

// Allocations of this thread until one fails; negative: none does.
constinit thread_local int allocations_left = -1;

}  // namespace

extern "C" void* malloc(size_t size) {
  if (allocations_left > 0 && --allocations_left == 0) return nullptr;
  return __libc_malloc(size);
}

namespace kairos {
namespace {

constexpr int kAllocationsOfACallMax = 200;

// Runs `call` with its first, second, ... allocation failing until it runs without a failure left.
template <typename CallBody>
int FailEach(CallBody call) {
  int failures = 0;
  for (int n = 1; n < kAllocationsOfACallMax; ++n) {
    allocations_left = n;
    const int64_t result = call();
    const bool failed = allocations_left == 0;
    allocations_left = -1;
    if (!failed) {
      EXPECT_GE(result, 0) << LastError();
      return failures;
    }
    ++failures;
    EXPECT_EQ(result, -KAIROS_RESOURCE_EXHAUSTED) << "allocation " << n << ": " << LastError();
  }
  ADD_FAILURE() << "the call never ran through";
  return failures;
}

// The ring's reassembly buffer grows with the largest record; a failure there is the ring's to
// survive. After this it has its size, and what allocates is the client library.
void GrowReassembly(kairos_client_t* client) {
  ASSERT_GT(kairos_client_ping(client, 65536, 0, kPatienceMs), 0) << LastError();
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
  GrowReassembly(client);
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
  GrowReassembly(client);
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

TEST(Memory, BlockingCallSurvivesEveryFailedAllocation) {
  FakeSidecar sidecar;
  kairos_client_t* client = OpenClient(sidecar.path());
  GrowReassembly(client);
  uint64_t session = 0;
  ASSERT_EQ(kairos_session_create(client, nullptr, &session, kPatienceMs), 0);
  kairos_session_t record{};
  record.struct_size = sizeof(record);

  const auto stat = [&] { return kairos_session_stat(client, session, &record, kPatienceMs); };
  EXPECT_GT(FailEach(stat), 0);

  EXPECT_EQ(record.id, session);
  kairos_client_close(client);
}

}  // namespace
}  // namespace kairos
