// SPDX-License-Identifier: Apache-2.0
// Two threads, a queue and a waker, as every pair of threads of the sidecar uses them. A lost
// wake-up shows as a hang, which the test runner's time limit ends.
#include "base/waker.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <thread>

#include "base/spsc_queue.h"

namespace kairos {
namespace {

bool Readable(const Waker& waker) {
  pollfd entry{waker.fd(), POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

TEST(Waker, WakesOnlyASleeper) {
  Waker waker;
  waker.Wake();
  EXPECT_FALSE(Readable(waker));

  waker.Prepare();
  waker.Wake();
  EXPECT_TRUE(Readable(waker));
  waker.Finish();
  EXPECT_FALSE(Readable(waker));
}

TEST(Waker, InterruptEndsASleepThatHasNotBegun) {
  Waker waker;
  waker.Interrupt();

  waker.Prepare();
  waker.Sleep(-1);
  waker.Finish();

  EXPECT_FALSE(Readable(waker));
}

TEST(Waker, LosesNoWakeUpBetweenTwoThreads) {
  constexpr uint64_t kItems = 20'000;
  SpscQueue<std::unique_ptr<uint64_t>> there(8);
  SpscQueue<std::unique_ptr<uint64_t>> back(8);
  Waker there_waker;
  Waker back_waker;
  const auto pop = [](auto& queue, Waker& waker) {
    for (;;) {
      if (auto item = queue.TryPop()) return std::move(*item);
      waker.Prepare();
      if (queue.empty()) waker.Sleep(-1);
      waker.Finish();
    }
  };
  std::thread echo([&] {
    for (uint64_t i = 0; i < kItems; ++i) {
      auto item = pop(there, there_waker);
      ++*item;
      ASSERT_TRUE(back.TryPush(std::move(item)));
      back_waker.Wake();
    }
  });

  uint64_t sum = 0;
  uint64_t sent = 0;
  for (uint64_t received = 0; received < kItems; ++received) {
    // Keeps between one and four in flight, so that both sides sleep often.
    for (; sent < kItems && sent - received < 1 + received % 4; ++sent) {
      ASSERT_TRUE(there.TryPush(std::make_unique<uint64_t>(sent)));
      there_waker.Wake();
    }
    sum += *pop(back, back_waker);
  }
  echo.join();

  EXPECT_EQ(sum, kItems * (kItems + 1) / 2);
}

TEST(Waker, StopsAThreadAtAnyMoment) {
  for (int round = 0; round < 200; ++round) {
    Waker waker;
    std::atomic<bool> stop{false};
    std::atomic<bool> running{false};
    std::thread sleeper([&] {
      while (!stop.load(std::memory_order_acquire)) {
        running.store(true, std::memory_order_release);
        waker.Prepare();
        waker.Sleep(-1);
        waker.Finish();
      }
    });
    while (!running.load(std::memory_order_acquire)) std::this_thread::yield();
    stop.store(true, std::memory_order_release);
    waker.Interrupt();
    sleeper.join();
  }
}

}  // namespace
}  // namespace kairos
