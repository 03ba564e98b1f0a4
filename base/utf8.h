// SPDX-License-Identifier: Apache-2.0
// One UTF-8 character at a time from bytes that may be anything. Strict: surrogates, overlong forms
// and values above U+10FFFF are invalid. A broken sequence is cut at its maximal subpart (Unicode
// 3.9), so that replacing does not depend on where the bytes were split.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kairos {

inline constexpr uint32_t kReplacementCharacter = 0xFFFD;

enum class Utf8State : uint8_t {
  kValid,
  kInvalid,     // `length` bytes can never be part of a character
  kIncomplete,  // the text ends inside a character that is well-formed so far
};

struct Utf8Character {
  uint32_t code_point;  // kReplacementCharacter unless valid
  uint32_t length;      // bytes, 1 to 4
  Utf8State state;
};

// The character at `position`, which is below text.size().
inline Utf8Character DecodeUtf8(std::string_view text, size_t position) {
  const auto byte_at = [&](size_t index) { return static_cast<uint8_t>(text[index]); };
  const uint8_t lead = byte_at(position);
  if (lead < 0x80) return {lead, 1, Utf8State::kValid};
  // The second byte has a narrower range after four of the lead bytes; the rest are 80 to BF.
  uint32_t length = 0;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {kReplacementCharacter, 1, Utf8State::kInvalid};
  }
  uint32_t code_point = lead & (0xFFu >> (length + 1));
  for (uint32_t i = 1; i < length; ++i) {
    if (position + i >= text.size()) return {kReplacementCharacter, i, Utf8State::kIncomplete};
    const uint8_t next = byte_at(position + i);
    if (next < low || next > high) return {kReplacementCharacter, i, Utf8State::kInvalid};
    code_point = (code_point << 6) | (next & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {code_point, length, Utf8State::kValid};
}

}  // namespace kairos
