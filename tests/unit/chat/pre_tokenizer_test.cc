// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sidecar/chat/unicode_classes.h"

namespace kairos {
namespace {

using Pieces = std::vector<std::string>;

Pieces Split(std::string_view kind, std::string_view text) {
  const PreTokenizer* pre_tokenizer = FindPreTokenizer(kind);
  EXPECT_NE(pre_tokenizer, nullptr) << kind;
  Pieces pieces;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = pre_tokenizer->scan(text, begin);
    EXPECT_GT(end, begin);
    EXPECT_LE(end, text.size());
    if (end <= begin || end > text.size()) break;
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

struct Case {
  const char* name;
  std::string text;
  Pieces gpt2;
  Pieces smollm;
};

const Case kCases[] = {
    {"words take one space", "a bc  d", {"a", " bc", " ", " d"}, {"a", " bc", " ", " d"}},
    {"spaces before a number", "a  12", {"a", " ", " 12"}, {"a", "  ", "1", "2"}},
    {"one space before a number", " 7x", {" 7", "x"}, {" ", "7", "x"}},
    {"trailing space stays whole", "a  \n ", {"a", "  \n "}, {"a", "  \n "}},
    {"line ends before a word", "\n\nx", {"\n", "\n", "x"}, {"\n", "\n", "x"}},
    {"tab is not joined to a word", "\tx", {"\t", "x"}, {"\t", "x"}},
    {"contractions", "it's we'll 'X", {"it", "'s", " we", "'ll", " '", "X"},
     {"it", "'s", " we", "'ll", " '", "X"}},
    {"contraction cut off", "'r", {"'", "r"}, {"'", "r"}},
    {"contraction cut by a number", "'l1", {"'", "l", "1"}, {"'", "l", "1"}},
    {"apostrophe among symbols", "''s", {"''", "s"}, {"''", "s"}},
    {"half and Roman four", "x\u00bd\u2163y", {"x", "\u00bd\u2163", "y"},
     {"x", "\u00bd", "\u2163", "y"}},
    {"Han numerals are letters", "\u4e00\u4e8c3", {"\u4e00\u4e8c", "3"}, {"\u4e00\u4e8c", "3"}},
    {"combining mark is a symbol", "e\u0301 \u0301", {"e", "\u0301", " \u0301"},
     {"e", "\u0301", " \u0301"}},
    {"wide space is not the word's", "\u3000x", {"\u3000", "x"}, {"\u3000", "x"}},
    {"wide spaces", "\u3000\u3000x", {"\u3000", "\u3000", "x"}, {"\u3000", "\u3000", "x"}},
    {"broken UTF-8 is a symbol", "a\xFF\xC3 b", {"a", "\xFF\xC3", " b"}, {"a", "\xFF\xC3", " b"}},
    {"emoji sequence", "\U0001f468\u200d\U0001f469!x", {"\U0001f468\u200d\U0001f469!", "x"},
     {"\U0001f468\u200d\U0001f469!", "x"}},
};

TEST(PreTokenizer, CutsByThePublishedRules) {
  for (const Case& c : kCases) {
    EXPECT_EQ(Split("gpt-2", c.text), c.gpt2) << c.name;
    EXPECT_EQ(Split("smollm", c.text), c.smollm) << c.name;
  }
}

TEST(PreTokenizer, CutsByTheRuleOfLlama3) {
  const struct {
    const char* text;
    Pieces llama;
    Pieces qwen;
  } cases[] = {
      {"12345", {"123", "45"}, {"1", "2", "3", "4", "5"}},
      {"a  12", {"a", " ", " ", "12"}, {"a", " ", " ", "1", "2"}},
      {"IT'S we'Ll", {"IT", "'S", " we", "'Ll"}, {"IT", "'S", " we", "'Ll"}},
      {"(x) \tx", {"(x", ")", " ", "\tx"}, {"(x", ")", " ", "\tx"}},
      {"a !!\n\n b", {"a", " !!\n\n", " b"}, {"a", " !!\n\n", " b"}},
      {"a \n \n  b", {"a", " \n \n", " ", " b"}, {"a", " \n \n", " ", " b"}},
      {"\nx", {"\n", "x"}, {"\n", "x"}},
      {"\u3000x  ", {"\u3000x", "  "}, {"\u3000x", "  "}},
      {"e\u0301t", {"e", "\u0301t"}, {"e", "\u0301t"}},
      {"!\xFF 'r", {"!\xFF", " '", "r"}, {"!\xFF", " '", "r"}},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Split("llama-bpe", c.text), c.llama) << c.text;
    EXPECT_EQ(Split("qwen2", c.text), c.qwen) << c.text;
  }
}

TEST(PreTokenizer, CutsByTheRuleForFilesThatNameNone) {
  const std::pair<const char*, Pieces> cases[] = {
      {"it's", {"it", "'", "s"}},
      {"a -b", {"a", " ", "-", "b"}},
      {"a  ++ b", {"a", "  ", "++", " b"}},
      {"a \u20ac5", {"a", " \u20ac", "5"}},
      {"\u20ac-\u20ac", {"\u20ac", "-", "\u20ac"}},
      {"x  12 3", {"x", " ", " ", "12", " ", "3"}},
      {"12345678", {"123", "456", "78"}},
      {"12\u00bd3456", {"12\u00bd", "345", "6"}},
      {"\u0663\u0664\u0665\u0666", {"\u0663\u0664\u0665\u0666"}},
      {"a \n b", {"a", " \n", " b"}},
      {"\u201cq\u201d ", {"\u201c", "q", "\u201d", " "}},
  };
  for (const auto& [text, pieces] : cases) EXPECT_EQ(Split("default", text), pieces) << text;
}

TEST(PreTokenizer, KeepsEveryByteOfAnyInput) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::string_view alphabet = " \n'sr1a.\xC2\xA0\xE4\xBD\xF0\x9F\x98\x80\xFF";
    std::string text(random() % 60, '\0');
    for (char& byte : text) byte = alphabet[random() % alphabet.size()];

