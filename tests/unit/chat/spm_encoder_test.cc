// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/spm_encoder.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "tests/unit/chat/tiny_spm_vocabulary.h"

namespace kairos {
namespace {

using Tokens = std::vector<TokenId>;
constexpr TokenId kBytes = TinySpmVocabulary::kBytes;

TokenId ByteToken(uint8_t byte) { return kBytes + byte; }

TEST(SpmEncoder, MergesThePairOfTheHighestScoreFirst) {
  TinySpmVocabulary vocabulary;
  const TokenId a = vocabulary.Add("a", -9);
  vocabulary.Add("b", -9);
  const TokenId c = vocabulary.Add("c", -9);
  const TokenId ab = vocabulary.Add("ab", -2);
  const TokenId bc = vocabulary.Add("bc", -1);
  const TokenId abc = vocabulary.Add("abc", -3);
  auto tokenizer = vocabulary.Build();

  EXPECT_EQ(tokenizer->Encode("ab", false).tokens, Tokens{ab});
  EXPECT_EQ(tokenizer->Encode("abc", false).tokens, Tokens{abc});  // of a and bc
  EXPECT_EQ(tokenizer->Encode("abbc", false).tokens, (Tokens{ab, bc}));

  vocabulary.scores[static_cast<size_t>(bc)] = -4;
  vocabulary.tokens[static_cast<size_t>(abc)] = "abcd";
  tokenizer = vocabulary.Build();
  EXPECT_EQ(tokenizer->Encode("abc", false).tokens, (Tokens{ab, c}));
  EXPECT_EQ(tokenizer->Encode("aabc", false).tokens, (Tokens{a, ab, c}));
}

TEST(SpmEncoder, MergesTheLeftmostPairOfEqualScores) {
  TinySpmVocabulary vocabulary;
  const TokenId a = vocabulary.Add("a", 0);
  const TokenId b = vocabulary.Add("b", 0);
  const TokenId aa = vocabulary.Add("aa", -1);
  const TokenId ab = vocabulary.Add("ab", -1);
  const auto tokenizer = vocabulary.Build();

  EXPECT_EQ(tokenizer->Encode("aaab", false).tokens, (Tokens{aa, ab}));
  EXPECT_EQ(tokenizer->Encode("aab", false).tokens, (Tokens{aa, b}));
  EXPECT_EQ(tokenizer->Encode("aaa", false).tokens, (Tokens{aa, a}));
}

TEST(SpmEncoder, LeavesPieceThatOtherMergesKeepFromFormingUnused) {
  TinySpmVocabulary vocabulary;
  for (const char* text : {"a", "b", "c", "d"}) vocabulary.Add(text, -9);
  const TokenId ab = vocabulary.Add("ab", -3);
  const TokenId bc = vocabulary.Add("bc", -1);
  vocabulary.Add("abcd", -2);
  vocabulary.Add("cd", -4);
  const auto tokenizer = vocabulary.Build();

  // abcd could come of ab and cd only, but b and c always merge first.
  EXPECT_EQ(tokenizer->Encode("abcd", false).tokens.size(), 3u);
  EXPECT_EQ(tokenizer->Encode("abbc", false).tokens, (Tokens{ab, bc}));
}

TEST(SpmEncoder, SpellsWhatIsInNoPieceInBytes) {
  TinySpmVocabulary vocabulary;
  const TokenId a = vocabulary.Add("a", 0);
  const auto tokenizer = vocabulary.Build();

  for (const std::string text : {"a\u00e9", "a\U0001f600", "a\xFF", "a\xE2\x82", "a\x80\xC3",
                                 "a\xF5\x80", "a\u2581"}) {
    Tokens expected{a};
    for (size_t i = 1; i < text.size(); ++i) {
      expected.push_back(ByteToken(static_cast<uint8_t>(text[i])));
    }
    const EncodeResult result = tokenizer->Encode(text, false);
    EXPECT_EQ(result.tokens, expected) << ::testing::PrintToString(text);
    EXPECT_EQ(result.dropped_bytes, 0u);
    EXPECT_EQ(tokenizer->Decode(result.tokens), text);
  }
}

TEST(SpmEncoder, PutsOneUnknownTokenForWhatCannotBeSpelled) {
  TinySpmVocabulary vocabulary;
  for (TokenKind& kind : vocabulary.kinds) {
    if (kind == TokenKind::kByte) kind = TokenKind::kControl;
  }
  const TokenId a = vocabulary.Add("a", 0);
  const auto tokenizer = vocabulary.Build();

  const EncodeResult result = tokenizer->Encode("\u00e9\u00e8a\u00e9", false);

  EXPECT_EQ(result.tokens, (Tokens{TinySpmVocabulary::kUnknown, a, TinySpmVocabulary::kUnknown}));
  EXPECT_EQ(result.begins, (std::vector<uint64_t>{0, 4, 5}));
  EXPECT_EQ(result.dropped_bytes, 6u);
}

TEST(SpmEncoder, MergesCharactersThatArePiecesOnlyTogether) {
  TinySpmVocabulary vocabulary;
  const TokenId both = vocabulary.Add("\u4f60\u597d", -1);
  const auto tokenizer = vocabulary.Build();

  EXPECT_EQ(tokenizer->Encode("\u4f60\u597d", false).tokens, Tokens{both});
  EXPECT_EQ(tokenizer->Encode("\u4f60\u4f60\u597d", false).tokens,
            (Tokens{ByteToken(0xE4), ByteToken(0xBD), ByteToken(0xA0), both}));
}

TEST(SpmEncoder, FindsUserDefinedTokensBeforeItMerges) {
  TinySpmVocabulary vocabulary;
  const TokenId a = vocabulary.Add("a", 0);
  const TokenId space = vocabulary.Add("\u2581", 0);
  const TokenId space_a = vocabulary.Add("\u2581a", -1);
  const TokenId spaces = vocabulary.Add("  ", -1000, TokenKind::kUserDefined);
  const TokenId lines = vocabulary.Add("\n\n", -1000, TokenKind::kUserDefined);
  const auto tokenizer = vocabulary.Build();

  EXPECT_EQ(tokenizer->Encode(" a  a   a", false).tokens, (Tokens{space_a, spaces, a, spaces,
                                                                space_a}));
  EXPECT_EQ(tokenizer->Encode("a\n\n\na ", false).tokens,
            (Tokens{a, lines, ByteToken('\n'), a, space}));
}

TEST(SpmEncoder, MakesNoControlTokenOfPieces) {
  TinySpmVocabulary vocabulary;
  for (const char* text : {"<", "s", ">", "<s", "s>"}) vocabulary.Add(text, -1);
  const auto tokenizer = vocabulary.Build();

  for (const char* text : {"<s>", "</s>", "<unk>", "<0x41>"}) {
    for (const TokenId token : tokenizer->Encode(text, false).tokens) {
      EXPECT_FALSE(tokenizer->IsControl(token)) << text;
      EXPECT_NE(token, ByteToken('A')) << text;
    }
  }
  EXPECT_EQ(tokenizer->Encode("<s>", true).tokens, Tokens{TinySpmVocabulary::kBegin});
}

class SpacePrefix : public ::testing::Test {
 protected:
  void SetUp() override {
    vocabulary_.adds_space_prefix = true;
    a_ = vocabulary_.Add("a", 0);
    space_ = vocabulary_.Add("\u2581", 0);
    space_a_ = vocabulary_.Add("\u2581a", -1);
    spaces_ = vocabulary_.Add("\u2581\u2581", -2);
    note_ = vocabulary_.Add("<note>", -3, TokenKind::kUserDefined);
    tokenizer_ = vocabulary_.Build();
  }
  EncodeResult Encode(std::vector<TextSpan> spans, TextPlace place) const {
    return tokenizer_->Encode(spans, place);
  }
  TinySpmVocabulary vocabulary_;
  std::unique_ptr<Tokenizer> tokenizer_;
  TokenId a_, space_, space_a_, spaces_, note_;
};

TEST_F(SpacePrefix, LeadsTextAtTheStartAndBehindSpecialTokens) {
  constexpr TokenId kEnd = TinySpmVocabulary::kEnd;
  EXPECT_EQ(Encode({{"aa", true}}, TextPlace::kStart).tokens, (Tokens{space_a_, a_}));
  EXPECT_EQ(Encode({{" a", true}}, TextPlace::kStart).tokens, (Tokens{space_, space_a_}));
  EXPECT_EQ(Encode({{"", true}}, TextPlace::kStart).tokens, Tokens{});
  EXPECT_EQ(Encode({{"a</s>a", true}}, TextPlace::kPrompt).tokens, (Tokens{a_, kEnd, space_a_}));
  EXPECT_EQ(Encode({{"a<note>", true}, {"a", false}}, TextPlace::kPrompt).tokens,
            (Tokens{a_, note_, space_a_}));
  EXPECT_EQ(Encode({{"</s></s>", true}}, TextPlace::kStart).tokens, (Tokens{kEnd, kEnd}));
}

TEST_F(SpacePrefix, IsNotInExactText) {
  EXPECT_EQ(Encode({{"a</s>a", true}}, TextPlace::kExact).tokens,
            (Tokens{a_, TinySpmVocabulary::kEnd, a_}));
  EXPECT_EQ(tokenizer_->Encode("a<note>a", false).tokens, (Tokens{a_, note_, a_}));
}

TEST_F(SpacePrefix, IsTakenOutOfTheStart) {
  EXPECT_EQ(tokenizer_->Decode(Tokens{space_a_, space_a_}, TextPlace::kStart), "a a");
  EXPECT_EQ(tokenizer_->Decode(Tokens{space_a_, space_a_}, TextPlace::kPrompt), " a a");
  EXPECT_EQ(tokenizer_->Decode(Tokens{space_, space_a_}, TextPlace::kStart), " a");
  EXPECT_EQ(tokenizer_->Decode(Tokens{}, TextPlace::kStart), "");
  vocabulary_.adds_space_prefix = false;
  EXPECT_EQ(vocabulary_.Build()->Decode(Tokens{space_a_}, TextPlace::kStart), " a");
}

TEST_F(SpacePrefix, CountsForNoBytesOfTheText) {
  const EncodeResult result = Encode({{"a a</s>", true}, {"\u00e9a", false}}, TextPlace::kStart);

  EXPECT_EQ(result.tokens, (Tokens{space_a_, space_a_, TinySpmVocabulary::kEnd, space_,
                                   ByteToken(0xC3), ByteToken(0xA9), a_}));
  EXPECT_EQ(result.begins, (std::vector<uint64_t>{0, 1, 3, 7, 7, 8, 9}));
}

TEST_F(SpacePrefix, TakesTheMarkForASpaceInPromptsOnly) {
  const std::vector<TextSpan> spans{
      {"a\u2581", true}, {"a\u2581a\u2581\u2581", false}, {"a", true}};

  const EncodeResult prompt = Encode(spans, TextPlace::kPrompt);
  const EncodeResult exact = Encode(spans, TextPlace::kExact);

  EXPECT_EQ(prompt.tokens, (Tokens{a_, space_a_, space_a_, space_, space_a_}));
  EXPECT_EQ(prompt.begins, (std::vector<uint64_t>{0, 1, 5, 9, 12}));
  EXPECT_EQ(exact.tokens.size(), 16u);
  EXPECT_EQ(tokenizer_->Decode(exact.tokens), "a\u2581a\u2581a\u2581\u2581a");
}

TEST_F(SpacePrefix, KeepsTrustWhereMarksBecomeSpaces) {
  const std::vector<TextSpan> spans{{"\u2581\u2581", false}, {"<s>", true}, {"\u2581<s>", false}};

  size_t controls = 0;
  for (const TokenId token : Encode(spans, TextPlace::kStart).tokens) {
    controls += tokenizer_->IsControl(token) ? 1 : 0;
  }

  EXPECT_EQ(controls, 1u);
  EXPECT_EQ(Encode(spans, TextPlace::kStart).begins[2], 6u);
}

// The definition, in bytes of UTF-8: each character is a symbol; as long as two neighbours make a
// piece, those that make the one of the highest score, leftmost among equals, become it.
Tokens EncodeNaively(const TinySpmVocabulary& vocabulary, std::string_view text) {
  std::map<std::string, TokenId, std::less<>> pieces;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.kinds[i] != TokenKind::kNormal) continue;
    std::string bytes;
    ReadSpmToken(vocabulary.tokens[i], TokenKind::kNormal, &bytes);
    pieces.emplace(bytes, static_cast<TokenId>(i));
  }
  std::vector<std::string> symbols;
  for (size_t at = 0; at < text.size();) {
    const size_t length = DecodeUtf8(text, at).length;
    symbols.emplace_back(text.substr(at, length));
    at += length;
  }
  for (;;) {
    size_t best = symbols.size();
    float best_score = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = pieces.find(symbols[i] + symbols[i + 1]);
      if (found == pieces.end()) continue;
      const float score = vocabulary.scores[static_cast<size_t>(found->second)];
      if (best < symbols.size() && score <= best_score) continue;
      best = i;
      best_score = score;
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
  Tokens tokens;
  for (const std::string& symbol : symbols) {
    if (const auto found = pieces.find(symbol); found != pieces.end()) {
      tokens.push_back(found->second);
    } else {
      for (const char byte : symbol) tokens.push_back(ByteToken(static_cast<uint8_t>(byte)));
    }
  }
  return tokens;
}

// Vocabularies of no order at all: parts that are missing or worse than the whole, equal scores,
// spaces inside pieces.
TEST(SpmEncoder, MergesAsTheDefinitionSays) {
  const std::vector<std::string> alphabet = {"a", "b", "c", "\u2581", "\u00e9"};
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    TinySpmVocabulary vocabulary;
    std::map<std::string, bool> known;
    const auto word = [&](size_t length) {
      std::string text;
      while (length-- > 0) text += alphabet[random() % alphabet.size()];
      return text;
    };
    for (size_t i = 5 + random() % 60; i > 0; --i) {
      const std::string text = word(1 + random() % 5);
      if (!known.emplace(text, true).second) continue;
      vocabulary.Add(text, -static_cast<float>(random() % (1 + seed % 30)));
    }
    const auto tokenizer = vocabulary.Build();
    for (int i = 0; i < 20; ++i) {
      std::string text;
      ReadSpmToken(word(random() % 60), TokenKind::kNormal, &text);
      const EncodeResult result = tokenizer->Encode(text, false);
      ASSERT_EQ(result.tokens, EncodeNaively(vocabulary, text)) << text;
      ASSERT_EQ(tokenizer->Decode(result.tokens), text);
      for (size_t j = 0, at = 0; j < result.tokens.size(); ++j) {
        ASSERT_EQ(result.begins[j], at);
        at += tokenizer->TokenBytes(result.tokens[j], false).size();
      }
    }
  }
}

