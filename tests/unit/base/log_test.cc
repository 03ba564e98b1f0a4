// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <gtest/gtest.h>

namespace kairos {
namespace {

struct Case {
  const char* text;
  const char* value;
};

TEST(LogValue, QuotesWhatWouldEndAValueOrLookLikeAnotherKey) {
  const Case cases[] = {
      {"smollm2-135m", "smollm2-135m"},
      {"/run/kairos.sock", "/run/kairos.sock"},
      {"", "\"\""},
      {"two words", "\"two words\""},
      {"a=b", "\"a=b\""},
      {"say \"no\"", "\"say \\\"no\\\"\""},
      {"C:\\n", "\"C:\\\\n\""},
      {"a\nlevel=error", "\"a\\nlevel=error\""},
      {"\x1b[2J", "\"\\x1b[2J\""},
      {"\u202e", "\"\\u202e\""},
  };
  for (const Case& c : cases) EXPECT_EQ(LogValue(c.text), c.value);
  EXPECT_EQ(LogValue(7), 7);
}

TEST(Log, WritesOneLineWhateverTheValuesHold) {
  testing::internal::CaptureStderr();

  LogWarn("test", "refused reason={} count={} path={}", std::string("a \"b\"\nlevel=error"), 3,
          std::string_view("/x"));

  const std::string line = testing::internal::GetCapturedStderr();
  const char* wanted =
      " level=warning sub=test refused reason=\"a \\\"b\\\"\\nlevel=error\" count=3 path=/x\n";
  EXPECT_NE(line.find(wanted), std::string::npos) << line;
}

}  // namespace
}  // namespace kairos
