// SPDX-License-Identifier: Apache-2.0
#include "capi/error.h"

#include <algorithm>
#include <cstring>

namespace kairos {
namespace {

struct LastError {
  int32_t detail = 0;
  uint32_t size = 0;
  char text[512] = {};
};
constinit thread_local LastError last_error;

}  // namespace

int32_t Fail(int32_t code, int32_t detail, std::string_view text) noexcept {
  LastError& error = last_error;
  size_t size = std::min(text.size(), sizeof(error.text) - 1);
  // Continuation bytes of UTF-8 never start a character, so the cut moves back to one that does.
  const auto continues = [&](size_t at) { return (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80; };
  while (size > 0 && size < text.size() && continues(size)) --size;
  std::memcpy(error.text, text.data(), size);
  error.text[size] = '\0';
  error.size = static_cast<uint32_t>(size);
  error.detail = detail;
  return -code;
}

int32_t Fail(const Status& status) noexcept {
  return Fail(static_cast<int32_t>(status.code()), static_cast<int32_t>(status.detail()),
              status.message());
}

int64_t CopyLastError(char* buffer, size_t capacity) noexcept {
  const LastError& error = last_error;
  if (buffer != nullptr && capacity > 0) {
    const size_t size = std::min<size_t>(error.size, capacity - 1);
    std::memcpy(buffer, error.text, size);
    buffer[size] = '\0';
  }
  return error.size;
}

int32_t LastDetail() noexcept { return last_error.detail; }

}  // namespace kairos
