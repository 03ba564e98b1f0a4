// SPDX-License-Identifier: Apache-2.0
// Both ends of one ring in plain memory, for tests.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "shm/ring.h"

namespace kairos {

struct RingPair {
  explicit RingPair(uint64_t capacity = kRingBytesMin, uint64_t start = 0,
                    uint64_t message_bytes_max = kMessageBytesMax)
      : producer_words(std::make_unique<WriterWords>()),
        consumer_words(std::make_unique<WriterWords>()),
        memory(capacity / sizeof(uint64_t)) {
    *producer_words = {start, start, 0, 0};
    *consumer_words = {start, start, 0, 0};
    bytes = reinterpret_cast<std::byte*>(memory.data());
    producer = RingProducer({producer_words.get(), consumer_words.get(), bytes, capacity, start},
                            message_bytes_max);
    consumer = RingConsumer({consumer_words.get(), producer_words.get(), bytes, capacity, start},
                            FrameTypes{1, 20}, message_bytes_max);
  }

  PushResult Push(uint16_t type, uint64_t id, const std::string& text) {
    OutgoingMessage message{type, id, std::as_bytes(std::span(text)), 0};
    return producer.Push(&message);
  }

  PollResult Poll(RingMessage* message) {
    uint32_t frames = 1u << 20;
    return consumer.Poll(&frames, message);
  }

  std::unique_ptr<WriterWords> producer_words;
  std::unique_ptr<WriterWords> consumer_words;
  std::vector<uint64_t> memory;
  std::byte* bytes = nullptr;
  RingProducer producer;
  RingConsumer consumer;
};

inline std::string TextOf(const RingMessage& message) {
  return {reinterpret_cast<const char*>(message.payload.data()), message.payload.size()};
}

}  // namespace kairos
