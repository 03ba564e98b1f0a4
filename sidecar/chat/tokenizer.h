// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, for byte-level BPE vocabularies in GGUF metadata.
// Immutable after Create; any thread. Reports, never guesses: an unknown pre-tokenizer is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "sidecar/model/gguf.h"

namespace kairos {

struct Vocabulary;

// A piece of prompt text and where it came from. Special tokens are recognised only in trusted text
// (the template's own); message text can never become one. Neighbouring pieces are otherwise
// tokenized as the one text they form.
struct TextSpan {
  std::string text;
  bool trusted = false;
};

struct EncodeResult {
  std::vector<TokenId> tokens;
  uint64_t dropped_bytes = 0;  // bytes the vocabulary cannot express; reported, not hidden
};

class Tokenizer {
 public:
  // INVALID_ARGUMENT when the vocabulary is not sound, UNIMPLEMENTED when its kind or pre-tokenizer
  // is not known; *error names the field. Takes some tens of milliseconds; keeps nothing of its
  // argument.
  static Result<std::unique_ptr<Tokenizer>> Create(const GgufFile& file, std::string* error);
  static Result<std::unique_ptr<Tokenizer>> Create(const Vocabulary& vocabulary,
                                                   std::string* error);
  virtual ~Tokenizer() = default;

  // Any bytes are accepted; those that are not UTF-8 are encoded as they are. Control tokens match
  // only inside trusted text (neighbouring trusted spans count as one), user-defined tokens
  // anywhere; the longest wins. Does not add a BOS token. Takes O(n log n) in the longest word.
  virtual EncodeResult Encode(std::span<const TextSpan> spans) const = 0;
  EncodeResult Encode(std::string_view text, bool parse_special) const {
    const TextSpan span{std::string(text), parse_special};
    return Encode(std::span(&span, 1));
  }

  // The token's bytes; control tokens give their text only when `special` is set, else nothing. An
  // id outside the vocabulary has no bytes. Valid as long as the tokenizer.
  virtual std::string_view TokenBytes(TokenId token, bool special) const = 0;
  virtual uint32_t vocabulary_size() const = 0;
  virtual bool IsControl(TokenId token) const = 0;
  virtual bool IsEndOfGeneration(TokenId token) const = 0;
  // -1 where the model has none.
  virtual TokenId bos() const = 0;
  virtual TokenId eos() const = 0;
  virtual bool adds_bos() const = 0;
};

// Bytes of generated tokens to whole UTF-8 characters: holds back an unfinished character and any
// tail that may become a stop string. One per turn; not thread-safe.
class TextStream {
 public:
  // `markers`: control tokens that count as their text. Must outlive the stream.
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops,
             std::span<const TokenId> markers = {});
  // Text that is now certain. Invalid bytes become U+FFFD.
  std::string Push(TokenId token);
  // What was held back; a completed stop string and what follows it are dropped.
  std::string Finish();
  bool stopped() const { return stopped_; }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> borders;  // longest proper prefix that ends each prefix
    size_t matched = 0;           // bytes of `text` that end the text so far; below its size
  };
  std::string Drain(bool final);
  void Append(std::string_view character);
  const Tokenizer& tokenizer_;
  const std::span<const TokenId> markers_;
  std::vector<Stop> stops_;
  std::string undecoded_;  // bytes of a character that has begun
  std::string pending_;    // characters that a stop string may begin in
  bool stopped_ = false;
};

}  // namespace kairos
