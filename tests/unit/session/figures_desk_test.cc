// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/figures_desk.h"

#include <gtest/gtest.h>

#include <thread>

namespace kairos {
namespace {

constexpr uint64_t kHangMs = 120'000;  // a hang, not a measure

// What the conductor does in a round.
bool Answer(FiguresDesk& desk, double value) {
  const std::optional<uint64_t> ticket = desk.TakeQuestion();
  if (ticket) desk.Reply(*ticket, {{"sessions", value}});
  return ticket.has_value();
}

TEST(FiguresDesk, GivesUpWhereNobodyAnswers) {
  FiguresDesk desk;
  Waker conductor;
  EXPECT_FALSE(desk.Read(conductor, 1).has_value());
}

TEST(FiguresDesk, NeverTakesTheAnswerToAQuestionThatWasGivenUp) {
  FiguresDesk desk;
  Waker conductor;
  ASSERT_FALSE(desk.Read(conductor, 1).has_value());
  ASSERT_TRUE(Answer(desk, 1));
  EXPECT_FALSE(desk.Read(conductor, 1).has_value());
}

TEST(FiguresDesk, IsNotFilledByReadersThatGiveUp) {
  FiguresDesk desk;
  Waker conductor;
  for (int i = 0; i < 20; ++i) {
    desk.Read(conductor, 0);
    while (Answer(desk, i)) {
    }
  }
  std::thread answerer([&] {
    while (!Answer(desk, 42)) {
      conductor.Prepare();
      conductor.Sleep(1);
      conductor.Finish();
    }
  });
  const std::optional<Figures> figures = desk.Read(conductor, kHangMs);
  answerer.join();
  ASSERT_TRUE(figures.has_value());
  EXPECT_EQ(figures->at(0).second, 42);
}

TEST(FiguresDesk, AnswersEveryQuestionOfAReaderInItsOwnThread) {
  FiguresDesk desk;
  Waker conductor;
  constexpr int kReadings = 1000;
  std::thread reader([&] {
    for (int i = 0; i < kReadings; ++i) EXPECT_TRUE(desk.Read(conductor, kHangMs).has_value());
  });
  for (int answered = 0; answered < kReadings;) {
    conductor.Prepare();
    if (Answer(desk, answered)) {
      ++answered;
    } else {
      conductor.Sleep(10);
    }
    conductor.Finish();
  }
  reader.join();
}

}  // namespace
}  // namespace kairos
