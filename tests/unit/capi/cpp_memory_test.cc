// SPDX-License-Identifier: Apache-2.0
// kairos.hpp when memory runs short: each allocation fails once, in its own code or in the library.
// What is thrown says so, no turn and no event is lost, and no destructor throws.
#include <gtest/gtest.h>

#include "kairos/kairos.hpp"
#include "tests/unit/capi/failing_allocation.h"
#include "tests/unit/capi/fake_sidecar.h"

namespace {

constexpr int kAllocationsMax = 300;

// Runs `act` with its first, second, ... allocation failing until it runs through; how many failed.
template <typename Act>
int FailEach(Act act) {
  for (int n = 1; n < kAllocationsMax; ++n) {
    kairos::FailAllocation(n);
    try {
      act();
      if (!kairos::AllocationFailed()) return n - 1;
    } catch (const std::bad_alloc&) {
      EXPECT_TRUE(kairos::AllocationFailed());
    } catch (const kairos::Error& error) {
      EXPECT_TRUE(kairos::AllocationFailed()) << error.what();
      EXPECT_EQ(error.code(), KAIROS_RESOURCE_EXHAUSTED) << error.what();
    }
  }
  ADD_FAILURE() << "never ran through";
  return 0;
}

class CppMemory : public ::testing::Test {
 protected:
  kairos::Client Open() {
    kairos::ClientOptions options;
    options.socket_path = sidecar_.path();
    return kairos::Client(options);
  }
  kairos::FakeSidecar sidecar_;
};

TEST_F(CppMemory, OpenSurvivesEveryFailedAllocation) {
  std::optional<kairos::Client> client;

  EXPECT_GT(FailEach([&] { client.emplace(Open()); }), 0);

  EXPECT_GT(client->Ping().count(), 0);
}

TEST_F(CppMemory, EveryEventOfEveryTurnArrivesOnce) {
  kairos::Client client = Open();
  kairos::Session session = client.CreateSession();
  kairos::TurnOptions options;
  options.messages.push_back({"user", "burst 40", "", "", ""});
  std::optional<kairos::Turn> first;
  std::optional<kairos::Turn> second;
  EXPECT_GT(FailEach([&] { first.emplace(session.Submit(options)); }), 0);
  EXPECT_GT(FailEach([&] { second.emplace(session.Submit(options)); }), 0);
  // Those of the first are read for it while the second is waited for.
  for (std::optional<kairos::Turn>* turn : {&second, &first}) {
    std::string text;
    while (!(*turn)->is_over()) {
      std::optional<kairos::Event> event;
      FailEach([&] { event = (*turn)->Next(); });
      ASSERT_TRUE(event.has_value());
      if (event->type() == kairos::EventType::kText) text += event->text();
    }
    std::string expected;
    for (int i = 0; i < 40; ++i) expected += std::to_string(i) + " ";
    EXPECT_EQ(text, expected);
  }
}

TEST_F(CppMemory, TurnThatCouldNotBeMadeIsNotQueued) {
  kairos::Client client = Open();
  kairos::Session session = client.CreateSession();
  kairos::TurnOptions options;
  options.messages.push_back({"user", "hello", "", "", ""});
  options.generation.emplace();
  options.generation->stops = {"one", "two"};
  std::optional<kairos::Turn> turn;

  EXPECT_GT(FailEach([&] { turn.emplace(session.Submit(options)); }), 0);

  turn->ReadText();
  EXPECT_EQ(session.Stat().version, 1u) << "one turn and no more";
}

}  // namespace
