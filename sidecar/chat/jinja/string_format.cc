// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/jinja/string_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "sidecar/chat/jinja/characters.h"
#include "sidecar/chat/jinja/printer.h"

namespace kairos {

namespace {

constexpr size_t kWidthMax = 1000;
constexpr int kPrecisionMax = 60;

struct FieldSpec {
  char fill = ' ';
  char align = 0;  // < > ^, or 0 for the type's own
  bool plus = false;
  bool zero = false;
  bool comma = false;
  size_t width = 0;
  int precision = -1;
  char type = 0;
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Number at *at, moved past; capped just above the limit so that the caller can refuse.
size_t ReadNumber(std::string_view text, size_t* at) {
  size_t value = 0;
  for (; *at < text.size() && IsDigit(text[*at]); ++*at) {
    value = std::min(kWidthMax + 1, value * 10 + static_cast<size_t>(text[*at] - '0'));
  }
  return value;
}

std::string GroupThousands(std::string digits) {
  const size_t begin = !digits.empty() && (digits[0] == '-' || digits[0] == '+') ? 1 : 0;
  size_t end = digits.find('.');
  if (end == std::string::npos) end = digits.size();
  for (size_t i = end; i > begin + 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string FormatInteger(int64_t value, char type) {
  char buffer[80];
  const bool negative = value < 0;
  const uint64_t magnitude =
      negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const char* pattern = type == 'x' ? "%llx" : type == 'X' ? "%llX" : type == 'o' ? "%llo" : "%llu";
  if (type == 'b') {
    std::string bits;
    for (uint64_t rest = magnitude; rest != 0 || bits.empty(); rest >>= 1) {
      bits.insert(bits.begin(), (rest & 1u) != 0 ? '1' : '0');
    }
    return (negative ? "-" : "") + bits;
  }
  std::snprintf(buffer, sizeof(buffer), pattern, static_cast<unsigned long long>(magnitude));
  return (negative ? "-" : "") + std::string(buffer);
}

std::string FormatDouble(double value, char type, int precision) {
  char pattern[8] = {'%', '.', '*', type, 0};
  std::string out(400 + kPrecisionMax, '\0');
  const int size =
      std::snprintf(out.data(), out.size(), pattern, precision < 0 ? 6 : precision, value);
  out.resize(static_cast<size_t>(std::max(size, 0)));
  return out;
}

bool IsNumericType(char type) {
  return std::string_view("diuxXobfFeEgG%").find(type) != std::string_view::npos;
}

// The value's text before padding, or false after a failure.
bool FormatValue(JinjaHeap& heap, const FieldSpec& spec, const JinjaValue& value, MarkedText* out) {
  if (spec.type == 'r') {
    AppendRepr(heap, value, out);
    return !heap.failed();
  }
  if (spec.type == 0 || spec.type == 's') {
    const bool plain_number = spec.type == 0 && value.IsNumber() && !value.Is(JinjaKind::kBool) &&
                              (spec.precision >= 0 || spec.comma || spec.plus);
    if (!plain_number) {
      AppendString(heap, value, out);
      return !heap.failed();
    }
  }
  if (!value.IsNumber()) {
    heap.Fail(std::string("format needs a number, not ") + TypeName(value));
    return false;
  }
  std::string text;
  const char type = spec.type;
  if (type == '%') {
    text = FormatDouble(value.AsReal() * 100, 'f', spec.precision) + "%";
  } else if (std::string_view("fFeEgG").find(type) != std::string_view::npos && type != 0) {
    text = FormatDouble(value.AsReal(), type, spec.precision);
  } else if (type == 0 && value.Is(JinjaKind::kFloat)) {
    text =
        spec.precision < 0 ? FormatReal(value.real) : FormatDouble(value.real, 'g', spec.precision);
  } else {
    const double real = value.AsReal();
    if (std::isnan(real) || std::fabs(real) >= 9.2e18) {
      heap.Fail("number does not fit an integer format");
      return false;
    }
    text = FormatInteger(value.IsIntegral() ? value.AsInt() : static_cast<int64_t>(real), type);
  }
  if (spec.comma) text = GroupThousands(text);
  if (spec.plus && text[0] != '-') text.insert(text.begin(), '+');
  out->Append(text, kTemplateSource);
  return true;
}

bool AppendField(JinjaHeap& heap, const FieldSpec& spec, const JinjaValue& value, MarkedText* out) {
  if (spec.width > kWidthMax || spec.precision > kPrecisionMax) {
    heap.Fail("format width is limited to " + std::to_string(kWidthMax) + " and precision to " +
              std::to_string(kPrecisionMax));
    return false;
  }
  MarkedText body;
  if (!FormatValue(heap, spec, value, &body)) return false;
  size_t length = CountCharacters(body.text());
  const bool textual = spec.type == 0 || spec.type == 's' || spec.type == 'r';
  if (textual && spec.precision >= 0 && !value.IsNumber()) {
    size_t end = 0;
    for (length = 0; end < body.size() && length < static_cast<size_t>(spec.precision); ++length) {
      end += CharacterAt(body.text(), end).bytes;
    }
    MarkedText cut;
    cut.AppendSlice(body, 0, end);
    body = std::move(cut);
  }
  const size_t pad = spec.width > length ? spec.width - length : 0;
  const bool numeric = value.IsNumber() && spec.type != 's' && spec.type != 'r';
  if (spec.zero && numeric && spec.align == 0) {
    const bool sign = !body.empty() && (body.text()[0] == '-' || body.text()[0] == '+');
    out->AppendSlice(body, 0, sign ? 1 : 0);
    out->Append(std::string(pad, '0'), kTemplateSource);
    out->AppendSlice(body, sign ? 1 : 0, body.size());
    return heap.Allocate(body.size() + pad);
  }
  const char align = spec.align != 0 ? spec.align : numeric ? '>' : '<';
  const size_t before = align == '>' ? pad : align == '^' ? pad / 2 : 0;
  out->Append(std::string(before, spec.fill), kTemplateSource);
  out->Append(body);
  out->Append(std::string(pad - before, spec.fill), kTemplateSource);
  return heap.Allocate(body.size() + pad);
}

bool ParseBraceSpec(JinjaHeap& heap, std::string_view text, FieldSpec* spec) {
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^'; };
  if (text.size() > 1 && is_align(text[1])) {
    spec->fill = text[0];
    spec->align = text[1];
    at = 2;
  } else if (!text.empty() && is_align(text[0])) {
    spec->align = text[0];
    at = 1;
  }
  if (at < text.size() && text[at] == '+') spec->plus = ++at != 0;
  if (at < text.size() && text[at] == '0') spec->zero = ++at != 0;
  spec->width = ReadNumber(text, &at);
  if (at < text.size() && text[at] == ',') spec->comma = ++at != 0;
  if (at < text.size() && text[at] == '.') {
    ++at;
    spec->precision = static_cast<int>(ReadNumber(text, &at));
  }
  if (at < text.size() && (text[at] == 's' || IsNumericType(text[at]))) spec->type = text[at++];
  if (at == text.size()) return true;
  heap.Fail("unsupported format '" + std::string(text.substr(0, 40)) + "'");
  return false;
}

// One {field!conversion:spec}; only plain names and numbers are fields.
bool AppendBraceField(JinjaHeap& heap, std::string_view field, const JinjaArguments& arguments,
                      size_t* automatic, MarkedText* out) {
  FieldSpec spec;
  const size_t colon = field.find(':');
  std::string_view name = field.substr(0, colon);
  if (colon != std::string_view::npos && !ParseBraceSpec(heap, field.substr(colon + 1), &spec)) {
    return false;
  }
  if (name.size() >= 2 && name[name.size() - 2] == '!') {
    spec.type = name.back() == 'r' ? 'r' : 's';
    name = name.substr(0, name.size() - 2);
  }
  const JinjaValue* value = nullptr;
  if (name.empty()) {
    value = arguments.Find((*automatic)++, "");
  } else if (IsDigit(name[0])) {
    size_t at = 0;
    const size_t index = ReadNumber(name, &at);
    if (at == name.size()) value = arguments.Find(index, "");
  } else {
    value = arguments.Find(SIZE_MAX, name);
  }
  if (value != nullptr) return AppendField(heap, spec, *value, out);
  heap.Fail("format has no value for field '" + std::string(field.substr(0, 40)) + "'");
  return false;
}

}  // namespace

JinjaValue FormatBraces(JinjaHeap& heap, const MarkedText& pattern,
                        const JinjaArguments& arguments) {
  const std::string& text = pattern.text();
  if (!heap.Work(text.size())) return {};
  MarkedText out;
  size_t automatic = 0;
  for (size_t at = 0; at < text.size() && !heap.failed();) {
    const char c = text[at];
    if (c != '{' && c != '}') {
      const size_t end = std::min(text.find_first_of("{}", at), text.size());
      out.AppendSlice(pattern, at, end);
      at = end;
    } else if (at + 1 < text.size() && text[at + 1] == c) {
      out.AppendSlice(pattern, at, at + 1);
      at += 2;
    } else {
      const size_t close = c == '{' ? text.find('}', at) : std::string::npos;
      if (close == std::string::npos) {
        heap.Fail("single brace in a format string");
        return {};
      }
      const std::string_view field = std::string_view(text).substr(at + 1, close - at - 1);
      if (!heap.Step() || !AppendBraceField(heap, field, arguments, &automatic, &out)) return {};
      at = close + 1;
    }
  }
  return MakeText(heap, std::move(out));
}

JinjaValue FormatPercent(JinjaHeap& heap, const MarkedText& pattern, const JinjaValue& values) {
  const std::string& text = pattern.text();
  const bool tuple = values.Is(JinjaKind::kList) && values.list->form == JinjaListForm::kTuple;
  MarkedText out;
  size_t used = 0;
  if (!heap.Work(text.size())) return {};
  for (size_t at = 0; at < text.size();) {
    const size_t percent = std::min(text.find('%', at), text.size());
    out.AppendSlice(pattern, at, percent);
    at = percent + 1;
    if (percent == text.size()) break;
    if (at < text.size() && text[at] == '%') {
      out.AppendSlice(pattern, at, at + 1);
      ++at;
      continue;
    }
    FieldSpec spec;
    spec.align = '>';
    std::string name;
    if (at < text.size() && text[at] == '(') {
      const size_t close = std::min(text.find(')', at), text.size());
      name = text.substr(at + 1, close - at - 1);
      at = std::min(close + 1, text.size());
    }
    for (; at < text.size() && std::string_view("-+0 #").find(text[at]) != std::string_view::npos;
         ++at) {
      if (text[at] == '-') spec.align = '<';
      if (text[at] == '+') spec.plus = true;
      if (text[at] == '0') spec.zero = true;
    }
    if (spec.zero && spec.align == '>') spec.align = 0;
    spec.width = ReadNumber(text, &at);
    if (at < text.size() && text[at] == '.') {
      ++at;
      spec.precision = static_cast<int>(ReadNumber(text, &at));
    }
    const char type = at < text.size() ? text[at++] : '\0';
    if (type != 's' && type != 'r' && (type == '\0' || type == '%' || !IsNumericType(type))) {
      heap.Fail("unsupported format character in a % format");
      return {};
    }
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    const JinjaValue* value = nullptr;
    if (!name.empty()) {
      if (values.Is(JinjaKind::kDict)) value = values.dict->Find(name);
    } else if (tuple) {
      if (used < values.list->items.size()) value = &values.list->items[used];
    } else if (used == 0) {
      value = &values;
    }
    ++used;
    if (value == nullptr) {
      heap.Fail("not enough arguments for a % format");
      return {};
    }
    if (!heap.Step() || !AppendField(heap, spec, *value, &out)) return {};
  }
  if (tuple ? used < values.list->items.size() : used == 0 && !values.Is(JinjaKind::kDict)) {
    heap.Fail("not all arguments converted during string formatting");
    return {};
  }
  return MakeText(heap, std::move(out));
}

size_t FindText(JinjaHeap& heap, std::string_view text, std::string_view needle, size_t from) {
  if (needle.empty()) return from <= text.size() ? from : std::string_view::npos;
  if (from > text.size() || text.size() - from < needle.size()) return std::string_view::npos;
  if (needle.size() <= 32) return text.find(needle, from);
  // The worst case without a good-suffix rule is quadratic in hostile, repetitive text.
  if (!heap.Allocate(needle.size() * 8)) return std::string_view::npos;
  const std::boyer_moore_searcher searcher(needle.begin(), needle.end());
  const auto it =
      std::search(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), searcher);
  return it == text.end() ? std::string_view::npos : static_cast<size_t>(it - text.begin());
}

}  // namespace kairos
