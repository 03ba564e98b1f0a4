// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/jinja/printer.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "sidecar/chat/jinja/characters.h"
#include "sidecar/chat/jinja/operators.h"

namespace kairos {

namespace {

void AppendOwn(std::string_view text, MarkedText* out) { out->Append(text, kTemplateSource); }

bool IsPrintable(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return code == ' ';
    default:
      return true;
  }
}

std::string HexEscape(char32_t code) {
  char buffer[16];
  const char* pattern = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(buffer, sizeof(buffer), pattern, static_cast<unsigned>(code));
  return buffer;
}

// Escapes stay under the mark of the text they replace.
template <typename Escape>
void AppendEscaped(JinjaHeap& heap, const MarkedText& text, MarkedText* out, Escape escape) {
  if (!heap.Allocate(text.size())) return;
  size_t run = 0;
  size_t clean = 0;  // start of what needs no escape
  for (size_t at = 0; at < text.size();) {
    const TemplateCharacter c = CharacterAt(text.text(), at);
    while (text.runs()[run].end <= at) ++run;
    const std::string replacement = escape(c);
    if (!replacement.empty()) {
      out->AppendSlice(text, clean, at);
      out->Append(replacement, text.runs()[run].source);
      clean = at + c.bytes;
    }
    at += c.bytes;
  }
  out->AppendSlice(text, clean, text.size());
}

void AppendTextRepr(JinjaHeap& heap, const MarkedText& text, MarkedText* out) {
  const bool single = text.text().find('\'') != std::string::npos;
  const char quote = single && text.text().find('"') == std::string::npos ? '"' : '\'';
  AppendOwn(std::string_view(&quote, 1), out);
  AppendEscaped(heap, text, out, [quote](const TemplateCharacter& c) -> std::string {
    if (!c.valid) return {};
    if (c.code == '\\') return "\\\\";
    if (c.code == static_cast<char32_t>(quote)) return std::string("\\") + quote;
    if (c.code == '\n') return "\\n";
    if (c.code == '\r') return "\\r";
    if (c.code == '\t') return "\\t";
    return (c.code >= 0x20 && c.code < 0x7F) || IsPrintable(c.code) ? "" : HexEscape(c.code);
  });
  AppendOwn(std::string_view(&quote, 1), out);
}

std::string JsonEscape(const TemplateCharacter& c, bool ensure_ascii) {
  if (!c.valid) return {};
  switch (c.code) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      break;
  }
  if (c.code >= 0x20 && (c.code < 0x7F || !ensure_ascii)) return {};
  if (c.code == 0x7F) return {};
  char buffer[16];
  if (c.code >= 0x10000) {
    const unsigned high = 0xD800u + ((static_cast<unsigned>(c.code) - 0x10000u) >> 10);
    const unsigned low = 0xDC00u + ((static_cast<unsigned>(c.code) - 0x10000u) & 0x3FFu);
    std::snprintf(buffer, sizeof(buffer), "\\u%04x\\u%04x", high, low);
  } else {
    std::snprintf(buffer, sizeof(buffer), "\\u%04x", static_cast<unsigned>(c.code));
  }
  return buffer;
}

void AppendJsonText(JinjaHeap& heap, const MarkedText& text, const JsonStyle& style,
                    MarkedText* out) {
  AppendOwn("\"", out);
  AppendEscaped(heap, text, out,
                [&style](const TemplateCharacter& c) { return JsonEscape(c, style.ensure_ascii); });
  AppendOwn("\"", out);
}

void AppendBreak(JinjaHeap& heap, const JsonStyle& style, uint32_t depth, MarkedText* out) {
  if (!style.indented || !heap.Allocate(style.indent.size() * depth + 1)) return;
  AppendOwn("\n", out);
  for (uint32_t i = 0; i < depth; ++i) AppendOwn(style.indent, out);
}

void AppendJsonKey(JinjaHeap& heap, const JinjaValue& key, const JsonStyle& style,
                   MarkedText* out) {
  if (key.Is(JinjaKind::kString)) {
    AppendJsonText(heap, TextOf(key), style, out);
  } else if (key.IsNumber() || key.Is(JinjaKind::kNone)) {
    AppendOwn("\"", out);
    AppendJson(heap, key, style, out);
    AppendOwn("\"", out);
  } else {
    heap.Fail(std::string("JSON keys cannot be ") + TypeName(key));
  }
}

void AppendJsonDict(JinjaHeap& heap, const JinjaDict& dict, const JsonStyle& style, MarkedText* out,
                    uint32_t depth) {
  std::vector<const std::pair<JinjaValue, JinjaValue>*> order;
  order.reserve(dict.entries.size());
  for (const auto& entry : dict.entries) order.push_back(&entry);
  if (style.sort_keys) {
    std::stable_sort(order.begin(), order.end(), [&heap](const auto* a, const auto* b) {
      return !heap.failed() && IsLess(heap, a->first, b->first);
    });
  }
  AppendOwn("{", out);
  for (size_t i = 0; i < order.size() && !heap.failed(); ++i) {
    if (i != 0) AppendOwn(style.item_separator, out);
    AppendBreak(heap, style, depth + 1, out);
    AppendJsonKey(heap, order[i]->first, style, out);
    AppendOwn(style.key_separator, out);
    AppendJson(heap, order[i]->second, style, out, depth + 1);
  }
  if (!order.empty()) AppendBreak(heap, style, depth, out);
  AppendOwn("}", out);
}

