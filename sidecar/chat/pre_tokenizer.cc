// SPDX-License-Identifier: Apache-2.0
// The scanners. Each is a few rules tried in the published order; the first that fits gives the
// piece.
#include "sidecar/chat/pre_tokenizer.h"

#include <utf8proc.h>

#include <cstdint>

#include "base/utf8.h"
#include "sidecar/chat/unicode_classes.h"

namespace kairos {
namespace {

struct Character {
  CharacterClass kind;
  size_t end;
};

Character CharacterAt(std::string_view text, size_t position) {
  const Utf8Character character = DecodeUtf8(text, position);
  return {ClassOf(character.code_point), position + character.length};
}

// Where the run of characters of class `kind` that starts at `position` ends.
size_t RunEnd(std::string_view text, size_t position, CharacterClass kind) {
  while (position < text.size()) {
    const Character character = CharacterAt(text, position);
    if (character.kind != kind) break;
    position = character.end;
  }
  return position;
}

char LowerAscii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Length of the English contraction after the apostrophe at `begin`, itself included; 0 when none.
size_t ContractionLength(std::string_view text, size_t begin, bool any_case) {
  const std::string_view rest = text.substr(begin + 1, 2);
  const auto letter = [&](size_t i) {
    if (i >= rest.size()) return '\0';
    return any_case ? LowerAscii(rest[i]) : rest[i];
  };
  switch (letter(0)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(1) == 'e' ? 3 : 0;
    case 'l':
      return letter(1) == 'l' ? 3 : 0;
    default:
      return 0;
  }
}

// White space from `begin` on. The last character is left to the word that follows, unless nothing
// follows or it is the only one.
size_t SpacePieceEnd(std::string_view text, size_t begin, bool number_ends_text) {
  size_t last = begin;
  size_t end = begin;
  while (end < text.size()) {
    const Character character = CharacterAt(text, end);
    if (character.kind != CharacterClass::kSpace) {
      const bool at_end = number_ends_text && character.kind == CharacterClass::kNumber;
      return at_end || last == begin ? end : last;
    }
    last = end;
    end = character.end;
  }
  return end;
}

// The rule of GPT-2. With `kIsolateNumbers` each number character is first cut out as a piece of
// its own, so that to the rule itself the text ends before a number.
template <bool kIsolateNumbers>
size_t ScanGpt2(std::string_view text, size_t begin) {
  if (text[begin] == '\'') {
    const size_t length = ContractionLength(text, begin, false);
    if (length != 0) return begin + length;
  }
  const Character first = CharacterAt(text, begin);
  if (kIsolateNumbers && first.kind == CharacterClass::kNumber) return first.end;
  if (first.kind != CharacterClass::kSpace) return RunEnd(text, first.end, first.kind);
  if (text[begin] == ' ' && first.end < text.size()) {
    const Character second = CharacterAt(text, first.end);
    const bool is_cut = kIsolateNumbers && second.kind == CharacterClass::kNumber;
    if (second.kind != CharacterClass::kSpace && !is_cut) {
      return RunEnd(text, second.end, second.kind);
    }
  }
  return SpacePieceEnd(text, begin, kIsolateNumbers);
}

bool IsLineEnd(std::string_view text, size_t position) {
  return position < text.size() && (text[position] == '\r' || text[position] == '\n');
}

// Where white space from `begin` on ends after its last line end; 0 where it has none.
size_t LineEndsEnd(std::string_view text, size_t begin) {
  size_t end = 0;
  for (size_t at = begin; at < text.size();) {
    const Character character = CharacterAt(text, at);
    if (character.kind != CharacterClass::kSpace) break;
    if (IsLineEnd(text, at)) end = character.end;
    at = character.end;
  }
  return end;
}

// The rule of Llama 3. Letters take one character before them that is no letter, number or line
// end; symbols take one space before them and the line ends behind; numbers come in groups.
template <int kNumbersMax>
size_t ScanLlama3(std::string_view text, size_t begin) {
  if (text[begin] == '\'') {
    const size_t length = ContractionLength(text, begin, true);
    if (length != 0) return begin + length;
  }
  const Character first = CharacterAt(text, begin);
  if (first.kind == CharacterClass::kLetter) return RunEnd(text, first.end, first.kind);
  if (first.kind == CharacterClass::kNumber) {
    size_t end = first.end;
    for (int i = 1; i < kNumbersMax && end < text.size(); ++i) {
      const Character next = CharacterAt(text, end);
      if (next.kind != CharacterClass::kNumber) break;
      end = next.end;
    }
    return end;
  }
  const CharacterClass second = first.end < text.size() ? CharacterAt(text, first.end).kind
                                                        : CharacterClass::kSpace;
  if (second == CharacterClass::kLetter && !IsLineEnd(text, begin)) {
    return RunEnd(text, first.end, second);
  }
  const bool is_symbol = first.kind != CharacterClass::kSpace;
  if (is_symbol || (text[begin] == ' ' && second != CharacterClass::kSpace &&
                    second != CharacterClass::kNumber)) {
    const CharacterClass kind = is_symbol ? first.kind : second;
    size_t end = RunEnd(text, first.end, kind);
    while (IsLineEnd(text, end)) ++end;
    return end;
  }
  const size_t line_ends = LineEndsEnd(text, begin);
  return line_ends != 0 ? line_ends : SpacePieceEnd(text, begin, false);
}

// Punctuation, and the symbols that are cut out with it.
bool IsMark(std::string_view text, size_t position) {
  constexpr std::string_view kSymbols = "$+<=>^|~";
  const uint32_t code_point = DecodeUtf8(text, position).code_point;
  if (code_point < 0x80 && kSymbols.find(text[position]) != std::string_view::npos) return true;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool StartsWithThreeDigits(std::string_view text) {
  return text.size() >= 3 &&
         text.substr(0, 3).find_first_not_of("0123456789") == std::string_view::npos;
}

// Numbers from `begin` on: three digits, or all up to the next three.
size_t NumberPieceEnd(std::string_view text, size_t begin) {
  if (StartsWithThreeDigits(text.substr(begin))) return begin + 3;
  size_t end = begin;
  while (end < text.size() && !StartsWithThreeDigits(text.substr(end))) {
    const Character character = CharacterAt(text, end);
    if (character.kind != CharacterClass::kNumber) break;
    end = character.end;
  }
  return end;
}

// The rule for files that name none of the published ones. Marks are cut out, and then numbers; to
// what is between, the rule of GPT-2, the text ends there.
size_t ScanDefault(std::string_view text, size_t begin) {
  size_t end = begin;
  while (end < text.size() && IsMark(text, end)) end = CharacterAt(text, end).end;
  if (end != begin) return end;
  const Character first = CharacterAt(text, begin);
  if (first.kind == CharacterClass::kNumber) return NumberPieceEnd(text, begin);
  const auto run_end = [&](const Character& from) {
    size_t at = from.end;
    while (at < text.size() && !IsMark(text, at)) {
      const Character character = CharacterAt(text, at);
      if (character.kind != from.kind) break;
      at = character.end;
    }
    return at;
  };
  if (first.kind != CharacterClass::kSpace) return run_end(first);
  if (text[begin] == ' ' && first.end < text.size() && !IsMark(text, first.end)) {
    const Character second = CharacterAt(text, first.end);
    if (second.kind == CharacterClass::kLetter || second.kind == CharacterClass::kOther) {
      return run_end(second);
    }
  }
  const size_t spaces = RunEnd(text, begin, CharacterClass::kSpace);
  if (spaces < text.size() && IsMark(text, spaces)) return spaces;
  return SpacePieceEnd(text, begin, false);
}

constexpr PreTokenizer kPreTokenizers[] = {
    {"default", ScanDefault, false, false},
    {"gpt-2", ScanGpt2<false>, false, false},
    {"smollm", ScanGpt2<true>, false, false},
    {"starcoder", ScanGpt2<true>, false, false},
    {"refact", ScanGpt2<true>, false, false},
    {"llama-bpe", ScanLlama3<3>, true, true},
    {"qwen2", ScanLlama3<1>, false, false},
};

}  // namespace

const PreTokenizer* FindPreTokenizer(std::string_view name) {
  for (const PreTokenizer& kind : kPreTokenizers) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

std::string PreTokenizerNames() {
  std::string names;
  for (const PreTokenizer& kind : kPreTokenizers) {
    if (!names.empty()) names += ", ";
    names += kind.name;
  }
  return names;
}

}  // namespace kairos
