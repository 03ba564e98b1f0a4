// SPDX-License-Identifier: Apache-2.0
#include "base/repeated_key.h"

#include <gtest/gtest.h>

namespace kairos {
namespace {

TEST(RepeatedKey, IsNamedWithItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"a": 1, "a": 1})", R"(text: the key "a" is there twice)"},
      {R"({"a": {"b": {}, "c": 1, "\u0062": 2}})", R"(text.a: the key "b" is there twice)"},
      {R"([{}, [1, {"x": [], "y": {}, "x": 0}]])", R"(text[1][1]: the key "x" is there twice)"},
      {R"({"a\n": {"b": 1, "b": 2}})", R"(text.a\n: the key "b" is there twice)"},
  };
  for (const auto& [json, words] : cases) EXPECT_EQ(RepeatedKeyFault(json, "text"), words);
}

TEST(RepeatedKey, IsNoneInDifferentObjectsOrBrokenText) {
  for (const char* json : {R"({"a": {"a": 1}, "b": {"a": 1}})", R"([{"a": 1}, {"a": 1}])", "[]",
                           "1", "", R"({"a")", R"({"a": 1}} "a")"}) {
    EXPECT_EQ(RepeatedKeyFault(json, "text"), "") << json;
  }
}

}  // namespace
}  // namespace kairos
