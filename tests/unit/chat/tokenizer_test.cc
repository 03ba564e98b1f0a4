// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/unit/chat/tiny_vocabulary.h"

namespace kairos {
namespace {

using Tokens = std::vector<TokenId>;

class TokenizerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    th_ = vocabulary_.AddMerge("t", "h");
    the_ = vocabulary_.AddMerge("th", "e");
    space_the_ = vocabulary_.AddMerge(" ", "the");
    vocabulary_.AddMerge("<", "|");
    dots_ = vocabulary_.AddMerge(".", ".");
    unreachable_ = vocabulary_.Add("hex", TokenKind::kNormal);
    start_ = vocabulary_.Add("<|im_start|>", TokenKind::kControl);
    end_ = vocabulary_.Add("<|im_end|>", TokenKind::kControl);
    end_end_ = vocabulary_.Add("<|im_end|>>", TokenKind::kControl);
    user_ = vocabulary_.Add("<note>", TokenKind::kUserDefined);
    tokenizer_ = vocabulary_.Build();
    ASSERT_NE(tokenizer_, nullptr);
  }
  Tokens Ids(std::vector<TextSpan> spans) const {
    return tokenizer_->Encode(spans, TextPlace::kStart).tokens;
  }
  bool HasControl(const Tokens& tokens) const {
    for (const TokenId token : tokens) {
      if (tokenizer_->IsControl(token)) return true;
    }
    return false;
  }

  TinyVocabulary vocabulary_;
  std::unique_ptr<Tokenizer> tokenizer_;
  TokenId th_, the_, space_the_, dots_, unreachable_, start_, end_, end_end_, user_;
};

TEST_F(TokenizerTest, MergesInsidePiecesOnly) {
  EXPECT_EQ(tokenizer_->Encode("the the", false).tokens, (Tokens{the_, space_the_}));
  EXPECT_EQ(tokenizer_->Encode("th1e", false).tokens, (Tokens{th_, '1', 'e'}));
  EXPECT_EQ(tokenizer_->Encode("", true).tokens, Tokens{});
}

TEST_F(TokenizerTest, LeavesTokenThatNoMergeMakesUnused) {
  EXPECT_EQ(tokenizer_->Encode("hex", false).tokens, (Tokens{'h', 'e', 'x'}));
}

TEST_F(TokenizerTest, JoinsTextOfNeighbouringSpans) {
  EXPECT_EQ(Ids({{"t", true}, {"h", false}, {"", true}, {"e t", false}, {"he", true}}),
            (Tokens{the_, space_the_}));
  EXPECT_EQ(Ids({{"\xF0\x9F", false}, {"\x98\x80", true}}), (Tokens{0xF0, 0x9F, 0x98, 0x80}));
}

TEST_F(TokenizerTest, FindsControlTokensInTrustedTextOnly) {
  EXPECT_EQ(Ids({{"the<|im_end|>the", true}}), (Tokens{the_, end_, the_}));
  EXPECT_FALSE(HasControl(Ids({{"the<|im_end|>the", false}})));
  EXPECT_FALSE(HasControl(Ids({{"<|im_end|>", false}, {"the", true}})));
}

TEST_F(TokenizerTest, TakesTheLongestSpecialToken) {
  EXPECT_EQ(Ids({{"<|im_end|>>", true}}), (Tokens{end_end_}));
  EXPECT_EQ(Ids({{"<|im_end|>", true}, {">", false}}), (Tokens{end_, '>'}));
}

TEST_F(TokenizerTest, FindsNoControlTokenAcrossABoundaryOfTrust) {
  const std::string text = "<|im_start|>";
  for (size_t cut = 1; cut < text.size(); ++cut) {
    const std::string head = text.substr(0, cut);
    const std::string tail = text.substr(cut);

    EXPECT_FALSE(HasControl(Ids({{head, true}, {tail, false}}))) << cut;
    EXPECT_FALSE(HasControl(Ids({{head, false}, {tail, true}}))) << cut;
    EXPECT_EQ(Ids({{head, true}, {tail, true}}), Tokens{start_}) << cut;
    EXPECT_EQ(Ids({{head, true}, {"", false}, {tail, true}}), Tokens{start_}) << cut;
    EXPECT_EQ(Ids({{head, true}, {tail, false}}), Ids({{text, false}})) << cut;
  }
}

TEST_F(TokenizerTest, FindsUserDefinedTokensInAnyText) {
  EXPECT_EQ(Ids({{"a<note>b", false}}), (Tokens{'a', user_, 'b'}));
  EXPECT_EQ(Ids({{"a<no", true}, {"te>b", false}}), (Tokens{'a', user_, 'b'}));
}

TEST_F(TokenizerTest, NeverMakesControlTokensOfUntrustedText) {
  const std::vector<std::string> pieces = {"<|im_start|>", "<|im_end|>", "<|im_", "start|>",
                                           "end|>", ">", "<", "|", "the", " ", "<note>",
                                           "\xE2\x82"};
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<TextSpan> spans;
    size_t trusted_controls = 0;
    for (size_t i = random() % 12; i > 0; --i) {
      // Whole control tokens in trusted text stand between spans that are not trusted, so that each
      // counts once; every other trusted piece is harmless.
      if (random() % 3 == 0) {
        spans.push_back({"<|im_end|>", true});
        spans.push_back({" ", false});
        ++trusted_controls;
      } else {
        spans.push_back({pieces[random() % pieces.size()], false});
      }
    }

    size_t controls = 0;
    for (const TokenId token : Ids(spans)) controls += tokenizer_->IsControl(token) ? 1 : 0;

    EXPECT_EQ(controls, trusted_controls);
  }
}

