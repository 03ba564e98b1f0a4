// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/token_bytes.h"

#include <array>
#include <cstdint>

#include "sidecar/model/gguf.h"

namespace kairos {
namespace {

constexpr int64_t kControlToken = 3;
constexpr int64_t kUserToken = 4;
constexpr int64_t kByteToken = 6;
constexpr uint32_t kAlphabet = 324;  // one past the last code point of the byte-level alphabet

// Byte of each code point of the byte-level alphabet, or -1: printable bytes stand for themselves,
// the others follow from U+0100 in order.
std::array<int16_t, kAlphabet> MakeAlphabet() {
  std::array<int16_t, kAlphabet> bytes;
  bytes.fill(-1);
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    bytes[printable ? byte : next++] = static_cast<int16_t>(byte);
  }
  return bytes;
}

// Code points below U+0800 suffice here; anything else, malformed or not, is kept as it is.
std::string UndoByteLevel(std::string_view text, const std::array<int16_t, kAlphabet>& alphabet) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t lead = static_cast<uint8_t>(text[i]);
    uint32_t point = lead;
    size_t length = 1;
    if (lead >= 0xc2 && lead <= 0xdf && i + 1 < text.size()) {
      point = (lead & 0x1fu) << 6 | (static_cast<uint8_t>(text[i + 1]) & 0x3fu);
      length = 2;
    }
    if ((lead < 0x80 || length == 2) && point < kAlphabet && alphabet[point] >= 0) {
      out += static_cast<char>(alphabet[point]);
    } else {
      out.append(text.substr(i, length));
    }
    i += length - 1;
  }
  return out;
}

std::string UndoSentencePiece(std::string_view text, bool byte_token) {
  constexpr std::string_view kSpaceMark = "\xe2\x96\x81";
  const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  if (byte_token && text.size() == 6) {
    return std::string(1, static_cast<char>(digit(text[3]) * 16 + digit(text[4])));
  }
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (text.substr(i, kSpaceMark.size()) == kSpaceMark) {
      out += ' ';
      i += kSpaceMark.size();
    } else {
      out += text[i++];
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> ReadTokenBytes(const GgufFile& file) {
  const auto tokens = file.StringArray("tokenizer.ggml.tokens");
  const auto types = file.IntegerArray("tokenizer.ggml.token_type");
  if (!tokens) return {};
  const bool byte_level = file.String("tokenizer.ggml.model").value_or("") == "gpt2";
  const std::array<int16_t, kAlphabet> alphabet = MakeAlphabet();
  std::vector<std::string> out;
  out.reserve(tokens->size());
  for (size_t i = 0; i < tokens->size(); ++i) {
    const int64_t type = types && i < types->size() ? (*types)[i] : 1;
    const std::string_view text = (*tokens)[i];
    if (type == kControlToken || type == kUserToken) {
      out.emplace_back(text);
    } else if (byte_level) {
      out.push_back(UndoByteLevel(text, alphabet));
    } else {
      out.push_back(UndoSentencePiece(text, type == kByteToken));
    }
  }
  return out;
}

}  // namespace kairos
