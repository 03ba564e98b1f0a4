// SPDX-License-Identifier: Apache-2.0
// A user's message in the form that rules compare: folded words of the few sentences near its
// start, without what the message quotes. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kairos {

// Part of a sentence: lower-case ASCII words with single spaces around each, punctuation and
// apostrophes gone, so that " word " is a match on word boundaries; a quotation is the word "<>".
// Chinese characters stand as they are, without spaces between them.
struct RuleClause {
  std::string text;
  uint32_t sentence = 0;
};

struct RuleText {
  std::vector<RuleClause> clauses;  // none when the message is longer than kRuleTextBytesMax
  bool is_cut = false;              // there were more clauses
};

// Longer messages are documents and pasted text: no rule looks into them.
inline constexpr size_t kRuleTextBytesMax = 400;
inline constexpr size_t kRuleClausesMax = 8;

// `message` is UTF-8; other bytes are tolerated.
RuleText FoldForRules(std::string_view message);

}  // namespace kairos
