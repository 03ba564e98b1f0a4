// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/lark_text.h"

#include <algorithm>
#include <charconv>

namespace kairos {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kRegexFlags = "imslux";
constexpr uint64_t kManyTimes = 1u << 30;

bool IsSmall(char c) { return c >= 'a' && c <= 'z'; }
bool IsLetter(char c) { return IsSmall(c) || (c >= 'A' && c <= 'Z'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

class LarkReader {
 public:
  explicit LarkReader(std::string_view text) : text_(text) {}

  std::vector<LarkWord> Read() {
    std::vector<LarkWord> words;
    bool begins_line = true;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (kBlanks.find(c) != kBlanks.npos) {
        begins_line |= c == '\n';
        ++at_;
      } else if (c == '#' || text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        words.push_back(Word(c));
        words.back().begins_line = begins_line;
        begins_line = false;
      }
    }
    return words;
  }

 private:
  LarkWord Word(char c) {
    const size_t begin = at_;
    if (c == '"') {
      PassQuoted(c);
      if (text_.substr(at_, 1) == "i") ++at_;
      return Taken(LarkKind::kString, begin);
    }
    if (c == '/') {
      PassQuoted(c);
      at_ = std::min(text_.find_first_not_of(kRegexFlags, at_), text_.size());
      return Taken(LarkKind::kRegex, begin);
    }
    if (c == '<' && PassSpecial()) return Taken(LarkKind::kSpecial, begin);
    at_ += c == '!' || c == '?';
    if (c == '!' && text_.substr(at_, 1) == "?") ++at_;
    const size_t name = at_;
    if (PassName()) return Taken(LarkKind::kName, name);
    at_ = begin + 1;
    if (c == '%') {
      while (at_ < text_.size() && IsLetter(text_[at_])) ++at_;
      return Taken(LarkKind::kDirective, begin);
    }
    if (IsDigit(c)) {
      while (at_ < text_.size() && IsDigit(text_[at_])) ++at_;
      return Taken(LarkKind::kNumber, begin);
    }
    if (c == '-' && text_.substr(at_, 1) == ">") {
      at_ = std::min(text_.find_first_not_of(" \t", at_ + 1), text_.size());
      PassName();
      return Taken(LarkKind::kArrow, begin);
    }
    return Taken(LarkKind::kSign, begin);
  }

  LarkWord Taken(LarkKind kind, size_t begin) const {
    return {kind, text_.substr(begin, at_ - begin)};
  }

  // To behind the next `end` that no backslash stands before.
  void PassQuoted(char end) {
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\\') {
        ++at_;
      } else if (text_[at_] == end) {
        ++at_;
        return;
      }
    }
    at_ = text_.size();
  }

  // Names are of small letters or of capitals. False where none stands here.
  bool PassName() {
    size_t end = at_;
    if (end < text_.size() && text_[end] == '_') ++end;
    if (end >= text_.size() || !IsLetter(text_[end])) return false;
    const bool small = IsSmall(text_[end]);
    const auto goes_on = [small](char c) {
      return IsDigit(c) || c == '_' || c == '-' || (IsLetter(c) && IsSmall(c) == small);
    };
    while (end < text_.size() && goes_on(text_[end])) ++end;
    at_ = end;
    return true;
  }

  // False where no token's name ends here.
  bool PassSpecial() {
    const size_t end = text_.find_first_of("<> \t\r\n\f\v", at_ + 1);
    if (end == std::string_view::npos || text_[end] != '>' || end == at_ + 1) return false;
    at_ = end + 1;
    return true;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

// Where the definition that may begin at words[at] has its colon; 0 where none begins.
size_t ColonOf(std::span<const LarkWord> words, size_t at) {
  if (!words[at].begins_line || words[at].kind != LarkKind::kName) return 0;
  bool in_brackets = false;
  for (size_t i = at + 1; i < words.size(); ++i) {
    if (words[i].Is('[') || words[i].Is('{')) in_brackets = true;
    if (words[i].Is(']') || words[i].Is('}')) in_brackets = false;
    if (in_brackets) continue;
    if (words[i].Is(':')) {
      const bool is_double = i + 1 < words.size() && words[i + 1].Is(':');
      if (!is_double) return i;
      ++i;
      continue;
    }
    const bool belongs = words[i].Is(']') || words[i].Is('}') || words[i].Is('.') ||
                         words[i].Is('-') || words[i].Is('_') ||
                         words[i].kind == LarkKind::kNumber;
    if (!belongs) return 0;
  }
  return 0;
}

}  // namespace

std::vector<LarkWord> LarkWords(std::string_view grammar) { return LarkReader(grammar).Read(); }

std::vector<LarkDefinition> LarkDefinitions(std::span<const LarkWord> words) {
  std::vector<LarkDefinition> definitions;
  bool in_body = false;
  for (size_t at = 0; at < words.size();) {
    if (const size_t colon = ColonOf(words, at); colon != 0) {
      definitions.push_back({words[at].text, words.subspan(at + 1, colon - at - 1),
                             words.subspan(colon + 1, 0)});
      in_body = true;
      at = colon + 1;
      continue;
    }
    if (words[at].begins_line && words[at].kind == LarkKind::kDirective) in_body = false;
    if (in_body) {
      std::span<const LarkWord>& body = definitions.back().body;
      body = {body.data(), body.size() + 1};
    }
    ++at;
  }
  return definitions;
}

std::optional<LarkRepetition> RepetitionAt(std::span<const LarkWord> words, size_t at) {
  if (!words[at].Is('{') && !words[at].Is('~')) return std::nullopt;
  uint64_t numbers[2] = {};
  size_t count = 0;
  bool any = false;
  for (const LarkWord& word : words.subspan(at + 1)) {
    if (word.kind == LarkKind::kNumber && numbers[count] == 0) {
      const size_t size = word.text.size();
      const auto read = std::from_chars(word.text.data(), word.text.data() + size, numbers[count]);
      numbers[count] = read.ec == std::errc() ? std::min(numbers[count], kManyTimes) : kManyTimes;
      any = true;
    } else if (word.Is(',') || word.Is('.')) {
      count = 1;
    } else if (!word.Is('+')) {
      break;
    }
  }
  if (!any) return std::nullopt;
  return LarkRepetition{numbers[0], std::max(numbers[0], numbers[count])};
}

bool IsTerminal(std::string_view name) { return std::none_of(name.begin(), name.end(), IsSmall); }

}  // namespace kairos
