// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/token_table.h"

#include <utility>

namespace kairos {

Status Unsound(std::string* error, std::string words) {
  *error = std::move(words);
  return Status(Code::kInvalidArgument, "the model's vocabulary is not sound");
}

std::string VocabularyEntry(const char* key, size_t index) {
  return "tokenizer.ggml." + std::string(key) + "[" + std::to_string(index) + "]";
}

Status TokenTable::Load(const Vocabulary& vocabulary, TokenReader read, TokensByText* by_text,
                        std::string* error) {
  const size_t count = vocabulary.tokens.size();
  if (count == 0 || count > kVocabularyTokensMax) {
    return Unsound(error, "tokenizer.ggml.tokens has " + std::to_string(count) +
                              " entries; the limit is 1 to " +
                              std::to_string(kVocabularyTokensMax));
  }
  kinds_ = vocabulary.kinds;
  if (kinds_.size() != count) {
    return Unsound(error, "tokenizer.ggml.token_type has " + std::to_string(kinds_.size()) +
                              " entries for " + std::to_string(count) + " tokens");
  }
  by_text->reserve(count);
  offsets_.reserve(count + 1);
  offsets_.push_back(0);
  for (size_t i = 0; i < count; ++i) {
    const std::string_view text = vocabulary.tokens[i];
    if (text.empty()) return Unsound(error, VocabularyEntry("tokens", i) + " is empty");
    const auto [found, added] = by_text->emplace(text, static_cast<TokenId>(i));
    if (!added) {
      return Unsound(error, VocabularyEntry("tokens", i) + " is the same as [" +
                                std::to_string(found->second) + "]");
    }
    if (!read(text, kinds_[i], &bytes_)) {
      return Unsound(error, VocabularyEntry("tokens", i) +
                                " is of the type of bytes, but not <0x00> to <0xFF>");
    }
    offsets_.push_back(bytes_.size());
  }
  return Status();
}

}  // namespace kairos
