// SPDX-License-Identifier: Apache-2.0
// The batch engine on a tiny model: what a sequence says does not depend on company or history, and
// the scheduler keeps its promises.
#include <gtest/gtest.h>

#include <random>

#include "base/hash.h"
#include "tests/support/engine_harness.h"
#include "tests/support/tiny_model.h"

namespace kairos {
namespace {

class EngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = LoadTinyModel(shape_).release(); }
  static void TearDownTestSuite() { delete model_; }

  static EngineOptions Options(uint32_t threads = 1, uint32_t chunk = 512) {
    EngineOptions options;
    options.threads = threads;
    options.chunk_tokens_max = chunk;
    options.step_budget_ns = 0;
    return options;
  }
  static std::vector<TokenId> Tokens(uint32_t count, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % shape_.vocabulary);
    return tokens;
  }
  static SamplingParams Noisy(uint64_t seed) {
    SamplingParams params;
    params.temperature = 0.9f;
    params.seed = seed;
    params.logits_hash = true;
    return params;
  }
  // What a fresh engine with one thread says, with all company absent.
  static SequenceResult Alone(const std::vector<TokenId>& tokens, uint32_t count, uint64_t seed,
                              Fidelity fidelity = Fidelity::kDefault) {
    EngineHarness harness(*model_, Options());
    SequenceSpec spec = harness.Spec(tokens, count, fidelity);
    spec.sampling = Noisy(seed);
    return harness.RunAlone(std::move(spec));
  }
  static void ExpectSame(const SequenceResult& got, const SequenceResult& want) {
    ASSERT_TRUE(got.finished && want.finished);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.finished->logits_hash, want.finished->logits_hash);
    EXPECT_EQ(got.finished->computed, want.finished->computed);
    EXPECT_NE(want.finished->logits_hash, 0u);
  }

  inline static const TinyShape shape_;
  inline static const Model* model_ = nullptr;
};

TEST_F(EngineTest, SaysTheSameAmongThirtyOneMatesAsAlone) {
  for (const uint32_t threads : {1u, 3u}) {
    EngineHarness harness(*model_, Options(threads, 96));
    std::vector<SequenceId> ids;
    for (uint32_t i = 0; i < 32; ++i) {
      SequenceSpec spec = harness.Spec(Tokens(5 + 13 * i, i), 12 + i % 5,
                                       i % 4 == 3 ? Fidelity::kExact : Fidelity::kDefault);
      spec.sampling = Noisy(i);
      ids.push_back(harness.Submit(std::move(spec)));
      if (i % 3 == 0) harness.Step();
    }
    harness.Run();
    for (uint32_t i = 0; i < 32; ++i) {
      SCOPED_TRACE(i);
      ExpectSame(harness.result(ids[i]), Alone(Tokens(5 + 13 * i, i), 12 + i % 5, i,
                                               i % 4 == 3 ? Fidelity::kExact : Fidelity::kDefault));
    }
  }
}

TEST_F(EngineTest, ReportsTheHashOfEveryStepAndTheirChain) {
  const SequenceResult result = Alone(Tokens(40, 9), 6, 9);
  ASSERT_EQ(result.events.size(), 6u);
  uint64_t chain = 0;
  for (const EngineEvent& event : result.events) {
    EXPECT_NE(event.logits_hash, 0u);
    chain = HashChain(chain, event.logits_hash);
  }
  EXPECT_EQ(result.finished->logits_hash, chain);
  EXPECT_NE(result.events[0].logits_hash, result.events[1].logits_hash);
}

TEST_F(EngineTest, SaysTheSameInChunksOf32AsInOne) {
  const auto tokens = Tokens(300, 1);
  EngineHarness harness(*model_, Options(2, 32));
  SequenceSpec spec = harness.Spec(tokens, 40);
  spec.sampling = Noisy(5);
  ExpectSame(harness.RunAlone(std::move(spec)), Alone(tokens, 40, 5));
}

