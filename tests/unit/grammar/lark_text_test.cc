// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/lark_text.h"

#include <gtest/gtest.h>

#include <string>

namespace kairos {
namespace {

std::string Kinds(std::string_view grammar) {
  std::string all;
  for (const LarkWord& word : LarkWords(grammar)) {
    constexpr const char* kNames[] = {"name", "string", "regex", "special",
                                      "directive", "number", "arrow", "sign"};
    all += all.empty() ? "" : " ";
    all += kNames[static_cast<size_t>(word.kind)];
    all += '(' + std::string(word.text) + ')';
  }
  return all;
}

TEST(LarkText, WordsAreThoseOfTheGrammarLibrary) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("a\"b"i rule)", R"(string("a\"b"i) name(rule))"},
      {R"("a"ix)", R"(string("a"i) name(x))"},
      {R"(/a\/b/xfoo)", R"(regex(/a\/b/x) name(foo))"},
      {"a # \"b\n\"c\" // /d\n/e/", "name(a) string(\"c\") regex(/e/)"},
      {R"(<a"b> "c")", R"(special(<a"b>) string("c"))"},
      {"<a b>", "sign(<) name(a) name(b) sign(>)"},
      {"!?rule _T FOObar x-1", "name(rule) name(_T) name(FOO) name(bar) name(x-1)"},
      {"%ignore WS %llguidance {}", "directive(%ignore) name(WS) directive(%llguidance) sign({) "
                                    "sign(})"},
      {"a -> alias | b", "name(a) arrow(-> alias) sign(|) name(b)"},
      {"\"open", "string(\"open)"},
  };
  for (const auto& [grammar, words] : cases) EXPECT_EQ(Kinds(grammar), words) << grammar;
}

TEST(LarkText, DefinitionsBeginAtALineAndEndBeforeTheNextOrADirective) {
  const std::string grammar = "start: a\n  | \"b:\" # c: d\na.2[lazy, stop=\"]\"]: /x:/\n"
                              "%ignore WS\nWS: \" \"\np::_: \"c\"";
  const std::vector<LarkWord> words = LarkWords(grammar);
  const std::vector<LarkDefinition> definitions = LarkDefinitions(words);
  ASSERT_EQ(definitions.size(), 4u);
  EXPECT_EQ(definitions[0].name, "start");
  EXPECT_EQ(definitions[0].body.size(), 3u);
  EXPECT_TRUE(definitions[0].head.empty());
  EXPECT_EQ(definitions[1].name, "a");
  EXPECT_EQ(definitions[1].head.size(), 9u);
  EXPECT_EQ(definitions[1].body.size(), 1u) << "less the directive";
  EXPECT_EQ(definitions[2].name, "WS");
  EXPECT_EQ(definitions[3].name, "p");
  EXPECT_EQ(definitions[3].head.size(), 3u);
}

TEST(LarkText, RepetitionsAreReadInAllTheirForms) {
  struct Case {
    const char* words;
    uint64_t least;
    uint64_t most;
  };
  for (const Case& one : {Case{"{3}", 3, 3}, Case{"{3,}", 3, 3}, Case{"{,5}", 0, 5},
                          Case{"{3,5}", 3, 5}, Case{"~3", 3, 3}, Case{"~ 3..5", 3, 5},
                          Case{"{99999999999999999999}", 1u << 30, 1u << 30}}) {
    const std::vector<LarkWord> words = LarkWords(one.words);
    const std::optional<LarkRepetition> read = RepetitionAt(words, 0);
    ASSERT_TRUE(read) << one.words;
    EXPECT_EQ(read->least, one.least) << one.words;
    EXPECT_EQ(read->most, one.most) << one.words;
  }
  EXPECT_FALSE(RepetitionAt(LarkWords("~TERMINAL"), 0)) << "all but it";
}

}  // namespace
}  // namespace kairos
