// SPDX-License-Identifier: Apache-2.0
// Methods of strings, and the text operations that filters share with them.
#include <utf8proc.h>

#include <algorithm>

#include "sidecar/chat/jinja/builtins.h"
#include "sidecar/chat/jinja/characters.h"
#include "sidecar/chat/jinja/interpreter.h"
#include "sidecar/chat/jinja/operators.h"
#include "sidecar/chat/jinja/printer.h"
#include "sidecar/chat/jinja/string_format.h"

namespace kairos {

namespace {

constexpr size_t kNone = std::string::npos;

// The string argument at `index`; null with a failure when it is missing or not a string.
const MarkedText* TextArgument(JinjaInterpreter& run, const JinjaArguments& arguments, size_t index,
                               std::string_view name) {
  const JinjaValue* value = arguments.Find(index, name);
  if (value != nullptr && value->Is(JinjaKind::kString)) return &TextOf(*value);
  run.heap().Fail("argument " + std::to_string(index + 1) + " must be a string, not " +
                  (value == nullptr ? "missing" : TypeName(*value)));
  return nullptr;
}

JinjaValue Part(JinjaHeap& heap, const MarkedText& text, size_t begin, size_t end) {
  MarkedText part;
  part.AppendSlice(text, begin, end);
  return MakeText(heap, std::move(part));
}

bool IsCased(char32_t code) {
  const auto c = static_cast<utf8proc_int32_t>(code);
  return utf8proc_tolower(c) != c || utf8proc_toupper(c) != c;
}

void AppendCase(std::string& out, char32_t code, bool upper) {
  if (upper && code == 0xDF) {
    out += "SS";
    return;
  }
  const auto c = static_cast<utf8proc_int32_t>(code);
  AppendCodePoint(out, static_cast<char32_t>(upper ? utf8proc_toupper(c) : utf8proc_tolower(c)));
}

JinjaValue Strip(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  return StripText(run.heap(), TextOf(self), arguments.Find(0, "chars"), true, true);
}
JinjaValue StripLeft(JinjaInterpreter& run, const JinjaValue& self,
                     const JinjaArguments& arguments) {
  return StripText(run.heap(), TextOf(self), arguments.Find(0, "chars"), true, false);
}
JinjaValue StripRight(JinjaInterpreter& run, const JinjaValue& self,
                      const JinjaArguments& arguments) {
  return StripText(run.heap(), TextOf(self), arguments.Find(0, "chars"), false, true);
}

JinjaValue Lower(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return ChangeCase(run.heap(), TextOf(self), TextCase::kLower);
}
JinjaValue Upper(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return ChangeCase(run.heap(), TextOf(self), TextCase::kUpper);
}
JinjaValue Title(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return ChangeCase(run.heap(), TextOf(self), TextCase::kTitle);
}
JinjaValue Capitalize(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return ChangeCase(run.heap(), TextOf(self), TextCase::kCapitalize);
}

bool MatchesAffix(std::string_view text, std::string_view affix, bool start) {
  if (affix.size() > text.size()) return false;
  return start ? text.substr(0, affix.size()) == affix
               : text.substr(text.size() - affix.size()) == affix;
}

JinjaValue TestAffix(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments,
                     bool start) {
  const JinjaValue* affix = arguments.Find(0, "prefix");
  if (!run.heap().Work(TextOf(self).size())) return {};
  if (affix != nullptr && affix->Is(JinjaKind::kList) &&
      affix->list->form == JinjaListForm::kTuple) {
    for (const JinjaValue& item : affix->list->items) {
      if (item.Is(JinjaKind::kString) &&
          MatchesAffix(TextOf(self).text(), TextOf(item).text(), start)) {
        return JinjaValue::Bool(true);
      }
    }
    return JinjaValue::Bool(false);
  }
  const MarkedText* text = TextArgument(run, arguments, 0, "prefix");
  if (text == nullptr) return {};
  return JinjaValue::Bool(MatchesAffix(TextOf(self).text(), text->text(), start));
}

JinjaValue StartsWith(JinjaInterpreter& run, const JinjaValue& self,
                      const JinjaArguments& arguments) {
  return TestAffix(run, self, arguments, true);
}
JinjaValue EndsWith(JinjaInterpreter& run, const JinjaValue& self,
                    const JinjaArguments& arguments) {
  return TestAffix(run, self, arguments, false);
}

JinjaValue RemovePrefix(JinjaInterpreter& run, const JinjaValue& self,
                        const JinjaArguments& arguments) {
  const MarkedText* affix = TextArgument(run, arguments, 0, "");
  if (affix == nullptr || !MatchesAffix(TextOf(self).text(), affix->text(), true)) return self;
  return Part(run.heap(), TextOf(self), affix->size(), TextOf(self).size());
}
JinjaValue RemoveSuffix(JinjaInterpreter& run, const JinjaValue& self,
                        const JinjaArguments& arguments) {
  const MarkedText* affix = TextArgument(run, arguments, 0, "");
  if (affix == nullptr || !MatchesAffix(TextOf(self).text(), affix->text(), false)) return self;
  return Part(run.heap(), TextOf(self), 0, TextOf(self).size() - affix->size());
}

// Pieces between runs of white space.
void SplitOnSpace(JinjaHeap& heap, const MarkedText& text, int64_t limit, JinjaList* out) {
  const std::string& bytes = text.text();
  size_t at = 0;
  while (heap.Step()) {
    at += StripSpaceRange(std::string_view(bytes).substr(at), true, false).begin;
    if (at >= bytes.size()) return;
    if (limit >= 0 && static_cast<int64_t>(out->items.size()) == limit) {
      const size_t end = at + StripSpaceRange(std::string_view(bytes).substr(at), false, true).end;
      out->items.push_back(Part(heap, text, at, end));
      return;
    }
    size_t end = at;
    while (end < bytes.size()) {
      const TemplateCharacter c = CharacterAt(bytes, end);
      if (c.valid && IsTemplateSpace(c.code)) break;
      end += c.bytes;
    }
    out->items.push_back(Part(heap, text, at, end));
    at = end;
  }
}

JinjaValue SplitText(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments,
                     bool from_right) {
  JinjaHeap& heap = run.heap();
  const MarkedText& text = TextOf(self);
  const JinjaValue* limit_value = arguments.Find(1, "maxsplit");
  const int64_t limit =
      limit_value != nullptr && limit_value->IsIntegral() ? limit_value->AsInt() : -1;
  JinjaList* out = MakeList(heap, JinjaListForm::kList);
  const JinjaValue* given = arguments.Find(0, "sep");
  if (!heap.Work(text.size())) return {};
  if (given == nullptr || given->Is(JinjaKind::kNone)) {
    if (from_right && limit >= 0) {
      heap.Fail("rsplit by white space with a limit is not supported");
      return {};
    }
    SplitOnSpace(heap, text, limit, out);
    return JinjaValue::Of(out);
  }
  const MarkedText* separator = TextArgument(run, arguments, 0, "sep");
  if (separator == nullptr) return {};
  if (separator->empty()) {
    heap.Fail("empty separator");
    return {};
  }
  std::vector<size_t> cuts;
  if (from_right) {
    size_t end = text.size();
    while (end >= separator->size() && heap.Step()) {
      if (limit >= 0 && static_cast<int64_t>(cuts.size()) == limit) break;
      const size_t found = text.text().rfind(separator->text(), end - separator->size());
      if (found == kNone) break;
      cuts.push_back(found);
      end = found;
    }
    std::reverse(cuts.begin(), cuts.end());
  } else {
    size_t at = 0;
    while (heap.Step() && (limit < 0 || static_cast<int64_t>(cuts.size()) < limit)) {
      at = FindText(heap, text.text(), separator->text(), at);
      if (at == kNone) break;
      cuts.push_back(at);
      at += separator->size();
    }
  }
  size_t begin = 0;
  for (const size_t cut : cuts) {
    out->items.push_back(Part(heap, text, begin, cut));
    begin = cut + separator->size();
  }
  out->items.push_back(Part(heap, text, begin, text.size()));
  return JinjaValue::Of(out);
}

JinjaValue Split(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  return SplitText(run, self, arguments, false);
}
JinjaValue SplitRight(JinjaInterpreter& run, const JinjaValue& self,
                      const JinjaArguments& arguments) {
  return SplitText(run, self, arguments, true);
}

JinjaValue Partition(JinjaInterpreter& run, const JinjaValue& self,
                     const JinjaArguments& arguments) {
  const MarkedText& text = TextOf(self);
  const MarkedText* separator = TextArgument(run, arguments, 0, "sep");
  if (separator == nullptr || !run.heap().Work(text.size())) return {};
  const size_t at = FindText(run.heap(), text.text(), separator->text(), 0);
  const size_t cut = at == kNone ? text.size() : at;
  const size_t rest = at == kNone ? text.size() : at + separator->size();
  JinjaList* out = MakeList(run.heap(), JinjaListForm::kTuple);
  out->items = {Part(run.heap(), text, 0, cut), Part(run.heap(), text, cut, rest),
                Part(run.heap(), text, rest, text.size())};
  return JinjaValue::Of(out);
}

JinjaValue SplitLines(JinjaInterpreter& run, const JinjaValue& self,
                      const JinjaArguments& arguments) {
  const MarkedText& text = TextOf(self);
  const JinjaValue* keep = arguments.Find(0, "keepends");
  JinjaList* out = MakeList(run.heap(), JinjaListForm::kList);
  for (size_t at = 0; at < text.size() && run.heap().Step();) {
    const size_t end = std::min(text.text().find_first_of("\r\n", at), text.size());
    size_t next = std::min(end + 1, text.size());
    if (end < text.size() && text.text()[end] == '\r' && next < text.size() &&
        text.text()[next] == '\n') {
      ++next;
    }
    out->items.push_back(Part(run.heap(), text, at, keep != nullptr && IsTrue(*keep) ? next : end));
    at = next;
  }
  return JinjaValue::Of(out);
}

JinjaValue Join(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaValue* given = arguments.Find(0, "");
  const std::vector<JinjaValue>& items =
      *IterateValue(run.heap(), given == nullptr ? JinjaValue::None() : *given);
  for (const JinjaValue& item : items) {
    if (!item.Is(JinjaKind::kString)) {
      run.heap().Fail(std::string("join needs strings, not ") + TypeName(item));
    }
  }
  return run.heap().failed() ? JinjaValue() : JoinTexts(run.heap(), items, TextOf(self));
}

JinjaValue Replace(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  const MarkedText* from = TextArgument(run, arguments, 0, "old");
  const MarkedText* to = from == nullptr ? nullptr : TextArgument(run, arguments, 1, "new");
  if (to == nullptr) return {};
  const JinjaValue* count = arguments.Find(2, "count");
  return ReplaceText(run.heap(), TextOf(self), *from, *to,
                     count != nullptr && count->IsIntegral() ? count->AsInt() : -1);
}

JinjaValue FindIn(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments,
                  bool last) {
  const MarkedText* needle = TextArgument(run, arguments, 0, "");
  if (needle == nullptr || !run.heap().Work(TextOf(self).size())) return {};
  const std::string& text = TextOf(self).text();
  const size_t at =
      last ? text.rfind(needle->text()) : FindText(run.heap(), text, needle->text(), 0);
  if (at == kNone) return JinjaValue::Int(-1);
  return JinjaValue::Int(static_cast<int64_t>(CountCharacters(text.substr(0, at))));
}

JinjaValue Find(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  return FindIn(run, self, arguments, false);
}
JinjaValue FindLast(JinjaInterpreter& run, const JinjaValue& self,
                    const JinjaArguments& arguments) {
  return FindIn(run, self, arguments, true);
}

JinjaValue Count(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  const MarkedText* needle = TextArgument(run, arguments, 0, "");
  if (needle == nullptr) return {};
  const std::string& text = TextOf(self).text();
  if (needle->empty()) return JinjaValue::Int(static_cast<int64_t>(CountCharacters(text)) + 1);
  int64_t count = 0;
  for (size_t at = FindText(run.heap(), text, needle->text(), 0); at != kNone && run.heap().Step();
       at = FindText(run.heap(), text, needle->text(), at + needle->size())) {
    ++count;
  }
  return JinjaValue::Int(count);
}

JinjaValue Format(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments& arguments) {
  return FormatBraces(run.heap(), TextOf(self), arguments);
}

template <typename Predicate>
JinjaValue EveryCharacter(JinjaInterpreter& run, const JinjaValue& self, Predicate predicate) {
  const std::string& text = TextOf(self).text();
  if (text.empty() || !run.heap().Work(text.size())) return JinjaValue::Bool(false);
  for (size_t at = 0; at < text.size();) {
    const TemplateCharacter c = CharacterAt(text, at);
    if (!c.valid || !predicate(c.code)) return JinjaValue::Bool(false);
    at += c.bytes;
  }
  return JinjaValue::Bool(true);
}

bool IsDigitCode(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code)) == UTF8PROC_CATEGORY_ND;
}
bool IsLetterCode(char32_t code) {
  const int category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

JinjaValue IsDigits(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return EveryCharacter(run, self, IsDigitCode);
}
JinjaValue IsLetters(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return EveryCharacter(run, self, IsLetterCode);
}
JinjaValue IsLettersOrDigits(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return EveryCharacter(run, self, [](char32_t c) { return IsLetterCode(c) || IsDigitCode(c); });
}
JinjaValue IsSpaces(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return EveryCharacter(run, self, IsTemplateSpace);
}

JinjaValue HasCase(JinjaInterpreter& run, const JinjaValue& self, bool upper) {
  const std::string& text = TextOf(self).text();
  if (!run.heap().Work(text.size())) return {};
  bool cased = false;
  for (size_t at = 0; at < text.size();) {
    const TemplateCharacter c = CharacterAt(text, at);
    at += c.bytes;
    if (!c.valid || !IsCased(c.code)) continue;
    const auto code = static_cast<utf8proc_int32_t>(c.code);
    if ((upper ? utf8proc_toupper(code) : utf8proc_tolower(code)) != code) {
      return JinjaValue::Bool(false);
    }
    cased = true;
  }
  return JinjaValue::Bool(cased);
}

JinjaValue IsUpper(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return HasCase(run, self, true);
}
JinjaValue IsLower(JinjaInterpreter& run, const JinjaValue& self, const JinjaArguments&) {
  return HasCase(run, self, false);
}

}  // namespace

