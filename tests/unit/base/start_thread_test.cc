// SPDX-License-Identifier: Apache-2.0
#include "base/start_thread.h"

#include <gtest/gtest.h>

namespace kairos {
namespace {

TEST(StartThread, RunsTheWorkOnItsThread) {
  std::thread::id ran;
  std::thread thread;
  ASSERT_TRUE(StartThread([&] { ran = std::this_thread::get_id(); }, &thread).ok());
  const std::thread::id started = thread.get_id();
  thread.join();
  EXPECT_EQ(ran, started);
}

TEST(TryThreads, SucceedsWhereThreadsCanBeHad) { EXPECT_TRUE(TryThreads(3).ok()); }

}  // namespace
}  // namespace kairos
