// SPDX-License-Identifier: Apache-2.0
// The words of a Lark grammar, and its definitions. Reads what the grammar library would, so that
// nothing stands there unseen; what is no grammar is for the library to refuse.
// Pure; any thread. The text outlives what is read of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace kairos {

enum class LarkKind : int32_t {
  kName,       // of a rule or terminal, without ! and ?
  kString,     // "...", perhaps with i behind it
  kRegex,      // /.../, perhaps with flags
  kSpecial,    // <|name|>, <[3-5]>: tokens
  kDirective,  // %ignore
  kNumber,
  kArrow,      // -> with the alias behind it
  kSign,       // one character
};

struct LarkWord {
  LarkKind kind = LarkKind::kSign;
  std::string_view text;
  bool begins_line = false;

  bool Is(char sign) const { return kind == LarkKind::kSign && text[0] == sign; }
};

// White space and comments are left out.
std::vector<LarkWord> LarkWords(std::string_view grammar);

struct LarkDefinition {
  std::string_view name;
  std::span<const LarkWord> head;  // behind the name, before the colon: priority, attributes
  std::span<const LarkWord> body;
};

// Of these words, which outlive them. What belongs to a directive is in none.
std::vector<LarkDefinition> LarkDefinitions(std::span<const LarkWord> words);

// How often what stands before is there.
struct LarkRepetition {
  uint64_t least = 0;
  uint64_t most = 0;  // `least` where there is no limit
};

// The repetition whose first sign is words[at]: {3}, {3,}, {,3}, {3,5}, ~3 or ~3..5. Nothing where
// none begins there.
std::optional<LarkRepetition> RepetitionAt(std::span<const LarkWord> words, size_t at);

// Names of terminals have no small letters.
bool IsTerminal(std::string_view name);

}  // namespace kairos
