// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/jinja/lexer.h"

#include <charconv>
#include <cstdlib>

#include "sidecar/chat/jinja/characters.h"

namespace kairos {

namespace {

constexpr size_t kSourceBytesMax = 4u << 20;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<uint8_t>(c) >= 0x80;
}
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }
bool IsBlank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::vector<JinjaToken>* tokens, std::string* error)
      : text_(NormalizeNewlines(source)), tokens_(tokens), error_(error) {}

  bool Run() {
    while (at_ < text_.size()) {
      if (!LexData()) return false;
    }
    Push(JinjaTokenKind::kEnd, "");
    return true;
  }

 private:
  bool Fail(const std::string& reason) {
    *error_ = "line " + std::to_string(line_) + ": " + reason;
    return false;
  }

  bool StartsWith(std::string_view what) const {
    return std::string_view(text_).substr(at_, what.size()) == what;
  }

  void Advance(size_t to) {
    for (; at_ < to; ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
  }

  JinjaToken& Push(JinjaTokenKind kind, std::string text) {
    JinjaToken token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_->push_back(std::move(token));
    return tokens_->back();
  }

  size_t FindTag() const {
    for (size_t i = at_; i + 1 < text_.size(); ++i) {
      if (text_[i] == '{' && (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#')) {
        return i;
      }
    }
    return text_.size();
  }

  // Data up to the next tag, trimmed as the tag asks, then the tag.
  bool LexData() {
    const size_t tag = FindTag();
    std::string_view data = std::string_view(text_).substr(at_, tag - at_);
    const bool line_start = at_ == 0 || after_newline_;
    if (tag == text_.size()) {
      if (!data.empty()) Push(JinjaTokenKind::kData, std::string(data));
      Advance(tag);
      return true;
    }
    const char kind = text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    data = TrimBefore(data, kind, sign, line_start);
    if (!data.empty()) Push(JinjaTokenKind::kData, std::string(data));
    Advance(tag + 2);
    if (sign == '-' || sign == '+') Advance(at_ + 1);
    if (kind == '#') return SkipComment();
    if (kind == '%' && AtWord("raw")) return LexRaw();
    Push(kind == '%' ? JinjaTokenKind::kStatementBegin : JinjaTokenKind::kPrintBegin, "");
    return LexTag(kind);
  }

  std::string_view TrimBefore(std::string_view data, char kind, char sign, bool line_start) const {
    if (sign == '-') return data.substr(0, StripSpaceRange(data, false, true).end);
    if (sign == '+' || kind == '{') return data;
    const size_t newline = data.rfind('\n');
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (begin == 0 && !line_start) return data;
    const ByteRange rest = StripSpaceRange(data.substr(begin), true, false);
    return rest.begin == rest.end ? data.substr(0, begin) : data;
  }

  // After a tag's end: "-" eats all white space, otherwise statements and comments eat one newline.
  void TrimAfter(char sign, bool eats_newline) {
    const size_t start = at_;
    if (sign == '-') {
      Advance(at_ + StripSpaceRange(std::string_view(text_).substr(at_), true, false).begin);
    } else if (sign != '+' && eats_newline && at_ < text_.size() && text_[at_] == '\n') {
      Advance(at_ + 1);
    }
    after_newline_ = at_ > start && text_[at_ - 1] == '\n';
  }

  bool SkipComment() {
    const size_t end = text_.find("#}", at_);
    if (end == std::string::npos) return Fail("comment is not closed");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    Advance(end + 2);
    TrimAfter(sign, true);
    return true;
  }

  size_t SkipBlanks(size_t at) const {
    while (at < text_.size() && IsBlank(text_[at])) ++at;
    return at;
  }

  bool AtWord(std::string_view word) const {
    const size_t begin = SkipBlanks(at_);
    if (std::string_view(text_).substr(begin, word.size()) != word) return false;
    const size_t next = SkipBlanks(begin + word.size());
    const std::string_view rest = std::string_view(text_).substr(next, 3);
    return rest.substr(0, 2) == "%}" || rest == "-%}" || rest == "+%}";
  }

  bool LexRaw() {
    at_ = text_.find("%}", at_);
    const bool trims = text_[at_ - 1] == '-';
    Advance(at_ + 2);
    if (trims) TrimAfter('-', false);
    const size_t body = at_;
    for (size_t i = text_.find("{%", body); i != std::string::npos; i = text_.find("{%", i + 2)) {
      const size_t saved = at_;
      const char sign = i + 2 < text_.size() ? text_[i + 2] : '\0';
      at_ = i + 2 + (sign == '-' || sign == '+' ? 1 : 0);
      const bool found = AtWord("endraw");
      const size_t after = at_;
      at_ = saved;
      if (!found) continue;
      std::string_view data = std::string_view(text_).substr(body, i - body);
      data = TrimBefore(data, '%', sign, false);
      if (!data.empty()) Push(JinjaTokenKind::kData, std::string(data));
      const size_t end = text_.find("%}", after);
      const char end_sign = text_[end - 1];
      Advance(end + 2);
      TrimAfter(end_sign, true);
      return true;
    }
    return Fail("raw block is not closed");
  }

  bool AtTagEnd(char kind, char* sign) const {
    *sign = '\0';
    size_t at = at_;
    if (text_[at] == '-' || (text_[at] == '+' && kind == '%')) *sign = text_[at++];
    const std::string_view close = kind == '%' ? "%}" : "}}";
    return std::string_view(text_).substr(at, 2) == close;
  }

  bool LexTag(char kind) {
    std::string open;
    while (at_ < text_.size()) {
      char sign;
      if (open.empty() && AtTagEnd(kind, &sign)) {
        Push(kind == '%' ? JinjaTokenKind::kStatementEnd : JinjaTokenKind::kPrintEnd, "");
        Advance(at_ + 2 + (sign != '\0' ? 1 : 0));
        TrimAfter(sign, kind == '%');
        return true;
      }
      const char c = text_[at_];
      if (IsBlank(c)) {
        Advance(at_ + 1);
      } else if (IsDigit(c)) {
        if (!LexNumber()) return false;
      } else if (IsNameStart(c)) {
        size_t end = at_;
        while (end < text_.size() && IsNamePart(text_[end])) ++end;
        Push(JinjaTokenKind::kName, text_.substr(at_, end - at_));
        Advance(end);
      } else if (c == '\'' || c == '"') {
        if (!LexString(c)) return false;
      } else if (!LexOperator(&open)) {
        return false;
      }
    }
    return Fail(kind == '%' ? "statement tag is not closed" : "print tag is not closed");
  }

  bool LexOperator(std::string* open) {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!StartsWith(op)) continue;
      const char c = op[0];
      if (c == '(' || c == '[' || c == '{') {
        open->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      } else if (c == ')' || c == ']' || c == '}') {
        if (open->empty() || open->back() != c) return Fail("unexpected '" + std::string(op) + "'");
        open->pop_back();
      }
      Push(JinjaTokenKind::kOperator, std::string(op));
      Advance(at_ + op.size());
      return true;
    }
    return Fail("unexpected character '" + std::string(1, text_[at_]) + "'");
  }

  size_t SkipDigits(size_t at, std::string* digits) const {
    while (at < text_.size() && (IsDigit(text_[at]) || (text_[at] == '_' && at + 1 < text_.size() &&
                                                        IsDigit(text_[at + 1])))) {
      if (text_[at] != '_') *digits += text_[at];
      ++at;
    }
    return at;
  }

  bool LexNumber() {
    std::string digits;
    size_t end = SkipDigits(at_, &digits);
    bool real = false;
    if (end + 1 < text_.size() && text_[end] == '.' && IsDigit(text_[end + 1])) {
      digits += '.';
      end = SkipDigits(end + 1, &digits);
      real = true;
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      size_t exponent = end + 1;
      std::string tail = "e";
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) {
        tail += text_[exponent++];
      }
      if (exponent < text_.size() && IsDigit(text_[exponent])) {
        end = SkipDigits(exponent, &tail);
        digits += tail;
        real = true;
      }
    }
    JinjaToken& token = Push(real ? JinjaTokenKind::kFloat : JinjaTokenKind::kInt, digits);
    const char* first = digits.data();
    const char* last = first + digits.size();
    const bool hex =
        digits == "0" && end < text_.size() && (text_[end] == 'x' || text_[end] == 'X');
    if (hex) {
      const char* begin = text_.data() + end + 1;
      const auto r = std::from_chars(begin, text_.data() + text_.size(), token.integer, 16);
      if (r.ec != std::errc() || r.ptr == begin) return Fail("bad hexadecimal number");
      end = static_cast<size_t>(r.ptr - text_.data());
    } else if (real) {
      const auto r = std::from_chars(first, last, token.real);
      if (r.ec != std::errc()) return Fail("number out of range: " + digits);
    } else {
      const auto r = std::from_chars(first, last, token.integer);
      if (r.ec != std::errc()) return Fail("integer out of range: " + digits);
    }
    Advance(end);
    return true;
  }

  bool LexString(char quote) {
    const uint32_t line = line_;
    std::string value;
    size_t at = at_ + 1;
    while (at < text_.size() && text_[at] != quote) {
      if (text_[at] != '\\') {
        value += text_[at++];
        continue;
      }
      if (at + 1 >= text_.size()) break;
      if (!DecodeEscape(&at, &value)) return Fail("bad escape in a string");
    }
    if (at >= text_.size()) return Fail("string is not closed");
    Push(JinjaTokenKind::kString, std::move(value)).line = line;
    Advance(at + 1);
    return true;
  }

  // *at stands on the backslash; an escape that Python does not know keeps it.
  bool DecodeEscape(size_t* at, std::string* out) const {
    static constexpr std::string_view kLetters = "abfnrtv\\'\"";
    static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const char c = text_[*at + 1];
    const size_t letter = kLetters.find(c);
    *at += 2;
    if (letter != std::string_view::npos) {
      *out += kMeanings[letter];
      return true;
    }
    if (c == '\n') return true;
    if (c >= '0' && c <= '7') {
      uint32_t code = static_cast<uint32_t>(c - '0');
      for (int i = 0; i < 2 && *at < text_.size() && text_[*at] >= '0' && text_[*at] <= '7'; ++i) {
        code = code * 8 + static_cast<uint32_t>(text_[(*at)++] - '0');
      }
      AppendCodePoint(*out, code);
      return true;
    }
    const size_t hex_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (hex_digits == 0) {
      *out += '\\';
      *out += c;
      return true;
    }
    if (*at + hex_digits > text_.size()) return false;
    uint32_t code = 0;
    const char* first = text_.data() + *at;
    const auto r = std::from_chars(first, first + hex_digits, code, 16);
    if (r.ec != std::errc() || r.ptr != first + hex_digits) return false;
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return false;
    AppendCodePoint(*out, code);
    *at += hex_digits;
    return true;
  }

  const std::string text_;
  std::vector<JinjaToken>* tokens_;
  std::string* error_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool after_newline_ = false;
};

}  // namespace

bool LexJinja(std::string_view source, std::vector<JinjaToken>* tokens, std::string* error) {
  if (source.size() > kSourceBytesMax) {
    *error = "template is longer than " + std::to_string(kSourceBytesMax) + " bytes";
    return false;
  }
  return Lexer(source, tokens, error).Run();
}

}  // namespace kairos
