// SPDX-License-Identifier: Apache-2.0
// A small byte-level vocabulary for tests: one token per byte, some merges, some special tokens.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sidecar/chat/tokenizer.h"
#include "sidecar/chat/vocabulary.h"

namespace kairos {

// The character that stands for `byte`, by the published rule: printable Latin-1 for itself, the
// others in order from U+0100 on.
inline std::string StandIn(uint8_t byte) {
  const auto is_printable = [](int b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  int code_point = byte;
  if (!is_printable(byte)) {
    code_point = 256;
    for (int b = 0; b < byte; ++b) code_point += is_printable(b) ? 0 : 1;
  }
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xC0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 63))};
}

inline std::string StandIns(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += StandIn(static_cast<uint8_t>(byte));
  return text;
}

class TinyVocabulary {
 public:
  // Tokens 0 to 255 are the bytes.
  TinyVocabulary() {
    for (int byte = 0; byte < 256; ++byte) {
      Add(StandIn(static_cast<uint8_t>(byte)), TokenKind::kNormal);
    }
  }

  TokenId Add(std::string text, TokenKind kind) {
    tokens.push_back(std::move(text));
    kinds.push_back(kind);
    return static_cast<TokenId>(tokens.size() - 1);
  }

  // Both sides in bytes; adds the token they make unless it is there.
  TokenId AddMerge(std::string_view left, std::string_view right) {
    merges.push_back(StandIns(left) + " " + StandIns(right));
    const std::string merged = StandIns(left) + StandIns(right);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == merged) return static_cast<TokenId>(i);
    }
    return Add(merged, TokenKind::kNormal);
  }

  // Views into this object.
  Vocabulary View() const {
    Vocabulary vocabulary;
    vocabulary.model = "gpt2";
    vocabulary.pre = pre;
    vocabulary.tokens.assign(tokens.begin(), tokens.end());
    vocabulary.kinds = kinds;
    vocabulary.merges.assign(merges.begin(), merges.end());
    return vocabulary;
  }

  std::unique_ptr<Tokenizer> Build() const {
    std::string error;
    auto tokenizer = Tokenizer::Create(View(), &error);
    EXPECT_TRUE(tokenizer.ok()) << error;
    return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
  }

  std::string pre = "smollm";
  std::vector<std::string> tokens;
  std::vector<TokenKind> kinds;
  std::vector<std::string> merges;
};

}  // namespace kairos
