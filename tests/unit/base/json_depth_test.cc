// SPDX-License-Identifier: Apache-2.0
#include "base/json_depth.h"

#include <gtest/gtest.h>

namespace kairos {
namespace {

TEST(JsonDepth, CountsOpenArraysAndObjects) {
  EXPECT_TRUE(JsonNestsWithin("", 0));
  EXPECT_TRUE(JsonNestsWithin("5", 0));
  EXPECT_FALSE(JsonNestsWithin("[]", 0));
  EXPECT_TRUE(JsonNestsWithin("[{\"a\":[1]},[2]]", 3));
  EXPECT_FALSE(JsonNestsWithin("[{\"a\":[1]},[2]]", 2));
}

TEST(JsonDepth, LeavesOutBracketsInStrings) {
  EXPECT_TRUE(JsonNestsWithin(R"(["[[[", "\"[[[", "\\"])", 1));
  EXPECT_FALSE(JsonNestsWithin(R"(["\\", [0]])", 1));
}

TEST(JsonDepth, IsNotMadeDeeperByClosingTooOften) {
  EXPECT_FALSE(JsonNestsWithin("]]][[", 1));
}

}  // namespace
}  // namespace kairos