TEST(SpmEncoder, TakesLongTextsInReasonableTime) {
  // Quadratic work on these would take minutes, which the test's own time limit would end.
  TinySpmVocabulary vocabulary;
  for (const char* text : {"a", "b", "\u2581"}) vocabulary.Add(text, -9);
  vocabulary.Add("aa", -1);
  vocabulary.Add("\u2581\u2581", -1);
  const TokenId four = vocabulary.Add("aaaa", -2);
  const auto tokenizer = vocabulary.Build();

  EXPECT_EQ(tokenizer->Encode(std::string(1 << 20, 'a'), false).tokens, Tokens(1 << 18, four));
  EXPECT_EQ(tokenizer->Encode(std::string(1 << 20, ' '), false).tokens.size(), size_t{1} << 19);
  EXPECT_EQ(tokenizer->Encode(std::string(1 << 20, '\xF0'), false).tokens.size(), size_t{1} << 20);
}

TEST(SpmEncoder, StreamsCharactersOfByteTokens) {
  TinySpmVocabulary vocabulary;
  const TokenId space_a = vocabulary.Add("\u2581a", 0);
  const auto tokenizer = vocabulary.Build();
  TextStream stream(*tokenizer, {"STOP"});

  EXPECT_EQ(stream.Push(space_a), " a");
  EXPECT_EQ(stream.Push(ByteToken(0xF0)), "");
  EXPECT_EQ(stream.Push(ByteToken(0x9F)), "");
  EXPECT_EQ(stream.Push(ByteToken(0x98)), "");
  EXPECT_EQ(stream.Push(ByteToken(0x80)), "\U0001f600");
  EXPECT_EQ(stream.Push(ByteToken(0xE2)), "");
  EXPECT_EQ(stream.Push(TinySpmVocabulary::kEnd), "");
  EXPECT_EQ(stream.Push(space_a), "\uFFFD a");
  EXPECT_EQ(stream.Push(ByteToken('S')), "");
  EXPECT_EQ(stream.Finish(), "S");
}

TEST(SpmEncoder, EndsGenerationAtNamedIdsAndKnownControlTexts) {
  TinySpmVocabulary vocabulary;
  vocabulary.Add("a", 0);
  const TokenId turn = vocabulary.Add("<end_of_turn>", 0, TokenKind::kControl);
  const auto tokenizer = vocabulary.Build();

  EXPECT_TRUE(tokenizer->IsEndOfGeneration(TinySpmVocabulary::kEnd));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(turn));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(TinySpmVocabulary::kBegin));
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->bos(), TinySpmVocabulary::kBegin);
}

}  // namespace
}  // namespace kairos
