// SPDX-License-Identifier: Apache-2.0
// The four classes of code points that pre-tokenizers tell apart. The tables are written at build
// time by tools/make_unicode_classes.cc from libutf8proc, so the Unicode version is that of the
// library.
#pragma once

#include <cstdint>

namespace kairos {

enum class CharacterClass : uint8_t {
  kOther = 0,   // marks, punctuation, symbols, controls, unassigned
  kLetter = 1,  // general category L*
  kNumber = 2,  // general category N*: decimal digits, letter numbers, other numbers
  kSpace = 3,   // property White_Space
};

inline constexpr uint32_t kUnicodePageBits = 8;
inline constexpr uint32_t kCodePointLimit = 0x110000;

// Page number of each run of 256 code points, and the pages, one class per code point.
extern const uint8_t kUnicodePageOf[kCodePointLimit >> kUnicodePageBits];
extern const uint8_t kUnicodePages[][1u << kUnicodePageBits];
extern const char kUnicodeVersion[];

// `code_point` is below kCodePointLimit.
inline CharacterClass ClassOf(uint32_t code_point) {
  const uint32_t page = kUnicodePageOf[code_point >> kUnicodePageBits];
  return static_cast<CharacterClass>(
      kUnicodePages[page][code_point & ((1u << kUnicodePageBits) - 1)]);
}

}  // namespace kairos