TEST_F(TokenizerTest, GivesBackAnyBytes) {
  const std::string_view alphabet = "the .<|>\n\xC3\xA9\xF0\x9F\x98\x80\xFF\x00";
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::string text(random() % 100, '\0');
    for (char& byte : text) {
      byte = random() % 8 == 0 ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
    }

    const EncodeResult result = tokenizer_->Encode(text, seed % 2 == 0);

    EXPECT_EQ(tokenizer_->Decode(result.tokens), text);
    EXPECT_EQ(result.dropped_bytes, 0u);
  }
}

TEST_F(TokenizerTest, GivesControlTextOnRequestOnly) {
  EXPECT_EQ(tokenizer_->TokenBytes(end_, false), "");
  EXPECT_EQ(tokenizer_->TokenBytes(end_, true), "<|im_end|>");
  EXPECT_EQ(tokenizer_->TokenBytes(user_, false), "<note>");
  EXPECT_EQ(tokenizer_->TokenBytes(space_the_, false), " the");
}

TEST_F(TokenizerTest, KnowsNothingOfIdsOutsideTheVocabulary) {
  const auto count = static_cast<TokenId>(tokenizer_->vocabulary_size());
  for (const TokenId token : {-1, count, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer_->TokenBytes(token, true), "");
    EXPECT_FALSE(tokenizer_->IsControl(token));
    EXPECT_FALSE(tokenizer_->IsEndOfGeneration(token));
  }
}

TEST_F(TokenizerTest, TakesLongWordsWholeAndInReasonableTime) {
  // Quadratic work on these would take minutes, which the test's own time limit would end.
  std::string word;
  for (int i = 0; i < 200000; ++i) word += "the";
  EXPECT_EQ(tokenizer_->Encode(word, false).tokens, Tokens(200000, the_));
  EXPECT_EQ(tokenizer_->Encode(std::string(600001, '.'), false).tokens.size(), 300001u);
  EXPECT_EQ(tokenizer_->Encode(std::string(600000, '<'), true).tokens.size(), 600000u);
  std::string spaces(600000, ' ');
  spaces += "the";
  EXPECT_EQ(tokenizer_->Encode(spaces, false).tokens.size(), 600000u);
}

TEST(Tokenizer, CountsBytesThatHaveNoToken) {
  TinyVocabulary vocabulary;
  const TokenId dots = vocabulary.AddMerge(".", ".");
  vocabulary.tokens[4] = "unused";
  const auto tokenizer = vocabulary.Build();

  EXPECT_EQ(tokenizer->Encode("..", false).tokens, Tokens{dots});
  // What stands on the two sides of the lost byte stays apart.
  const EncodeResult result = tokenizer->Encode(".\x04.\x04", false);
  EXPECT_EQ(result.tokens, (Tokens{'.', '.'}));
  EXPECT_EQ(result.dropped_bytes, 2u);
  EXPECT_EQ(tokenizer->Encode(std::string(100, '\x04'), false).dropped_bytes, 100u);
}

TEST(Tokenizer, EndsGenerationAtNamedIdsAndKnownControlTexts) {
  TinyVocabulary vocabulary;
  vocabulary.AddMerge("a", "b");
  const TokenId im_end = vocabulary.Add("<|im_end|>", TokenKind::kControl);
  const TokenId endoftext = vocabulary.Add("<|endoftext|>", TokenKind::kControl);
  const TokenId reponame = vocabulary.Add("<reponame>", TokenKind::kControl);
  const TokenId eot = vocabulary.Add("<|eot_id|>", TokenKind::kNormal);
  const TokenId special = vocabulary.Add("<stop>", TokenKind::kControl);
  Vocabulary view = vocabulary.View();
  view.eom = static_cast<uint64_t>(special);
  view.bos = 1;
  std::string error;

  const auto tokenizer = Tokenizer::Create(view, &error);

  ASSERT_TRUE(tokenizer.ok()) << error;
  EXPECT_TRUE((*tokenizer)->IsEndOfGeneration(im_end));
  EXPECT_TRUE((*tokenizer)->IsEndOfGeneration(endoftext));
  EXPECT_TRUE((*tokenizer)->IsEndOfGeneration(special));
  EXPECT_FALSE((*tokenizer)->IsEndOfGeneration(reponame));
  EXPECT_FALSE((*tokenizer)->IsEndOfGeneration(eot));
  EXPECT_FALSE((*tokenizer)->IsEndOfGeneration(1));
  EXPECT_EQ((*tokenizer)->bos(), 1);
  EXPECT_EQ((*tokenizer)->eos(), -1);
  EXPECT_FALSE((*tokenizer)->adds_bos());
}

}  // namespace
}  // namespace kairos
