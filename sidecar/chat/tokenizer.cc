// SPDX-License-Identifier: Apache-2.0
// Finds special tokens and gives the text between them to the encoder of the vocabulary's kind.
#include "sidecar/chat/tokenizer.h"

#include <algorithm>
#include <utility>

#include "sidecar/chat/byte_encoder.h"
#include "sidecar/chat/special_tokens.h"
#include "sidecar/chat/spm_encoder.h"
#include "sidecar/chat/text_encoder.h"
#include "sidecar/chat/token_table.h"
#include "sidecar/chat/vocabulary.h"

namespace kairos {
namespace {

// Control tokens of these texts end a generation, whatever ids the file names.
constexpr std::string_view kEndTexts[] = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>",
                                          "<end_of_turn>"};

constexpr struct VocabularyKind {
  std::string_view model;  // value of tokenizer.ggml.model
  TokenReader read;
  MakeTextEncoder make;
} kKinds[] = {{"gpt2", ReadByteLevelToken, MakeByteEncoder},
              {"llama", ReadSpmToken, MakeSpmEncoder}};

// The texts of spans as one.
struct JoinedText {
  struct Range {
    size_t begin;
    size_t end;
  };
  std::string text;
  std::vector<Range> trusted;  // neighbours joined
  std::vector<size_t> folds;   // in `text`: the spaces that were `mark_bytes` long
  size_t mark_bytes = 0;

  // `mark` is read as a space; a mark that two spans share is none.
  void Append(const TextSpan& span, std::string_view mark) {
    const size_t begin = text.size();
    for (size_t at = 0; at < span.text.size();) {
      const size_t found = mark.empty() ? std::string::npos : span.text.find(mark, at);
      const size_t end = std::min(found, span.text.size());
      text.append(span.text, at, end - at);
      at = end + mark.size();
      if (end == span.text.size()) break;
      folds.push_back(text.size());
      text += ' ';
    }
    mark_bytes = mark.size();
    if (!span.trusted) return;
    if (!trusted.empty() && trusted.back().end == begin) {
      trusted.back().end = text.size();
    } else {
      trusted.push_back({begin, text.size()});
    }
  }

  // Places in `text`, ascending, to those in the spans.
  void Unfold(std::vector<uint64_t>* places) const {
    size_t before = 0;
    for (uint64_t& place : *places) {
      while (before < folds.size() && folds[before] < place) ++before;
      place += before * (mark_bytes - 1);
    }
  }
};

class VocabularyTokenizer final : public Tokenizer {
 public:
  // Everything that can be wrong with a vocabulary is found here.
  Status Load(const Vocabulary& vocabulary, std::string* error);

  EncodeResult Encode(std::span<const TextSpan> spans, TextPlace place) const override;
  std::string_view TokenBytes(TokenId token, bool special) const override {
    if (!tokens_.IsInRange(token) || (!special && tokens_.IsControl(token))) return {};
    return tokens_.BytesOf(token);
  }
  uint32_t vocabulary_size() const override { return static_cast<uint32_t>(tokens_.size()); }
  bool IsControl(TokenId token) const override {
    return tokens_.IsInRange(token) && tokens_.IsControl(token);
  }
  bool IsEndOfGeneration(TokenId token) const override {
    return tokens_.IsInRange(token) && ends_generation_[static_cast<size_t>(token)];
  }
  TokenId bos() const override { return bos_; }
  TokenId eos() const override { return eos_; }
  bool adds_bos() const override { return adds_bos_; }
  bool adds_space() const override { return encoder_->adds_space(); }

 private:
  void FindSpecialTokens();
  Status LoadIds(const Vocabulary& vocabulary, const TokenTable::TokensByText& by_text,
                 std::string* error);
  void EncodeGap(std::string_view text, uint64_t begin, bool led_by_space, BpeScratch& scratch,
                 EncodeResult* result) const;

  TokenTable tokens_;
  std::unique_ptr<TextEncoder> encoder_;
  SpecialTokens special_tokens_;
  std::vector<bool> ends_generation_;
  TokenId bos_ = kNoToken;
  TokenId eos_ = kNoToken;
  bool adds_bos_ = false;
};

Status VocabularyTokenizer::Load(const Vocabulary& vocabulary, std::string* error) {
  const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const auto& known) {
    return known.model == vocabulary.model;
  });
  if (kind == std::end(kKinds)) {
    *error = "tokenizer.ggml.model is '" + std::string(vocabulary.model) + "'; known: ";
    for (const VocabularyKind& known : kKinds) {
      *error += (&known == kKinds ? "" : ", ") + std::string(known.model);
    }
    return Status(Code::kUnimplemented, "the model's kind of tokenizer is not known");
  }
  TokenTable::TokensByText by_text;
  KAIROS_RETURN_IF_ERROR(tokens_.Load(vocabulary, kind->read, &by_text, error));
  KAIROS_ASSIGN_OR_RETURN(encoder_, kind->make(vocabulary, tokens_, by_text, error));
  FindSpecialTokens();
  return LoadIds(vocabulary, by_text, error);
}

