// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/byte_encoder.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "sidecar/chat/piece_index.h"
#include "sidecar/chat/pre_tokenizer.h"

namespace kairos {
namespace {

class ByteEncoder final : public TextEncoder {
 public:
  ByteEncoder(const PreTokenizer& pre_tokenizer, const TokenTable& tokens, size_t merges)
      : pre_tokenizer_(pre_tokenizer), tokens_(tokens), merges_(merges) {}

  Status LoadMerges(const Vocabulary& vocabulary, const TokenTable::TokensByText& by_text,
                    std::string* error);
  void IndexBytes();
  void IndexPieces();

  void Encode(std::string_view text, uint64_t begin, BpeScratch& scratch,
              EncodeResult* result) const override;
  bool adds_bos() const override { return pre_tokenizer_.adds_bos; }
  bool adds_space() const override { return false; }
  std::string_view space_mark() const override { return {}; }

 private:
  void MergePiece(std::string_view piece, uint64_t begin, BpeScratch& scratch,
                  EncodeResult* result) const;

  const PreTokenizer& pre_tokenizer_;
  const TokenTable& tokens_;
  std::array<TokenId, 256> byte_tokens_{};
  BpeMerges merges_;
  PieceIndex pieces_;
};

Status ByteEncoder::LoadMerges(const Vocabulary& vocabulary,
                               const TokenTable::TokensByText& by_text, std::string* error) {
  std::string joined;
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const std::string_view merge = vocabulary.merges[i];
    const size_t space = merge.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      return Unsound(error,
                     VocabularyEntry("merges", i) + " is not two tokens with one space between");
    }
    joined.assign(merge.substr(0, space)).append(merge.substr(space + 1));
    const auto left = by_text.find(merge.substr(0, space));
    const auto right = by_text.find(merge.substr(space + 1));
    const auto merged = by_text.find(joined);
    if (left == by_text.end() || right == by_text.end() || merged == by_text.end()) {
      return Unsound(error,
                     VocabularyEntry("merges", i) + (merged == by_text.end()
                                                         ? " makes a token that does not exist"
                                                         : " names a token that does not exist"));
    }
    // Otherwise text of a user could become one.
    if (tokens_.IsControl(left->second) || tokens_.IsControl(right->second) ||
        tokens_.IsControl(merged->second)) {
      return Unsound(error, VocabularyEntry("merges", i) + " names or makes a control token");
    }
    const auto rank = static_cast<uint32_t>(i);
    if (!merges_.Insert(left->second, right->second, {rank, merged->second})) {
      return Unsound(error, VocabularyEntry("merges", i) + " repeats an earlier entry");
    }
  }
  return Status();
}

void ByteEncoder::IndexBytes() {
  byte_tokens_.fill(kNoToken);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const auto token = static_cast<TokenId>(i);
    const TokenKind kind = tokens_.KindOf(token);
    if (kind != TokenKind::kNormal && kind != TokenKind::kByte) continue;
    const std::string_view bytes = tokens_.BytesOf(token);
    if (bytes.size() == 1) byte_tokens_[static_cast<uint8_t>(bytes[0])] = token;
  }
}

void ByteEncoder::IndexPieces() {
  BpeScratch scratch;
  EncodeResult result;
  std::vector<TokenId> whole;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const auto token = static_cast<TokenId>(i);
    if (tokens_.KindOf(token) != TokenKind::kNormal) continue;
    result.tokens.clear();
    result.begins.clear();
    result.dropped_bytes = 0;
    if (!pre_tokenizer_.ignores_merges) {
      MergePiece(tokens_.BytesOf(token), 0, scratch, &result);
      if (result.dropped_bytes != 0 || result.tokens.size() != 1 || result.tokens[0] != token) {
        continue;
      }
    }
    whole.push_back(token);
  }
  pieces_ = PieceIndex(whole.size());
  for (const TokenId token : whole) pieces_.Insert(tokens_.BytesOf(token), token);
}

void ByteEncoder::Encode(std::string_view text, uint64_t begin, BpeScratch& scratch,
                         EncodeResult* result) const {
  for (size_t at = 0; at < text.size();) {
    const size_t end = pre_tokenizer_.scan(text, at);
    const std::string_view piece = text.substr(at, end - at);
    const TokenId token = pieces_.Find(piece);
    if (token != kNoToken) {
      result->tokens.push_back(token);
      result->begins.push_back(begin + at);
    } else {
      MergePiece(piece, begin + at, scratch, result);
    }
    at = end;
  }
}

void ByteEncoder::MergePiece(std::string_view piece, uint64_t begin, BpeScratch& scratch,
                             EncodeResult* result) const {
  std::vector<TokenId>& tokens = result->tokens;
  // A word beyond the limit of one call, a gigabyte, is cut there.
  for (; !piece.empty(); piece.remove_prefix(std::min(piece.size(), BpeMerges::kSymbolsMax))) {
    const std::string_view bytes = piece.substr(0, BpeMerges::kSymbolsMax);
    const size_t start = tokens.size();
    for (const char byte : bytes) tokens.push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
    const size_t kept = merges_.Apply(std::span(tokens).subspan(start), scratch);
    size_t end = start;
    for (size_t i = start; i < start + kept; ++i) {
      if (tokens[i] == kNoToken) {
        ++result->dropped_bytes;
        ++begin;
        continue;
      }
      result->begins.push_back(begin);
      begin += tokens_.BytesOf(tokens[i]).size();
      tokens[end++] = tokens[i];
    }
    tokens.resize(end);
  }
}

}  // namespace

bool ReadByteLevelToken(std::string_view text, TokenKind kind, std::string* bytes) {
  const bool is_plain = kind == TokenKind::kNormal || kind == TokenKind::kByte;
  if (!is_plain || !AppendStandInBytes(text, bytes)) *bytes += text;
  return true;
}

Result<std::unique_ptr<TextEncoder>> MakeByteEncoder(const Vocabulary& vocabulary,
                                                     const TokenTable& tokens,
                                                     const TokenTable::TokensByText& by_text,
                                                     std::string* error) {
  if (vocabulary.pre.empty()) {
    return Unsound(error, "tokenizer.ggml.pre is missing or not a string");
  }
  const PreTokenizer* pre_tokenizer = FindPreTokenizer(vocabulary.pre);
  if (pre_tokenizer == nullptr) {
    *error = "tokenizer.ggml.pre is '" + std::string(vocabulary.pre) +
             "'; known: " + PreTokenizerNames();
    return Status(Code::kUnimplemented, "the model's pre-tokenizer is not known");
  }
  if (vocabulary.merges.empty()) {
    return Unsound(error, "tokenizer.ggml.merges is missing, empty or not an array of strings");
  }
  if (vocabulary.merges.size() > kVocabularyTokensMax) {
    return Unsound(error, "tokenizer.ggml.merges has " + std::to_string(vocabulary.merges.size()) +
                              " entries; the limit is " + std::to_string(kVocabularyTokensMax));
  }
  auto encoder = std::make_unique<ByteEncoder>(*pre_tokenizer, tokens, vocabulary.merges.size());
  KAIROS_RETURN_IF_ERROR(encoder->LoadMerges(vocabulary, by_text, error));
  encoder->IndexBytes();
  encoder->IndexPieces();
  return std::unique_ptr<TextEncoder>(std::move(encoder));
}

}  // namespace kairos
