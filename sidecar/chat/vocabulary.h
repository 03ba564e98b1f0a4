// SPDX-License-Identifier: Apache-2.0
// What a tokenizer is made of, as the metadata of a GGUF file states it, and its checks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "sidecar/model/gguf.h"

namespace kairos {

// Values of tokenizer.ggml.token_type.
enum class TokenKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// The texts are borrowed from where they were read.
struct Vocabulary {
  std::string_view model;  // "gpt2": byte-level BPE; "llama": SentencePiece
  std::string_view pre;    // empty where there is none
  std::vector<std::string_view> tokens;  // as the kind of vocabulary spells them
  std::vector<TokenKind> kinds;          // [tokens]
  std::vector<std::string_view> merges;  // "left right"; the index is the rank. Of gpt2
  std::vector<float> scores;             // [tokens], the highest merges first. Of llama
  std::optional<uint64_t> bos;
  std::optional<uint64_t> eos;
  std::optional<uint64_t> eot;
  std::optional<uint64_t> eom;
  std::optional<uint64_t> unknown;
  std::optional<bool> adds_bos;
  std::optional<bool> adds_space_prefix;
};

// Most tokens and merges that are accepted.
inline constexpr size_t kVocabularyTokensMax = size_t{1} << 21;

// Reads tokenizer.ggml.*. INVALID_ARGUMENT when a needed key is missing or of the wrong kind or
// length; *error names it. The texts live as long as `file`.
Result<Vocabulary> ReadVocabulary(const GgufFile& file, std::string* error);

// In words, the first token that does not mean the same in both; empty where all do. One vocabulary
// may be longer, by tokens that are not used.
std::string FirstDifference(const Vocabulary& a, const Vocabulary& b);

// A byte-level vocabulary writes each byte as a printable character: itself where it is one in
// Latin-1, else one of the characters from U+0100 on. Appends the bytes that `text` stands for;
// false, and *bytes unchanged, when it has a character that stands for none.
bool AppendStandInBytes(std::string_view text, std::string* bytes);

}  // namespace kairos
