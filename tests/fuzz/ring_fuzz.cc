// SPDX-License-Identifier: Apache-2.0
// A hostile producer: the input is the ring's memory, and how the tail moves over it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "shm/ring.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kairos;
  if (size < 16) return 0;
  uint64_t start = 0;
  std::memcpy(&start, data, sizeof(start));
  start &= ~uint64_t{7};
  const uint8_t* moves = data + 8;  // eight tail moves, in units that reach all of the ring
  data += 16;
  size -= 16;

  static std::vector<uint64_t> memory(kRingBytesMin / 8);
  auto* ring = reinterpret_cast<std::byte*>(memory.data());
  std::fill(memory.begin(), memory.end(), 0);
  for (size_t i = 0; i < std::min<size_t>(size, kRingBytesMin); ++i) {
    ring[(start + i) & (kRingBytesMin - 1)] = static_cast<std::byte>(data[i]);
  }
  WriterWords producer{};
  WriterWords consumer_words{};
  producer.tail = consumer_words.head = start;
  constexpr uint64_t kMessageMax = 20'000;
  RingConsumer consumer({&consumer_words, &producer, ring, kRingBytesMin, start}, {1, 31},
                        kMessageMax);
  const uint64_t reach = (size + 7) & ~uint64_t{7};
  for (int i = 0; i < 8; ++i) {
    producer.tail = moves[i] == 255 ? start + reach : producer.tail + moves[i];
    uint32_t frames = 1000;
    RingMessage message;
    PollResult result;
    while ((result = consumer.Poll(&frames, &message)) == PollResult::kMessage) {
      KAIROS_CHECK(message.payload.size() >= 1 && message.payload.size() <= kMessageMax);
      KAIROS_CHECK(message.type >= 1 && message.type <= 31);
    }
    (void)consumer.Release();
    KAIROS_CHECK(consumer.head() - start <= uint64_t{8} * kRingBytesMin);
    if (result == PollResult::kBroken) {
      KAIROS_CHECK(consumer.violation() != Violation::kNone);
      KAIROS_CHECK(consumer.Poll(&frames, &message) == PollResult::kBroken);
      break;
    }
  }
  return 0;
}