TEST_F(EngineTest, ResumesFromStoredBlocksAsIfItHadNeverStopped) {
  const auto tokens = Tokens(150, 2);
  for (const Fidelity fidelity : {Fidelity::kDefault, Fidelity::kExact}) {
    const SequenceResult want = Alone(tokens, 20, 3, fidelity);
    for (const uint32_t stop : {32u, 64u, 70u, 96u, 149u}) {
      SCOPED_TRACE(stop);
      EngineHarness harness(*model_, Options());
      SequenceSpec whole = harness.Spec(tokens, 20, fidelity);
      whole.sampling = Noisy(3);
      SequenceSpec first = whole;
      first.tokens.resize(stop);
      first.max_new_tokens = 0;
      const SequenceResult prefilled = harness.RunAlone(std::move(first));
      ASSERT_TRUE(prefilled.finished);
      EXPECT_EQ(prefilled.finished->cause, FinishCause::kPrefilled);
      EXPECT_EQ(prefilled.finished->computed, stop);
      EXPECT_TRUE(prefilled.tokens.empty());
      SequenceSpec rest = whole;
      rest.id = SequenceId{1000};
      rest.computed = stop;
      ExpectSame(harness.RunAlone(std::move(rest)), want);
    }
  }
}

// A fork's turn that is cancelled before its first step has its own copy of the open block: what is
// said to be computed is.
TEST_F(EngineTest, AForkThatNeverBeganHasItsOpenBlock) {
  const auto shared = Tokens(75, 4);
  for (const Fidelity fidelity : {Fidelity::kDefault, Fidelity::kExact}) {
    EngineHarness harness(*model_, Options());
    SequenceSpec parent = harness.Spec(shared, 0, fidelity);
    harness.RunAlone(parent);
    const uint32_t per_block = fidelity == Fidelity::kExact ? 2 : 1;
    const auto first_open = parent.slots.begin() + 2 * per_block;
    SequenceSpec child = harness.Spec(Tokens(90, 4), 10, fidelity);
    std::copy_n(parent.slots.begin(), 2 * per_block, child.slots.begin());
    child.computed = 75;
    child.open_source = fidelity == Fidelity::kExact ? std::vector(first_open, first_open + 2)
                                                     : parent.open;
    const SequenceId id = harness.Submit(child);
    ASSERT_TRUE(harness.engine().Cancel(id));
    harness.Run();
    ASSERT_EQ(harness.result(id).finished->computed, 75u);
    SequenceSpec again = harness.Spec(Tokens(90, 4), 10, fidelity);
    again.slots = child.slots;
    again.open = child.open;
    again.computed = 75;
    again.sampling = Noisy(20);
    ExpectSame(harness.RunAlone(std::move(again)), Alone(Tokens(90, 4), 10, 20, fidelity));
  }
}

TEST_F(EngineTest, ForksAnOpenBlockWithoutDisturbingItsSource) {
  const auto shared = Tokens(75, 4);
  for (const Fidelity fidelity : {Fidelity::kDefault, Fidelity::kExact}) {
    EngineHarness harness(*model_, Options());
    SequenceSpec parent = harness.Spec(shared, 0, fidelity);
    harness.RunAlone(parent);
    const auto fork = [&](uint64_t seed) {
      auto tokens = shared;
      for (const TokenId token : Tokens(30, seed)) tokens.push_back(token);
      SequenceSpec child = harness.Spec(tokens, 10, fidelity);
      const uint32_t per_block = fidelity == Fidelity::kExact ? 2 : 1;
      for (uint32_t i = 0; i < 2 * per_block; ++i) child.slots[i] = parent.slots[i];
      child.computed = 75;
      for (uint32_t half = 0; half < 2; ++half) {
        child.open_source.push_back(
            fidelity == Fidelity::kExact ? parent.slots[4 + half] : parent.open[half]);
      }
      child.sampling = Noisy(seed);
      return std::pair(tokens, std::move(child));
    };
    auto [tokens_a, a] = fork(20);
    auto [tokens_b, b] = fork(21);
    const SequenceId id_a = harness.Submit(std::move(a));
    const SequenceId id_b = harness.Submit(std::move(b));
    harness.Run();
    ExpectSame(harness.result(id_a), Alone(tokens_a, 10, 20, fidelity));
    ExpectSame(harness.result(id_b), Alone(tokens_b, 10, 21, fidelity));
  }
}

TEST_F(EngineTest, DecodesInEveryStepWhileALongPromptIsRead) {
  EngineHarness harness(*model_, Options(1, 32));
  const SequenceId talking = harness.Submit(harness.Spec(Tokens(8, 1), 40));
  harness.Step();
  ASSERT_EQ(harness.result(talking).tokens.size(), 1u);
  const SequenceId reading = harness.Submit(harness.Spec(Tokens(32 * 20, 2), 1));
  for (size_t step = 2; step <= 20; ++step) {
    harness.Step();
    EXPECT_EQ(harness.result(talking).tokens.size(), step);
    EXPECT_TRUE(harness.result(reading).tokens.empty());
  }
  harness.Step();
  EXPECT_EQ(harness.result(reading).tokens.size(), 1u);
}

