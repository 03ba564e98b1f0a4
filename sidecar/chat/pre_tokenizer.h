// SPDX-License-Identifier: Apache-2.0
// Cuts text into the pieces that merges may not cross. One hand-written scanner per kind, because
// the published rules are regular expressions with look-ahead over Unicode classes. Any bytes are
// accepted: those that are not UTF-8 count as symbols and stay in the text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kairos {

// The end of the piece that starts at `begin`; begin < result <= text.size(). Takes time in the
// length of the piece and the white space after it. `begin` is below text.size() and is 0 or an
// earlier result.
using PieceScanner = size_t (*)(std::string_view text, size_t begin);

struct PreTokenizer {
  std::string_view name;  // value of tokenizer.ggml.pre
  PieceScanner scan;
  bool ignores_merges;    // a piece that is a token is that token, whatever the merges say
  bool adds_bos;          // unless the file says otherwise
};

// Null when the name is unknown.
const PreTokenizer* FindPreTokenizer(std::string_view name);
// "gpt-2, smollm, ...", for error messages.
std::string PreTokenizerNames();

}  // namespace kairos
