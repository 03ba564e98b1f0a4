// SPDX-License-Identifier: Apache-2.0
// Follows JSON text byte by byte and says at once where it can no longer be JSON. Keeps no text and
// decodes nothing: UTF-8 and pairs of surrogates are for a parser to check.
// Owned by one reader; not thread-safe. Constant memory and time per byte.
#pragma once

#include <cstdint>

namespace kairos {

inline constexpr uint32_t kCallDepthMax = 64;

// One number as JSON writes it.
class NumberScanner {
 public:
  void Reset() { at_ = At::kStart; }
  // False when the byte does not continue the number; it is then not taken.
  bool Push(char byte);
  // Whether what was taken is a number.
  bool is_complete() const;

 private:
  enum class At : uint8_t {
    kStart, kMinus, kZero, kDigits, kPoint, kFraction, kE, kSign, kExponent
  };
  At at_ = At::kStart;
};

// One object or array.
class JsonScanner {
 public:
  enum class Step : uint8_t { kMore, kDone, kWrong, kTooDeep };
  enum class At : uint8_t {
    kStart, kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kCommaOrEnd, kString, kEscape, kHex,
    kNumber, kWord, kEnd
  };

  // kDone with the byte that closes the outermost bracket. After kWrong or kTooDeep no byte may
  // follow.
  Step Push(char byte);
  // Brackets that are open.
  uint32_t depth() const { return depth_; }
  At at() const { return at_; }
  // Inside a string, its opening quote taken and its closing one not: whether it is a key.
  bool is_in_key() const { return is_in_string() && string_is_key_; }
  bool is_in_string() const {
    return at_ == At::kString || at_ == At::kEscape || at_ == At::kHex;
  }

 private:
  Step Open(bool is_object);
  Step Close(bool is_object);
  Step Structure(char byte);
  Step BeginValue(char byte);
  Step StringByte(char byte);
  void EndValue() { at_ = depth_ == 0 ? At::kEnd : At::kCommaOrEnd; }
  bool in_object() const { return (objects_ >> (depth_ - 1) & 1) != 0; }

  uint64_t objects_ = 0;  // bit i: the bracket at depth i + 1 is an object's
  uint32_t depth_ = 0;
  At at_ = At::kStart;
  bool string_is_key_ = false;
  uint8_t hex_left_ = 0;
  const char* word_left_ = nullptr;  // rest of true, false or null
  NumberScanner number_;
};

inline bool IsJsonSpace(char byte) {
  return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

}  // namespace kairos