void VocabularyTokenizer::FindSpecialTokens() {
  std::vector<SpecialToken> special;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const auto token = static_cast<TokenId>(i);
    const bool is_control = tokens_.IsControl(token);
    if (!is_control && tokens_.KindOf(token) != TokenKind::kUserDefined) continue;
    special.push_back({tokens_.BytesOf(token), token, is_control});
  }
  special_tokens_ = SpecialTokens(std::move(special));
}

Status VocabularyTokenizer::LoadIds(const Vocabulary& vocabulary,
                                    const TokenTable::TokensByText& by_text, std::string* error) {
  ends_generation_.assign(tokens_.size(), false);
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
    if (*entry.id >= tokens_.size()) {
      return Unsound(error, "tokenizer.ggml." + std::string(entry.key) + "_token_id is " +
                                std::to_string(*entry.id) + "; the vocabulary has " +
                                std::to_string(tokens_.size()) + " tokens");
    }
    if (entry.target != nullptr) *entry.target = static_cast<TokenId>(*entry.id);
    if (entry.ends_generation) ends_generation_[*entry.id] = true;
  }
  for (const std::string_view text : kEndTexts) {
    const auto found = by_text.find(text);
    if (found != by_text.end() && tokens_.IsControl(found->second)) {
      ends_generation_[static_cast<size_t>(found->second)] = true;
    }
  }
  adds_bos_ = vocabulary.adds_bos.value_or(encoder_->adds_bos());
  if (adds_bos_ && bos_ == kNoToken) {
    return Unsound(error, "tokenizer.ggml.add_bos_token is set, but there is no bos_token_id");
  }
  return Status();
}

EncodeResult VocabularyTokenizer::Encode(std::span<const TextSpan> spans, TextPlace place) const {
  const bool is_exact = place == TextPlace::kExact;
  JoinedText joined;
  for (const TextSpan& span : spans) {
    joined.Append(span, is_exact ? std::string_view() : encoder_->space_mark());
  }
  const std::string_view text = joined.text;
  const std::vector<JoinedText::Range>& trusted = joined.trusted;

  EncodeResult result;
  result.tokens.reserve(text.size() / 4 + 8);
  result.begins.reserve(text.size() / 4 + 8);
  BpeScratch scratch;
  const bool leads = encoder_->adds_space() && !is_exact;
  bool led_by_space = leads && place == TextPlace::kStart;
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
    EncodeGap(text.substr(gap, position - gap), gap, led_by_space, scratch, &result);
    result.tokens.push_back(match->token);
    result.begins.push_back(position);
    position += match->text.size();
    gap = position;
    led_by_space = leads;
  }
  EncodeGap(text.substr(gap), gap, led_by_space, scratch, &result);
  joined.Unfold(&result.begins);
  return result;
}

void VocabularyTokenizer::EncodeGap(std::string_view text, uint64_t begin, bool led_by_space,
                                    BpeScratch& scratch, EncodeResult* result) const {
  if (text.empty()) return;
  if (!led_by_space) return encoder_->Encode(text, begin, scratch, result);
  const size_t first = result->begins.size();
  encoder_->Encode(" " + std::string(text), begin, scratch, result);
  // The space is in front of the text, so all that begins behind it begins one earlier there.
  for (size_t i = first; i < result->begins.size(); ++i) {
    if (result->begins[i] > begin) --result->begins[i];
  }
}

}  // namespace

std::string Tokenizer::Decode(std::span<const TokenId> tokens, TextPlace place) const {
  std::string text;
  for (const TokenId token : tokens) text += TokenBytes(token, true);
  if (place == TextPlace::kStart && adds_space() && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(const GgufFile& file, std::string* error) {
  KAIROS_ASSIGN_OR_RETURN(const Vocabulary vocabulary, ReadVocabulary(file, error));
  return Create(vocabulary, error);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(const Vocabulary& vocabulary,
                                                     std::string* error) {
  auto tokenizer = std::make_unique<VocabularyTokenizer>();
  KAIROS_RETURN_IF_ERROR(tokenizer->Load(vocabulary, error));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace kairos
