// SPDX-License-Identifier: Apache-2.0
// Calls whose arguments are named literals: Python's f(a=1) and FunctionGemma's call:f{a:1}. They
// differ in a few bytes; numbers, lists and nesting are alike. Written down as JSON on the way.
#include <cctype>
#include <utility>

#include "sidecar/chat/calls/call_reader.h"
#include "sidecar/chat/calls/json_scanner.h"

namespace kairos {
namespace {

constexpr size_t kNameBytesMax = 256;
constexpr size_t kWordBytesMax = 8;

bool IsNameStart(char byte) {
  return std::isalpha(static_cast<unsigned char>(byte)) != 0 || byte == '_';
}

bool IsNameByte(char byte) {
  return IsNameStart(byte) || std::isdigit(static_cast<unsigned char>(byte)) != 0;
}

class LiteralCallReader final : public CallReader {
 public:
  LiteralCallReader(const WireFormat& format, bool is_python)
      : format_(format), is_python_(is_python) {}

  Step Push(char byte) override {
    // A number or a word ends with the byte behind it, which is then looked at again.
    for (;;) {
      const At before = at_;
      const Step step = Look(byte);
      if (step != Step::kMore || !again_) return step;
      again_ = false;
      if (before == at_) return Fault(CallFault::kMalformed);
    }
  }

 private:
  enum class At {
    kStart, kCall, kPrefix, kName, kItemOrEnd, kKey, kKeyEnd, kValue, kValueOrEnd, kQuote, kString,
    kEscape, kHex, kNumber, kWord, kCommaOrEnd, kCommaOrCallsEnd
  };
  struct Level {
    char close;  // byte that ends it
    bool is_call;
    bool has_items = false;
  };

  Step More(At next) {
    at_ = next;
    return Step::kMore;
  }
  Step Again(At next) {
    again_ = true;
    return More(next);
  }
  Step Wrong() { return Fault(CallFault::kMalformed); }
  std::string& json() { return drafts_.back().arguments; }

  Step Look(char byte) {
    switch (at_) {
      case At::kPrefix: return Prefix(byte);
      case At::kName: return Name(byte);
      case At::kKey: return Key(byte);
      case At::kQuote: return Quote(byte);
      case At::kString: return String(byte);
      case At::kEscape: return Escape(byte);
      case At::kHex: return Hex(byte);
      case At::kNumber: return Number(byte);
      case At::kWord: return Word(byte);
      default: break;
    }
    if (IsJsonSpace(byte)) return Step::kMore;
    switch (at_) {
      case At::kStart:
        if (!is_python_ || byte != '[') return Again(At::kCall);
        is_list_ = true;
        return More(At::kCall);
      case At::kCall: return BeginCall();
      case At::kItemOrEnd: return Item(byte);
      case At::kKeyEnd: return byte == Separator() ? More(At::kValue) : Wrong();
      case At::kValueOrEnd: return byte == ']' ? Close(byte) : BeginItem(byte);
      case At::kValue: return Value(byte);
      case At::kCommaOrEnd:
        if (byte != ',') return Close(byte);
        return More(levels_.back().close == ']' ? At::kValueOrEnd : At::kItemOrEnd);
      case At::kCommaOrCallsEnd:
        if (byte == ']') return Step::kDone;
        return byte == ',' ? More(At::kCall) : Wrong();
      default: return Wrong();
    }
  }

  Step BeginCall() {
    drafts_.emplace_back();
    text_.clear();
    return Again(is_python_ ? At::kName : At::kPrefix);
  }

  Step Prefix(char byte) {
    if (byte != format_.call_prefix[text_.size()]) return Wrong();
    text_ += byte;
    if (text_.size() < format_.call_prefix.size()) return Step::kMore;
    text_.clear();
    return More(At::kName);
  }

  Step Name(char byte) {
    if (byte == (is_python_ ? '(' : '{')) {
      if (text_.empty() || text_.back() == '.') return Fault(CallFault::kNoName);
      drafts_.back().name = std::move(text_);
      drafts_.back().has_arguments = true;
      return Open(is_python_ ? ')' : '}', true);
    }
    const bool inside = !text_.empty() && text_.back() != '.';
    const bool fits = inside ? IsNameByte(byte) || byte == '.' || (!is_python_ && byte == '-')
                             : IsNameStart(byte);
    if (!fits || text_.size() == kNameBytesMax) return Wrong();
    text_ += byte;
    return Step::kMore;
  }

  Step Open(char close, bool is_call) {
    if (levels_.size() == kCallDepthMax) return Fault(CallFault::kTooDeep);
    levels_.push_back({close, is_call});
    json() += close == ']' ? '[' : '{';
    return More(close == ']' ? At::kValueOrEnd : At::kItemOrEnd);
  }

  Step Close(char byte) {
    const Level level = levels_.back();
    if (byte != level.close) return Wrong();
    json() += byte == ']' ? ']' : '}';
    levels_.pop_back();
    if (!level.is_call) return More(At::kCommaOrEnd);
    if (!Complete()) return Wrong();
    at_ = At::kCommaOrCallsEnd;
    return is_list_ ? Step::kMore : Step::kDone;
  }

