// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/session_watch.h"

#include <gtest/gtest.h>

namespace kairos {
namespace {

constexpr auto kAll = [](uint32_t, const std::string&) { return true; };

std::string Rest(SessionWatch& watch) {
  std::string told;
  while (const auto news = watch.Next()) {
    told += std::to_string(news->to.value) + ":" + std::to_string(news->session.value);
    told += news->skipped ? "+ " : " ";
  }
  return told;
}

TEST(SessionWatch, TellsWatchersInTurn) {
  SessionWatch watch;
  for (uint32_t i = 1; i <= 3; ++i) watch.Subscribe(AttachmentId{i}, 0, "default");
  watch.Note(SessionId{7}, kAll);
  watch.Note(SessionId{8}, kAll);

  EXPECT_EQ(Rest(watch), "1:7 2:7 3:7 1:8 2:8 3:8 ");
}

TEST(SessionWatch, TellsAChangeThatFoundTheLastOneUntoldOnceAndSaysSo) {
  SessionWatch watch;
  watch.Subscribe(AttachmentId{1}, 0, "default");
  watch.Note(SessionId{7}, kAll);
  watch.Note(SessionId{8}, kAll);
  watch.Note(SessionId{7}, kAll);

  EXPECT_EQ(Rest(watch), "1:7+ 1:8 ");
  watch.Note(SessionId{7}, kAll);
  EXPECT_EQ(Rest(watch), "1:7 ") << "what was told is no longer skipped";
}

TEST(SessionWatch, KeepsABoundedNumberOfSessionsAndTellsThatOthersWereLeftOut) {
  SessionWatch watch;
  watch.Subscribe(AttachmentId{1}, 0, "default");
  for (uint64_t i = 1; i <= 10'000; ++i) watch.Note(SessionId{i}, kAll);

  size_t told = 0;
  std::optional<SessionWatch::News> last;
  while (const auto news = watch.Next()) {
    last = news;
    ++told;
  }

  EXPECT_EQ(told, SessionWatch::kUntoldMax);
  EXPECT_EQ(last->session.value, 0u);
  EXPECT_TRUE(last->skipped);
}

TEST(SessionWatch, AsksWhoMayKnowAndForgetsWhoLeft) {
  SessionWatch watch;
  watch.Subscribe(AttachmentId{1}, 5, "a");
  watch.Subscribe(AttachmentId{2}, 6, "b");
  watch.Subscribe(AttachmentId{3}, 6, "b");
  watch.Note(SessionId{7}, [](uint32_t uid, const std::string& name_space) {
    return uid == 6 && name_space == "b";
  });
  watch.Unsubscribe(AttachmentId{3});

  EXPECT_EQ(Rest(watch), "2:7 ");
}

}  // namespace
}  // namespace kairos
