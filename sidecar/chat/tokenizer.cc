// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE. What a piece of text becomes depends on that piece alone, so the pieces that
// become one token are found out at Create and looked up whole; merging is left for the others.
#include "sidecar/chat/tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "sidecar/chat/bpe_merges.h"
#include "sidecar/chat/piece_index.h"
#include "sidecar/chat/pre_tokenizer.h"
#include "sidecar/chat/special_tokens.h"
#include "sidecar/chat/vocabulary.h"

namespace kairos {
namespace {

// Control tokens of these texts end a generation, whatever ids the file names.
constexpr std::string_view kEndTexts[] = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>",
                                          "<end_of_turn>"};

// An unknown-token is special like a control token: text can only name it where it is trusted.
bool IsControlKind(TokenKind kind) {
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

Status Unsound(std::string* error, std::string words) {
  *error = std::move(words);
  return Status(Code::kInvalidArgument, "the model's vocabulary is not sound");
}

std::string Entry(const char* key, size_t index) {
  return "tokenizer.ggml." + std::string(key) + "[" + std::to_string(index) + "]";
}

// Text from trusted spans, neighbours joined.
struct TrustedRange {
  size_t begin;
  size_t end;
};

class ByteLevelTokenizer final : public Tokenizer {
 public:
  explicit ByteLevelTokenizer(const Vocabulary& vocabulary)
      : merges_(vocabulary.merges.size()), kinds_(vocabulary.kinds) {}

  // Everything that can be wrong with a vocabulary is found here.
  Status Load(const Vocabulary& vocabulary, std::string* error);

  EncodeResult Encode(std::span<const TextSpan> spans) const override;
  std::string_view TokenBytes(TokenId token, bool special) const override {
    if (!IsInRange(token) || (!special && IsControlKind(kinds_[token]))) return {};
    return std::string_view(bytes_).substr(offsets_[token], offsets_[token + 1] - offsets_[token]);
  }
  uint32_t vocabulary_size() const override { return static_cast<uint32_t>(kinds_.size()); }
  bool IsControl(TokenId token) const override {
    return IsInRange(token) && IsControlKind(kinds_[token]);
  }
  bool IsEndOfGeneration(TokenId token) const override {
    return IsInRange(token) && ends_generation_[token];
  }
  TokenId bos() const override { return bos_; }
  TokenId eos() const override { return eos_; }
  bool adds_bos() const override { return adds_bos_; }

 private:
  using TokensByText = std::unordered_map<std::string_view, TokenId>;

  bool IsInRange(TokenId token) const {
    return token >= 0 && static_cast<size_t>(token) < kinds_.size();
  }
  Status LoadTokens(const Vocabulary& vocabulary, TokensByText* by_text, std::string* error);
  Status LoadMerges(const Vocabulary& vocabulary, const TokensByText& by_text, std::string* error);
  Status LoadIds(const Vocabulary& vocabulary, const TokensByText& by_text, std::string* error);
  void IndexPieces();
  void EncodeText(std::string_view text, BpeScratch& scratch, EncodeResult* result) const;
  void MergePiece(std::string_view piece, BpeScratch& scratch, EncodeResult* result) const;

  const PreTokenizer* pre_tokenizer_ = nullptr;
  std::string bytes_;              // of all tokens, one after the other
  std::vector<uint64_t> offsets_;  // [tokens + 1] into bytes_
  std::array<TokenId, 256> byte_tokens_{};
  BpeMerges merges_;
  PieceIndex pieces_;
  SpecialTokens special_tokens_;
  std::vector<TokenKind> kinds_;
  std::vector<bool> ends_generation_;
  TokenId bos_ = kNoToken;
  TokenId eos_ = kNoToken;
  bool adds_bos_ = false;
};

Status ByteLevelTokenizer::Load(const Vocabulary& vocabulary, std::string* error) {
  if (vocabulary.model != "gpt2") {
    *error = "tokenizer.ggml.model is '" + std::string(vocabulary.model) + "'; known: gpt2";
    return Status(Code::kUnimplemented, "the model's kind of tokenizer is not known");
  }
  pre_tokenizer_ = FindPreTokenizer(vocabulary.pre);
  if (pre_tokenizer_ == nullptr) {
    *error = "tokenizer.ggml.pre is '" + std::string(vocabulary.pre) +
             "'; known: " + PreTokenizerNames();
    return Status(Code::kUnimplemented, "the model's pre-tokenizer is not known");
  }
  TokensByText by_text;
  KAIROS_RETURN_IF_ERROR(LoadTokens(vocabulary, &by_text, error));
  KAIROS_RETURN_IF_ERROR(LoadMerges(vocabulary, by_text, error));
  KAIROS_RETURN_IF_ERROR(LoadIds(vocabulary, by_text, error));
  IndexPieces();
  return Status();
}

Status ByteLevelTokenizer::LoadTokens(const Vocabulary& vocabulary, TokensByText* by_text,
                                      std::string* error) {
  const size_t count = vocabulary.tokens.size();
  if (count == 0 || count > kVocabularyTokensMax) {
    return Unsound(error, "tokenizer.ggml.tokens has " + std::to_string(count) +
                              " entries; the limit is 1 to " +
                              std::to_string(kVocabularyTokensMax));
  }
  if (kinds_.size() != count) {
    return Unsound(error, "tokenizer.ggml.token_type has " + std::to_string(kinds_.size()) +
                              " entries for " + std::to_string(count) + " tokens");
  }
  byte_tokens_.fill(kNoToken);
  by_text->reserve(count);
  offsets_.reserve(count + 1);
  offsets_.push_back(0);
  for (size_t i = 0; i < count; ++i) {
    const std::string_view text = vocabulary.tokens[i];
    const auto token = static_cast<TokenId>(i);
    if (text.empty()) return Unsound(error, Entry("tokens", i) + " is empty");
    const auto [found, added] = by_text->emplace(text, token);
    if (!added) {
      return Unsound(error, Entry("tokens", i) + " is the same as [" +
                                std::to_string(found->second) + "]");
    }
    const bool is_plain = kinds_[i] == TokenKind::kNormal || kinds_[i] == TokenKind::kByte;
    // Added tokens that a converter left marked as normal may be written in raw text.
    if (!is_plain || !AppendStandInBytes(text, &bytes_)) bytes_ += text;
    if (is_plain && bytes_.size() == offsets_.back() + 1) {
      byte_tokens_[static_cast<uint8_t>(bytes_.back())] = token;
    }
    offsets_.push_back(bytes_.size());
  }
  std::vector<SpecialToken> special;
  for (size_t i = 0; i < count; ++i) {
    const auto token = static_cast<TokenId>(i);
    const bool is_control = IsControlKind(kinds_[i]);
    if (!is_control && kinds_[i] != TokenKind::kUserDefined) continue;
    special.push_back({TokenBytes(token, true), token, is_control});
  }
  special_tokens_ = SpecialTokens(std::move(special));
  return Status();
}

Status ByteLevelTokenizer::LoadMerges(const Vocabulary& vocabulary, const TokensByText& by_text,
                                      std::string* error) {
  if (vocabulary.merges.empty()) {
    return Unsound(error, "tokenizer.ggml.merges is missing, empty or not an array of strings");
  }
  if (vocabulary.merges.size() > kVocabularyTokensMax) {
    return Unsound(error, "tokenizer.ggml.merges has " + std::to_string(vocabulary.merges.size()) +
                              " entries; the limit is " + std::to_string(kVocabularyTokensMax));
  }
  std::string joined;
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const std::string_view merge = vocabulary.merges[i];
    const size_t space = merge.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      return Unsound(error, Entry("merges", i) + " is not two tokens with one space between");
    }
    joined.assign(merge.substr(0, space)).append(merge.substr(space + 1));
    const auto left = by_text.find(merge.substr(0, space));
    const auto right = by_text.find(merge.substr(space + 1));
    const auto merged = by_text.find(joined);
    if (left == by_text.end() || right == by_text.end() || merged == by_text.end()) {
      return Unsound(error, Entry("merges", i) + (merged == by_text.end()
                                                      ? " makes a token that does not exist"
                                                      : " names a token that does not exist"));
    }
    // Otherwise text of a user could become one.
    if (IsControl(left->second) || IsControl(right->second) || IsControl(merged->second)) {
      return Unsound(error, Entry("merges", i) + " names or makes a control token");
    }
    const auto rank = static_cast<uint32_t>(i);
    if (!merges_.Insert(left->second, right->second, {rank, merged->second})) {
      return Unsound(error, Entry("merges", i) + " repeats an earlier entry");
    }
  }
  return Status();
}

