// SPDX-License-Identifier: Apache-2.0
// Names the language brings: filters, tests, methods of strings, lists and dicts, global functions.
// All are pure functions of their arguments, except strftime_now, which reads the rendering's
// clock.
#pragma once

#include <string_view>

#include "sidecar/chat/jinja/value.h"

namespace kairos {

// Null when there is no such name.
JinjaFunction FindTextFilter(std::string_view name);
JinjaFunction FindSequenceFilter(std::string_view name);
JinjaFunction FindTest(std::string_view name);
JinjaFunction FindTextMethod(std::string_view name);
JinjaFunction FindContainerMethod(JinjaKind kind, std::string_view name);
JinjaFunction FindGlobal(std::string_view name);

// Shared by filters and methods of the same meaning.
JinjaValue JoinTexts(JinjaHeap& heap, const std::vector<JinjaValue>& items,
                     const MarkedText& separator);
JinjaValue ReplaceText(JinjaHeap& heap, const MarkedText& text, const MarkedText& from,
                       const MarkedText& to, int64_t count);
JinjaValue StripText(JinjaHeap& heap, const MarkedText& text, const JinjaValue* characters,
                     bool left, bool right);
enum class TextCase : uint8_t { kLower, kUpper, kTitle, kCapitalize };
JinjaValue ChangeCase(JinjaHeap& heap, const MarkedText& text, TextCase to);

struct JinjaBuiltin {
  std::string_view name;
  JinjaFunction function;
};
template <size_t N>
JinjaFunction FindBuiltin(const JinjaBuiltin (&table)[N], std::string_view name) {
  for (const JinjaBuiltin& entry : table) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace kairos
