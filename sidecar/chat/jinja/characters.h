// SPDX-License-Identifier: Apache-2.0
// Code points in byte strings, as the template language counts them: characters, not bytes.
// A byte that is not part of valid UTF-8 counts as one character and is carried unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kairos {

// One character: its code point (or the raw byte, when `valid` is false) and length in bytes (>=
// 1).
struct TemplateCharacter {
  char32_t code = 0;
  uint32_t bytes = 1;
  bool valid = false;
};

// `at` must be inside `text`.
TemplateCharacter CharacterAt(std::string_view text, size_t at);
void AppendCodePoint(std::string& out, char32_t code);
uint64_t CountCharacters(std::string_view text);
// What Python's str.isspace and str.strip take for white space.
bool IsTemplateSpace(char32_t code);
// The part of `text` that remains when white space is removed at the chosen ends, as byte offsets.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};
ByteRange StripSpaceRange(std::string_view text, bool left, bool right);

}  // namespace kairos
