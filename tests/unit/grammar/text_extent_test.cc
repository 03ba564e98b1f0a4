// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/text_extent.h"

#include <gtest/gtest.h>

namespace kairos {
namespace {

TEST(TextExtent, OfRegularExpressions) {
  struct Case {
    const char* regex;
    Extent extent;
  };
  const Case cases[] = {
      {"abc", {3, 3}},
      {"a{5}b{2,3}c{4,}", {11, 12}},
      {"((ab){10}c){3}", {63, 63}},
      {"abcd|e{9}|f", {9, 14}},
      {"(a|bc){10}x", {21, 31}},
      {"[a-z{5}]{4}[]b]{2}[\\]]", {7, 7}},
      {"\\d{3}\\{5}\\x{3042}\\p{L}{2}", {9, 9}},
      {"a{x}", {4, 4}},
      {"a{,5}", {1, 5}},
      {"(((", {0, 0}},
      {")a", {1, 1}},
      {"((((((a{999}){999}){999}){999}){999}){999}){999}", {kExtentMax, kExtentMax}},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(RegexExtent(one.regex).least, one.extent.least) << one.regex;
    EXPECT_EQ(RegexExtent(one.regex).most, one.extent.most) << one.regex;
  }
}

TEST(TextExtent, OfGrammarsFollowsTerminalsAndNoRules) {
  struct Case {
    const char* grammar;
    Extent extent;
  };
  const Case cases[] = {
      {"start: A A\nA: B B \"x\"\nB: /abc/ | \"de\"", {14, 22}},
      {"start: a a\na: \"xyz\" a", {3, 3}},
      {"A: B{3} // B{9}\nB: \"ab\" # B{9}\n", {6, 6}},
      {"A.2: (B | \"//\"){2}\n  | \"end\"\nB[lazy]: /[^:]+:/\n", {4, 11}},
      {"A: A A", {0, 0}},
      {"a::_ : B\nB: \"12345\"", {5, 5}},
      {"A: \"a\\\"b\nB: \"\n", {8, 8}},
      {"A: \"a\" ~ 7\nB: \"a\"~2..9\nC: \"a\"{ 2, # }\n 9 }", {7, 9}},
      {"", {0, 0}},
  };
  for (const Case& one : cases) {
    const std::vector<LarkWord> words = LarkWords(one.grammar);
    const Extent extent = LarkExtent(LarkDefinitions(words));
    EXPECT_EQ(extent.least, one.extent.least) << one.grammar;
    EXPECT_EQ(extent.most, one.extent.most) << one.grammar;
  }
}

}  // namespace
}  // namespace kairos
