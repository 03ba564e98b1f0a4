// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/vocabulary.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/printable_text.h"
#include "base/utf8.h"

namespace kairos {
namespace {

constexpr uint32_t kStandInLimit = 256 + 68;

// The byte of each stand-in character, or -1.
constexpr std::array<int16_t, kStandInLimit> kByteOfStandIn = [] {
  std::array<int16_t, kStandInLimit> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    bytes[is_printable ? byte : next++] = static_cast<int16_t>(byte);
  }
  return bytes;
}();

Status Missing(const char* key, const char* kind, std::string* error) {
  *error = std::string(key) + " is missing or not " + kind;
  return Status(Code::kInvalidArgument, "tokenizer metadata is missing");
}

Status ReadKinds(const GgufFile& file, Vocabulary* vocabulary, std::string* error) {
  const auto kinds = file.IntegerArray("tokenizer.ggml.token_type");
  if (!kinds) return Missing("tokenizer.ggml.token_type", "an array of integers", error);
  if (kinds->size() != vocabulary->tokens.size()) {
    *error = "tokenizer.ggml.token_type has " + std::to_string(kinds->size()) +
             " entries, tokenizer.ggml.tokens has " + std::to_string(vocabulary->tokens.size());
    return Status(Code::kInvalidArgument, "tokenizer arrays differ in length");
  }
  for (size_t i = 0; i < kinds->size(); ++i) {
    const int64_t kind = (*kinds)[i];
    if (kind < 1 || kind > 6) {
      *error = "tokenizer.ggml.token_type[" + std::to_string(i) + "] is " + std::to_string(kind) +
               ", not 1 to 6";
      return Status(Code::kInvalidArgument, "unknown token type", static_cast<int64_t>(i));
    }
    vocabulary->kinds.push_back(static_cast<TokenKind>(kind));
  }
  return Status();
}

}  // namespace

Result<Vocabulary> ReadVocabulary(const GgufFile& file, std::string* error) {
  Vocabulary vocabulary;
  const auto model = file.String("tokenizer.ggml.model");
  if (!model) return Missing("tokenizer.ggml.model", "a string", error);
  auto tokens = file.StringArray("tokenizer.ggml.tokens");
  if (!tokens) return Missing("tokenizer.ggml.tokens", "an array of strings", error);
  vocabulary.model = *model;
  vocabulary.pre = file.String("tokenizer.ggml.pre").value_or("");
  vocabulary.tokens = std::move(*tokens);
  KAIROS_RETURN_IF_ERROR(ReadKinds(file, &vocabulary, error));
  // What else a kind of vocabulary needs is for the tokenizer to say.
  if (auto merges = file.StringArray("tokenizer.ggml.merges")) vocabulary.merges = *merges;
  if (auto scores = file.FloatArray("tokenizer.ggml.scores")) vocabulary.scores = *scores;
  vocabulary.bos = file.Unsigned("tokenizer.ggml.bos_token_id");
  vocabulary.eos = file.Unsigned("tokenizer.ggml.eos_token_id");
  vocabulary.eot = file.Unsigned("tokenizer.ggml.eot_token_id");
  vocabulary.eom = file.Unsigned("tokenizer.ggml.eom_token_id");
  vocabulary.unknown = file.Unsigned("tokenizer.ggml.unknown_token_id");
  vocabulary.adds_bos = file.Bool("tokenizer.ggml.add_bos_token");
  vocabulary.adds_space_prefix = file.Bool("tokenizer.ggml.add_space_prefix");
  return vocabulary;
}

std::string FirstDifference(const Vocabulary& a, const Vocabulary& b) {
  if (a.model != b.model) {
    return fmt::format("the vocabulary is of kind {}, not {}", QuotedText(b.model),
                       QuotedText(a.model));
  }
  const size_t common = std::min(a.tokens.size(), b.tokens.size());
  for (size_t i = 0; i < common; ++i) {
    const bool same_kind = (a.kinds[i] == TokenKind::kByte) == (b.kinds[i] == TokenKind::kByte);
    if (a.tokens[i] == b.tokens[i] && same_kind) continue;
    return fmt::format("token {} is {}{}, not {}{}", i, QuotedText(b.tokens[i]),
                       b.kinds[i] == TokenKind::kByte ? " as a byte" : "", QuotedText(a.tokens[i]),
                       a.kinds[i] == TokenKind::kByte ? " as a byte" : "");
  }
  const Vocabulary& longer = a.tokens.size() > common ? a : b;
  for (size_t i = common; i < longer.tokens.size(); ++i) {
    if (longer.kinds[i] == TokenKind::kUnused) continue;
    return fmt::format("token {}, {}, is in one vocabulary only", i, QuotedText(longer.tokens[i]));
  }
  return "";
}

bool AppendStandInBytes(std::string_view text, std::string* bytes) {
  const size_t before = bytes->size();
  for (size_t position = 0; position < text.size();) {
    const Utf8Character character = DecodeUtf8(text, position);
    const uint32_t code_point = character.code_point;
    if (code_point >= kStandInLimit || kByteOfStandIn[code_point] < 0) {
      bytes->resize(before);
      return false;
    }
    bytes->push_back(static_cast<char>(kByteOfStandIn[code_point]));
    position += character.length;
  }
  return true;
}

}  // namespace kairos
