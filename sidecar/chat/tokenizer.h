// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, for vocabularies of GGUF files: byte-level BPE and SentencePiece's.
// Immutable after Create; any thread. Reports, never guesses: an unknown pre-tokenizer is an error.
#pragma once

#include <cstdint>
#include <functional>
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

// Whether a text is one token of the model's vocabulary; empty: not known.
using HasToken = std::function<bool(std::string_view text)>;

// A piece of prompt text and where it came from. Special tokens are recognised only in trusted text
// (the template's own); message text can never become one. Neighbouring pieces are otherwise
// tokenized as the one text they form.
struct TextSpan {
  std::string text;
  bool trusted = false;
};

// What stands before a text. It matters to SentencePiece's vocabularies alone. Some are trained
// with a space before all text at the start and behind special tokens, though nobody wrote one; and
// all take U+2581 in a prompt for the space that it is in their own spelling.
enum class TextPlace : uint8_t {
  kStart,   // nothing: a prompt begins
  kPrompt,  // other tokens: a prompt goes on
  kExact,   // anything. The tokens have the bytes of the text: for what a model writes
};

struct EncodeResult {
  std::vector<TokenId> tokens;
  std::vector<uint64_t> begins;  // of each token, in bytes of the text; ascending
  uint64_t dropped_bytes = 0;    // bytes the vocabulary cannot express; reported, not hidden
};

class Tokenizer {
 public:
  // INVALID_ARGUMENT when the vocabulary is not sound, UNIMPLEMENTED when its kind or pre-tokenizer
  // is not known; *error names the field. Takes about 2 us for each token; keeps nothing of its
  // argument.
  static Result<std::unique_ptr<Tokenizer>> Create(const GgufFile& file, std::string* error);
  static Result<std::unique_ptr<Tokenizer>> Create(const Vocabulary& vocabulary,
                                                   std::string* error);
  virtual ~Tokenizer() = default;

  // Any bytes are accepted; those that are not UTF-8 are encoded as they are. Control tokens match
  // only inside trusted text (neighbouring trusted spans count as one), user-defined tokens
  // anywhere; the longest wins. Does not add a BOS token. Takes O(n log n) in the longest word.
  virtual EncodeResult Encode(std::span<const TextSpan> spans, TextPlace place) const = 0;
  EncodeResult Encode(std::string_view text, bool parse_special,
                      TextPlace place = TextPlace::kExact) const {
    const TextSpan span{std::string(text), parse_special};
    return Encode(std::span(&span, 1), place);
  }
  // The bytes of `tokens`, control tokens as their text. At the start a leading space that Encode
  // adds there is left out.
  std::string Decode(std::span<const TokenId> tokens, TextPlace place = TextPlace::kExact) const;

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
  // Whether prompts' text is led by a space (TextPlace).
  virtual bool adds_space() const = 0;
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
