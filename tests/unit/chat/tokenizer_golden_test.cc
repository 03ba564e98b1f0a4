// SPDX-License-Identifier: Apache-2.0
// Ids of the real SmolLM2 vocabulary, as tools/make_tokenizer_goldens.py recorded them from two
// other implementations. Needs the model file; says so and is skipped where there is none.
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

constexpr char kGoldens[] = "tests/goldens/tokenizer/smollm2.jsonl";

std::string ModelPath() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string path = variable("KAIROS_TEST_MODEL"); !path.empty()) return path;
  std::string cache = variable("XDG_CACHE_HOME");
  if (cache.empty()) cache = variable("HOME") + "/.cache";
  return cache + "/kairos/models/smollm2-135m.gguf";
}

class TokenizerGoldenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::ifstream(ModelPath()).good()) {
      GTEST_SKIP() << "no model file at " << ModelPath() << " (set KAIROS_TEST_MODEL)";
    }
    std::string error;
    auto file = GgufFile::Open(ModelPath(), &error);
    ASSERT_TRUE(file.ok()) << error;
    auto tokenizer = Tokenizer::Create(**file, &error);
    ASSERT_TRUE(tokenizer.ok()) << error;
    tokenizer_ = std::move(*tokenizer);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(TokenizerGoldenTest, GivesTheIdsOfOtherImplementations) {
  std::ifstream goldens(kGoldens);
  ASSERT_TRUE(goldens.good()) << kGoldens;
  std::string line;
  int rows = 0;
  while (std::getline(goldens, line)) {
    const auto row = nlohmann::json::parse(line);
    const auto text = row[0].get<std::string>();
    for (const bool special : {false, true}) {
      const EncodeResult result = tokenizer_->Encode(text, special);
      EXPECT_EQ(result.tokens, row[special ? 2 : 1].get<std::vector<TokenId>>()) << line;
      if (result.dropped_bytes == 0) {
        EXPECT_EQ(DecodeAll(*tokenizer_, result.tokens), text) << line;
      } else {
        EXPECT_LT(DecodeAll(*tokenizer_, result.tokens).size(), text.size()) << line;
      }
    }
    ++rows;
  }
  EXPECT_GE(rows, 250);
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

TEST_F(TokenizerGoldenTest, TakesHalfAMegabyteOfOneWord) {
  std::string word;
  while (word.size() < 600000) word += "thequickbrownfoxjumpsoverthelazydog";

  const EncodeResult result = tokenizer_->Encode(word, false);

  EXPECT_EQ(DecodeAll(*tokenizer_, result.tokens), word);
}

}  // namespace
}  // namespace kairos
