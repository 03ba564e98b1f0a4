// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/text_extent.h"

#include <map>
#include <utility>

namespace kairos {
namespace {

Extent operator+(Extent a, Extent b) {
  return {std::min(a.least + b.least, kExtentMax), std::min(a.most + b.most, kExtentMax)};
}

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Past what begins at `at` and ends at the next `end` that no backslash stands before.
size_t PastQuoted(std::string_view text, size_t at, char end) {
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == end) {
      return i + 1;
    }
  }
  return text.size();
}

// The last character of the escape that begins here. Those of \x{3042} and \p{Letter} are all one.
size_t EscapeEnd(std::string_view regex, size_t at) {
  constexpr std::string_view kWithBraces = "xuUpP";
  if (at + 2 >= regex.size() || regex[at + 2] != '{') return at + 1;
  if (kWithBraces.find(regex[at + 1]) == kWithBraces.npos) return at + 1;
  return std::min(regex.find('}', at), regex.size() - 1);
}

// The definitions of a grammar, each with the names in it where they stand.
class LarkReader {
 public:
  explicit LarkReader(std::string_view text) : text_(text) {}

  Extent Largest() {
    Split();
    Extent largest;
    for (const auto& [name, body] : bodies_) {
      const Extent extent = Of(name);
      largest = {std::max(largest.least, extent.least), std::max(largest.most, extent.most)};
    }
    return largest;
  }

 private:
  struct Body {
    std::vector<std::string_view> lines;  // of one name, if it is defined more than once
    std::optional<Extent> extent;
  };

  void Split() {
    size_t begin = 0;
    std::string_view name;
    bool line_start = true;
    for (size_t at = 0; at < text_.size();) {
      const char c = text_[at];
      if (line_start && (IsLetter(c) || c == '!' || c == '?')) {
        const size_t head = at;
        const size_t colon = HeadEnd(at);
        if (colon != std::string_view::npos) {
          if (!name.empty()) bodies_[name].lines.push_back(text_.substr(begin, head - begin));
          name = NameAt(head);
          begin = at = colon + 1;
          line_start = false;
          continue;
        }
      }
      line_start = c == '\n' || (line_start && (c == ' ' || c == '\t'));
      at = Past(at);
    }
    if (!name.empty()) bodies_[name].lines.push_back(text_.substr(begin));
  }

  std::string_view NameAt(size_t at) const {
    while (at < text_.size() && !IsLetter(text_[at])) ++at;
    size_t end = at;
    const auto goes_on = [](char c) { return IsLetter(c) || IsDigit(c) || c == '-'; };
    while (end < text_.size() && goes_on(text_[end])) ++end;
    return text_.substr(at, end - at);
  }

  // The colon of the definition that begins here, if one does: name, priority, attributes, colon.
  size_t HeadEnd(size_t at) const {
    const std::string_view name = NameAt(at);
    at = static_cast<size_t>(name.data() - text_.data()) + name.size();
    for (; at < text_.size(); ++at) {
      const char c = text_[at];
      if (c == '[') {
        at = text_.find(']', at);
        if (at == std::string_view::npos) return at;
      } else if (c == ':') {
        if (at + 1 >= text_.size() || text_[at + 1] != ':') return at;
        ++at;  // of a parameter
      } else if (!IsLetter(c) && !IsDigit(c) && c != '.' && c != ' ' && c != '\t' && c != '-') {
        return std::string_view::npos;
      }
    }
    return std::string_view::npos;
  }

  // Past the comment, quoted text or character that stands here.
  size_t Past(size_t at) const {
    const char c = text_[at];
    const bool comment = c == '#' || (c == '/' && at + 1 < text_.size() && text_[at + 1] == '/');
    if (comment) return std::min(text_.find('\n', at), text_.size());
    if (c == '"' || c == '/') return PastQuoted(text_, at, c);
    return at + 1;
  }

  Extent Of(std::string_view name) {
    const auto found = bodies_.find(name);
    if (found == bodies_.end()) return {};
    Body& body = found->second;
    if (body.extent) return *body.extent;
    body.extent = Extent{};  // one that names itself is refused by the compiler
    Extent sum;
    for (const std::string_view line : body.lines) sum = sum + Read(line);
    return *(bodies_.at(name).extent = sum);
  }

