// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/calls/json_scanner.h"

namespace kairos {
namespace {

bool IsDigit(char byte) { return byte >= '0' && byte <= '9'; }

bool IsHexDigit(char byte) {
  return IsDigit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

}  // namespace

bool NumberScanner::Push(char byte) {
  const auto go = [this](At next) {
    at_ = next;
    return true;
  };
  const bool digit = IsDigit(byte);
  const bool is_e = byte == 'e' || byte == 'E';
  switch (at_) {
    case At::kStart:
      if (byte == '-') return go(At::kMinus);
      [[fallthrough]];
    case At::kMinus:
      return digit && go(byte == '0' ? At::kZero : At::kDigits);
    case At::kZero:
    case At::kDigits:
      if (digit) return at_ == At::kDigits;
      if (byte == '.') return go(At::kPoint);
      return is_e && go(At::kE);
    case At::kPoint:
      return digit && go(At::kFraction);
    case At::kFraction:
      return digit || (is_e && go(At::kE));
    case At::kE:
      if (byte == '+' || byte == '-') return go(At::kSign);
      [[fallthrough]];
    case At::kSign:
      return digit && go(At::kExponent);
    case At::kExponent:
      return digit;
  }
  return false;
}

bool NumberScanner::is_complete() const {
  return at_ == At::kZero || at_ == At::kDigits || at_ == At::kFraction || at_ == At::kExponent;
}

JsonScanner::Step JsonScanner::Open(bool is_object) {
  if (depth_ == kCallDepthMax) return Step::kTooDeep;
  const uint64_t bit = uint64_t{1} << depth_++;
  objects_ = is_object ? objects_ | bit : objects_ & ~bit;
  at_ = is_object ? At::kKeyOrEnd : At::kValueOrEnd;
  return Step::kMore;
}

JsonScanner::Step JsonScanner::Close(bool is_object) {
  if (depth_ == 0 || in_object() != is_object) return Step::kWrong;
  --depth_;
  EndValue();
  return depth_ == 0 ? Step::kDone : Step::kMore;
}

JsonScanner::Step JsonScanner::BeginValue(char byte) {
  if (byte == '{' || byte == '[') return Open(byte == '{');
  if (depth_ == 0) return Step::kWrong;
  if (byte == '"') {
    string_is_key_ = false;
    at_ = At::kString;
    return Step::kMore;
  }
  word_left_ = byte == 't' ? "rue" : byte == 'f' ? "alse" : byte == 'n' ? "ull" : nullptr;
  if (word_left_ != nullptr) {
    at_ = At::kWord;
    return Step::kMore;
  }
  number_.Reset();
  at_ = At::kNumber;
  return number_.Push(byte) ? Step::kMore : Step::kWrong;
}

JsonScanner::Step JsonScanner::StringByte(char byte) {
  if (at_ == At::kEscape) {
    at_ = byte == 'u' ? At::kHex : At::kString;
    hex_left_ = 4;
    const bool known = byte == '"' || byte == '\\' || byte == '/' || byte == 'b' || byte == 'f' ||
                       byte == 'n' || byte == 'r' || byte == 't' || byte == 'u';
    return known ? Step::kMore : Step::kWrong;
  }
  if (at_ == At::kHex) {
    if (--hex_left_ == 0) at_ = At::kString;
    return IsHexDigit(byte) ? Step::kMore : Step::kWrong;
  }
  if (byte == '\\') {
    at_ = At::kEscape;
  } else if (byte == '"') {
    at_ = string_is_key_ ? At::kColon : At::kCommaOrEnd;
  } else if (static_cast<unsigned char>(byte) < 0x20) {
    return Step::kWrong;
  }
  return Step::kMore;
}

JsonScanner::Step JsonScanner::Structure(char byte) {
  if (IsJsonSpace(byte)) return Step::kMore;
  switch (at_) {
    case At::kValueOrEnd:
      if (byte == ']') return Close(false);
      [[fallthrough]];
    case At::kStart:
    case At::kValue:
      return BeginValue(byte);
    case At::kKeyOrEnd:
      if (byte == '}') return Close(true);
      [[fallthrough]];
    case At::kKey:
      if (byte != '"') return Step::kWrong;
      string_is_key_ = true;
      at_ = At::kString;
      return Step::kMore;
    case At::kColon:
      at_ = At::kValue;
      return byte == ':' ? Step::kMore : Step::kWrong;
    case At::kCommaOrEnd:
      if (byte == '}' || byte == ']') return Close(byte == '}');
      at_ = in_object() ? At::kKey : At::kValue;
      return byte == ',' ? Step::kMore : Step::kWrong;
    default:
      return Step::kWrong;
  }
}

JsonScanner::Step JsonScanner::Push(char byte) {
  if (is_in_string()) return StringByte(byte);
  if (at_ == At::kWord) {
    if (byte != *word_left_) return Step::kWrong;
    if (*++word_left_ == '\0') EndValue();
    return Step::kMore;
  }
  if (at_ == At::kNumber) {
    if (number_.Push(byte)) return Step::kMore;
    if (!number_.is_complete()) return Step::kWrong;
    EndValue();
  }
  return Structure(byte);
}

}  // namespace kairos
