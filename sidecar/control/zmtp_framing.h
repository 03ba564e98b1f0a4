// SPDX-License-Identifier: Apache-2.0
// Follows what a ZeroMQ peer sends (ZMTP 3, RFC 23) far enough to bound it: the greeting, then
// frames. Holds no bytes. Of one connection; one thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace kairos {

class ZmtpFraming {
 public:
  // Frames of one message, and their payloads together.
  static constexpr uint32_t kFramesMax = 8;
  // Of a command: the handshake's properties, heartbeats.
  static constexpr uint64_t kCommandBytesMax = 4096;

  explicit ZmtpFraming(uint64_t message_bytes_max) : message_bytes_max_(message_bytes_max) {}

  // The next bytes. False: they are no ZMTP 3, or a message is over a limit; the peer is to be
  // dropped and nothing more to be passed.
  [[nodiscard]] bool Take(std::string_view bytes);

 private:
  enum class Expects : uint8_t { kGreeting, kFlags, kSize, kPayload };

  bool TakeGreetingByte(uint8_t byte);
  bool TakeFlags(uint8_t flags);
  bool TakeSizeByte(uint8_t byte);
  bool BeginPayload();

  uint64_t message_bytes_max_;
  Expects expects_ = Expects::kGreeting;
  uint8_t flags_ = 0;
  uint8_t greeting_at_ = 0;
  uint8_t size_bytes_left_ = 0;
  uint32_t frames_ = 0;         // of the message, this one included
  uint64_t message_bytes_ = 0;  // of its payloads so far
  uint64_t size_ = 0;
  uint64_t payload_left_ = 0;
};

}  // namespace kairos