  Extent Read(std::string_view line) {
    ExtentSum sum;
    for (size_t at = static_cast<size_t>(line.data() - text_.data()), end = at + line.size();
         at < end;) {
      const char c = text_[at];
      const size_t next = Past(at);
      if (c == '"') {
        const uint64_t bytes = std::max<size_t>(next - at, 2) - 2;  // without its quotes
        sum.Atom({bytes, bytes});
      } else if (c == '/' && next > at + 1 && text_[at + 1] != '/') {
        sum.Atom(RegexExtent(text_.substr(at + 1, next - at - 2)));
      } else if (c == '(' || c == '[') {
        sum.Open();
      } else if (c == ')' || c == ']') {
        sum.Close();
      } else if (c == '|') {
        sum.Or();
      } else if (c == '{') {
        if (const auto count = ReadRepetition(text_.substr(at + 1))) {
          sum.Repeat(count->least, count->most);
        }
      } else if (IsLetter(c)) {
        const std::string_view name = NameAt(at);
        const bool is_terminal = name.find_first_of("abcdefghijklmnopqrstuvwxyz") == name.npos;
        sum.Atom(is_terminal ? Of(name) : Extent{});
        at += name.size();
        continue;
      }
      at = next;
    }
    return sum.Take();
  }

  const std::string_view text_;
  std::map<std::string_view, Body> bodies_;
};

}  // namespace

Extent ExtentSum::Whole(const Group& group) {
  const Extent sum = group.sum + group.last;
  return {std::max(group.before.least, sum.least),
          std::min(group.before.most + sum.most, kExtentMax)};
}

void ExtentSum::Atom(Extent extent) {
  Group& group = groups_.back();
  group.sum = group.sum + group.last;
  group.last = extent;
}

void ExtentSum::Close() {
  if (groups_.size() == 1) return;  // refused by the compiler
  const Extent whole = Whole(groups_.back());
  groups_.pop_back();
  Atom(whole);
}

void ExtentSum::Or() {
  Group& group = groups_.back();
  group.before = Whole(group);
  group.sum = group.last = {};
}

void ExtentSum::Repeat(uint64_t least, uint64_t most) {
  Extent& last = groups_.back().last;
  const auto times = [](uint64_t extent, uint64_t count) {
    return std::min(extent * std::clamp<uint64_t>(count, 1, 1u << 30), kExtentMax);
  };
  last = {times(last.least, least), times(last.most, most)};
}

Extent ExtentSum::Take() {
  while (groups_.size() > 1) Close();
  return Whole(groups_.back());
}

std::optional<Extent> ReadRepetition(std::string_view text) {
  const std::string_view inside = text.substr(0, text.find('}'));
  uint64_t numbers[2] = {};
  size_t count = 0;
  bool any = false;
  for (const char c : inside) {
    if (IsDigit(c)) {
      numbers[count] = std::min<uint64_t>(numbers[count] * 10 + static_cast<uint64_t>(c - '0'),
                                          1u << 30);
      any = true;
    } else if (c == ',' && count == 0) {
      count = 1;
    } else if (c != ' ') {
      return std::nullopt;
    }
  }
  if (!any || inside.size() == text.size()) return std::nullopt;
  return Extent{numbers[0], std::max(numbers[0], numbers[count])};
}

Extent RegexExtent(std::string_view regex) {
  ExtentSum sum;
  for (size_t at = 0; at < regex.size();) {
    const char c = regex[at];
    if (c == '(') {
      sum.Open();
    } else if (c == ')') {
      sum.Close();
    } else if (c == '|') {
      sum.Or();
    } else if (const auto count = c == '{' ? ReadRepetition(regex.substr(at + 1)) : std::nullopt) {
      sum.Repeat(count->least, count->most);
      at = regex.find('}', at);
    } else if (c != '*' && c != '+' && c != '?') {
      sum.Atom({1, 1});
      if (c == '\\') at = EscapeEnd(regex, at);
      // One class, whatever it holds; a bracket that comes first is of it.
      if (c == '[') at = PastQuoted(regex, at + (regex.substr(at, 2) == "[]"), ']') - 1;
    }
    ++at;
  }
  return sum.Take();
}

Extent LarkExtent(std::string_view grammar) { return LarkReader(grammar).Largest(); }

}  // namespace kairos
