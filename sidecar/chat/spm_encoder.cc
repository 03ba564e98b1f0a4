// SPDX-License-Identifier: Apache-2.0
// The scores are turned into the merges of a BPE vocabulary when it is read. A piece can only come
// of one pair: where its two parts stand side by side, nothing around them has merged across their
// ends, so both came about as they would without it. So that pair is what the piece's own text is
// before its last merge, found by merging that text with the merges of all shorter pieces.
#include "sidecar/chat/spm_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "sidecar/chat/piece_index.h"

namespace kairos {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

// One symbol for each character of `text`.
template <typename SymbolOf>
void ReadCharacters(std::string_view text, std::vector<TokenId>* symbols, SymbolOf&& symbol_of) {
  symbols->clear();
  for (size_t at = 0; at < text.size();) {
    const size_t length = DecodeUtf8(text, at).length;
    symbols->push_back(symbol_of(text.substr(at, length)));
    at += length;
  }
}

class SpmEncoder final : public TextEncoder {
 public:
  SpmEncoder(const TokenTable& tokens, size_t pieces, TokenId unknown, bool adds_space)
      : tokens_(tokens), merges_(pieces), pieces_(pieces), unknown_(unknown),
        adds_space_(adds_space) {}

  void IndexBytes();
  // `ranks`: of each token, 0 for the best score.
  void LoadPieces(const std::vector<uint32_t>& ranks);

  void Encode(std::string_view text, uint64_t begin, BpeScratch& scratch,
              EncodeResult* result) const override;
  bool adds_bos() const override { return true; }
  bool adds_space() const override { return adds_space_; }
  std::string_view space_mark() const override { return kSpaceMark; }

 private:
  void AddPiece(TokenId token, uint32_t rank, BpeScratch& scratch);
  TokenId AddCharacter(std::string_view character);
  TokenId FindCharacter(std::string_view character) const;
  size_t WordEnd(std::string_view text, size_t begin) const;
  void MergeWord(std::string_view word, uint64_t begin, BpeScratch& scratch,
                 EncodeResult* result) const;
  void Spell(std::string_view character, uint64_t begin, EncodeResult* result) const;

  const TokenTable& tokens_;
  BpeMerges merges_;
  PieceIndex pieces_;  // text that is one token, characters among it
  // Characters that are in pieces and are none; their ids are above all tokens'.
  std::unordered_map<std::string_view, TokenId> loose_characters_;
  std::array<TokenId, 256> byte_tokens_{};
  std::array<bool, 256> joins_space_{};  // bytes behind which a piece has a space
  TokenId unknown_;
  bool adds_space_;
};

void SpmEncoder::IndexBytes() {
  byte_tokens_.fill(kNoToken);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const auto token = static_cast<TokenId>(i);
    if (tokens_.KindOf(token) != TokenKind::kByte) continue;
    byte_tokens_[static_cast<uint8_t>(tokens_.BytesOf(token)[0])] = token;
  }
}

// Tokens that text may become: normal ones, and what a file marks as unused but has. User-defined
// tokens are found before, wherever their text is.
bool IsPiece(TokenKind kind) { return kind == TokenKind::kNormal || kind == TokenKind::kUnused; }

void SpmEncoder::LoadPieces(const std::vector<uint32_t>& ranks) {
  std::vector<std::pair<uint32_t, TokenId>> by_length;  // in characters, more than one
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const auto token = static_cast<TokenId>(i);
    if (!IsPiece(tokens_.KindOf(token))) continue;
    const std::string_view bytes = tokens_.BytesOf(token);
    uint32_t length = 0;
    for (size_t at = 0; at < bytes.size(); at += DecodeUtf8(bytes, at).length) ++length;
    if (length == 1) {
      pieces_.Insert(bytes, token);
    } else {
      by_length.emplace_back(length, token);
    }
    for (size_t at = 1; at < bytes.size(); ++at) {
      if (bytes[at] == ' ') joins_space_[static_cast<uint8_t>(bytes[at - 1])] = true;
    }
  }
  std::sort(by_length.begin(), by_length.end());
  BpeScratch scratch;
  for (const auto& [length, token] : by_length) {
    AddPiece(token, ranks[static_cast<size_t>(token)], scratch);
  }
}

void SpmEncoder::AddPiece(TokenId token, uint32_t rank, BpeScratch& scratch) {
  const std::string_view bytes = tokens_.BytesOf(token);
  std::vector<TokenId>& symbols = scratch.tokens;
  ReadCharacters(bytes, &symbols, [&](std::string_view one) { return AddCharacter(one); });
  const size_t kept = merges_.Apply(symbols, scratch);
  // Three or more: other merges always come first, and text never becomes this piece.
  if (kept != 2 || !merges_.Insert(symbols[0], symbols[1], {rank, token})) return;
  pieces_.Insert(bytes, token);
}

TokenId SpmEncoder::AddCharacter(std::string_view character) {
  const TokenId token = FindCharacter(character);
  if (token != kNoToken) return token;
  const auto loose = static_cast<TokenId>(tokens_.size() + loose_characters_.size());
  loose_characters_.emplace(character, loose);
  return loose;
}

TokenId SpmEncoder::FindCharacter(std::string_view character) const {
  const TokenId token = pieces_.Find(character);
  if (token != kNoToken || loose_characters_.empty()) return token;
  const auto found = loose_characters_.find(character);
  return found == loose_characters_.end() ? kNoToken : found->second;
}

