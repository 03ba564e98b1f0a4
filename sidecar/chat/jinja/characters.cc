// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/jinja/characters.h"

#include "base/utf8.h"

namespace kairos {

namespace {

bool IsContinuation(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0u) == 0x80u;
}

}  // namespace

TemplateCharacter CharacterAt(std::string_view text, size_t at) {
  const Utf8Character c = DecodeUtf8(text, at);
  if (c.state == Utf8State::kValid) return {c.code_point, c.length, true};
  return {static_cast<uint8_t>(text[at]), 1, false};
}

void AppendCodePoint(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0u | (code >> 6));
    out += static_cast<char>(0x80u | (code & 0x3Fu));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0u | (code >> 12));
    out += static_cast<char>(0x80u | ((code >> 6) & 0x3Fu));
    out += static_cast<char>(0x80u | (code & 0x3Fu));
  } else {
    out += static_cast<char>(0xF0u | (code >> 18));
    out += static_cast<char>(0x80u | ((code >> 12) & 0x3Fu));
    out += static_cast<char>(0x80u | ((code >> 6) & 0x3Fu));
    out += static_cast<char>(0x80u | (code & 0x3Fu));
  }
}

uint64_t CountCharacters(std::string_view text) {
  uint64_t count = 0;
  for (size_t at = 0; at < text.size(); at += CharacterAt(text, at).bytes) ++count;
  return count;
}

bool IsTemplateSpace(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

ByteRange StripSpaceRange(std::string_view text, bool left, bool right) {
  ByteRange range{0, text.size()};
  while (left && range.begin < range.end) {
    const TemplateCharacter c = CharacterAt(text, range.begin);
    if (!c.valid || !IsTemplateSpace(c.code)) break;
    range.begin += c.bytes;
  }
  while (right && range.end > range.begin) {
    size_t start = range.end - 1;
    while (start > range.begin && range.end - start < 4 && IsContinuation(text, start)) --start;
    const TemplateCharacter c = CharacterAt(text, start);
    if (!c.valid || start + c.bytes != range.end || !IsTemplateSpace(c.code)) break;
    range.end = start;
  }
  return range;
}

}  // namespace kairos
