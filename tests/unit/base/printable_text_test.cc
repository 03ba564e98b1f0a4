// SPDX-License-Identifier: Apache-2.0
#include "base/printable_text.h"

#include <gtest/gtest.h>

namespace kairos {
namespace {

struct Case {
  const char* name;
  std::string_view text;
  const char* shown;
};

TEST(PrintableText, EscapesWhatSteersHidesOrTurns) {
  using namespace std::string_view_literals;
  const Case cases[] = {
      {"plain", "a b-\u00e9\u4e16\U0001f600", "a b-\u00e9\u4e16\U0001f600"},
      {"line", "a\nb\r\tc", "a\\nb\\r\\tc"},
      {"terminal", "\x1b[2J\x07", "\\x1b[2J\\x07"},
      {"zero", "a\0b"sv, "a\\x00b"},
      {"delete", "\x7f", "\\x7f"},
      {"c1", "\u009b2J", "\\u009b2J"},
      {"override", "a\u202eb\u202c", "a\\u202eb\\u202c"},
      {"isolate", "\u2066a\u2069", "\\u2066a\\u2069"},
      {"marks", "\u200e\u200f\u061c", "\\u200e\\u200f\\u061c"},
      {"separators", "\u2028\u2029", "\\u2028\\u2029"},
      {"invisible", "\u200b\u2060\ufeff", "\\u200b\\u2060\\ufeff"},
      {"tags", "\U000e0041", "\\U000e0041"},
      {"joiners", "\u0646\u200c\u0646\u200d", "\u0646\u200c\u0646\u200d"},
      {"broken", "a\xff\xe2\x82", "a\\xff\\xe2\\x82"},
      {"surrogate", "\xed\xa0\x80", "\\xed\\xa0\\x80"},
  };
  for (const Case& c : cases) EXPECT_EQ(Printable(c.text), c.shown) << c.name;
}

TEST(PrintableText, KeepsLinesAndTabsWhereAskedAndMarksTheirBeginning) {
  EXPECT_EQ(PrintableLines("a\nuser: b\n\tc\x1b", "> "), "a\n> user: b\n> \tc\\x1b");
  EXPECT_EQ(PrintableLines("a\u2028b\r\nc", ""), "a\\u2028b\\r\nc");
}

TEST(PrintableText, QuotesSoThatTheEndIsClear) {
  EXPECT_EQ(QuotedText("say \"no\"\n\\n"), "\"say \\\"no\\\"\\n\\\\n\"");
  EXPECT_EQ(QuotedText(""), "\"\"");
}

}  // namespace
}  // namespace kairos
