// SPDX-License-Identifier: Apache-2.0
// Values to text as Python does it: str(), repr() and json.dumps(). Strings inside keep their
// marks; brackets, separators and numbers are the template's.
#pragma once

#include <string>
#include <string_view>

#include "sidecar/chat/jinja/value.h"

namespace kairos {

void AppendString(JinjaHeap& heap, const JinjaValue& value, MarkedText* out);
void AppendRepr(JinjaHeap& heap, const JinjaValue& value, MarkedText* out, uint32_t depth = 0);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;  // one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
void AppendJson(JinjaHeap& heap, const JinjaValue& value, const JsonStyle& style, MarkedText* out,
                uint32_t depth = 0);

// The shortest text that reads back as the same number, in Python's notation.
std::string FormatReal(double value);

}  // namespace kairos
