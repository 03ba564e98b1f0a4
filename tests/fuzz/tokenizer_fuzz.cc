// SPDX-License-Identifier: Apache-2.0
// Any text through a small vocabulary: the bytes come back, no span that is not trusted makes a
// control token, and streaming gives the same text however it is cut. Any vocabulary: built or
// refused.
#include <algorithm>
#include <cstddef>
#include <cstdint>
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

// Lines are tokens, each after a byte for its kind, until an empty one; then merges.
void FuzzVocabulary(std::string_view input) {
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
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
    }
  }
  vocabulary.eos = input.size() % 16;
  std::string error;
  const auto tokenizer = Tokenizer::Create(vocabulary, &error);
  KAIROS_CHECK(tokenizer.ok() == error.empty());
  if (!tokenizer.ok()) return;
  const EncodeResult result = (*tokenizer)->Encode(input, false);
  for (const TokenId token : result.tokens) KAIROS_CHECK(!(*tokenizer)->IsControl(token));
}

std::unique_ptr<Tokenizer> MakeTokenizer() {
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

void FuzzText(std::string_view input) {
  static const std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer();
  std::vector<TextSpan> spans;
  bool any_trusted = false;
  for (const std::string_view line : Lines(input, 64)) {
    const bool trusted = !line.empty() && line[0] == 'T';
    any_trusted |= trusted;
    spans.push_back({std::string(line), trusted});
  }
  std::string text;
  for (const TextSpan& span : spans) text += span.text;
  const EncodeResult result = tokenizer->Encode(spans);
  std::string bytes;
  std::vector<TokenId> single_bytes;
  for (const TokenId token : result.tokens) {
    KAIROS_CHECK(any_trusted || !tokenizer->IsControl(token));
    bytes += tokenizer->TokenBytes(token, true);
    for (const char byte : tokenizer->TokenBytes(token, false)) {
      single_bytes.push_back(static_cast<uint8_t>(byte));
    }
  }
  KAIROS_CHECK(result.dropped_bytes == 0 && bytes == text);
  KAIROS_CHECK(Stream(*tokenizer, result.tokens) == Stream(*tokenizer, single_bytes));
}

}  // namespace
}  // namespace kairos

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    kairos::FuzzText(input);
  } else {
    kairos::FuzzVocabulary(input);
  }
  return 0;
}
