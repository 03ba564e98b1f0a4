// SPDX-License-Identifier: Apache-2.0
#include "sidecar/control/zmtp_framing.h"

#include <algorithm>

namespace kairos {
namespace {

constexpr uint8_t kGreetingBytes = 64;
constexpr uint8_t kMore = 1;
constexpr uint8_t kLong = 2;
constexpr uint8_t kCommand = 4;

}  // namespace

bool ZmtpFraming::TakeGreetingByte(uint8_t byte) {
  // The signature's first and last byte, and the major version; the rest is libzmq's to judge.
  const uint8_t at = greeting_at_++;
  if (at == 0 && byte != 0xff) return false;
  if (at == 9 && byte != 0x7f) return false;
  if (at == 10 && byte < 3) return false;
  if (greeting_at_ == kGreetingBytes) expects_ = Expects::kFlags;
  return true;
}

bool ZmtpFraming::TakeFlags(uint8_t flags) {
  if ((flags & ~(kMore | kLong | kCommand)) != 0) return false;
  if ((flags & kCommand) != 0 && (flags & kMore) != 0) return false;
  flags_ = flags;
  size_ = 0;
  size_bytes_left_ = (flags & kLong) != 0 ? 8 : 1;
  expects_ = Expects::kSize;
  return true;
}

bool ZmtpFraming::TakeSizeByte(uint8_t byte) {
  size_ = size_ << 8 | byte;
  return --size_bytes_left_ != 0 || BeginPayload();
}

bool ZmtpFraming::BeginPayload() {
  if ((flags_ & kCommand) != 0) {
    if (size_ > kCommandBytesMax) return false;
  } else {
    if (++frames_ > kFramesMax || size_ > message_bytes_max_ - message_bytes_) return false;
    message_bytes_ += size_;
    if ((flags_ & kMore) == 0) {
      frames_ = 0;
      message_bytes_ = 0;
    }
  }
  payload_left_ = size_;
  expects_ = size_ == 0 ? Expects::kFlags : Expects::kPayload;
  return true;
}

bool ZmtpFraming::Take(std::string_view bytes) {
  while (!bytes.empty()) {
    if (expects_ == Expects::kPayload) {
      const auto skipped = static_cast<size_t>(std::min<uint64_t>(payload_left_, bytes.size()));
      bytes.remove_prefix(skipped);
      payload_left_ -= skipped;
      if (payload_left_ == 0) expects_ = Expects::kFlags;
      continue;
    }
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    const bool good = expects_ == Expects::kGreeting ? TakeGreetingByte(byte)
                      : expects_ == Expects::kFlags  ? TakeFlags(byte)
                                                     : TakeSizeByte(byte);
    if (!good) return false;
  }
  return true;
}

}  // namespace kairos
