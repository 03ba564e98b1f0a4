// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/text_extent.h"

#include <map>
#include <utility>

namespace kairos {
namespace {

Extent operator+(Extent a, Extent b) {
  return {std::min(a.least + b.least, kExtentMax), std::min(a.most + b.most, kExtentMax)};
}

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

// The largest of a grammar's definitions.
class LarkSum {
 public:
  explicit LarkSum(std::span<const LarkDefinition> definitions) {
    // Those of one name belong together, if the compiler lets that pass.
    for (const LarkDefinition& one : definitions) bodies_[one.name].parts.push_back(one.body);
  }

  Extent Largest() {
    Extent largest;
    for (const auto& [name, body] : bodies_) {
      const Extent extent = Of(name);
      largest = {std::max(largest.least, extent.least), std::max(largest.most, extent.most)};
    }
    return largest;
  }

 private:
  struct Body {
    std::vector<std::span<const LarkWord>> parts;
    std::optional<Extent> extent;
  };

  Extent Of(std::string_view name) {
    const auto found = bodies_.find(name);
    if (found == bodies_.end()) return {};
    Body& body = found->second;
    if (body.extent) return *body.extent;
    body.extent = Extent{};  // one that names itself is refused by the compiler
    Extent sum;
    for (const std::span<const LarkWord> part : body.parts) sum = sum + Read(part);
    return *(bodies_.at(name).extent = sum);
  }

  Extent Read(std::span<const LarkWord> words) {
    ExtentSum sum;
    for (size_t at = 0; at < words.size(); ++at) {
      const LarkWord& word = words[at];
      if (word.kind == LarkKind::kString) {
        const uint64_t bytes = std::max<size_t>(word.text.rfind('"'), 1) - 1;
        sum.Atom({bytes, bytes});
      } else if (word.kind == LarkKind::kRegex) {
        const size_t end = std::max<size_t>(word.text.rfind('/'), 1);
        sum.Atom(RegexExtent(word.text.substr(1, end - 1)));
      } else if (word.kind == LarkKind::kName) {
        sum.Atom(IsTerminal(word.text) ? Of(word.text) : Extent{});
      } else if (word.Is('(') || word.Is('[')) {
        sum.Open();
      } else if (word.Is(')') || word.Is(']')) {
        sum.Close();
      } else if (word.Is('|')) {
        sum.Or();
      } else if (const auto count = RepetitionAt(words, at)) {
        sum.Repeat(count->least, count->most);
      }
    }
    return sum.Take();
  }

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

Extent LarkExtent(std::span<const LarkDefinition> definitions) {
  return LarkSum(definitions).Largest();
}

}  // namespace kairos
