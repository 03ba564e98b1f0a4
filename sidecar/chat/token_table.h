// SPDX-License-Identifier: Apache-2.0
// The tokens of a vocabulary: their bytes and kinds. Filled once, then immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "sidecar/chat/vocabulary.h"

namespace kairos {

// Appends the bytes that a token written as `text` stands for; false when it is not written as its
// kind should be.
using TokenReader = bool (*)(std::string_view text, TokenKind kind, std::string* bytes);

class TokenTable {
 public:
  // By their text in the file, which is borrowed from the vocabulary.
  using TokensByText = std::unordered_map<std::string_view, TokenId>;

  // INVALID_ARGUMENT when the arrays are too long or differ in length, or a text is empty, there
  // twice, or none for `read`; *error names the entry.
  Status Load(const Vocabulary& vocabulary, TokenReader read, TokensByText* by_text,
              std::string* error);

  size_t size() const { return kinds_.size(); }
  bool IsInRange(TokenId token) const {
    return token >= 0 && static_cast<size_t>(token) < kinds_.size();
  }
  // The token of these is in range. Bytes are never none, and are valid as long as the table.
  std::string_view BytesOf(TokenId token) const {
    const auto index = static_cast<size_t>(token);
    return std::string_view(bytes_).substr(offsets_[index], offsets_[index + 1] - offsets_[index]);
  }
  TokenKind KindOf(TokenId token) const { return kinds_[static_cast<size_t>(token)]; }
  // An unknown-token is special like a control token: text can only name it where it is trusted.
  bool IsControl(TokenId token) const {
    return KindOf(token) == TokenKind::kControl || KindOf(token) == TokenKind::kUnknown;
  }

 private:
  std::string bytes_;              // of all tokens, one after the other
  std::vector<uint64_t> offsets_;  // [tokens + 1] into bytes_
  std::vector<TokenKind> kinds_;
};

// Refuses a vocabulary, in `words`.
Status Unsound(std::string* error, std::string words);
// "tokenizer.ggml.KEY[INDEX]".
std::string VocabularyEntry(const char* key, size_t index);

}  // namespace kairos
