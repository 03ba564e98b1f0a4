// SPDX-License-Identifier: Apache-2.0
// JSON parsers recurse: nesting is bounded before one of them sees foreign text.
#pragma once

#include <string_view>

namespace kairos {

// Whether `text`, taken as JSON, nests arrays and objects at most `depth_max` deep. Any text.
inline bool JsonDepthWithin(std::string_view text, int depth_max) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > depth_max) return false;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return true;
}

}  // namespace kairos
