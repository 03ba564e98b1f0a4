// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/grammar_thread.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "kairos/kairos.h"
#include "tests/unit/chat/tiny_vocabulary.h"

namespace kairos {
namespace {

class GrammarThreadTest : public testing::Test {
 protected:
  GrammarThreadTest() {
    vocabulary_.AddMerge("z", "z");
    vocabulary_.Add("<|im_end|>", TokenKind::kControl);
    tokenizer_ = vocabulary_.Build();
    std::string error;
    compiler_ = GrammarCompiler::Create(*tokenizer_, &error).Take();
    thread_ = std::make_unique<GrammarThread>(*compiler_);
  }

  void Submit(uint64_t ticket, uint32_t client, std::string grammar) {
    GrammarJob job{ticket, AttachmentId{client}, {}};
    job.reply.grammar = grammar;
    job.reply.parts.push_back({"constraint", std::move(grammar)});
    EXPECT_TRUE(thread_->Submit(std::move(job)));
  }

  // The tickets that are answered, in order, after `rounds` of work.
  std::vector<uint64_t> Answered(int rounds) {
    for (int i = 0; i < rounds; ++i) thread_->DoWork();
    std::vector<uint64_t> tickets;
    while (std::optional<GrammarResult> result = thread_->Poll()) {
      tickets.push_back(result->ticket);
      last_ = std::move(*result);
    }
    return tickets;
  }

  TinyVocabulary vocabulary_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<GrammarCompiler> compiler_;
  std::unique_ptr<GrammarThread> thread_;
  GrammarResult last_;
};

TEST_F(GrammarThreadTest, ClientsTakeTurnsOneGrammarAtATime) {
  for (uint64_t i = 1; i <= 4; ++i) Submit(i, 1, "start: \"a" + std::to_string(i) + "\"");
  Submit(5, 2, "start: \"b\"");
  EXPECT_EQ(Answered(1), std::vector<uint64_t>{1});
  EXPECT_EQ(Answered(1), std::vector<uint64_t>{5});
  EXPECT_EQ(Answered(5), (std::vector<uint64_t>{2, 3, 4}));
  EXPECT_FALSE(thread_->DoWork());
}

TEST_F(GrammarThreadTest, EqualGrammarsAreCompiledOnceAndOneResultIsForKeeping) {
  for (uint64_t i = 1; i <= 3; ++i) Submit(i, static_cast<uint32_t>(i), "start: \"a\"");
  thread_->DoWork();
  int kept = 0;
  int answers = 0;
  while (std::optional<GrammarResult> result = thread_->Poll()) {
    EXPECT_NE(result->constraint, nullptr);
    kept += result->compiled != nullptr && result->grammar == "start: \"a\"";
    ++answers;
  }
  EXPECT_EQ(answers, 3);
  EXPECT_EQ(kept, 1);
  EXPECT_TRUE(Answered(3).empty());
}

TEST_F(GrammarThreadTest, WhatIsWantedNoMoreIsNotCompiled) {
  Submit(1, 1, "start: \"a\"");
  Submit(2, 1, "start: \"b\"");
  Submit(2, 1, "");
  EXPECT_EQ(Answered(3), std::vector<uint64_t>{1});
}

TEST_F(GrammarThreadTest, ARefusalNamesThePartAndWhetherAnythingMatches) {
  Submit(1, 1, "start: (");
  EXPECT_EQ(Answered(1), std::vector<uint64_t>{1});
  EXPECT_EQ(last_.status.code(), Code::kInvalidArgument);
  EXPECT_EQ(last_.status.detail(), KAIROS_DETAIL_GRAMMAR);
  EXPECT_TRUE(last_.error.starts_with("constraint: ")) << last_.error;
  Submit(2, 1, "start: T\nT: /a/ & /b/");
  EXPECT_EQ(Answered(1), std::vector<uint64_t>{2});
  EXPECT_EQ(last_.error, "constraint: nothing matches it");
  last_ = {};
  Submit(3, 1, "start: T\nT: /a/ & /b/");
  EXPECT_EQ(Answered(1), std::vector<uint64_t>{3});
  EXPECT_EQ(last_.error, "constraint: nothing matches it") << "known from before";
}

TEST_F(GrammarThreadTest, OfManyPartsNoneIsTriedAlone) {
  GrammarJob job{1, AttachmentId{1}, {}};
  job.reply.grammar = "start: (";
  for (int i = 0; i < 17; ++i) job.reply.parts.push_back({"tool", "start: ("});
  EXPECT_TRUE(thread_->Submit(std::move(job)));
  EXPECT_EQ(Answered(1), std::vector<uint64_t>{1});
  EXPECT_TRUE(last_.error.starts_with("the 17 tools together: ")) << last_.error;
}

TEST_F(GrammarThreadTest, PartsThatFailOnlyTogetherAreToldSo) {
  GrammarJob job{1, AttachmentId{1}, {}};
  job.reply.grammar = "start: (";
  job.reply.parts = {{"tool a", "start: \"a\""}, {"tool b", "start: \"b\""}};
  EXPECT_TRUE(thread_->Submit(std::move(job)));
  EXPECT_EQ(Answered(1), std::vector<uint64_t>{1});
  EXPECT_TRUE(last_.error.starts_with("the 2 tools together: ")) << last_.error;
}

TEST_F(GrammarThreadTest, ToolsThatAreTooMuchWorkTogetherAreToldToBeFewer) {
  std::string tools;
  for (int i = 0; i < 20; ++i) {
    std::string properties;
    for (int j = 0; j < 40; ++j) {
      properties += fmt::format(R"({}"p{}": {{"type": "integer"}})", j == 0 ? "" : ", ", j);
    }
    tools += fmt::format(R"({}{{"name": "t{}", "parameters": {{"properties": {{{}}}}}}})",
                         i == 0 ? "[" : ", ", i, properties);
  }
  ReplyRules rules;
  rules.tool_choice = ToolChoice::kRequired;
  std::string error;
  Result<ReplyGrammar> reply = WriteReplyGrammar(
      WireFormatOf(WireFamily::kHermes), rules, tools + "]",
      [](std::string_view) { return MarkerKind::kText; }, &error);
  ASSERT_TRUE(reply.ok()) << error;
  EXPECT_TRUE(thread_->Submit({1, AttachmentId{1}, reply.Take()}));
  EXPECT_EQ(Answered(1), std::vector<uint64_t>{1});
  EXPECT_TRUE(last_.error.starts_with("the 20 tools together: ")) << last_.error;
  EXPECT_TRUE(last_.error.ends_with("or send fewer tools")) << last_.error;
}

}  // namespace
}  // namespace kairos
