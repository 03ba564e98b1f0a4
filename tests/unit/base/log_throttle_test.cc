// SPDX-License-Identifier: Apache-2.0
#include "base/log_throttle.h"

#include <gtest/gtest.h>

namespace kairos {
namespace {

constexpr uint64_t kMinuteNs = 60'000'000'000;

TEST(LogThrottle, WritesOneLineAMinuteAndSaysHowManyItLeftOut) {
  LogThrottle throttle;
  uint64_t left_out = 99;
  uint64_t now_ns = 5;
  ASSERT_TRUE(throttle.Admit(now_ns, &left_out));
  EXPECT_EQ(left_out, 0u);
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(throttle.Admit(now_ns += 1000, &left_out));
  EXPECT_FALSE(throttle.Admit(5 + kMinuteNs - 1, &left_out));

  EXPECT_TRUE(throttle.Admit(5 + kMinuteNs, &left_out));

  EXPECT_EQ(left_out, 8u);
  EXPECT_FALSE(throttle.Admit(6 + kMinuteNs, &left_out));
}

}  // namespace
}  // namespace kairos
