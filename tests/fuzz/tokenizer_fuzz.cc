// SPDX-License-Identifier: Apache-2.0
// Any text through a small vocabulary of either kind: the bytes come back, no span that is not
// trusted makes a control token, and streaming gives the same text however it is cut. Any
// vocabulary: built or refused.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sidecar/chat/tokenizer.h"
#include "sidecar/chat/vocabulary.h"

namespace kairos {
namespace {

std::vector<std::string_view> Lines(std::string_view text, size_t count_max) {
  std::vector<std::string_view> lines;
  while (!text.empty() && lines.size() < count_max) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Lines are tokens, each after a byte for its kind, until an empty one; then merges. For
// SentencePiece a score is the token's length, with the kind's high bits for disorder.
void FuzzVocabulary(std::string_view input, bool is_spm) {
  Vocabulary vocabulary;
  vocabulary.model = is_spm ? "llama" : "gpt2";
  vocabulary.pre = "smollm";
  bool in_merges = false;
  for (const std::string_view line : Lines(input, 4096)) {
    if (line.empty()) {
      in_merges = true;
    } else if (in_merges) {
      vocabulary.merges.push_back(line);
    } else {
      vocabulary.kinds.push_back(static_cast<TokenKind>(1 + static_cast<uint8_t>(line[0]) % 6));
      vocabulary.tokens.push_back(line.substr(1));
      const uint8_t disorder = static_cast<uint8_t>(line[0]) / 6;
      vocabulary.scores.push_back(static_cast<float>(line.size() ^ disorder));
    }
  }
  vocabulary.eos = input.size() % 16;
  vocabulary.adds_bos = false;
  std::string error;
  const auto tokenizer = Tokenizer::Create(vocabulary, &error);
  KAIROS_CHECK(tokenizer.ok() == error.empty());
  if (!tokenizer.ok()) return;
  const EncodeResult result = (*tokenizer)->Encode(input, false);
  for (const TokenId token : result.tokens) KAIROS_CHECK(!(*tokenizer)->IsControl(token));
  KAIROS_CHECK(result.dropped_bytes != 0 || (*tokenizer)->Decode(result.tokens) == input);
}

// Spaces lead text and runs of them are pieces; user-defined tokens overlap with both.
std::unique_ptr<Tokenizer> MakeSpmTokenizer() {
  static std::vector<std::string> texts;
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.bos = 256;
  const auto add = [&](std::string text, TokenKind kind) {
    texts.push_back(std::move(text));
    vocabulary.kinds.push_back(kind);
    vocabulary.scores.push_back(-static_cast<float>(texts.size() / 3));
  };
  for (unsigned byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    add(text, TokenKind::kByte);
  }
  for (const char* text : {"<|a|>", "<|a|>>", "<|b"}) add(text, TokenKind::kControl);
  for (const char* text : {"   ", "a\n", "<t>"}) add(text, TokenKind::kUserDefined);
  for (const char* text : {"t", "h", "e", ".", "<", "|", ">", "a", "\u2581", "\u2581\u2581", "th",
                           "he", "the", "\u2581the", "e\u2581t", "..", "<|", "|>", "\u00e9",
                           "\u4e2de", "a|"}) {
    add(text, TokenKind::kNormal);
  }
  vocabulary.tokens.assign(texts.begin(), texts.end());
  std::string error;
  auto tokenizer = Tokenizer::Create(vocabulary, &error);
  KAIROS_CHECK(tokenizer.ok());
  return std::move(*tokenizer);
}

std::unique_ptr<Tokenizer> MakeByteLevelTokenizer() {
  static std::vector<std::string> texts;
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "smollm";
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    std::string bytes;
    uint32_t code_point = byte;
    const auto encode = [&] {
      return code_point < 0x80 ? std::string(1, static_cast<char>(code_point))
                               : std::string{static_cast<char>(0xC0 | (code_point >> 6)),
                                             static_cast<char>(0x80 | (code_point & 63))};
    };
    if (!AppendStandInBytes(encode(), &bytes)) code_point = next++;
    texts.push_back(encode());
  }
  vocabulary.kinds.assign(256, TokenKind::kNormal);
  for (const char* text : {"th", "the", "..", "<|"}) {
    texts.push_back(text);
    vocabulary.kinds.push_back(TokenKind::kNormal);
  }
  for (const char* text : {"<|a|>", "<|a|>>", "<|b"}) {
    texts.push_back(text);
    vocabulary.kinds.push_back(TokenKind::kControl);
  }
  vocabulary.tokens.assign(texts.begin(), texts.end());
  vocabulary.merges = {"t h", "th e", ". .", "< |"};
  std::string error;
  auto tokenizer = Tokenizer::Create(vocabulary, &error);
  KAIROS_CHECK(tokenizer.ok());
  return std::move(*tokenizer);
}

std::string Stream(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  TextStream stream(tokenizer, {"the.", "e."});
  std::string text;
  for (const TokenId token : tokens) text += stream.Push(token);
  return text + stream.Finish();
}

// The bytes of exact text come back. In prompts spaces may lead text and marks be spaces.
void CheckBytes(const Tokenizer& tokenizer, const std::string& text, const EncodeResult& result,
                TextPlace place) {
  KAIROS_CHECK(result.dropped_bytes == 0);
  KAIROS_CHECK(result.begins.size() == result.tokens.size());
  KAIROS_CHECK(std::is_sorted(result.begins.begin(), result.begins.end()));
  KAIROS_CHECK(result.begins.empty() || result.begins.back() < text.size());
  if (place == TextPlace::kExact || !tokenizer.adds_space()) {
    KAIROS_CHECK(tokenizer.Decode(result.tokens) == text);
  }
}

void FuzzText(std::string_view input, const Tokenizer& tokenizer, TextPlace place) {
  std::vector<TextSpan> spans;
  bool any_trusted = false;
  for (const std::string_view line : Lines(input, 64)) {
    const bool trusted = !line.empty() && line[0] == 'T';
    any_trusted |= trusted;
    spans.push_back({std::string(line), trusted});
  }
  std::string text;
  for (const TextSpan& span : spans) text += span.text;
  const EncodeResult result = tokenizer.Encode(spans, place);
  CheckBytes(tokenizer, text, result, place);
  std::vector<TokenId> single_bytes;
  for (const TokenId token : result.tokens) {
    KAIROS_CHECK(any_trusted || !tokenizer.IsControl(token));
    for (const char byte : tokenizer.TokenBytes(token, false)) {
      single_bytes.push_back(static_cast<uint8_t>(byte));
    }
  }
  KAIROS_CHECK(Stream(tokenizer, result.tokens) == Stream(tokenizer, single_bytes));
}

}  // namespace
}  // namespace kairos

// The first byte: whether the rest is a vocabulary, of which kind, and where text stands.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto byte_level = kairos::MakeByteLevelTokenizer();
  static const auto spm = kairos::MakeSpmTokenizer();
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool is_spm = data[0] / 2 % 2 == 1;
  if (data[0] % 2 == 0) {
    kairos::FuzzText(input, is_spm ? *spm : *byte_level,
                     static_cast<kairos::TextPlace>(data[0] / 4 % 3));
  } else {
    kairos::FuzzVocabulary(input, is_spm);
  }
  return 0;
}
