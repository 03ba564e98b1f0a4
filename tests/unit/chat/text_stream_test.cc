// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/chat/tiny_vocabulary.h"

namespace kairos {
namespace {

// Streams made of any bytes: each token is one cut of the text.
class TextStreamTest : public ::testing::Test {
 protected:
  // Pushes `cuts` one token each and returns what came out at each push, then at Finish.
  std::vector<std::string> Run(const std::vector<std::string>& cuts,
                               std::vector<std::string> stops) {
    TinyVocabulary vocabulary;
    vocabulary.AddMerge("z", "z");
    std::vector<TokenId> tokens;
    for (const std::string& cut : cuts) {
      const auto& known = vocabulary.tokens;
      const auto found = std::find(known.begin(), known.end(), StandIns(cut));
      tokens.push_back(found != known.end() ? static_cast<TokenId>(found - known.begin())
                                            : vocabulary.Add(StandIns(cut), TokenKind::kNormal));
    }
    const auto tokenizer = vocabulary.Build();
    TextStream stream(*tokenizer, std::move(stops));
    std::vector<std::string> out;
    for (const TokenId token : tokens) out.push_back(stream.Push(token));
    out.push_back(stream.Finish());
    stopped_ = stream.stopped();
    return out;
  }
  std::string Joined(const std::vector<std::string>& cuts, std::vector<std::string> stops) {
    std::string text;
    for (const std::string& part : Run(cuts, std::move(stops))) text += part;
    return text;
  }
  static std::vector<std::string> Bytes(std::string_view text) {
    std::vector<std::string> cuts;
    for (const char byte : text) cuts.emplace_back(1, byte);
    return cuts;
  }
  bool stopped_ = false;
};

using Parts = std::vector<std::string>;

TEST_F(TextStreamTest, HoldsUnfinishedCharacterBack) {
  EXPECT_EQ(Run({"a\xF0\x9F", "\x98", "\x80z"}, {}), (Parts{"a", "", "\U0001f600z", ""}));
}

TEST_F(TextStreamTest, HoldsTailThatMayBecomeStop) {
  EXPECT_EQ(Run({"one EN", "T EN", "Dxx"}, {"END"}), (Parts{"one ", "ENT ", "", ""}));
  EXPECT_TRUE(stopped_);
}

TEST_F(TextStreamTest, ReleasesHeldTailAtFinish) {
  EXPECT_EQ(Run({"one EN"}, {"END"}), (Parts{"one ", "EN"}));
  EXPECT_FALSE(stopped_);
}

TEST_F(TextStreamTest, GivesNothingAfterStop) {
  EXPECT_EQ(Run({"ab", "c#", "d"}, {"#"}), (Parts{"ab", "c", "", ""}));
  EXPECT_TRUE(stopped_);
}

TEST_F(TextStreamTest, CutsAtTheStopThatCompletesFirst) {
  EXPECT_EQ(Joined({"xabcx"}, {"abc", "b"}), "xa");
  EXPECT_EQ(Joined(Bytes("xabcx"), {"abc", "b"}), "xa");
}

TEST_F(TextStreamTest, CutsByTheLongerOfTwoThatEndTogether) {
  EXPECT_EQ(Joined({"xabcx"}, {"c", "bc"}), "xa");
  EXPECT_EQ(Joined(Bytes("xabcx"), {"c", "bc"}), "xa");
}

TEST_F(TextStreamTest, FindsStopThatOverlapsItself) {
  EXPECT_EQ(Joined(Bytes("aaab"), {"aab"}), "a");
  EXPECT_EQ(Joined(Bytes("ababac"), {"abac"}), "ab");
}

TEST_F(TextStreamTest, IgnoresEmptyStop) { EXPECT_EQ(Joined({"abc"}, {""}), "abc"); }

TEST_F(TextStreamTest, SkipsControlTokens) {
  TinyVocabulary vocabulary;
  vocabulary.AddMerge("z", "z");
  const TokenId control = vocabulary.Add("<|im_end|>", TokenKind::kControl);
  const auto tokenizer = vocabulary.Build();
  TextStream stream(*tokenizer, {"<|im_end|>"});

  EXPECT_EQ(stream.Push('a'), "a");
  EXPECT_EQ(stream.Push(control), "");
  EXPECT_EQ(stream.Finish(), "");
  EXPECT_FALSE(stream.stopped());
}

TEST_F(TextStreamTest, TakesMarkersForTheirText) {
  TinyVocabulary vocabulary;
  vocabulary.AddMerge("z", "z");
  const TokenId marker = vocabulary.Add("<|python_tag|>", TokenKind::kControl);
  const TokenId other = vocabulary.Add("<|eom_id|>", TokenKind::kControl);
  const auto tokenizer = vocabulary.Build();
  TextStream stream(*tokenizer, {}, std::span(&marker, 1));

  EXPECT_EQ(stream.Push(marker), "<|python_tag|>");
  EXPECT_EQ(stream.Push(other), "");
}

// Expected values are those of the Unicode standard's practice for replacing maximal subparts.
TEST_F(TextStreamTest, ReplacesInvalidBytes) {
  const struct {
    std::string bytes;
    std::string text;
  } cases[] = {
      {"a\xFFz", "a\uFFFDz"},
      {"\x80\x80", "\uFFFD\uFFFD"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},
      {"\xC3", "\uFFFD"},
      {"\xC3z", "\uFFFDz"},
      {"\xE2\x82", "\uFFFD"},
      {"\xE2\x82z", "\uFFFDz"},
      {"\xE0\x80\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xF0\x9F\x98", "\uFFFD"},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", "\uFFFD\U0001f600"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xF5\x80", "\uFFFD\uFFFD"},
      {"\xF4\x8F\xBF\xBF", "\U0010FFFF"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Joined({c.bytes}, {}), c.text) << ::testing::PrintToString(c.bytes);
    EXPECT_EQ(Joined(Bytes(c.bytes), {}), c.text) << ::testing::PrintToString(c.bytes);
  }
}

TEST_F(TextStreamTest, GivesTheSameTextHoweverItIsCut) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Parts alphabet = {"a", "b", "ab", "\u00e9", "\U0001f600", "\xF0\x9F", "\xFF", "\xE4\xBD"};
    const auto make = [&](size_t pieces) {
      std::string text;
      for (size_t i = 0; i < pieces; ++i) text += alphabet[random() % alphabet.size()];
      return text;
    };
    const std::string text = make(1 + random() % 40);
    const Parts stops = {make(1 + random() % 3) + "a", std::string(2 + random() % 3, 'b'), "aba"};
    Parts cuts;
    for (size_t at = 0; at < text.size();) {
      cuts.push_back(text.substr(at, 1 + random() % 7));
      at += cuts.back().size();
    }

    const std::string whole = Joined({text}, stops);
    const bool whole_stopped = stopped_;

    EXPECT_EQ(Joined(cuts, stops), whole);
    EXPECT_EQ(stopped_, whole_stopped);
    EXPECT_EQ(Joined(Bytes(text), stops), whole);
    for (const std::string& stop : stops) EXPECT_EQ(whole.find(stop), std::string::npos);
  }
}

}  // namespace
}  // namespace kairos
