// SPDX-License-Identifier: Apache-2.0
// A small SentencePiece vocabulary for tests: an unknown-token, two control tokens, a token for
// each byte, then pieces.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sidecar/chat/tokenizer.h"
#include "sidecar/chat/vocabulary.h"

namespace kairos {

class TinySpmVocabulary {
 public:
  static constexpr TokenId kUnknown = 0;
  static constexpr TokenId kBegin = 1;
  static constexpr TokenId kEnd = 2;
  static constexpr TokenId kBytes = 3;  // the token of byte 0

  TinySpmVocabulary() {
    Add("<unk>", 0, TokenKind::kUnknown);
    Add("<s>", 0, TokenKind::kControl);
    Add("</s>", 0, TokenKind::kControl);
    for (int byte = 0; byte < 256; ++byte) {
      char text[8];
      std::snprintf(text, sizeof(text), "<0x%02X>", byte);
      Add(text, 0, TokenKind::kByte);
    }
  }

  TokenId Add(std::string text, float score, TokenKind kind = TokenKind::kNormal) {
    tokens.push_back(std::move(text));
    scores.push_back(score);
    kinds.push_back(kind);
    return static_cast<TokenId>(tokens.size() - 1);
  }

  // Views into this object.
  Vocabulary View() const {
    Vocabulary vocabulary;
    vocabulary.model = "llama";
    vocabulary.tokens.assign(tokens.begin(), tokens.end());
    vocabulary.kinds = kinds;
    vocabulary.scores = scores;
    vocabulary.unknown = kUnknown;
    vocabulary.bos = kBegin;
    vocabulary.eos = kEnd;
    vocabulary.adds_space_prefix = adds_space_prefix;
    return vocabulary;
  }

  std::unique_ptr<Tokenizer> Build() const {
    std::string error;
    auto tokenizer = Tokenizer::Create(View(), &error);
    EXPECT_TRUE(tokenizer.ok()) << error;
    return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
  }

  bool adds_space_prefix = false;
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<TokenKind> kinds;
};

}  // namespace kairos