// Where no piece goes on: most words merge without a look at their neighbours.
size_t SpmEncoder::WordEnd(std::string_view text, size_t begin) const {
  size_t end = text.find(' ', begin + 1);
  while (end != std::string_view::npos && joins_space_[static_cast<uint8_t>(text[end - 1])]) {
    end = text.find(' ', end + 1);
  }
  return std::min(end, text.size());
}

void SpmEncoder::Encode(std::string_view text, uint64_t begin, BpeScratch& scratch,
                        EncodeResult* result) const {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(WordEnd(text, at), at + BpeMerges::kSymbolsMax);
    const std::string_view word = text.substr(at, end - at);
    const TokenId token = pieces_.Find(word);
    if (token != kNoToken) {
      result->tokens.push_back(token);
      result->begins.push_back(begin + at);
    } else {
      MergeWord(word, begin + at, scratch, result);
    }
    at = end;
  }
}

void SpmEncoder::MergeWord(std::string_view word, uint64_t begin, BpeScratch& scratch,
                           EncodeResult* result) const {
  std::vector<TokenId>& symbols = scratch.tokens;
  ReadCharacters(word, &symbols, [&](std::string_view one) { return FindCharacter(one); });
  symbols.resize(merges_.Apply(symbols, scratch));
  size_t at = 0;
  for (const TokenId symbol : symbols) {
    if (tokens_.IsInRange(symbol)) {
      result->tokens.push_back(symbol);
      result->begins.push_back(begin + at);
      at += tokens_.BytesOf(symbol).size();
    } else {
      const size_t length = DecodeUtf8(word, at).length;
      Spell(word.substr(at, length), begin + at, result);
      at += length;
    }
  }
}

// A run of characters that cannot be spelled is one unknown-token.
void SpmEncoder::Spell(std::string_view character, uint64_t begin, EncodeResult* result) const {
  const auto token_of = [&](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)]; };
  if (std::all_of(character.begin(), character.end(),
                  [&](char byte) { return token_of(byte) != kNoToken; })) {
    for (size_t i = 0; i < character.size(); ++i) {
      result->tokens.push_back(token_of(character[i]));
      result->begins.push_back(begin + i);
    }
    return;
  }
  result->dropped_bytes += character.size();
  if (unknown_ == kNoToken) return;
  if (!result->tokens.empty() && result->tokens.back() == unknown_) return;
  result->tokens.push_back(unknown_);
  result->begins.push_back(begin);
}

// Of equal scores equal ranks; INVALID_ARGUMENT where the scores are no order.
Status RankScores(const std::vector<float>& scores, size_t tokens, std::vector<uint32_t>* ranks,
                  std::string* error) {
  if (scores.size() != tokens) {
    return Unsound(error, "tokenizer.ggml.scores has " + std::to_string(scores.size()) +
                              " entries for " + std::to_string(tokens) + " tokens");
  }
  for (size_t i = 0; i < tokens; ++i) {
    if (std::isfinite(scores[i])) continue;
    return Unsound(error, VocabularyEntry("scores", i) + " is not a finite number");
  }
  std::vector<float> order = scores;
  std::sort(order.begin(), order.end(), std::greater<>());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  ranks->reserve(tokens);
  for (const float score : scores) {
    const auto place = std::lower_bound(order.begin(), order.end(), score, std::greater<>());
    ranks->push_back(static_cast<uint32_t>(place - order.begin()));
  }
  return Status();
}

}  // namespace

bool ReadSpmToken(std::string_view text, TokenKind kind, std::string* bytes) {
  if (kind == TokenKind::kByte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return false;
    const size_t high = kDigits.find(text[3]);
    const size_t low = kDigits.find(text[4]);
    if (high == std::string_view::npos || low == std::string_view::npos) return false;
    *bytes += static_cast<char>(high * 16 + low);
    return true;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t mark = std::min(text.find(kSpaceMark, at), text.size());
    *bytes += text.substr(at, mark - at);
    if (mark < text.size()) *bytes += ' ';
    at = mark + kSpaceMark.size();
  }
  return true;
}

Result<std::unique_ptr<TextEncoder>> MakeSpmEncoder(const Vocabulary& vocabulary,
                                                    const TokenTable& tokens,
                                                    const TokenTable::TokensByText&,
                                                    std::string* error) {
  std::vector<uint32_t> ranks;
  KAIROS_RETURN_IF_ERROR(RankScores(vocabulary.scores, tokens.size(), &ranks, error));
  TokenId unknown = kNoToken;
  if (vocabulary.unknown) {
    if (*vocabulary.unknown >= tokens.size()) {
      return Unsound(error, "tokenizer.ggml.unknown_token_id is " +
                                std::to_string(*vocabulary.unknown) + "; the vocabulary has " +
                                std::to_string(tokens.size()) + " tokens");
    }
    unknown = static_cast<TokenId>(*vocabulary.unknown);
  }
  auto encoder = std::make_unique<SpmEncoder>(tokens, tokens.size(), unknown,
                                              vocabulary.adds_space_prefix.value_or(true));
  encoder->IndexBytes();
  encoder->LoadPieces(ranks);
  return std::unique_ptr<TextEncoder>(std::move(encoder));
}

}  // namespace kairos
