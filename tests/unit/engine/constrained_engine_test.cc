// SPDX-License-Identifier: Apache-2.0
// The batch engine under constraints: masks hold in company, forced tokens cost no step of their
// own and change nothing that follows, and a constraint that gives up ends its sequence alone.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/engine_harness.h"
#include "tests/support/tiny_model.h"

namespace kairos {
namespace {

// Cycles through sets of tokens; a set of one is forced.
class SetCycle final : public TokenConstraint {
 public:
  explicit SetCycle(std::vector<std::set<TokenId>> sets) : sets_(std::move(sets)) {}

  bool ComputeMask(std::span<uint32_t> mask, uint32_t tokens_left) override {
    EXPECT_EQ(tokens_left, left_at_start - at_) << "of the reply";
    if (at_ == masks_until) return false;
    std::fill(mask.begin(), mask.end(), 0);
    for (const TokenId token : sets_[at_ % sets_.size()]) {
      mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
    }
    return true;
  }
  bool IsShortOfTokens() override { return late_after < sets_.size(); }
  bool LeavesTimeToEnd(TokenId token) override {
    return at_ % sets_.size() != late_after || !late.contains(token);
  }
  void LeaveSoonestEnd(std::span<uint32_t> mask) override {
    ++soonest_ends;
    std::fill(mask.begin(), mask.end(), 0);
    mask[static_cast<size_t>(soonest) / 32] = 1u << (soonest % 32);
  }
  bool Consume(TokenId token) override {
    return sets_[at_++ % sets_.size()].contains(token);
  }
  bool IsDeadEnd() override { return dead_end; }
  void Forced(std::vector<TokenId>* out) override {
    out->clear();
    for (size_t at = at_; jumps && sets_[at % sets_.size()].size() == 1; ++at) {
      out->push_back(*sets_[at % sets_.size()].begin());
    }
  }
  uint32_t CountAllowed(std::span<const TokenId> tokens) override {
    uint32_t count = 0;
    while (count < tokens.size() &&
           sets_[(at_ + count) % sets_.size()].contains(tokens[count])) {
      ++count;
    }
    return count;
  }

  bool jumps = true;
  size_t late_after = SIZE_MAX;  // the set some of whose tokens leave no time
  std::set<TokenId> late;
  TokenId soonest = 0;
  int soonest_ends = 0;
  bool dead_end = false;
  size_t left_at_start = 30;
  size_t masks_until = SIZE_MAX;

 private:
  std::vector<std::set<TokenId>> sets_;
  size_t at_ = 0;
};

const std::vector<std::set<TokenId>> kSets = {{7, 8, 9, 10}, {3}, {4}, {5}, {100, 101, 102}, {6}};

class ConstrainedEngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = LoadTinyModel(shape_).release(); }
  static void TearDownTestSuite() { delete model_; }

  static EngineOptions Options() {
    EngineOptions options;
    options.threads = 2;
    options.step_budget_ns = 0;
    return options;
  }
  static SequenceSpec Spec(EngineHarness& harness, uint32_t length, uint32_t count,
                           std::shared_ptr<SetCycle> constraint) {
    std::vector<TokenId> prompt;
    for (uint32_t i = 0; i < length; ++i) {
      prompt.push_back(static_cast<TokenId>((i * 37 + length) % shape_.vocabulary));
    }
    SequenceSpec spec = harness.Spec(prompt, count);
    spec.sampling.temperature = 1.5f;
    spec.sampling.seed = length;
    spec.constraint = std::move(constraint);
    return spec;
  }

  inline static const TinyShape shape_;
  inline static const Model* model_ = nullptr;
};

TEST_F(ConstrainedEngineTest, EveryTokenIsOneThatTheMaskAllows) {
  EngineHarness harness(*model_, Options());
  std::vector<SequenceId> constrained;
  std::vector<SequenceId> others;
  for (uint32_t i = 0; i < 16; ++i) {
    constrained.push_back(
        harness.Submit(Spec(harness, 20 + i, 30, std::make_shared<SetCycle>(kSets))));
    others.push_back(harness.Submit(Spec(harness, 40 + i, 30, nullptr)));
  }
  harness.Run();
  std::set<TokenId> drawn;
  for (const SequenceId id : constrained) {
    const SequenceResult& result = harness.result(id);
    ASSERT_EQ(result.tokens.size(), 30u);
    for (size_t i = 0; i < 30; ++i) {
      EXPECT_TRUE(kSets[i % kSets.size()].contains(result.tokens[i])) << i;
      drawn.insert(result.tokens[i]);
    }
    // Those before the first draw that had no choice are not forced: nothing was drawn yet.
    EXPECT_EQ(result.finished->forced, 20u);
  }
  EXPECT_EQ(drawn.size(), 11u);  // the model still chooses
  for (size_t i = 0; i < others.size(); ++i) {
    EngineHarness alone(*model_, Options());
    const auto want = alone.RunAlone(Spec(alone, 40 + static_cast<uint32_t>(i), 30, nullptr));
    EXPECT_EQ(harness.result(others[i]).tokens, want.tokens);
  }
}