JinjaValue JoinTexts(JinjaHeap& heap, const std::vector<JinjaValue>& items,
                     const MarkedText& separator) {
  MarkedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out.Append(separator);
    AppendString(heap, items[i], &out);
    if (heap.failed() || out.size() > heap.limits().heap_bytes) break;
  }
  return MakeText(heap, std::move(out));
}

JinjaValue ReplaceText(JinjaHeap& heap, const MarkedText& text, const MarkedText& from,
                       const MarkedText& to, int64_t count) {
  if (!heap.Work(text.size())) return {};
  MarkedText out;
  size_t kept = 0;
  size_t at = 0;
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    const size_t found = FindText(heap, text.text(), from.text(), at);
    if (found == kNone) break;
    // Charged as it grows: the result may be far larger than the text.
    if (!heap.Step() || !heap.Allocate(to.size())) return {};
    out.AppendSlice(text, kept, found);
    out.Append(to);
    kept = found + from.size();
    at = kept;
    if (from.empty()) {
      if (found >= text.size()) break;
      at = found + CharacterAt(text.text(), found).bytes;
    }
  }
  out.AppendSlice(text, kept, text.size());
  return MakeText(heap, std::move(out));
}

JinjaValue StripText(JinjaHeap& heap, const MarkedText& text, const JinjaValue* characters,
                     bool left, bool right) {
  if (!heap.Work(text.size())) return {};
  ByteRange range{0, text.size()};
  if (characters == nullptr || characters->Is(JinjaKind::kNone)) {
    range = StripSpaceRange(text.text(), left, right);
  } else if (!characters->Is(JinjaKind::kString)) {
    heap.Fail(std::string("strip needs a string, not ") + TypeName(*characters));
    return {};
  } else {
    const std::string& set = TextOf(*characters).text();
    if (!heap.Work(set.size() * 16)) return {};
    const auto in_set = [&](std::string_view one) {
      for (size_t at = 0; at < set.size();) {
        const size_t bytes = CharacterAt(set, at).bytes;
        if (std::string_view(set).substr(at, bytes) == one) return true;
        at += bytes;
      }
      return false;
    };
    const std::string_view bytes = text.text();
    while (left && range.begin < range.end && heap.Work(set.size() * 8)) {
      const size_t size = CharacterAt(bytes, range.begin).bytes;
      if (!in_set(bytes.substr(range.begin, size))) break;
      range.begin += size;
    }
    while (right && range.end > range.begin && heap.Work(set.size() * 8)) {
      size_t start = range.end - 1;
      while (start > range.begin && (static_cast<uint8_t>(bytes[start]) & 0xC0u) == 0x80u) --start;
      if (!in_set(bytes.substr(start, range.end - start))) break;
      range.end = start;
    }
  }
  return Part(heap, text, range.begin, range.end);
}

