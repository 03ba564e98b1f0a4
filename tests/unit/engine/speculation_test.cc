// SPDX-License-Identifier: Apache-2.0
// Guessed tokens: where guesses come from, when they are worth checking, and that they never change
// what a sequence says.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "sidecar/engine/draft_planner.h"
#include "sidecar/engine/ngram_drafter.h"
#include "tests/support/engine_harness.h"
#include "tests/support/tiny_model.h"

namespace kairos {
namespace {

std::vector<TokenId> Guessed(const std::vector<TokenId>& tokens, uint32_t count,
                             uint32_t* match = nullptr) {
  NgramDrafter drafter;
  const NgramDrafter::Guess guess = drafter.Look(tokens, count);
  if (match != nullptr) *match = guess.match;
  return {guess.tokens.begin(), guess.tokens.end()};
}

TEST(NgramDrafter, ProposesWhatFollowedTheLongestMatch) {
  uint32_t match = 0;
  // "2 3" stood before 9; "1 2 3", longer, before 4 5.
  EXPECT_EQ(Guessed({1, 2, 3, 4, 5, 8, 2, 3, 9, 7, 1, 2, 3}, 2, &match),
            (std::vector<TokenId>{4, 5}));
  EXPECT_EQ(match, 3u);
  // Of equal matches the latest.
  EXPECT_EQ(Guessed({2, 3, 4, 6, 2, 3, 5, 7, 2, 3}, 1), (std::vector<TokenId>{5}));
}

TEST(NgramDrafter, GuessesNothingWithoutAMatch) {
  EXPECT_TRUE(Guessed({}, 4).empty());
  EXPECT_TRUE(Guessed({1, 1}, 4).empty());
  EXPECT_TRUE(Guessed({1, 2, 3, 4}, 4).empty());
  EXPECT_TRUE(Guessed({1, 2, 9, 1, 2}, 0).empty());
}

TEST(NgramDrafter, FindsTheSameWhetherTokensCameOneByOneOrAtOnce) {
  std::mt19937_64 random(3);
  std::vector<TokenId> tokens;
  NgramDrafter growing;
  for (uint32_t i = 0; i < 3000; ++i) {
    tokens.push_back(static_cast<TokenId>(random() % 9));
    const NgramDrafter::Guess guess = growing.Look(tokens, 5);
    if (i % 97 != 0) continue;
    EXPECT_EQ(std::vector<TokenId>(guess.tokens.begin(), guess.tokens.end()), Guessed(tokens, 5));
    // What it says is true: the match is there, and these tokens followed it.
    if (guess.tokens.empty()) continue;
    const size_t at = static_cast<size_t>(guess.tokens.data() - tokens.data());
    ASSERT_GE(at, guess.match);
    EXPECT_TRUE(std::equal(tokens.end() - guess.match, tokens.end(),
                           tokens.begin() + static_cast<ptrdiff_t>(at - guess.match)));
  }
}

TEST(PlanDrafts, ChecksGuessesOnlyWhereTheyPay) {
  StepCost cost;
  std::vector<DraftProposal> none{DraftProposal(8, 0.9)};
  PlanDrafts(cost, 1, none);
  EXPECT_EQ(none[0].grant(), 0u) << "nothing is measured yet";

  for (int i = 0; i < 100; ++i) cost.Observe(1, 0, 1000);
  for (int i = 0; i < 100; ++i) cost.Observe(1, 4, 1400);
  EXPECT_NEAR(cost.BaseNs(1), 1000, 1);
  EXPECT_NEAR(cost.DraftNs(), 100, 1);
  std::vector<DraftProposal> proposals{DraftProposal(16, 0.95), DraftProposal(16, 0.5),
                                       DraftProposal(16, 0.02), DraftProposal(0, 0.99)};
  PlanDrafts(cost, 1, proposals);
  EXPECT_GE(proposals[0].grant(), 8u);
  EXPECT_GE(proposals[1].grant(), 1u);
  EXPECT_LT(proposals[1].grant(), proposals[0].grant());
  EXPECT_EQ(proposals[2].grant(), 0u);
  EXPECT_EQ(proposals[3].grant(), 0u);

  // Where a guessed token costs as much as a step, none pays.
  for (int i = 0; i < 500; ++i) cost.Observe(1, 4, 5000);
  std::vector<DraftProposal> dear{DraftProposal(16, 0.95)};
  PlanDrafts(cost, 1, dear);
  EXPECT_EQ(dear[0].grant(), 0u);
}

TEST(DraftRecord, LearnsHowOftenGuessesWereRight) {
  DraftRecord record;
  const double first = record.Chance(2);
  for (int i = 0; i < 50; ++i) record.Observe(2, 4, true);
  EXPECT_GT(record.Chance(2), 0.95);
  EXPECT_LT(record.Chance(9), 0.95) << "of other lengths it knows nothing";
  for (int i = 0; i < 50; ++i) record.Observe(2, 0, false);
  EXPECT_LT(record.Chance(2), first);
  EXPECT_GT(record.Chance(2), 0.0);
}

class Speculation : public testing::Test {
 protected:
  static EngineOptions Options(uint32_t drafts) {
    EngineOptions options;
    options.threads = 2;
    options.step_budget_ns = 0;
    options.draft_tokens_max = drafts;
    options.draft_always = true;
    return options;
  }
  // Text that repeats itself, so that there is something to guess.
  static std::vector<TokenId> Prompt(uint32_t count, uint64_t seed, uint32_t vocabulary) {
    std::mt19937_64 random(seed);
    std::vector<TokenId> tokens;
    while (tokens.size() < count) {
      if (tokens.size() > 20 && random() % 3 == 0) {
        const size_t at = random() % (tokens.size() - 12);
        const std::vector<TokenId> piece(tokens.begin() + static_cast<ptrdiff_t>(at),
                                         tokens.begin() + static_cast<ptrdiff_t>(at + 12));
        tokens.insert(tokens.end(), piece.begin(), piece.end());
      } else {
        tokens.push_back(static_cast<TokenId>(random() % vocabulary));
      }
    }
    tokens.resize(count);
    return tokens;
  }
};

TEST_F(Speculation, SaysTheSameWithAndWithoutGuesses) {
  const TinyShape shape;
  const auto model = LoadTinyModel(shape);
  for (const Fidelity fidelity : {Fidelity::kDefault, Fidelity::kExact}) {
    for (const float temperature : {0.0f, 0.7f}) {
      uint64_t drafted = 0, accepted = 0, steps[2] = {};
      std::vector<SequenceResult> results[2];
      for (const uint32_t drafts : {0u, 16u}) {
        EngineHarness harness(*model, Options(drafts), 8192);
        std::vector<SequenceId> ids;
        for (uint64_t seed = 1; seed <= 6; ++seed) {
          SequenceSpec spec = harness.Spec(
              Prompt(25 + static_cast<uint32_t>(seed) * 9, seed, shape.vocabulary), 150, fidelity);
          spec.sampling.temperature = temperature;
          spec.sampling.seed = seed;
          spec.sampling.logits_hash = true;
          spec.sampling.ignore_eos = true;
          spec.sampling.logprobs = 2;
          spec.sampling.want_logprobs = seed % 2 == 0;
          if (temperature == 0.0f) spec.sampling.repetition_penalty = seed == 3 ? 1.3f : 1.0f;
          ids.push_back(harness.Submit(std::move(spec)));
        }
        harness.Run();
        for (const SequenceId id : ids) results[drafts > 0].push_back(harness.result(id));
        steps[drafts > 0] = harness.engine().counters().steps.load();
        drafted += harness.engine().counters().drafted_tokens.load();
        accepted += harness.engine().counters().accepted_tokens.load();
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        SCOPED_TRACE(testing::Message() << "sequence " << i << " temperature " << temperature);
        const SequenceResult& with = results[1][i];
        const SequenceResult& without = results[0][i];
        ASSERT_TRUE(with.finished && without.finished);
        EXPECT_EQ(with.tokens, without.tokens);
        EXPECT_EQ(with.finished->logits_hash, without.finished->logits_hash);
        EXPECT_EQ(with.finished->computed, without.finished->computed);
        ASSERT_EQ(with.events.size(), without.events.size());
        for (size_t t = 0; t < with.events.size(); ++t) {
          EXPECT_EQ(with.events[t].logprob, without.events[t].logprob);
          EXPECT_EQ(with.events[t].logits_hash, without.events[t].logits_hash);
        }
      }
      // A greedy random model soon repeats itself: there guesses must have been checked and right,
      // and have saved steps.
      if (temperature == 0.0f) {
        EXPECT_GT(drafted, 50u);
        EXPECT_GT(accepted, 50u);
        EXPECT_LT(steps[1], steps[0]);
      }
    }
  }
}

TEST_F(Speculation, EndsWhereItWouldHaveEndedWithoutGuesses) {
  const TinyShape shape;
  const auto model = LoadTinyModel(shape);
  for (uint32_t length = 1; length <= 40; ++length) {
    SequenceResult results[2];
    for (const uint32_t drafts : {0u, 31u}) {
      EngineHarness harness(*model, Options(drafts));
      SequenceSpec spec = harness.Spec(Prompt(60, 4, shape.vocabulary), length);
      spec.sampling.ignore_eos = true;
      results[drafts > 0] = harness.RunAlone(std::move(spec));
    }
    EXPECT_EQ(results[1].tokens, results[0].tokens);
    EXPECT_EQ(results[1].tokens.size(), length);
    EXPECT_EQ(results[1].finished->computed, results[0].finished->computed);
  }
}

TEST_F(Speculation, RefusesDraftsThatCouldFillABlock) {
  const TinyShape shape;
  const auto model = LoadTinyModel(shape);
  auto arena = KvArena::Create(model->kv_geometry(), 64);
  EXPECT_FALSE(Engine::Create(*model, **arena, Options(32)).ok());
}

}  // namespace
}  // namespace kairos
