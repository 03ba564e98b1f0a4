// SPDX-License-Identifier: Apache-2.0
// Filters that give text or numbers.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "sidecar/chat/jinja/builtins.h"
#include "sidecar/chat/jinja/characters.h"
#include "sidecar/chat/jinja/interpreter.h"
#include "sidecar/chat/jinja/operators.h"
#include "sidecar/chat/jinja/printer.h"
#include "sidecar/chat/jinja/string_format.h"

namespace kairos {

namespace {

constexpr int64_t kIndentMax = 256;

// What str() of the value is, as a text of its own.
MarkedText AsText(JinjaInterpreter& run, const JinjaValue& value) {
  MarkedText out;
  AppendString(run.heap(), value, &out);
  return out;
}

JinjaValue ToString(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return self.Is(JinjaKind::kString) ? self : MakeText(run.heap(), AsText(run, self));
}

JinjaValue ToJson(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  JsonStyle style;
  const JinjaValue* ascii = arguments.Find(0, "ensure_ascii");
  const JinjaValue* indent = arguments.Find(1, "indent");
  const JinjaValue* separators = arguments.Find(2, "separators");
  const JinjaValue* sorted = arguments.Find(3, "sort_keys");
  style.ensure_ascii = ascii != nullptr && IsTrue(*ascii);
  style.sort_keys = sorted != nullptr && IsTrue(*sorted);
  if (indent != nullptr && (indent->IsIntegral() || indent->Is(JinjaKind::kString))) {
    style.indented = true;
    style.item_separator = ",";
    if (indent->Is(JinjaKind::kString)) {
      style.indent = TextOf(*indent).text();
    } else {
      style.indent.assign(static_cast<size_t>(std::clamp<int64_t>(indent->AsInt(), 0, kIndentMax)),
                          ' ');
    }
  }
  if (separators != nullptr && separators->Is(JinjaKind::kList) &&
      separators->list->items.size() == 2 && separators->list->items[0].Is(JinjaKind::kString) &&
      separators->list->items[1].Is(JinjaKind::kString)) {
    style.item_separator = TextOf(separators->list->items[0]).text();
    style.key_separator = TextOf(separators->list->items[1]).text();
  }
  MarkedText out;
  AppendJson(run.heap(), self, style, &out);
  return MakeText(run.heap(), std::move(out));
}

JinjaValue Trim(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  return StripText(run.heap(), AsText(run, self), arguments.Find(0, "chars"), true, true);
}
JinjaValue Lower(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return ChangeCase(run.heap(), AsText(run, self), TextCase::kLower);
}
JinjaValue Upper(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return ChangeCase(run.heap(), AsText(run, self), TextCase::kUpper);
}
JinjaValue Capitalize(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return ChangeCase(run.heap(), AsText(run, self), TextCase::kCapitalize);
}

// Unlike the method, the filter starts a word only after white space, hyphens and opening brackets.
JinjaValue Title(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  const MarkedText text = AsText(run, self);
  MarkedText out;
  size_t begin = 0;
  for (size_t at = 0; at <= text.size() && run.heap().Step();) {
    const TemplateCharacter c =
        at < text.size() ? CharacterAt(text.text(), at) : TemplateCharacter{' ', 1, true};
    const bool cut = c.valid && (IsTemplateSpace(c.code) || c.code == '-' || c.code == '(' ||
                                 c.code == '{' || c.code == '[' || c.code == '<');
    if (cut) {
      MarkedText word;
      word.AppendSlice(text, begin, at);
      const JinjaValue cased = ChangeCase(run.heap(), word, TextCase::kCapitalize);
      if (cased.Is(JinjaKind::kString)) out.Append(TextOf(cased));
      if (at < text.size()) out.AppendSlice(text, at, at + c.bytes);
      begin = at + c.bytes;
    }
    at += c.bytes;
  }
  return MakeText(run.heap(), std::move(out));
}

JinjaValue Replace(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaValue* from = arguments.Find(0, "old");
  const JinjaValue* to = arguments.Find(1, "new");
  const JinjaValue* count = arguments.Find(2, "count");
  if (from == nullptr || to == nullptr) {
    run.heap().Fail("replace needs two arguments");
    return {};
  }
  return ReplaceText(run.heap(), AsText(run, self), AsText(run, *from), AsText(run, *to),
                     count != nullptr && count->IsIntegral() ? count->AsInt() : -1);
}

JinjaValue Indent(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaValue* width = arguments.Find(0, "width");
  const JinjaValue* first = arguments.Find(1, "first");
  const JinjaValue* blank = arguments.Find(2, "blank");
  MarkedText prefix;
  if (width != nullptr && width->Is(JinjaKind::kString)) {
    prefix = TextOf(*width);
  } else {
    const int64_t spaces = width != nullptr && width->IsIntegral() ? width->AsInt() : 4;
    prefix.Append(std::string(static_cast<size_t>(std::clamp<int64_t>(spaces, 0, kIndentMax)), ' '),
                  kTemplateSource);
  }
  const MarkedText text = AsText(run, self);
  MarkedText out;
  for (size_t at = 0; at < text.size() && run.heap().Allocate(prefix.size());) {
    const size_t newline = text.text().find('\n', at);
    const size_t end = newline == std::string::npos ? text.size() : newline + 1;
    const bool empty = newline == at;
    const bool wanted = at == 0 ? first != nullptr && IsTrue(*first)
                                : !empty || (blank != nullptr && IsTrue(*blank));
    if (wanted) out.Append(prefix);
    out.AppendSlice(text, at, end);
    at = end;
  }
  return MakeText(run.heap(), std::move(out));
}

JinjaValue Escape(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  static constexpr std::string_view kFrom[] = {"&", ">", "<", "'", "\""};
  static constexpr std::string_view kTo[] = {"&amp;", "&gt;", "&lt;", "&#39;", "&#34;"};
  JinjaValue value = MakeText(run.heap(), AsText(run, self));
  for (size_t i = 0; i < 5 && !run.heap().failed(); ++i) {
    value = ReplaceText(run.heap(), TextOf(value), MarkedText(kFrom[i], kTemplateSource),
                        MarkedText(kTo[i], kTemplateSource), -1);
  }
  return value;
}

JinjaValue Format(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  JinjaList* values = MakeList(run.heap(), JinjaListForm::kTuple);
  values->items = arguments.positional;
  return FormatPercent(run.heap(), AsText(run, self), JinjaValue::Of(values));
}

JinjaValue Center(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaValue* width = arguments.Find(0, "width");
  const int64_t wanted =
      std::clamp<int64_t>(width != nullptr && width->IsIntegral() ? width->AsInt() : 80, 0, 1000);
  const MarkedText text = AsText(run, self);
  const int64_t pad = wanted - static_cast<int64_t>(CountCharacters(text.text()));
  if (pad <= 0) return MakeText(run.heap(), MarkedText(text));
  const int64_t left = pad / 2 + (pad & wanted & 1);
  MarkedText out(std::string(static_cast<size_t>(left), ' '), kTemplateSource);
  out.Append(text);
  out.Append(std::string(static_cast<size_t>(pad - left), ' '), kTemplateSource);
  return MakeText(run.heap(), std::move(out));
}

JinjaValue CountWords(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  const MarkedText text = AsText(run, self);
  int64_t words = 0;
  bool inside = false;
  for (const char c : text.text()) {
    const bool part = static_cast<uint8_t>(c) >= 0x80 || c == '_' || (c >= '0' && c <= '9') ||
                      (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    words += part && !inside ? 1 : 0;
    inside = part;
  }
  return JinjaValue::Int(words);
}

// Reads a whole number or a real; false when the text is neither.
bool ReadReal(std::string_view text, double* value) {
  const ByteRange range = StripSpaceRange(text, true, true);
  text = text.substr(range.begin, range.end - range.begin);
  if (!text.empty() && text[0] == '+') text = text.substr(1);
  const auto result = std::from_chars(text.data(), text.data() + text.size(), *value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && !text.empty();
}

JinjaValue ToInt(JinjaInterpreter&, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaValue* fallback = arguments.Find(0, "default");
  const JinjaValue* base = arguments.Find(1, "base");
  const JinjaValue otherwise = fallback != nullptr ? *fallback : JinjaValue::Int(0);
  double real = 0;
  if (self.IsIntegral()) return JinjaValue::Int(self.AsInt());
  if (self.Is(JinjaKind::kFloat)) {
    real = self.real;
  } else if (self.Is(JinjaKind::kString)) {
    const std::string& bytes = TextOf(self).text();
    const ByteRange range = StripSpaceRange(bytes, true, true);
    std::string_view text = std::string_view(bytes).substr(range.begin, range.end - range.begin);
    if (!text.empty() && text[0] == '+') text = text.substr(1);
    const int64_t radix = base != nullptr && base->IsIntegral() ? base->AsInt() : 10;
    if (radix == 16 && (text.substr(0, 2) == "0x" || text.substr(0, 2) == "0X"))
      text = text.substr(2);
    int64_t whole = 0;
    const int usable = radix >= 2 && radix <= 36 ? static_cast<int>(radix) : 10;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), whole, usable);
    if (result.ec == std::errc() && result.ptr == text.data() + text.size()) {
      return JinjaValue::Int(whole);
    }
    if (!ReadReal(text, &real)) return otherwise;
  } else {
    return otherwise;
  }
  if (!(std::fabs(real) < 9.2e18)) return otherwise;
  return JinjaValue::Int(static_cast<int64_t>(real));
}

JinjaValue ToFloat(JinjaInterpreter&, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaValue* fallback = arguments.Find(0, "default");
  double real = 0;
  if (self.IsNumber()) return JinjaValue::Float(self.AsReal());
  if (self.Is(JinjaKind::kString) && ReadReal(TextOf(self).text(), &real)) {
    return JinjaValue::Float(real);
  }
  return fallback != nullptr ? *fallback : JinjaValue::Float(0);
}

JinjaValue Absolute(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  if (self.Is(JinjaKind::kFloat)) return JinjaValue::Float(std::fabs(self.real));
  if (self.IsIntegral() && self.AsInt() < 0) return ApplyUnary(run.heap(), "-", self);
  if (self.IsIntegral()) return JinjaValue::Int(self.AsInt());
  run.heap().Fail(std::string("abs needs a number, not ") + TypeName(self));
  return {};
}

JinjaValue Round(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaValue* places = arguments.Find(0, "precision");
  const JinjaValue* method = arguments.Find(1, "method");
  if (!self.IsNumber()) {
    run.heap().Fail(std::string("round needs a number, not ") + TypeName(self));
    return {};
  }
  const int64_t digits =
      std::clamp<int64_t>(places != nullptr && places->IsIntegral() ? places->AsInt() : 0, -15, 15);
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const std::string kind =
      method != nullptr && method->Is(JinjaKind::kString) ? TextOf(*method).text() : "common";
  const double value = self.AsReal();
  if (kind == "ceil") return JinjaValue::Float(std::ceil(value * scale) / scale);
  if (kind == "floor") return JinjaValue::Float(std::floor(value * scale) / scale);
  if (self.IsIntegral() && digits >= 0) return JinjaValue::Int(self.AsInt());
  if (digits <= 0) return JinjaValue::Float(std::nearbyint(value * scale) / scale);
  // Decimal rounding of the exact value, as Python does it.
  char buffer[400];
  const auto r = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed,
                               static_cast<int>(digits));
  double rounded = value;
  if (r.ec == std::errc()) std::from_chars(buffer, r.ptr, rounded);
  return JinjaValue::Float(rounded);
}

JinjaValue Default(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaValue* value = arguments.Find(0, "default_value");
  const JinjaValue* falsy = arguments.Find(1, "boolean");
  const bool replaced =
      self.Is(JinjaKind::kUndefined) || (falsy != nullptr && IsTrue(*falsy) && !IsTrue(self));
  if (!replaced) return self;
  return value != nullptr ? *value : MakeText(run.heap(), "");
}

JinjaValue Length(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  switch (self.kind) {
    case JinjaKind::kUndefined:
      return JinjaValue::Int(0);
    case JinjaKind::kString:
      run.heap().Work(TextOf(self).size());
      return JinjaValue::Int(static_cast<int64_t>(CountCharacters(TextOf(self).text())));
    case JinjaKind::kDict:
      return JinjaValue::Int(static_cast<int64_t>(self.dict->entries.size()));
    case JinjaKind::kList:
      if (self.list->form == JinjaListForm::kGenerator) break;
      return JinjaValue::Int(static_cast<int64_t>(self.list->items.size()));
    default:
      break;
  }
  run.heap().Fail(std::string("object of type '") + TypeName(self) + "' has no len()");
  return {};
}

}  // namespace

JinjaFunction FindTextFilter(std::string_view name) {
  static constexpr JinjaBuiltin kFilters[] = {
      {"trim", Trim},
      {"tojson", ToJson},
      {"length", Length},
      {"count", Length},
      {"default", Default},
      {"d", Default},
      {"string", ToString},
      {"safe", ToString},
      {"replace", Replace},
      {"lower", Lower},
      {"upper", Upper},
      {"capitalize", Capitalize},
      {"title", Title},
      {"indent", Indent},
      {"escape", Escape},
      {"e", Escape},
      {"format", Format},
      {"center", Center},
      {"wordcount", CountWords},
      {"int", ToInt},
      {"float", ToFloat},
      {"abs", Absolute},
      {"round", Round},
  };
  return FindBuiltin(kFilters, name);
}

}  // namespace kairos