TEST_F(ConstrainedEngineTest, JumpingAheadChangesNoTokenAndSavesSteps) {
  for (const uint32_t length : {5u, 31u, 64u}) {
    std::vector<std::vector<TokenId>> said;
    std::vector<uint64_t> steps;
    for (const bool jumps : {false, true}) {
      EngineHarness harness(*model_, Options());
      auto constraint = std::make_shared<SetCycle>(kSets);
      constraint->jumps = jumps;
      constraint->left_at_start = 60;
      const SequenceResult result = harness.RunAlone(Spec(harness, length, 60, constraint));
      said.push_back(result.tokens);
      steps.push_back(harness.engine().counters().steps.load());
      EXPECT_EQ(result.tokens.size(), 60u);
    }
    EXPECT_EQ(said[0], said[1]);
    EXPECT_LT(steps[1] * 2, steps[0]);
  }
}

// Guesses under a grammar are cut where it would refuse them, and change nothing else.
TEST_F(ConstrainedEngineTest, GuessesChangeNoTokenAndSaveSteps) {
  for (const bool jumps : {false, true}) {
    for (const float temperature : {0.0f, 0.9f}) {
      std::vector<SequenceResult> said[2];
      uint64_t steps[2] = {};
      for (const bool guesses : {false, true}) {
        EngineOptions options = Options();
        options.draft_tokens_max = guesses ? 16 : 0;
        options.draft_always = true;
        EngineHarness harness(*model_, options);
        std::vector<SequenceId> ids;
        for (uint32_t length : {5u, 30u, 31u, 64u, 70u}) {
          auto constraint = std::make_shared<SetCycle>(kSets);
          constraint->jumps = jumps;
          constraint->left_at_start = 80;
          if (length == 30) constraint->masks_until = 41;
          if (length == 70) {
            constraint->late_after = 4;
            constraint->late = {100};
            constraint->soonest = 101;
          }
          SequenceSpec spec = Spec(harness, length, 80, constraint);
          spec.sampling.temperature = temperature;
          spec.sampling.logits_hash = true;
          ids.push_back(harness.Submit(std::move(spec)));
        }
        harness.Run();
        for (const SequenceId id : ids) said[guesses].push_back(harness.result(id));
        steps[guesses] = harness.engine().counters().steps.load();
        if (!guesses) continue;
        EXPECT_GT(harness.engine().counters().accepted_tokens.load(), 50u);
        EXPECT_GE(harness.engine().counters().drafted_tokens.load(),
                  harness.engine().counters().accepted_tokens.load());
      }
      for (size_t i = 0; i < said[0].size(); ++i) {
        const EngineEvent& without = *said[0][i].finished;
        const EngineEvent& with = *said[1][i].finished;
        EXPECT_EQ(said[1][i].tokens, said[0][i].tokens) << i;
        EXPECT_EQ(with.cause, without.cause);
        EXPECT_EQ(with.computed, without.computed);
        EXPECT_EQ(with.forced, without.forced);
        EXPECT_EQ(with.logits_hash, without.logits_hash);
      }
      EXPECT_LT(steps[1], steps[0]) << temperature << jumps;
    }
  }
}

TEST_F(ConstrainedEngineTest, ForcedTokensRespectTheirLimitAndStopStrings) {
  EngineHarness harness(*model_, Options());
  auto two = std::make_shared<SetCycle>(kSets);
  two->left_at_start = 2;
  const SequenceId limited = harness.Submit(Spec(harness, 10, 2, two));
  harness.Run();
  EXPECT_EQ(harness.result(limited).tokens.size(), 2u);
  EXPECT_EQ(harness.result(limited).finished->cause, FinishCause::kLength);

  EngineOptions options = Options();
  for (uint32_t i = 0; i < shape_.vocabulary; ++i) {
    options.token_bytes.push_back("<" + std::to_string(i) + ">");
  }
  EngineHarness stopping(*model_, options);
  SequenceSpec spec = Spec(stopping, 10, 30, std::make_shared<SetCycle>(kSets));
  spec.sampling.stops = {"3><4"};
  const SequenceResult result = stopping.RunAlone(std::move(spec));
  EXPECT_EQ(result.tokens.size(), 3u);
  EXPECT_EQ(result.finished->cause, FinishCause::kStopString);
}