Status ByteLevelTokenizer::LoadIds(const Vocabulary& vocabulary, const TokensByText& by_text,
                                   std::string* error) {
  ends_generation_.assign(kinds_.size(), false);
  const struct {
    const char* key;
    const std::optional<uint64_t>& id;
    bool ends_generation;
    TokenId* target;
  } ids[] = {{"bos", vocabulary.bos, false, &bos_},
             {"eos", vocabulary.eos, true, &eos_},
             {"eot", vocabulary.eot, true, nullptr},
             {"eom", vocabulary.eom, true, nullptr}};
  for (const auto& entry : ids) {
    if (!entry.id) continue;
    if (*entry.id >= kinds_.size()) {
      return Unsound(error, "tokenizer.ggml." + std::string(entry.key) + "_token_id is " +
                                std::to_string(*entry.id) + "; the vocabulary has " +
                                std::to_string(kinds_.size()) + " tokens");
    }
    if (entry.target != nullptr) *entry.target = static_cast<TokenId>(*entry.id);
    if (entry.ends_generation) ends_generation_[*entry.id] = true;
  }
  for (const std::string_view text : kEndTexts) {
    const auto found = by_text.find(text);
    if (found != by_text.end() && IsControl(found->second)) ends_generation_[found->second] = true;
  }
  adds_bos_ = vocabulary.adds_bos.value_or(pre_tokenizer_->adds_bos);
  if (adds_bos_ && bos_ == kNoToken) {
    return Unsound(error, "tokenizer.ggml.add_bos_token is set, but there is no bos_token_id");
  }
  return Status();
}

