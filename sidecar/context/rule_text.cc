// SPDX-License-Identifier: Apache-2.0
#include "sidecar/context/rule_text.h"

#include <algorithm>
#include <utility>

namespace kairos {

namespace {

struct Character {
  char32_t code = 0;
  size_t size = 1;
};

// Input is checked UTF-8; anything else counts as one unknown character, never as out of bounds.
Character Decode(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1};
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc0 || at + size > text.size()) return {0xfffd, 1};
  char32_t code = lead & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3f);
  }
  return {code, size};
}

// Full-width forms to ASCII, typographic apostrophes to one, upper case to lower.
char32_t Fold(char32_t code) {
  if (code >= 0xff01 && code <= 0xff5e) code = code - 0xff01 + 0x21;
  if (code == 0x3000 || code == 0xa0) return U' ';
  if (code == 0x2019 || code == 0x2018) return U'\'';
  if (code >= U'A' && code <= U'Z') return code + 32;
  return code;
}

bool EndsSentence(char32_t code) {
  switch (code) {
    case U'.': case U'!': case U'?': case U'\n': case U'\r': case 0x3002: case 0x2026:
      return true;
    default:
      return false;
  }
}

bool EndsClause(char32_t code) {
  switch (code) {
    case U',': case U';': case U':': case 0x3001: case 0x2014:
      return true;
    default:
      return EndsSentence(code);
  }
}

char32_t ClosingQuote(char32_t code) {
  switch (code) {
    case U'"': return U'"';
    case U'`': return U'`';
    case 0x201c: return 0x201d;
    case 0x300c: return 0x300d;
    case 0x300e: return 0x300f;
    case 0x300a: return 0x300b;
    default: return 0;
  }
}

// Where the quotation that starts at `at` has its closing mark, or npos when it has none.
size_t FindClosing(std::string_view text, size_t at, char32_t closing) {
  while (at < text.size()) {
    const Character c = Decode(text, at);
    if (Fold(c.code) == closing || c.code == closing) return at;
    at += c.size;
  }
  return std::string_view::npos;
}

void PutWordCharacter(const Character& c, std::string_view text, size_t at, std::string* clause) {
  const char32_t code = Fold(c.code);
  if (code >= 0x80) {
    clause->append(text.substr(at, c.size));
    return;
  }
  const char ascii = static_cast<char>(code);
  const bool word = (ascii >= 'a' && ascii <= 'z') || (ascii >= '0' && ascii <= '9');
  if (word) {
    clause->push_back(ascii);
  } else if (ascii != '\'' && clause->back() != ' ') {
    // An apostrophe is simply left out: "don't" is "dont".
    clause->push_back(' ');
  }
}

// The clauses as they come in.
class Clauses {
 public:
  std::string& open() { return open_; }

  void End(bool sentence_ends) {
    if (open_.back() != ' ') open_.push_back(' ');
    if (open_ != " ") {
      if (text_.clauses.size() < kRuleClausesMax) {
        text_.clauses.push_back({open_, sentence_});
      } else {
        text_.is_cut = true;
      }
    }
    open_.assign(1, ' ');
    if (sentence_ends && !text_.clauses.empty()) sentence_ = text_.clauses.back().sentence + 1;
  }

  RuleText Take() {
    End(true);
    return std::move(text_);
  }

 private:
  RuleText text_;
  std::string open_ = " ";
  uint32_t sentence_ = 0;
};

std::string_view TrimBlank(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace

RuleText FoldForRules(std::string_view message) {
  message = TrimBlank(message);
  if (message.size() > kRuleTextBytesMax) return {};
  Clauses clauses;
  size_t at = 0;
  bool line_start = true;
  while (at < message.size()) {
    const Character c = Decode(message, at);
    const char32_t code = Fold(c.code);
    if (line_start && code == U'>') {
      // A quoted line, as mail marks it.
      at = std::min(message.find('\n', at), message.size());
      continue;
    }
    line_start = code == U'\n' || (line_start && code == U' ');
    const char32_t closing = ClosingQuote(code);
    const size_t quote_end =
        closing == 0 ? std::string_view::npos : FindClosing(message, at + c.size, closing);
    if (quote_end != std::string_view::npos) {
      // Left as a word of its own, so that what stands around it does not run together.
      clauses.open() += clauses.open().back() == ' ' ? "<> " : " <> ";
      at = quote_end + Decode(message, quote_end).size;
      continue;
    }
    if (EndsClause(code)) {
      clauses.End(EndsSentence(code));
    } else {
      PutWordCharacter(c, message, at, &clauses.open());
    }
    at += c.size;
  }
  return clauses.Take();
}

}  // namespace kairos
