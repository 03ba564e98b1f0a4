// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/history_match.h"

#include <gtest/gtest.h>

namespace kairos {
namespace {

ChatMessage Message(const char* role, const char* content) {
  ChatMessage message;
  message.role = role;
  message.content = content;
  return message;
}

HistoryMatch Match(const StateVersion& stored, std::span<const ChatMessage> resent) {
  return MatchHistory(stored, resent, WireFormatOf(WireFamily::kHermes));
}

StateVersion Stored() {
  StateVersion stored;
  stored.messages = {{Message("system", "be brief"), 10, false},
                     {Message("user", "hello"), 20, false},
                     {Message("assistant", "hi"), 25, false}};
  stored.tokens.resize(25);
  return stored;
}

TEST(HistoryMatch, KeepsEverythingWhenTheHistoryIsResentUnchanged) {
  const std::vector<ChatMessage> resent{Message("system", "be brief"), Message("user", "hello"),
                                        Message("assistant", "hi"), Message("user", "more")};

  const HistoryMatch match = Match(Stored(), resent);

  EXPECT_EQ(match.kept_messages, 3u);
  EXPECT_EQ(match.kept_tokens, 25u);
  EXPECT_EQ(match.added_begin, 3u);
  EXPECT_EQ(match.first_difference, -1);
}

TEST(HistoryMatch, CutsTheLogAtTheFirstDifferentMessage) {
  const std::vector<ChatMessage> resent{Message("system", "be brief"), Message("user", "goodbye"),
                                        Message("assistant", "hi"), Message("user", "more")};

  const HistoryMatch match = Match(Stored(), resent);

  EXPECT_EQ(match.kept_messages, 1u);
  EXPECT_EQ(match.kept_tokens, 10u);
  EXPECT_EQ(match.added_begin, 1u);
  EXPECT_EQ(match.first_difference, 1);
}

TEST(HistoryMatch, AppendsTheLastMessageAgainWhenAnotherAnswerIsAsked) {
  const std::vector<ChatMessage> resent{Message("system", "be brief"), Message("user", "hello")};

  const HistoryMatch match = Match(Stored(), resent);

  EXPECT_EQ(match.kept_messages, 1u);
  EXPECT_EQ(match.added_begin, 1u);
  EXPECT_EQ(match.first_difference, 1);
}

TEST(HistoryMatch, KeepsNothingOfAnUnrelatedHistory) {
  const std::vector<ChatMessage> resent{Message("user", "unrelated")};

  const HistoryMatch match = Match(Stored(), resent);

  EXPECT_EQ(match.kept_messages, 0u);
  EXPECT_EQ(match.kept_tokens, 0u);
  EXPECT_EQ(match.first_difference, 0);
}

TEST(HistoryMatch, ComparesToolFieldsToo) {
  StateVersion stored = Stored();
  stored.messages[1].message.tool_call_id = "call_1";
  const std::vector<ChatMessage> resent{Message("system", "be brief"), Message("user", "hello"),
                                        Message("user", "x")};

  EXPECT_EQ(Match(stored, resent).first_difference, 1);
}

TEST(HistoryMatch, KnowsAResultAgainWithoutTheIdAndNameThatWereFilledIn) {
  StateVersion stored = Stored();
  stored.messages[1].message = {"tool", "noon", "clock", "call_1_0", ""};
  std::vector<ChatMessage> resent{Message("system", "be brief"), Message("tool", "noon"),
                                  Message("assistant", "hi"), Message("user", "more")};

  EXPECT_EQ(Match(stored, resent).first_difference, -1);

  resent[1].name = "watch";
  EXPECT_EQ(Match(stored, resent).first_difference, 1);
  resent[1] = Message("tool", "one");
  EXPECT_EQ(Match(stored, resent).first_difference, 1);
}

TEST(HistoryMatch, KnowsACallAgainThatComesBackAsData) {
  StateVersion stored = Stored();
  stored.messages[2].message.content =
      "Let me look. <tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\": 1}}\n</tool_call>";
  ChatMessage answer = Message("assistant", "Let me look.");
  answer.tool_calls_json =
      R"([{"id":"call_1_0","type":"function",)"
      R"("function":{"name":"clock","arguments":"{\"zone\":1}"}}])";
  const std::vector<ChatMessage> resent{Message("system", "be brief"), Message("user", "hello"),
                                        answer, Message("tool", "noon")};

  EXPECT_EQ(Match(stored, resent).kept_messages, 3u);

  std::vector<ChatMessage> other = resent;
  other[2].tool_calls_json = R"([{"name":"clock","arguments":{"zone":2}}])";
  EXPECT_EQ(Match(stored, other).first_difference, 2);
}

TEST(HistoryMatch, KnowsAnAnswerAgainWithoutItsReasoning) {
  StateVersion stored = Stored();
  stored.messages[2].message.content = "<think>\nSay hello.\n</think>\n\nhi";
  std::vector<ChatMessage> resent{Message("system", "be brief"), Message("user", "hello"),
                                  Message("assistant", "hi"), Message("user", "more")};

  EXPECT_EQ(Match(stored, resent).kept_messages, 3u);

  resent[2].content = "ho";
  EXPECT_EQ(Match(stored, resent).first_difference, 2);
}

TEST(HistoryMatch, KnowsACallAgainThatWasToldAsTextBecauseItsToolIsUnknown) {
  StateVersion stored = Stored();
  stored.tools_json = R"([{"type":"function","function":{"name":"clock"}}])";
  stored.messages[2].message.content =
      "<tool_call>{\"name\":\"sun\",\"arguments\":{}}</tool_call>"
      "<tool_call>{\"name\":\"clock\",\"arguments\":{}}</tool_call>";
  ChatMessage answer =
      Message("assistant", "<tool_call>{\"name\":\"sun\",\"arguments\":{}}</tool_call>");
  answer.tool_calls_json = R"([{"name":"clock","arguments":{}}])";
  const std::vector<ChatMessage> resent{Message("system", "be brief"), Message("user", "hello"),
                                        answer, Message("tool", "noon")};

  EXPECT_EQ(Match(stored, resent).kept_messages, 3u);
}

TEST(HistoryMatch, TakesNoOtherTextForAPlainAnswer) {
  std::vector<ChatMessage> resent{Message("system", "be brief"), Message("user", "hello"),
                                  Message("assistant", "hi "), Message("user", "more")};

  EXPECT_EQ(Match(Stored(), resent).first_difference, 2);
}

TEST(HistoryMatch, StartingOverKeepsLeadingSystemMessagesOnly) {
  const HistoryMatch match = KeepSystemOnly(Stored());

  EXPECT_EQ(match.kept_messages, 1u);
  EXPECT_EQ(match.kept_tokens, 10u);
}

}  // namespace
}  // namespace kairos