void ByteLevelTokenizer::IndexPieces() {
  BpeScratch scratch;
  EncodeResult result;
  std::vector<TokenId> whole;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const auto token = static_cast<TokenId>(i);
    if (kinds_[i] != TokenKind::kNormal) continue;
    result.tokens.clear();
    result.dropped_bytes = 0;
    if (!pre_tokenizer_->ignores_merges) {
      MergePiece(TokenBytes(token, true), scratch, &result);
      if (result.dropped_bytes != 0 || result.tokens.size() != 1 || result.tokens[0] != token) {
        continue;
      }
    }
    whole.push_back(token);
  }
  pieces_ = PieceIndex(whole.size());
  for (const TokenId token : whole) pieces_.Insert(TokenBytes(token, true), token);
}

EncodeResult ByteLevelTokenizer::Encode(std::span<const TextSpan> spans) const {
  std::string joined;
  std::vector<TrustedRange> trusted;
  std::string_view text;
  size_t end = 0;
  for (const TextSpan& span : spans) {
    const size_t begin = end;
    end += span.text.size();
    if (spans.size() == 1) {
      text = span.text;
    } else {
      joined += span.text;
    }
    if (!span.trusted) continue;
    if (!trusted.empty() && trusted.back().end == begin) {
      trusted.back().end = end;
    } else {
      trusted.push_back({begin, end});
    }
  }
  if (spans.size() != 1) text = joined;

  EncodeResult result;
  result.tokens.reserve(text.size() / 4 + 8);
  BpeScratch scratch;
  size_t gap = 0;  // where the text since the last special token begins
  size_t range = 0;
  for (size_t position = 0; position < text.size();) {
    if (!special_tokens_.MayStartWith(text[position])) {
      ++position;
      continue;
    }
    while (range < trusted.size() && trusted[range].end <= position) ++range;
    const bool is_trusted = range < trusted.size() && trusted[range].begin <= position;
    const SpecialToken* match =
        special_tokens_.Match(text, position, is_trusted ? trusted[range].end : 0);
    if (match == nullptr) {
      ++position;
      continue;
    }
    EncodeText(text.substr(gap, position - gap), scratch, &result);
    result.tokens.push_back(match->token);
    position += match->text.size();
    gap = position;
  }
  EncodeText(text.substr(gap), scratch, &result);
  return result;
}

void ByteLevelTokenizer::EncodeText(std::string_view text, BpeScratch& scratch,
                                    EncodeResult* result) const {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = pre_tokenizer_->scan(text, begin);
    const std::string_view piece = text.substr(begin, end - begin);
    const TokenId token = pieces_.Find(piece);
    if (token != kNoToken) {
      result->tokens.push_back(token);
    } else {
      MergePiece(piece, scratch, result);
    }
    begin = end;
  }
}

void ByteLevelTokenizer::MergePiece(std::string_view piece, BpeScratch& scratch,
                                    EncodeResult* result) const {
  // A word beyond the limit of one call, a gigabyte, is cut there.
  for (; !piece.empty(); piece.remove_prefix(std::min(piece.size(), BpeMerges::kSymbolsMax))) {
    const std::string_view bytes = piece.substr(0, BpeMerges::kSymbolsMax);
    const size_t start = result->tokens.size();
    for (const char byte : bytes) {
      result->tokens.push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
    }
    const size_t kept = merges_.Apply(std::span(result->tokens).subspan(start), scratch);
    result->tokens.resize(start + kept);
    const auto first = result->tokens.begin() + static_cast<ptrdiff_t>(start);
    const auto end = std::remove(first, result->tokens.end(), kNoToken);
    result->dropped_bytes += static_cast<uint64_t>(result->tokens.end() - end);
    result->tokens.erase(end, result->tokens.end());
  }
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(const GgufFile& file, std::string* error) {
  KAIROS_ASSIGN_OR_RETURN(const Vocabulary vocabulary, ReadVocabulary(file, error));
  return Create(vocabulary, error);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(const Vocabulary& vocabulary,
                                                     std::string* error) {
  auto tokenizer = std::make_unique<ByteLevelTokenizer>(vocabulary);
  KAIROS_RETURN_IF_ERROR(tokenizer->Load(vocabulary, error));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace kairos
