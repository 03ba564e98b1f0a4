// SPDX-License-Identifier: Apache-2.0
// Ids of real vocabularies, as tools/make_tokenizer_goldens.py recorded them from two other
// implementations. Two need their model's file, and say so and are skipped where there is none; the
// third, made by tools/make_spm_vocabulary.py, is in the tree.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sidecar/chat/tokenizer.h"
#include "tests/unit/chat/tiny_vocabulary.h"

namespace kairos {
namespace {

std::string PathOf(const std::string& model) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (model.find('/') != std::string::npos) return model;
  const std::string path = variable("KAIROS_TEST_MODEL");
  if (model == "smollm2-135m" && !path.empty()) return path;
  std::string cache = variable("XDG_CACHE_HOME");
  if (cache.empty()) cache = variable("HOME") + "/.cache";
  return cache + "/kairos/models/" + model + ".gguf";
}

class ModelVocabulary : public ::testing::Test {
 protected:
  explicit ModelVocabulary(const char* model) : model_(model) {}
  void SetUp() override {
    const std::string path = PathOf(model_);
    if (!std::ifstream(path).good()) {
      GTEST_SKIP() << "no model file at " << path << " (tools/model fetch " << model_ << ")";
    }
    std::string error;
    auto file = GgufFile::Open(path, &error);
    ASSERT_TRUE(file.ok()) << error;
    auto tokenizer = Tokenizer::Create(**file, &error);
    ASSERT_TRUE(tokenizer.ok()) << error;
    tokenizer_ = std::move(*tokenizer);
  }
  void ExpectGoldens(const char* path) const {
    std::ifstream goldens(path);
    ASSERT_TRUE(goldens.good()) << path;
    std::string line;
    int rows = 0;
    while (std::getline(goldens, line)) {
      const auto row = nlohmann::json::parse(line);
      const auto text = row[0].get<std::string>();
      for (const bool special : {false, true}) {
        const EncodeResult result = tokenizer_->Encode(text, special, TextPlace::kStart);
        EXPECT_EQ(result.tokens, row[special ? 2 : 1].get<std::vector<TokenId>>()) << line;
        const std::vector<TokenId> exact = tokenizer_->Encode(text, special).tokens;
        if (result.dropped_bytes == 0) {
          EXPECT_EQ(tokenizer_->Decode(exact), text) << line;
        } else {
          EXPECT_LT(tokenizer_->Decode(exact).size(), text.size()) << line;
        }
      }
      ++rows;
    }
    EXPECT_GE(rows, 250);
  }
  void ExpectWholeWord(size_t size) const {
    std::string word;
    while (word.size() < size) word += "thequickbrownfoxjumpsoverthelazydog";

    const EncodeResult result = tokenizer_->Encode(word, false);

    EXPECT_EQ(tokenizer_->Decode(result.tokens), word);
  }

  const std::string model_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

class TokenizerGoldenTest : public ModelVocabulary {
 protected:
  TokenizerGoldenTest() : ModelVocabulary("smollm2-135m") {}
};

class GemmaGoldenTest : public ModelVocabulary {
 protected:
  GemmaGoldenTest() : ModelVocabulary("gemma3-270m") {}
};

class SmallSpmGoldenTest : public ModelVocabulary {
 protected:
  SmallSpmGoldenTest() : ModelVocabulary("tests/goldens/tokenizer/spm_small.gguf") {}
};

TEST_F(TokenizerGoldenTest, GivesTheIdsOfOtherImplementations) {
  ExpectGoldens("tests/goldens/tokenizer/smollm2.jsonl");
}

TEST_F(GemmaGoldenTest, GivesTheIdsOfOtherImplementations) {
  ExpectGoldens("tests/goldens/tokenizer/gemma3.jsonl");
}

TEST_F(SmallSpmGoldenTest, GivesTheIdsOfOtherImplementations) {
  ExpectGoldens("tests/goldens/tokenizer/spm_small.jsonl");
}

TEST_F(TokenizerGoldenTest, ReportsBytesTheVocabularyLacks) {
  EXPECT_EQ(tokenizer_->Encode("a\x04\x06z", false).dropped_bytes, 2u);
  EXPECT_EQ(tokenizer_->Encode("\xF1\x80\x80\x80", false).dropped_bytes, 1u);
  EXPECT_EQ(tokenizer_->Encode("caf\u00e9 \U0001f600", false).dropped_bytes, 0u);
}

TEST_F(TokenizerGoldenTest, KnowsTheModelsSpecialTokens) {
  EXPECT_EQ(tokenizer_->vocabulary_size(), 49152u);
  EXPECT_EQ(tokenizer_->bos(), 1);
  EXPECT_EQ(tokenizer_->eos(), 2);
  EXPECT_FALSE(tokenizer_->adds_bos());
  for (TokenId token = 0; token < 49152; ++token) {
    EXPECT_EQ(tokenizer_->IsControl(token), token < 17) << token;
    EXPECT_EQ(tokenizer_->IsEndOfGeneration(token), token == 0 || token == 2) << token;
  }
}

TEST_F(TokenizerGoldenTest, TakesHalfAMegabyteOfOneWord) { ExpectWholeWord(600000); }
TEST_F(SmallSpmGoldenTest, TakesHalfAMegabyteOfOneWord) { ExpectWholeWord(600000); }

// llama.cpp counts </s>, an HTML tag here, as a control token that ends replies.
TEST_F(GemmaGoldenTest, KnowsTheModelsSpecialTokens) {
  EXPECT_EQ(tokenizer_->vocabulary_size(), 262144u);
  EXPECT_EQ(tokenizer_->bos(), 2);
  EXPECT_EQ(tokenizer_->eos(), 1);
  EXPECT_TRUE(tokenizer_->adds_bos());
  EXPECT_FALSE(tokenizer_->adds_space());
  for (TokenId token = 0; token < 262144; ++token) {
    EXPECT_EQ(tokenizer_->IsEndOfGeneration(token), token == 1 || token == 106) << token;
  }
  EXPECT_EQ(tokenizer_->Encode("a</s>b", false).tokens,
            (std::vector<TokenId>{236746, 212, 236763}));
  EXPECT_EQ(tokenizer_->Encode("<end_of_turn>", true).tokens, std::vector<TokenId>{106});
  EXPECT_GT(tokenizer_->Encode("<end_of_turn>", false).tokens.size(), 1u);
}

// As SentencePiece has it; llama.cpp looks for runs of spaces before it takes the mark for one.
TEST_F(GemmaGoldenTest, TakesMarksInPromptsForSpaces) {
  EXPECT_EQ(tokenizer_->Encode("\u2581\u2581", false, TextPlace::kPrompt).tokens,
            std::vector<TokenId>{138});
  EXPECT_EQ(tokenizer_->Encode(" \u2581 x", false, TextPlace::kPrompt).tokens,
            (std::vector<TokenId>{139, 236781}));
}

}  // namespace
}  // namespace kairos
