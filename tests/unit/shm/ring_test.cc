// SPDX-License-Identifier: Apache-2.0
#include "shm/ring.h"

#include <deque>
#include <random>
#include <utility>

#include <gtest/gtest.h>

#include "tests/unit/shm/ring_pair.h"

namespace kairos {
namespace {

TEST(Ring, DeliversWhatWasPublished) {
  RingPair ring;
  RingMessage message;

  ASSERT_EQ(ring.Push(3, 77, "hello"), PushResult::kDone);
  (void)ring.producer.Publish();

  ASSERT_EQ(ring.Poll(&message), PollResult::kMessage);
  EXPECT_EQ(message.type, 3);
  EXPECT_EQ(message.request_id, 77u);
  EXPECT_EQ(TextOf(message), "hello");
  EXPECT_EQ(ring.Poll(&message), PollResult::kEmpty);
}

TEST(Ring, HidesRecordOfProducerThatDiedBeforePublish) {
  RingPair ring;
  RingMessage message;

  ASSERT_EQ(ring.Push(3, 1, "copied and committed, never published"), PushResult::kDone);
  EXPECT_EQ(ring.Poll(&message), PollResult::kEmpty);

  // Another producer takes over from the last published position, as after a restart.
  RingProducer successor(
      {ring.producer_words.get(), ring.consumer_words.get(), ring.bytes, kRingBytesMin, 0});
  const std::string text = "second life";
  OutgoingMessage outgoing{4, 2, std::as_bytes(std::span(text)), 0};
  ASSERT_EQ(successor.Push(&outgoing), PushResult::kDone);
  (void)successor.Publish();
  ASSERT_EQ(ring.Poll(&message), PollResult::kMessage);
  EXPECT_EQ(TextOf(message), "second life");
}

TEST(Ring, ForgetsAbortedClaim) {
  RingPair ring;
  RingMessage message;

  std::byte* claim = ring.producer.Claim(100);
  ASSERT_NE(claim, nullptr);
  std::memset(claim, 0xff, 100);
  ring.producer.Abort();
  ASSERT_EQ(ring.Push(1, 5, "after"), PushResult::kDone);
  (void)ring.producer.Publish();

  ASSERT_EQ(ring.Poll(&message), PollResult::kMessage);
  EXPECT_EQ(TextOf(message), "after");
}

TEST(Ring, RefusesEmptyAndOversizeMessages) {
  RingPair ring(kRingBytesMin, 0, 1000);

  EXPECT_EQ(ring.Push(1, 1, ""), PushResult::kEmpty);
  EXPECT_EQ(ring.Push(1, 1, std::string(1001, 'x')), PushResult::kTooLarge);
  EXPECT_EQ(ring.Push(1, 1, std::string(1000, 'x')), PushResult::kDone);
  EXPECT_EQ(ring.producer.Claim(ring.producer.frame_payload_max() + 1), nullptr);
}

TEST(Ring, SaysFullAndContinuesWhenBytesAreReleased) {
  RingPair ring;
  RingMessage message;
  const std::string text(4000, 'a');
  int pushed = 0;

  while (ring.Push(1, static_cast<uint64_t>(pushed), text) == PushResult::kDone) ++pushed;
  (void)ring.producer.Publish();
  EXPECT_EQ(pushed, 16);
  ASSERT_EQ(ring.Poll(&message), PollResult::kMessage);
  EXPECT_EQ(ring.Push(1, 99, text), PushResult::kFull);
  (void)ring.consumer.Release();

  EXPECT_EQ(ring.Push(1, 99, text), PushResult::kDone);
}

TEST(Ring, CarriesMessageLargerThanItself) {
  RingPair ring;
  std::string text(300'000, 0);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 >> 3);
  OutgoingMessage outgoing{2, 9, std::as_bytes(std::span(text)), 0};
  RingMessage message;
  PollResult polled = PollResult::kEmpty;
  int rounds = 0;

  PushResult pushed = PushResult::kFull;
  while (polled != PollResult::kMessage && rounds++ < 100) {
    if (pushed == PushResult::kFull) pushed = ring.producer.Push(&outgoing);
    (void)ring.producer.Publish();
    polled = ring.Poll(&message);
    (void)ring.consumer.Release();
  }

  ASSERT_EQ(polled, PollResult::kMessage);
  EXPECT_GT(rounds, 4);
  EXPECT_EQ(TextOf(message), text);
}

TEST(Ring, DropsBegunMessageOnAbortFrame) {
  RingPair ring;
  const std::string text(100'000, 'q');
  OutgoingMessage outgoing{2, 9, std::as_bytes(std::span(text)), 0};
  RingMessage message;

  ASSERT_EQ(ring.producer.Push(&outgoing), PushResult::kFull);
  (void)ring.producer.Publish();
  EXPECT_EQ(ring.Poll(&message), PollResult::kEmpty);
  EXPECT_TRUE(ring.consumer.in_message());
  (void)ring.consumer.Release();
  ASSERT_EQ(ring.producer.PushAbort(2, 9), PushResult::kDone);
  ASSERT_EQ(ring.Push(3, 10, "next"), PushResult::kDone);
  (void)ring.producer.Publish();

  ASSERT_EQ(ring.Poll(&message), PollResult::kMessage);
  EXPECT_EQ(message.request_id, 10u);
  EXPECT_EQ(TextOf(message), "next");
}

TEST(Ring, ReportsOversizeMessageAndGoesOn) {
  RingPair ring(kRingBytesMin, 0, kMessageBytesMax);
  ring.consumer = RingConsumer(
      {ring.consumer_words.get(), ring.producer_words.get(), ring.bytes, kRingBytesMin, 0},
      FrameTypes{1, 20}, 10'000);
  RingMessage message;

  ASSERT_EQ(ring.Push(2, 9, std::string(20'000, 'z')), PushResult::kDone);
  ASSERT_EQ(ring.Push(2, 10, "small"), PushResult::kDone);
  (void)ring.producer.Publish();

  ASSERT_EQ(ring.Poll(&message), PollResult::kOversize);
  EXPECT_EQ(message.request_id, 9u);
  EXPECT_TRUE(message.payload.empty());
  EXPECT_LE(ring.consumer.buffer_bytes(), 10'000u);
  ASSERT_EQ(ring.Poll(&message), PollResult::kMessage);
  EXPECT_EQ(TextOf(message), "small");
}

TEST(Ring, SpendsNoMoreFramesThanTheVisitAllows) {
  RingPair ring;
  for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(ring.Push(1, i, "x"), PushResult::kDone);
  (void)ring.producer.Publish();
  RingMessage message;
  uint32_t frames = 3;
  int taken = 0;

  while (ring.consumer.Poll(&frames, &message) == PollResult::kMessage) ++taken;

  EXPECT_EQ(taken, 3);
  EXPECT_EQ(frames, 0u);
  EXPECT_TRUE(ring.consumer.HasMore());
}

TEST(Ring, RingsSleepingConsumerOncePerSleep) {
  RingPair ring;
  RingMessage message;

  ASSERT_EQ(ring.Push(1, 1, "awake"), PushResult::kDone);
  EXPECT_FALSE(ring.producer.Publish());
  ASSERT_EQ(ring.Poll(&message), PollResult::kMessage);
  ASSERT_TRUE(ring.consumer.PrepareSleep());
  ASSERT_EQ(ring.Push(1, 2, "asleep"), PushResult::kDone);
  EXPECT_TRUE(ring.producer.Publish());
  ASSERT_EQ(ring.Push(1, 3, "asleep still"), PushResult::kDone);
  EXPECT_FALSE(ring.producer.Publish());
  ring.consumer.FinishSleep();
  EXPECT_FALSE(ring.consumer.PrepareSleep()) << "there are two messages";
  ring.consumer.FinishSleep();
}

TEST(Ring, RingsProducerThatWaitsForRoom) {
  RingPair ring;
  RingMessage message;
  const std::string text(4000, 'a');
  while (ring.Push(1, 1, text) == PushResult::kDone) {
  }
  (void)ring.producer.Publish();

  ASSERT_TRUE(ring.producer.PrepareWait(5000));
  ASSERT_EQ(ring.Poll(&message), PollResult::kMessage);
  ASSERT_EQ(ring.Poll(&message), PollResult::kMessage);
  EXPECT_TRUE(ring.consumer.Release());
  EXPECT_FALSE(ring.consumer.Release()) << "one doorbell per wait";
  EXPECT_FALSE(ring.producer.PrepareWait(5000)) << "there is room now";
  ring.producer.FinishWait();
}

TEST(Ring, BreaksProducerWhenConsumerPositionIsImpossible) {
  for (const uint64_t head : {uint64_t{8}, uint64_t{1} << 40, ~uint64_t{7}, uint64_t{4}}) {
    RingPair ring;
    const std::string text(4000, 'a');
    if (head == 4) {
      ASSERT_EQ(ring.Push(1, 1, text), PushResult::kDone);
      (void)ring.producer.Publish();
    }
    ring.consumer_words->head = head;

    PushResult pushed = PushResult::kDone;
    for (int i = 0; i < 20 && pushed == PushResult::kDone; ++i) pushed = ring.Push(1, 1, text);

    EXPECT_EQ(pushed, PushResult::kBroken) << head;
    EXPECT_TRUE(ring.producer.broken());
  }
}

// Random operations against a deque, started at positions where narrower arithmetic would break.
class RingModel : public testing::TestWithParam<uint64_t> {};

TEST_P(RingModel, MatchesDequeOverRandomOperations) {
  const uint64_t seed = 20240 + GetParam();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  RingPair ring(kRingBytesMin, GetParam(), 100'000);
  std::deque<std::pair<uint64_t, std::string>> published, committed;
  uint64_t next_id = 1, delivered = 0;
  RingMessage message;

  for (int step = 0; step < 60'000; ++step) {
    const uint64_t dice = random() % 100;
    if (dice < 45) {
      const size_t size = dice < 2 ? 1 + random() % 40'000 : 1 + random() % 3'000;
      const std::string text(size, static_cast<char>('a' + random() % 26));
      const bool fits = ring.producer.Fits(size);
      if (!fits) continue;
      ASSERT_EQ(ring.Push(1 + next_id % 20, next_id, text), PushResult::kDone);
      committed.emplace_back(next_id++, text);
    } else if (dice < 50) {
      if (ring.producer.Claim(static_cast<uint32_t>(random() % 4000)) != nullptr) {
        ring.producer.Abort();
      }
    } else if (dice < 70) {
      (void)ring.producer.Publish();
      for (auto& one : committed) published.push_back(std::move(one));
      committed.clear();
    } else {
      const PollResult polled = ring.Poll(&message);
      ASSERT_EQ(polled == PollResult::kMessage, !published.empty())
          << "violation " << ViolationName(ring.consumer.violation()) << " step " << step;
      if (polled == PollResult::kMessage) {
        ASSERT_EQ(message.request_id, published.front().first);
        ASSERT_EQ(message.type, 1 + message.request_id % 20);
        ASSERT_EQ(TextOf(message), published.front().second);
        published.pop_front();
        ++delivered;
      }
      if (random() % 2 == 0) (void)ring.consumer.Release();
    }
  }

  EXPECT_GT(delivered, 5'000u);
  EXPECT_GT(ring.consumer.head() - GetParam(), 20 * kRingBytesMin) << "wrapped often";
}

INSTANTIATE_TEST_SUITE_P(
    StartPositions, RingModel,
    testing::Values(0, (uint64_t{1} << 32) - 8, (uint64_t{1} << 32) - 40'000,
                    (uint64_t{1} << 63) - 8, (uint64_t{1} << 63) - 40'000, ~uint64_t{0} - 7,
                    ~uint64_t{0} - 39'999));

TEST(Ring, SkipsLastEightBytesWhenNoHeaderFitsThere) {
  RingPair ring;
  RingMessage message;
  // 15 frames of 4096 bytes and one of 4088 leave exactly 8 bytes before the end.
  for (int round = 0; round < 16; ++round) {
    const size_t payload = (round == 15 ? 4088 : 4096) - sizeof(FrameHeader);
    ASSERT_EQ(ring.Push(1, 1, std::string(payload, 'p')), PushResult::kDone);
    (void)ring.producer.Publish();
    ASSERT_EQ(ring.Poll(&message), PollResult::kMessage);
    (void)ring.consumer.Release();
  }
  ASSERT_EQ(ring.consumer.head(), kRingBytesMin - 8);

  ASSERT_EQ(ring.Push(1, 2, "wrapped"), PushResult::kDone);
  (void)ring.producer.Publish();

  ASSERT_EQ(ring.Poll(&message), PollResult::kMessage);
  EXPECT_EQ(TextOf(message), "wrapped");
  EXPECT_EQ(ring.consumer.head(), kRingBytesMin + 24);
}

}  // namespace
}  // namespace kairos