  // An item of a call or of an object: it has a key.
  Step Item(char byte) {
    if (byte == levels_.back().close) return Close(byte);
    BetweenItems();
    text_.clear();
    if (is_python_ && !levels_.back().is_call) {
      is_key_ = true;
      return byte == '"' || byte == '\'' ? BeginString(byte) : Wrong();
    }
    // A value without a name.
    if (is_python_ && !IsNameStart(byte)) return Fault(CallFault::kNoArguments);
    return IsNameStart(byte) ? Again(At::kKey) : Wrong();
  }

  Step BeginItem(char byte) {
    BetweenItems();
    return Value(byte);
  }

  void BetweenItems() {
    if (levels_.back().has_items) json() += ',';
    levels_.back().has_items = true;
  }

  Step Key(char byte) {
    if (IsNameByte(byte) && text_.size() < kNameBytesMax) {
      text_ += byte;
      return Step::kMore;
    }
    json() += '"' + text_ + "\":";
    return Again(At::kKeyEnd);
  }

  char Separator() const { return is_python_ && levels_.back().is_call ? '=' : ':'; }

  Step Value(char byte) {
    is_key_ = false;
    text_.clear();
    if (byte == '[') return Open(']', false);
    if (byte == '{') return Open('}', false);
    if (is_python_ && (byte == '"' || byte == '\'')) return BeginString(byte);
    if (!is_python_ && byte == format_.string_quote[0]) {
      quote_at_ = 0;
      return Again(At::kQuote);
    }
    if (std::isalpha(static_cast<unsigned char>(byte)) != 0) return Again(At::kWord);
    number_.Reset();
    return Again(At::kNumber);
  }

  Step BeginString(char quote) {
    quote_ = quote;
    json() += '"';
    return More(At::kString);
  }

  // The keyed form's opening quote.
  Step Quote(char byte) {
    if (byte != format_.string_quote[quote_at_]) return Wrong();
    if (++quote_at_ < format_.string_quote.size()) return Step::kMore;
    quote_at_ = 0;
    json() += '"';
    return More(At::kString);
  }

  Step EndString() {
    json() += is_key_ ? "\":" : "\"";
    const bool was_key = is_key_;
    is_key_ = false;
    return More(was_key ? At::kKeyEnd : At::kCommaOrEnd);
  }

  Step String(char byte) {
    if (is_python_) {
      if (byte == quote_) return EndString();
      if (byte == '\\') return More(At::kEscape);
      AppendJsonEscaped(std::string_view(&byte, 1), &json());
      return Step::kMore;
    }
    // The closing quote's first byte is not inside it, so a mismatch starts over.
    const std::string_view quote = format_.string_quote;
    if (byte != quote[quote_at_]) {
      AppendJsonEscaped(quote.substr(0, quote_at_), &json());
      quote_at_ = 0;
    }
    if (byte == quote[quote_at_]) {
      if (++quote_at_ == quote.size()) return EndString();
    } else {
      AppendJsonEscaped(std::string_view(&byte, 1), &json());
    }
    return Step::kMore;
  }

  Step Escape(char byte) {
    switch (byte) {
      case 'n': case 't': case 'r': case 'b': case 'f': case '\\': case '"':
        json() += '\\';
        json() += byte;
        return More(At::kString);
      case '\'':
        json() += byte;
        return More(At::kString);
      case '\n':
        return More(At::kString);
      case 'x': case 'u':
        json() += byte == 'x' ? "\\u00" : "\\u";
        hex_left_ = byte == 'x' ? 2 : 4;
        return More(At::kHex);
      default:  // Python keeps the backslash of what is no escape
        json() += "\\\\";
        AppendJsonEscaped(std::string_view(&byte, 1), &json());
        return More(At::kString);
    }
  }

  Step Hex(char byte) {
    if (std::isxdigit(static_cast<unsigned char>(byte)) == 0) return Wrong();
    json() += byte;
    return More(--hex_left_ == 0 ? At::kString : At::kHex);
  }

  Step Number(char byte) {
    if (number_.Push(byte)) {
      json() += byte;
      return Step::kMore;
    }
    return number_.is_complete() ? Again(At::kCommaOrEnd) : Wrong();
  }

  Step Word(char byte) {
    if (IsNameByte(byte) && text_.size() < kWordBytesMax) {
      text_ += byte;
      return Step::kMore;
    }
    if (text_ == "True" || text_ == "true") {
      json() += "true";
    } else if (text_ == "False" || text_ == "false") {
      json() += "false";
    } else if (text_ == "None" || text_ == "null") {
      json() += "null";
    } else {
      return Wrong();
    }
    return Again(At::kCommaOrEnd);
  }

  const WireFormat& format_;
  const bool is_python_;
  At at_ = At::kStart;
  bool again_ = false;
  bool is_list_ = false;
  bool is_key_ = false;
  char quote_ = '"';
  uint8_t hex_left_ = 0;
  size_t quote_at_ = 0;  // bytes of the keyed form's quote that were matched
  std::string text_;     // of a name, key or word
  NumberScanner number_;
  std::vector<Level> levels_;
};

}  // namespace

std::unique_ptr<CallReader> MakeLiteralCallReader(const WireFormat& format, CallStyle style) {
  return std::make_unique<LiteralCallReader>(format, style == CallStyle::kPython);
}

}  // namespace kairos