TEST_F(EngineTest, ReadsTheMoreImportantPromptFirstAndEqualsInOrder) {
  EngineHarness harness(*model_, Options(1, 32));
  const SequenceId low = harness.Submit(harness.Spec(Tokens(96, 1), 1));
  const SequenceId second = harness.Submit(harness.Spec(Tokens(96, 2), 1));
  SequenceSpec urgent = harness.Spec(Tokens(96, 3), 1);
  urgent.priority = 5;
  const SequenceId high = harness.Submit(std::move(urgent));
  harness.Run();
  EXPECT_EQ(harness.result(high).token_steps, std::vector<uint64_t>{3});
  EXPECT_EQ(harness.result(low).token_steps, std::vector<uint64_t>{6});
  EXPECT_EQ(harness.result(second).token_steps, std::vector<uint64_t>{9});
}

TEST_F(EngineTest, LetsAShortPromptShareTheBudgetOfALongOne) {
  for (const uint32_t blocks : {1u, 2u, 5u}) {
    SCOPED_TRACE(blocks);
    EngineHarness harness(*model_, Options(1, 32 * blocks));
    const uint32_t long_steps = 20;
    const SequenceId first = harness.Submit(harness.Spec(Tokens(32 * blocks * long_steps, 1), 1));
    harness.Step();
    const SequenceId brief = harness.Submit(harness.Spec(Tokens(32 * blocks, 2), 1));
    harness.Run();
    // Half of each step is a third of one with five blocks: two of five.
    EXPECT_LE(harness.result(brief).token_steps.at(0), 1u + 3u);
    EXPECT_EQ(harness.result(first).token_steps.at(0), long_steps + 1);
  }
}

TEST_F(EngineTest, StreamOfShortPromptsTakesAtMostHalfFromALongOne) {
  for (const uint32_t blocks : {1u, 4u}) {
    SCOPED_TRACE(blocks);
    EngineHarness harness(*model_, Options(1, 32 * blocks), 8192);
    const uint32_t long_steps = 20;
    const SequenceId first = harness.Submit(harness.Spec(Tokens(32 * blocks * long_steps, 1), 1));
    std::vector<SequenceId> briefs;
    uint64_t step = 0;
    for (; !harness.result(first).finished && step < 100; ++step) {
      briefs.push_back(harness.Submit(harness.Spec(Tokens(33, 100 + step), 1)));
      harness.Step();
    }
    // Until the last steps, in which short prompts are no longer much shorter, both advance.
    EXPECT_LE(step, 2 * long_steps + 1);
    EXPECT_TRUE(harness.result(briefs.front()).finished);
  }
}

TEST_F(EngineTest, KeepsWhatWasComputedWhenCancelled) {
  const auto tokens = Tokens(200, 6);
  EngineHarness harness(*model_, Options(1, 32));
  SequenceSpec spec = harness.Spec(tokens, 10);
  spec.sampling = Noisy(8);
  SequenceSpec again = spec;
  const SequenceId id = harness.Submit(std::move(spec));
  harness.Step();
  harness.Step();
  harness.Step();
  ASSERT_TRUE(harness.engine().Cancel(id));
  const uint64_t steps = harness.engine().counters().steps;
  harness.Run();
  ASSERT_TRUE(harness.result(id).finished);
  EXPECT_EQ(harness.result(id).finished->cause, FinishCause::kCancelled);
  EXPECT_EQ(harness.result(id).finished->computed, 96u);
  EXPECT_EQ(harness.engine().counters().steps, steps);
  again.id = SequenceId{77};
  again.computed = 96;
  ExpectSame(harness.RunAlone(std::move(again)), Alone(tokens, 10, 8));
}

TEST_F(EngineTest, CancelsWhatStillWaitsAndIgnoresUnknownIds) {
  EngineOptions options = Options();
  options.sequences_max = 1;
  EngineHarness harness(*model_, options);
  const SequenceId first = harness.Submit(harness.Spec(Tokens(10, 1), 5));
  const SequenceId waits = harness.Submit(harness.Spec(Tokens(10, 2), 5));
  harness.Step();
  EXPECT_EQ(harness.engine().counters().sequences_waiting, 1u);
  ASSERT_TRUE(harness.engine().Cancel(waits));
  ASSERT_TRUE(harness.engine().Cancel(SequenceId{999}));
  harness.Run();
  EXPECT_EQ(harness.result(waits).finished->cause, FinishCause::kCancelled);
  EXPECT_EQ(harness.result(waits).finished->computed, 0u);
  EXPECT_EQ(harness.result(first).finished->cause, FinishCause::kLength);
  EXPECT_EQ(harness.result(first).tokens.size(), 5u);
}