// A token that leaves no time is drawn no more; where none of several does, the soonest end comes.
TEST_F(ConstrainedEngineTest, WhatLeavesNoTimeIsNotDrawn) {
  EngineHarness free_harness(*model_, Options());
  const SequenceResult freely =
      free_harness.RunAlone(Spec(free_harness, 10, 30, std::make_shared<SetCycle>(kSets)));
  std::set<TokenId> first;
  for (size_t i = 0; i < 30; i += kSets.size()) first.insert(freely.tokens[i]);
  ASSERT_GT(first.size(), 1u);

  EngineHarness harness(*model_, Options());
  auto one = std::make_shared<SetCycle>(kSets);
  one->late_after = 0;
  one->late = {freely.tokens[0]};
  const SequenceResult another = harness.RunAlone(Spec(harness, 10, 30, one));
  ASSERT_EQ(another.tokens.size(), 30u);
  EXPECT_EQ(one->soonest_ends, 0);
  for (size_t i = 0; i < 30; i += kSets.size()) {
    EXPECT_NE(another.tokens[i], freely.tokens[0]);
    EXPECT_TRUE(kSets[0].contains(another.tokens[i]));
  }

  std::set<TokenId> many;
  for (TokenId token = 20; token < 60; ++token) many.insert(token);
  auto none = std::make_shared<SetCycle>(std::vector<std::set<TokenId>>{many, {3}});
  none->late_after = 0;
  none->late = many;
  none->soonest = 42;
  EngineHarness ending(*model_, Options());
  const SequenceResult soonest = ending.RunAlone(Spec(ending, 10, 30, none));
  EXPECT_EQ(none->soonest_ends, 15);
  for (size_t i = 0; i < 30; i += 2) EXPECT_EQ(soonest.tokens[i], 42);
}

TEST_F(ConstrainedEngineTest, LogprobsAreGivenForEveryToken) {
  EngineHarness harness(*model_, Options());
  SequenceSpec spec = Spec(harness, 10, 30, std::make_shared<SetCycle>(kSets));
  spec.sampling.want_logprobs = true;
  const SequenceResult result = harness.RunAlone(std::move(spec));
  EXPECT_EQ(result.finished->forced, 0u);
  for (const EngineEvent& event : result.events) EXPECT_LT(event.logprob, 0.0f);
}

TEST_F(ConstrainedEngineTest, AConstraintThatGivesUpEndsItsSequenceAlone) {
  EngineHarness harness(*model_, Options());
  auto broken = std::make_shared<SetCycle>(kSets);
  broken->masks_until = 4;
  auto stuck = std::make_shared<SetCycle>(kSets);
  stuck->masks_until = 4;
  stuck->dead_end = true;
  const SequenceId has_no_way = harness.Submit(Spec(harness, 12, 30, stuck));
  const SequenceId ends = harness.Submit(Spec(harness, 10, 30, broken));
  const SequenceId goes_on =
      harness.Submit(Spec(harness, 11, 30, std::make_shared<SetCycle>(kSets)));
  harness.Run();
  EXPECT_EQ(harness.result(ends).finished->cause, FinishCause::kConstraintFailed);
  EXPECT_EQ(harness.result(has_no_way).finished->cause, FinishCause::kDeadEnd);
  EXPECT_EQ(harness.result(ends).tokens.size(), 4u);
  EXPECT_EQ(harness.result(goes_on).tokens.size(), 30u);
}

TEST_F(ConstrainedEngineTest, TheGrammarPrevailsOverBansOfAllItAllows) {
  EngineHarness harness(*model_, Options());
  SequenceSpec spec = Spec(harness, 10, 30, std::make_shared<SetCycle>(kSets));
  for (const TokenId token : {7, 8, 9, 10}) {
    spec.sampling.biases.emplace_back(token, -std::numeric_limits<float>::infinity());
  }
  const SequenceResult result = harness.RunAlone(std::move(spec));
  EXPECT_EQ(result.tokens[0], 7);
}

}  // namespace
}  // namespace kairos
