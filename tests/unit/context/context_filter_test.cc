// SPDX-License-Identifier: Apache-2.0
#include "sidecar/context/context_filter.h"

#include <gtest/gtest.h>

#include "sidecar/context/rule_text.h"

namespace kairos {
namespace {

FilterVerdict ClassifyUser(std::string_view text) {
  FilterInput input;
  input.role = "user";
  input.text = text;
  input.phase = KAIROS_PHASE_WAITING_USER;
  return RuleFilter().Classify(input);
}

TEST(ContextFilter, ResetsWhenTheUserAsksToStartOver) {
  for (const char* text : {
           "start over", "Start over.", "START OVER!", "Let\u2019s start over",
           "Let's start again, please", "Okay, let's start over.",
           "This isn't working. Let's start over.", "This isn't working, let's start over",
           "No, start over", "Could we start over please?", "can you please start over",
           "I want to start over", "Please reset the conversation", "Forget everything we said.",
           "Let's start a new conversation.", "ok start from scratch", "Start over, thanks",
           "\uff33\uff54\uff41\uff52\uff54 over\uff01", "Sorry, can we start over?", "重新开始",
           "重新开始吧。", "我们重新开始吧", "从头再来", "从头再来！", "请从头开始", "算了，重新开始", "能不能重新开始？", "这样不行。我们重新来过吧",
           "好的，清空对话",
           "请忘掉之前的对话", "不如从头再来吧", "重来一次", "我想重新开始"}) {
    const FilterVerdict verdict = ClassifyUser(text);
    EXPECT_TRUE(verdict.wants_reset) << text;
    EXPECT_STREQ(verdict.rule, "start_over") << text;
    EXPECT_EQ(verdict.plan, KAIROS_PLAN_FULL_COMPUTE) << text;
    EXPECT_EQ(verdict.label, KAIROS_LABEL_NEW_TOPIC) << text;
  }
}

TEST(ContextFilter, DoesNotResetWhenStartingOverIsOnlySpokenOf) {
  for (const char* text : {
           "Don't start over", "Please do not start over.", "don\u2019t start again",
           "never start over", "You don't need to start over", "There is no need to start over.",
           "Should we start over?", "If it fails, start over", "When the timer rings, start over.",
           "How do I start over in Go?", "Start over the engine",
           "start over with the second paragraph", "restart overnight jobs", "He said: start over",
           "She wants to start over.", "Translate: start over",
           "Translate the following.\nStart over", "What does \"start over\" mean?",
           "\"Start over\"", "`start over`", "> start over\nI disagree with this",
           "Write a poem called Start Over", "Mix the flour, bake it, start over",
           "I lost my job. I want to start over.", "The button says start over",
           "the upstart overture", "Explain this line: start over", "kickstart again",
           "Should I start from scratch or patch it?", "Say the words: let's start over",
           "I had to start over, it took days", "不要重新开始", "别重新开始", "你别重新开始", "不用从头再来", "不需要重新开始",
           "如果失败，重新开始", "怎么重新开始游戏？", "“重新开始”是什么意思", "翻译：重新开始", "《从头再来》是谁唱的", "从头再来是谁唱的", "他说重新开始",
           "重新开始游戏的方法", "请问如何从头开始学习钢琴", "从头开始学英语", "我失业了。我想重新开始。", "千万不要清空对话", "重新启动服务器",
           "重来的人", "把“清空上下文”这几个字打出来"}) {
    const FilterVerdict verdict = ClassifyUser(text);
    EXPECT_FALSE(verdict.wants_reset) << text;
    EXPECT_NE(verdict.plan, KAIROS_PLAN_FULL_COMPUTE) << text;
  }
}

TEST(ContextFilter, DoesNotResetFromInsideALongMessage) {
  std::string document;
  for (int i = 0; i < 20; ++i) document += "This is a line of some pasted report.\n";

  EXPECT_FALSE(ClassifyUser(document + "Start over.").wants_reset);
  EXPECT_FALSE(ClassifyUser("Start over.\n" + document).wants_reset);
  EXPECT_FALSE(ClassifyUser("a. b. c. d. e. f. g. h. i. start over").wants_reset);
}

TEST(ContextFilter, NamesTheRuleOfOtherTurns) {
  const struct {
    const char* text;
    const char* rule;
    int32_t label;
    int32_t plan;
  } table[] = {
      {"Let's change the subject.", "new_topic", KAIROS_LABEL_NEW_TOPIC, KAIROS_PLAN_CONTINUATION},
      {"New topic: what is a monad?", "new_topic", KAIROS_LABEL_NEW_TOPIC,
       KAIROS_PLAN_CONTINUATION},
      {"ok, another question", "new_topic", KAIROS_LABEL_NEW_TOPIC, KAIROS_PLAN_CONTINUATION},
      {"On a different note, how are you?", "new_topic", KAIROS_LABEL_NEW_TOPIC,
       KAIROS_PLAN_CONTINUATION},
      {"换个话题吧", "new_topic", KAIROS_LABEL_NEW_TOPIC, KAIROS_PLAN_CONTINUATION},
      {"我们换个话题，你喜欢什么？", "new_topic", KAIROS_LABEL_NEW_TOPIC, KAIROS_PLAN_CONTINUATION},
      {"另外一个问题：什么是单子？", "new_topic", KAIROS_LABEL_NEW_TOPIC, KAIROS_PLAN_CONTINUATION},
      {"Say that again?", "say_again", KAIROS_LABEL_CLARIFICATION, KAIROS_PLAN_LIGHTWEIGHT_REFINE},
      {"Sorry, could you repeat that please", "say_again", KAIROS_LABEL_CLARIFICATION,
       KAIROS_PLAN_LIGHTWEIGHT_REFINE},
      {"Rephrase that.", "say_again", KAIROS_LABEL_CLARIFICATION, KAIROS_PLAN_LIGHTWEIGHT_REFINE},
      {"Can you explain that more simply?", "say_again", KAIROS_LABEL_CLARIFICATION,
       KAIROS_PLAN_LIGHTWEIGHT_REFINE},
      {"请再说一遍", "say_again", KAIROS_LABEL_CLARIFICATION, KAIROS_PLAN_LIGHTWEIGHT_REFINE},
      {"不好意思，你能再解释一下吗？", "say_again", KAIROS_LABEL_CLARIFICATION,
       KAIROS_PLAN_LIGHTWEIGHT_REFINE},
      {"Use the one above instead.", "the_one_above", KAIROS_LABEL_CLARIFICATION,
       KAIROS_PLAN_CONTINUATION},
      {"As you said, it is cold.", "the_one_above", KAIROS_LABEL_CLARIFICATION,
       KAIROS_PLAN_CONTINUATION},
      {"上面那个更好", "the_one_above", KAIROS_LABEL_CLARIFICATION, KAIROS_PLAN_CONTINUATION},
      {"就用刚才说的方法", "the_one_above", KAIROS_LABEL_CLARIFICATION, KAIROS_PLAN_CONTINUATION},
      {"What is a monad?", "", KAIROS_LABEL_UNKNOWN, KAIROS_PLAN_CONTINUATION},
      {"Do not change the subject", "", KAIROS_LABEL_UNKNOWN, KAIROS_PLAN_CONTINUATION},
      {"Repeat the word tree ten times", "", KAIROS_LABEL_UNKNOWN, KAIROS_PLAN_CONTINUATION},
      {"别换个话题", "", KAIROS_LABEL_UNKNOWN, KAIROS_PLAN_CONTINUATION},
      {"这篇文章的新话题模型是什么", "", KAIROS_LABEL_UNKNOWN, KAIROS_PLAN_CONTINUATION},
      {"was you saidi", "", KAIROS_LABEL_UNKNOWN, KAIROS_PLAN_CONTINUATION},
      {"", "", KAIROS_LABEL_UNKNOWN, KAIROS_PLAN_CONTINUATION},
      {" \n ", "", KAIROS_LABEL_UNKNOWN, KAIROS_PLAN_CONTINUATION},
  };

  for (const auto& row : table) {
    const FilterVerdict verdict = ClassifyUser(row.text);
    EXPECT_STREQ(verdict.rule, row.rule) << row.text;
    EXPECT_EQ(verdict.label, row.label) << row.text;
    EXPECT_EQ(verdict.plan, row.plan) << row.text;
    EXPECT_FALSE(verdict.wants_reset) << row.text;
  }
}

TEST(ContextFilter, ComputesInFullOnFirstTurnWhateverItSays) {
  FilterInput input;
  input.role = "user";
  input.text = "start over";
  input.first_turn = true;

  const FilterVerdict verdict = RuleFilter().Classify(input);

  EXPECT_STREQ(verdict.rule, "first_turn");
  EXPECT_EQ(verdict.plan, KAIROS_PLAN_FULL_COMPUTE);
  EXPECT_FALSE(verdict.wants_reset);
}

TEST(ContextFilter, NeverReadsToolResultsAsRequests) {
  FilterInput input;
  input.role = "tool";
  input.text = "start over";
  EXPECT_STREQ(RuleFilter().Classify(input).rule, "tool_return");
  EXPECT_FALSE(RuleFilter().Classify(input).wants_reset);
  input.role = "assistant";
  EXPECT_FALSE(RuleFilter().Classify(input).wants_reset);
  input.role = "system";
  EXPECT_FALSE(RuleFilter().Classify(input).wants_reset);
  input.role = "user";
  input.text = "The result is 5.";
  input.phase = KAIROS_PHASE_WAITING_TOOL;

  const FilterVerdict verdict = RuleFilter().Classify(input);

  EXPECT_STREQ(verdict.rule, "waiting_tool");
  EXPECT_EQ(verdict.label, KAIROS_LABEL_TOOL_RETURN);
  EXPECT_EQ(verdict.plan, KAIROS_PLAN_CONTINUATION);
}

TEST(RuleText, ToleratesBytesThatAreNotUtf8) {
  for (int lead = 0x80; lead < 0x100; ++lead) {
    for (const char* tail : {"", "\x80", "\xff", "\x80\x80", "a"}) {
      const std::string text = std::string(1, static_cast<char>(lead)) + tail;
      const RuleText folded = FoldForRules(text);
      EXPECT_LE(folded.clauses.size(), kRuleClausesMax) << lead;
    }
  }
}

}  // namespace
}  // namespace kairos
