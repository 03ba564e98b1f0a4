// SPDX-License-Identifier: Apache-2.0
// Text as a JSON string, and text that is safe to show at a terminal. Pure.
#pragma once

#include <string>
#include <string_view>

namespace kairos {

// Quoted; bytes that are not ASCII stay as they are.
inline std::string JsonString(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      out += std::string("\\u00") + kHex[byte >> 4] + kHex[byte & 15];
    } else {
      if (c == '"' || c == '\\') out.push_back('\\');
      out.push_back(c);
    }
  }
  return out + "\"";
}

// Without control characters: what a model or another user wrote must not steer the terminal.
inline std::string Printable(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool c1 =
        byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (c1) {
      ++i;
    } else if (byte >= 0x20 ? byte != 0x7f : byte == '\n' || byte == '\t') {
      out.push_back(text[i]);
    }
  }
  return out;
}

}  // namespace kairos