    for (const char* kind : {"gpt-2", "smollm", "llama-bpe", "qwen2", "default"}) {
      std::string joined;
      for (const std::string& piece : Split(kind, text)) joined += piece;
      EXPECT_EQ(joined, text) << kind;
    }
  }
}

TEST(PreTokenizer, KnowsNoOtherNames) {
  EXPECT_EQ(FindPreTokenizer("gpt-3"), nullptr);
  EXPECT_EQ(FindPreTokenizer(""), nullptr);
  EXPECT_NE(PreTokenizerNames().find("smollm"), std::string::npos);
}

TEST(UnicodeClasses, FollowGeneralCategoryAndWhiteSpace) {
  const struct {
    uint32_t code_point;
    CharacterClass kind;
  } cases[] = {
      {'A', CharacterClass::kLetter},     {0x00AA, CharacterClass::kLetter},
      {0x01C5, CharacterClass::kLetter},  {0x02B0, CharacterClass::kLetter},
      {0x4E00, CharacterClass::kLetter},  {0x3106C, CharacterClass::kLetter},
      {'0', CharacterClass::kNumber},     {0x00BD, CharacterClass::kNumber},
      {0x2163, CharacterClass::kNumber},  {0x3007, CharacterClass::kNumber},
      {0x1D7D8, CharacterClass::kNumber}, {'\t', CharacterClass::kSpace},
      {0x0085, CharacterClass::kSpace},   {0x00A0, CharacterClass::kSpace},
      {0x2029, CharacterClass::kSpace},   {0x3000, CharacterClass::kSpace},
      {0x001C, CharacterClass::kOther},   {0x180E, CharacterClass::kOther},
      {0x200B, CharacterClass::kOther},   {0x0301, CharacterClass::kOther},
      {0xFFFD, CharacterClass::kOther},   {0x10FFFF, CharacterClass::kOther},
  };
  for (const auto& c : cases) EXPECT_EQ(ClassOf(c.code_point), c.kind) << std::hex << c.code_point;
}

}  // namespace
}  // namespace kairos