TEST_F(EngineTest, EndsAtTheDeadline) {
  EngineHarness harness(*model_, Options());
  SequenceSpec spec = harness.Spec(Tokens(10, 1), 5);
  spec.deadline_ns = 1;
  const SequenceResult result = harness.RunAlone(std::move(spec));
  EXPECT_EQ(result.finished->cause, FinishCause::kDeadline);
  EXPECT_TRUE(result.tokens.empty());
}

TEST_F(EngineTest, EndsAtAnEndTokenUnlessToldToIgnoreIt) {
  const auto tokens = Tokens(20, 9);
  const SequenceResult free_run = Alone(tokens, 8, 4);
  EngineOptions options = Options();
  options.end_tokens = {free_run.tokens[3]};
  for (const bool ignore : {false, true}) {
    EngineHarness harness(*model_, options);
    SequenceSpec spec = harness.Spec(tokens, 8);
    spec.sampling = Noisy(4);
    spec.sampling.ignore_eos = ignore;
    const SequenceResult result = harness.RunAlone(std::move(spec));
    if (ignore) {
      EXPECT_EQ(result.tokens, free_run.tokens);
      EXPECT_EQ(result.finished->cause, FinishCause::kLength);
    } else {
      EXPECT_EQ(result.tokens.back(), free_run.tokens[3]);
      EXPECT_LE(result.tokens.size(), 4u);
      EXPECT_EQ(result.finished->cause, FinishCause::kEndToken);
      EXPECT_EQ(result.finished->computed, 20 + result.tokens.size() - 1);
    }
  }
}

TEST_F(EngineTest, StopsWhenAStopStringAppearsAcrossTokens) {
  const auto tokens = Tokens(20, 10);
  const SequenceResult free_run = Alone(tokens, 8, 4);
  EngineOptions options = Options();
  for (uint32_t i = 0; i < shape_.vocabulary; ++i) {
    options.token_bytes.push_back("<" + std::to_string(i) + ">");
  }
  EngineHarness harness(*model_, options);
  SequenceSpec spec = harness.Spec(tokens, 8);
  spec.sampling = Noisy(4);
  spec.sampling.stops = {
      "", std::to_string(free_run.tokens[2]) + "><" + std::to_string(free_run.tokens[3])};
  const SequenceResult result = harness.RunAlone(std::move(spec));
  EXPECT_EQ(result.finished->cause, FinishCause::kStopString);
  EXPECT_LE(result.tokens.size(), 4u);
}

TEST_F(EngineTest, ReportsLogprobsThatSumToOneAndContainTheGreedyToken) {
  EngineHarness harness(*model_, Options());
  SequenceSpec spec = harness.Spec(Tokens(20, 11), 3);
  spec.sampling.want_logprobs = true;
  spec.sampling.logprobs = 20;
  const SequenceResult result = harness.RunAlone(std::move(spec));
  ASSERT_EQ(result.events.size(), 3u);
  for (const EngineEvent& event : result.events) {
    ASSERT_EQ(event.alternatives.size(), 20u);
    EXPECT_EQ(event.alternatives[0].token, event.token);
    EXPECT_EQ(event.alternatives[0].logprob, event.logprob);
    for (size_t i = 1; i < 20; ++i) {
      EXPECT_LE(event.alternatives[i].logprob, event.alternatives[i - 1].logprob);
    }
    EXPECT_LT(event.logprob, 0.0f);
  }
}

TEST_F(EngineTest, LosesNoEventWhenNobodyPollsForLong) {
  EngineHarness harness(*model_, Options());
  std::vector<SequenceId> ids;
  for (uint32_t i = 0; i < 40; ++i) ids.push_back(harness.Submit(harness.Spec(Tokens(2, i), 250)));
  for (int i = 0; i < 300; ++i) harness.engine().DoWork(1);
  harness.Run();
  for (const SequenceId id : ids) {
    EXPECT_EQ(harness.result(id).tokens.size(), 250u);
    EXPECT_TRUE(harness.result(id).finished);
  }
}

TEST_F(EngineTest, RefusesAnArenaOfAnotherShape) {
  auto arena = KvArena::Create({1, 1, 32}, 4);
  ASSERT_TRUE(arena.ok());
  const auto engine = Engine::Create(*model_, **arena, Options());
  EXPECT_EQ(engine.status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace kairos
