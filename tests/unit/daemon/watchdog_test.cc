// SPDX-License-Identifier: Apache-2.0
#include "sidecar/daemon/watchdog.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace kairos {
namespace {

constexpr uint64_t kPeriodNs = 30'000'000'000;

class WatchdogTest : public testing::Test {
 protected:
  WatchdogTest() {
    watchdog_.Watch("conductor", conductor_, conductor_waker_);
    watchdog_.Watch("engine", engine_, engine_waker_);
    watchdog_.Start(kPeriodNs, now_ns_);
  }
  // A third of the period passes.
  int Look() {
    sent_ = 0;
    watchdog_.Look(now_ns_ += kPeriodNs / 3);
    return sent_;
  }
  static bool Rung(Waker& waker) {
    pollfd entry{waker.fd(), POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  }

  int sent_ = 0;
  uint64_t now_ns_ = 1;
  Counter conductor_;
  Counter engine_;
  Waker conductor_waker_;
  Waker engine_waker_;
  Watchdog watchdog_{[this](std::string_view text) { sent_ += text == "WATCHDOG=1"; }};
};

TEST_F(WatchdogTest, TellsTheManagerWhileEveryThreadGoesRound) {
  for (int i = 0; i < 3; ++i) {
    conductor_.Add();
    engine_.Add();
    EXPECT_EQ(Look(), 1);
  }
}

TEST_F(WatchdogTest, IsSilentWhileOneThreadHangsAndGoesOnAfterwards) {
  for (Counter* alive : {&conductor_, &engine_}) {
    conductor_.Add();
    engine_.Add();
    ASSERT_EQ(Look(), 1);
    for (int i = 0; i < 4; ++i) {
      alive->Add();
      EXPECT_EQ(Look(), 0);
    }
  }
  conductor_.Add();
  engine_.Add();
  EXPECT_EQ(Look(), 1);
}

TEST_F(WatchdogTest, GivesThreadsTimeForTheirFirstRound) {
  watchdog_.Look(now_ns_ + 1);
  EXPECT_FALSE(Rung(conductor_waker_));
  conductor_.Add();
  engine_.Add();
  EXPECT_EQ(Look(), 1);
}

TEST_F(WatchdogTest, WakesThreadsThatSleepSoThatTheyCanGoRound) {
  Look();
  EXPECT_TRUE(Rung(conductor_waker_));
  EXPECT_TRUE(Rung(engine_waker_));
}

TEST_F(WatchdogTest, LooksThreeTimesInAPeriodHoweverOftenItIsCalled) {
  conductor_.Add();
  engine_.Add();
  ASSERT_EQ(Look(), 1);
  for (int i = 0; i < 9; ++i) watchdog_.Look(now_ns_ + 1);
  EXPECT_EQ(sent_, 1);
}

TEST(WatchdogPeriod, IsTheManagersAndOnlyForThisProcess) {
  unsetenv("WATCHDOG_PID");
  unsetenv("WATCHDOG_USEC");
  EXPECT_EQ(Watchdog::PeriodNsFromEnvironment(), 0u);
  setenv("WATCHDOG_USEC", "2000000", 1);
  EXPECT_EQ(Watchdog::PeriodNsFromEnvironment(), 2'000'000'000u);
  setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(Watchdog::PeriodNsFromEnvironment(), 0u);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  EXPECT_EQ(Watchdog::PeriodNsFromEnvironment(), 2'000'000'000u);
  for (const char* wrong : {"", "x", "-1", "2s", "99999999999999999999"}) {
    setenv("WATCHDOG_USEC", wrong, 1);
    EXPECT_EQ(Watchdog::PeriodNsFromEnvironment(), 0u) << wrong;
  }
}

}  // namespace
}  // namespace kairos