void AppendJsonList(JinjaHeap& heap, const JinjaList& list, const JsonStyle& style, MarkedText* out,
                    uint32_t depth) {
  AppendOwn("[", out);
  for (size_t i = 0; i < list.items.size() && !heap.failed(); ++i) {
    if (i != 0) AppendOwn(style.item_separator, out);
    AppendBreak(heap, style, depth + 1, out);
    AppendJson(heap, list.items[i], style, out, depth + 1);
  }
  if (!list.items.empty()) AppendBreak(heap, style, depth, out);
  AppendOwn("]", out);
}

void AppendListRepr(JinjaHeap& heap, const JinjaList& list, MarkedText* out, uint32_t depth) {
  if (list.form == JinjaListForm::kRange) {
    const int64_t first = list.items.empty() ? 0 : list.items.front().integer;
    const int64_t last = list.items.empty() ? 0 : list.items.back().integer + 1;
    AppendOwn("range(" + std::to_string(first) + ", " + std::to_string(last) + ")", out);
    return;
  }
  if (list.form == JinjaListForm::kGenerator) {
    AppendOwn("<generator object>", out);
    return;
  }
  const bool tuple = list.form == JinjaListForm::kTuple;
  const bool view = list.form == JinjaListForm::kView;
  AppendOwn(tuple ? "(" : view ? "dict_view([" : "[", out);
  for (size_t i = 0; i < list.items.size() && !heap.failed(); ++i) {
    if (i != 0) AppendOwn(", ", out);
    AppendRepr(heap, list.items[i], out, depth + 1);
  }
  if (tuple && list.items.size() == 1) AppendOwn(",", out);
  AppendOwn(tuple ? ")" : view ? "])" : "]", out);
}

}  // namespace

std::string FormatReal(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto result =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string text(buffer, result.ptr);
  const size_t mark = text.find('e');
  const int exponent = std::stoi(text.substr(mark + 1));
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const int count = static_cast<int>(digits.size());
  std::string out;
  if (exponent < -4 || exponent >= 16) {
    out = digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    const int magnitude = std::abs(exponent);
    out += exponent < 0 ? "e-" : "e+";
    if (magnitude < 10) out += '0';
    out += std::to_string(magnitude);
  } else if (exponent < 0) {
    out = "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else if (count <= exponent + 1) {
    out = digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  } else {
    const size_t whole = static_cast<size_t>(exponent) + 1;
    out = digits.substr(0, whole) + "." + digits.substr(whole);
  }
  return negative ? "-" + out : out;
}

void AppendString(JinjaHeap& heap, const JinjaValue& value, MarkedText* out) {
  if (value.Is(JinjaKind::kString)) {
    if (heap.Work(TextOf(value).size())) out->Append(TextOf(value));
  } else {
    AppendRepr(heap, value, out);
  }
}

void AppendRepr(JinjaHeap& heap, const JinjaValue& value, MarkedText* out, uint32_t depth) {
  if (depth > heap.limits().value_depth) heap.Fail("values nested too deep to print");
  if (!heap.Step()) return;
  switch (value.kind) {
    case JinjaKind::kUndefined:
      if (depth > 0) AppendOwn("Undefined", out);
      return;
    case JinjaKind::kNone:
      return AppendOwn("None", out);
    case JinjaKind::kBool:
      return AppendOwn(value.boolean ? "True" : "False", out);
    case JinjaKind::kInt:
      return AppendOwn(std::to_string(value.integer), out);
    case JinjaKind::kFloat:
      return AppendOwn(FormatReal(value.real), out);
    case JinjaKind::kString:
      return AppendTextRepr(heap, TextOf(value), out);
    case JinjaKind::kList:
      return AppendListRepr(heap, *value.list, out, depth);
    case JinjaKind::kDict: {
      AppendOwn("{", out);
      bool first = true;
      for (const auto& [key, item] : value.dict->entries) {
        if (heap.failed()) return;
        if (!first) AppendOwn(", ", out);
        first = false;
        AppendRepr(heap, key, out, depth + 1);
        AppendOwn(": ", out);
        AppendRepr(heap, item, out, depth + 1);
      }
      return AppendOwn("}", out);
    }
    default:
      return AppendOwn(std::string("<") + TypeName(value) + ">", out);
  }
}

void AppendJson(JinjaHeap& heap, const JinjaValue& value, const JsonStyle& style, MarkedText* out,
                uint32_t depth) {
  if (depth > heap.limits().value_depth) heap.Fail("values nested too deep for JSON");
  if (!heap.Step()) return;
  switch (value.kind) {
    case JinjaKind::kNone:
      return AppendOwn("null", out);
    case JinjaKind::kBool:
      return AppendOwn(value.boolean ? "true" : "false", out);
    case JinjaKind::kInt:
      return AppendOwn(std::to_string(value.integer), out);
    case JinjaKind::kFloat:
      if (std::isnan(value.real)) return AppendOwn("NaN", out);
      if (std::isinf(value.real)) return AppendOwn(value.real < 0 ? "-Infinity" : "Infinity", out);
      return AppendOwn(FormatReal(value.real), out);
    case JinjaKind::kString:
      return AppendJsonText(heap, TextOf(value), style, out);
    case JinjaKind::kDict:
      return AppendJsonDict(heap, *value.dict, style, out, depth);
    case JinjaKind::kList:
      if (value.list->form == JinjaListForm::kList || value.list->form == JinjaListForm::kTuple) {
        return AppendJsonList(heap, *value.list, style, out, depth);
      }
      break;
    default:
      break;
  }
  heap.Fail(std::string("object of type ") + TypeName(value) + " is not JSON serializable");
}

}  // namespace kairos
