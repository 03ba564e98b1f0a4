// SPDX-License-Identifier: Apache-2.0
// How deep JSON text nests, asked before a parser that recurses, or builds values that do, sees it.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace kairos {

// False when arrays and objects are open more than `depth_max` deep at any place. The text need not
// be valid JSON; brackets inside strings do not count.
inline bool JsonNestsWithin(std::string_view json, uint32_t depth_max) {
  uint32_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > depth_max) return false;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return true;
}

}  // namespace kairos
