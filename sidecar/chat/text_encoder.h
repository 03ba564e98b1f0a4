// SPDX-License-Identifier: Apache-2.0
// How text without special tokens becomes tokens: one object for each kind of vocabulary, chosen
// when the vocabulary is read. Immutable then; any thread, with a scratch of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "sidecar/chat/bpe_merges.h"
#include "sidecar/chat/token_table.h"
#include "sidecar/chat/tokenizer.h"
#include "sidecar/chat/vocabulary.h"

namespace kairos {

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  // Appends the tokens of `text`, any bytes but none at all, and where each begins, counted from
  // `begin`.
  virtual void Encode(std::string_view text, uint64_t begin, BpeScratch& scratch,
                      EncodeResult* result) const = 0;
  // Unless the file says otherwise.
  virtual bool adds_bos() const = 0;
  // Whether text at the start and behind special tokens is led by a space.
  virtual bool adds_space() const = 0;
  // What prompts may write for a space; or nothing.
  virtual std::string_view space_mark() const = 0;
};

// Makes the encoder of a vocabulary whose tokens are in `tokens`, which outlives it. The errors are
// those of Tokenizer::Create.
using MakeTextEncoder = Result<std::unique_ptr<TextEncoder>> (*)(
    const Vocabulary& vocabulary, const TokenTable& tokens,
    const TokenTable::TokensByText& by_text, std::string* error);

}  // namespace kairos
