// SPDX-License-Identifier: Apache-2.0
#include "base/spsc_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

namespace kairos {
namespace {

TEST(SpscQueue, GivesBackInOrderAndRefusesWhenFullWithoutTaking) {
  SpscQueue<std::unique_ptr<int>> queue(2);
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(1)));
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(2)));
  auto third = std::make_unique<int>(3);

  EXPECT_FALSE(queue.TryPush(std::move(third)));
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(**queue.TryPop(), 1);
  EXPECT_TRUE(queue.TryPush(std::move(third)));
  EXPECT_EQ(**queue.TryPop(), 2);
  EXPECT_EQ(**queue.TryPop(), 3);
  EXPECT_FALSE(queue.TryPop().has_value());
}

TEST(SpscQueue, KeepsNothingOfWhatWasPopped) {
  SpscQueue<std::shared_ptr<int>> queue(4);
  auto held = std::make_shared<int>(7);
  ASSERT_TRUE(queue.TryPush(std::shared_ptr<int>(held)));

  queue.TryPop();

  EXPECT_EQ(held.use_count(), 1);
}

TEST(SpscQueue, CarriesWholeValuesBetweenTwoThreads) {
  constexpr uint64_t kItems = 20'000;
  SpscQueue<std::string> queue(256);
  std::thread producer([&] {
    for (uint64_t i = 0; i < kItems; ++i) {
      // Longer than the small-string buffer, so that memory is handed over too.
      std::string text = "item number and then some more: " + std::to_string(i);
      while (!queue.TryPush(std::move(text))) std::this_thread::yield();
    }
  });

  for (uint64_t i = 0; i < kItems; ++i) {
    std::optional<std::string> text;
    while (!(text = queue.TryPop())) std::this_thread::yield();
    ASSERT_EQ(*text, "item number and then some more: " + std::to_string(i));
  }
  producer.join();

  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace kairos
