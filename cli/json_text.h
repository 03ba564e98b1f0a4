// SPDX-License-Identifier: Apache-2.0
// Text as a JSON string. Pure.
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

}  // namespace kairos
