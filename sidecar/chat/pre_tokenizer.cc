// SPDX-License-Identifier: Apache-2.0
// The scanners. Each is a few rules tried in the published order; the first that fits gives the
// piece.
#include "sidecar/chat/pre_tokenizer.h"

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

// Length of the English contraction after the apostrophe at `begin`, itself included; 0 when none.
size_t ContractionLength(std::string_view text, size_t begin) {
  const std::string_view rest = text.substr(begin + 1, 2);
  if (rest.empty()) return 0;
  switch (rest[0]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return rest.size() == 2 && rest[1] == 'e' ? 3 : 0;
    case 'l':
      return rest.size() == 2 && rest[1] == 'l' ? 3 : 0;
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
    const size_t length = ContractionLength(text, begin);
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

constexpr PreTokenizer kPreTokenizers[] = {
    {"gpt-2", ScanGpt2<false>, false, false},
    {"smollm", ScanGpt2<true>, false, false},
    {"starcoder", ScanGpt2<true>, false, false},
    {"refact", ScanGpt2<true>, false, false},
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
