// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/reply_parts.h"

#include <gtest/gtest.h>

namespace kairos {
namespace {

std::vector<ReplyPart> Kept(std::vector<ReplyPart> parts) {
  std::vector<ReplyPart> kept;
  for (ReplyPart& part : parts) KeepPart(std::move(part), &kept);
  return kept;
}

std::string Show(const std::vector<ReplyPart>& parts) {
  std::string shown;
  for (const ReplyPart& part : parts) {
    shown += std::to_string(static_cast<int>(part.kind)) + "," + std::to_string(part.detail) + "," +
             part.text + ";";
  }
  return shown;
}

TEST(ReplyParts, ComeBackAsTheyWereWritten) {
  const std::vector<ReplyPart> parts = {
      {ReplyKind::kReasoning, 0, "two\nlines", {}},
      {ReplyKind::kText, 0, "text \"quoted\" \x1e \xE4\xBD\xA0", {}},
      {ReplyKind::kToolCall, 0, R"({"id":"call_1_0","name":"f","arguments":{}})", "f"},
      {ReplyKind::kText, 20, "<tool_call>{", {}},
  };

  EXPECT_EQ(Show(ReadParts(WriteParts(parts))), Show(parts));
}

TEST(ReplyParts, AreTheTextItselfWhereThereIsNothingElse) {
  const std::vector<ReplyPart> parts = {{ReplyKind::kText, 0, "[1, 2]\n", {}}};

  EXPECT_EQ(WriteParts(parts), "[1, 2]\n");
  EXPECT_EQ(Show(ReadParts("[1, 2]\n")), Show(parts));
  EXPECT_EQ(WriteParts({}), "");
  EXPECT_TRUE(ReadParts("").empty());
}

TEST(ReplyParts, KeepTextThatLooksLikeASequence) {
  const std::vector<ReplyPart> parts = {{ReplyKind::kText, 0, "\x1e{\"reasoning\":\"x\"}\n", {}}};

  EXPECT_EQ(Show(ReadParts(WriteParts(parts))), Show(parts));
  EXPECT_EQ(Show(ReadParts("\x1e no sequence")), "1,0,\x1e no sequence;");
}

TEST(ReplyParts, JoinNeighboursOfOneKindButNoBrokenCalls) {
  const std::vector<ReplyPart> kept = Kept({
      {ReplyKind::kText, 0, "a", {}}, {ReplyKind::kText, 0, "", {}},
      {ReplyKind::kText, 0, "b", {}}, {ReplyKind::kText, 16, "c", {}},
      {ReplyKind::kText, 0, "d", {}}, {ReplyKind::kReasoning, 0, "e", {}},
      {ReplyKind::kReasoning, 0, "f", {}}, {ReplyKind::kToolCall, 0, "{}", "g"},
      {ReplyKind::kToolCall, 0, "{}", "g"},
  });

  EXPECT_EQ(Show(kept), "1,0,ab;1,16,c;1,0,d;2,0,ef;3,0,{};3,0,{};");
}

}  // namespace
}  // namespace kairos