JinjaValue ChangeCase(JinjaHeap& heap, const MarkedText& text, TextCase to) {
  if (!heap.Allocate(text.size())) return {};
  MarkedText out;
  std::string piece;
  bool word_start = true;
  size_t at = 0;
  for (const MarkedText::Run& run : text.runs()) {
    piece.clear();
    while (at < run.end) {
      const TemplateCharacter c = CharacterAt(std::string_view(text.text()).substr(0, run.end), at);
      if (!c.valid) {
        piece += text.text()[at];
      } else {
        const bool first = to == TextCase::kCapitalize ? at == 0 : word_start;
        AppendCase(piece, c.code, to == TextCase::kUpper || (to != TextCase::kLower && first));
      }
      word_start = !c.valid || !IsCased(c.code);
      at += c.bytes;
    }
    out.Append(piece, run.source);
  }
  return MakeText(heap, std::move(out));
}

JinjaFunction FindTextMethod(std::string_view name) {
  static constexpr JinjaBuiltin kMethods[] = {
      {"strip", Strip},
      {"lstrip", StripLeft},
      {"rstrip", StripRight},
      {"startswith", StartsWith},
      {"endswith", EndsWith},
      {"split", Split},
      {"rsplit", SplitRight},
      {"replace", Replace},
      {"join", Join},
      {"upper", Upper},
      {"lower", Lower},
      {"title", Title},
      {"capitalize", Capitalize},
      {"format", Format},
      {"find", Find},
      {"rfind", FindLast},
      {"count", Count},
      {"splitlines", SplitLines},
      {"partition", Partition},
      {"removeprefix", RemovePrefix},
      {"removesuffix", RemoveSuffix},
      {"isdigit", IsDigits},
      {"isdecimal", IsDigits},
      {"isnumeric", IsDigits},
      {"isalpha", IsLetters},
      {"isalnum", IsLettersOrDigits},
      {"isspace", IsSpaces},
      {"isupper", IsUpper},
      {"islower", IsLower},
  };
  return FindBuiltin(kMethods, name);
}

}  // namespace kairos
