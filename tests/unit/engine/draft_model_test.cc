// SPDX-License-Identifier: Apache-2.0
// A draft model: what it guesses, when that is worth its time, whose KV it keeps, and that it never
// changes what a sequence says.
#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "sidecar/engine/draft_kv.h"
#include "sidecar/engine/draft_planner.h"
#include "tests/support/engine_harness.h"
#include "tests/support/tiny_model.h"

namespace kairos {
namespace {

std::vector<TokenId> RandomTokens(uint32_t count, uint64_t seed, uint32_t vocabulary = 288) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocabulary);
  return tokens;
}

// ---- When it is worth its time ------------------------------------------------------------------

// Of steps of 1000 ns, each guess checked for 50 ns more.
StepCost Served() {
  StepCost cost;
  for (int i = 0; i < 100; ++i) cost.Observe(1, 0, 1000);
  for (int i = 0; i < 100; ++i) cost.Observe(1, 4, 1200);
  return cost;
}

StepCost Pass(uint64_t ns) {
  StepCost cost;
  cost.Observe(1, 0, ns);
  return cost;
}

struct Planned {
  bool by_model = false;
  uint32_t grant = 0;
};

Planned PlanOne(uint64_t pass_ns, DraftProposal by_text, DraftProposal by_model,
                double limit_ns = 1e9) {
  const StepCost cost = Served();
  std::vector<DraftProposal> proposals{by_text};
  uint8_t taken = 0;
  PlanDrafts(cost, 1, proposals);
  PlanModelDrafts(cost, Pass(pass_ns), 1, limit_ns, proposals, {&by_model, 1}, {&taken, 1});
  return {taken != 0, proposals[0].grant()};
}

TEST(PlanModelDrafts, GuessesMoreTheCheaperAPassIs) {
  const DraftProposal model(16, 0.8);
  const Planned cheap = PlanOne(20, {}, model);
  const Planned dear = PlanOne(200, {}, model);
  EXPECT_TRUE(cheap.by_model);
  EXPECT_TRUE(dear.by_model);
  EXPECT_GT(cheap.grant, dear.grant);
  EXPECT_GE(dear.grant, 1u);
  EXPECT_FALSE(PlanOne(900, {}, model).by_model);
  EXPECT_FALSE(PlanOne(20, {}, DraftProposal(16, 0.02)).by_model);
}

TEST(PlanModelDrafts, LeavesGuessesThatCostNothingWhereTheyAreAsGood) {
  const Planned kept = PlanOne(20, DraftProposal(16, 0.85), DraftProposal(16, 0.8));
  EXPECT_FALSE(kept.by_model);
  EXPECT_GE(kept.grant, 2u);
  EXPECT_TRUE(PlanOne(20, DraftProposal(16, 0.2), DraftProposal(16, 0.8)).by_model);
  // Too dear: what the text gave is granted as before.
  const Planned text = PlanOne(900, DraftProposal(16, 0.5), DraftProposal(16, 0.95));
  EXPECT_FALSE(text.by_model);
  EXPECT_GE(text.grant, 1u);
}

TEST(PlanModelDrafts, KeepsItsPassesInTheLimit) {
  EXPECT_GT(PlanOne(20, {}, DraftProposal(16, 0.95)).grant, 3u);
  EXPECT_EQ(PlanOne(20, {}, DraftProposal(16, 0.95), 61).grant, 3u);
  EXPECT_FALSE(PlanOne(20, {}, DraftProposal(16, 0.95), 10).by_model);
}

TEST(PlanModelDrafts, CountsThatSequencesShareAPass) {
  // Alone a pass costs more than its guess brings; four share it.
  StepCost cost;
  for (int i = 0; i < 100; ++i) cost.Observe(4, 0, 1000);
  for (int i = 0; i < 100; ++i) cost.Observe(4, 4, 1040);
  StepCost pass;
  pass.Observe(4, 0, 400);
  std::vector<DraftProposal> proposals(4);
  std::vector<DraftProposal> by_model(4, DraftProposal(16, 0.7));
  std::vector<uint8_t> taken(4, 0);
  PlanModelDrafts(cost, pass, 4, 1e9, proposals, by_model, taken);
  EXPECT_EQ(taken, (std::vector<uint8_t>{1, 1, 1, 1}));

  proposals.assign(4, {});
  by_model.assign(4, {});
  by_model[2] = DraftProposal(16, 0.7);
  taken.assign(4, 0);
  PlanModelDrafts(cost, Pass(400), 4, 1e9, proposals, by_model, taken);
  EXPECT_EQ(taken, (std::vector<uint8_t>{0, 0, 0, 0}));
}

TEST(SavedByModel, GrowsWithWhatIsLeftAndIsNothingWhereAPassIsTooDear) {
  CatchUpCase sequence;
  sequence.most = 8;
  sequence.chance = 0.8;
  sequence.tokens_left = 100;
  sequence.token_ns = 1000;
  sequence.pass_ns = 50;
  sequence.check_ns = 50;
  const double saved = SavedByModel(sequence);
  // At most all of the time that the tokens would take without.
  EXPECT_GT(saved, 20'000);
  EXPECT_LT(saved, 100'000);
  sequence.tokens_left = 10;
  EXPECT_NEAR(SavedByModel(sequence), saved / 10, 1);
  sequence.expected = 6;  // the text guesses as well
  EXPECT_EQ(SavedByModel(sequence), 0);
  sequence.expected = 0;
  sequence.pass_ns = 1000;
  EXPECT_EQ(SavedByModel(sequence), 0);
}

// ---- Whose KV it keeps --------------------------------------------------------------------------

class DraftKvTest : public testing::Test {
 protected:
  explicit DraftKvTest(uint32_t slots = 10) {
    auto arena = KvArena::Create(KvGeometry{.layers = 1, .kv_heads = 1, .head_dim = 32}, slots);
    arena_ = arena.Take();
    kv_ = std::make_unique<DraftKv>(*arena_);
  }
  // Computes all of `tokens`.
  bool Fill(const std::vector<TokenId>& tokens, DraftContext* context, const BlockKey& kin = {}) {
    const auto count = static_cast<uint32_t>(tokens.size());
    if (!kv_->Reserve(count, context)) return false;
    kv_->Store(kin, tokens, count, context);
    return true;
  }

  std::unique_ptr<KvArena> arena_;
  std::unique_ptr<DraftKv> kv_;
};

TEST_F(DraftKvTest, KeepsWholeBlocksForSequencesThatBeginAlike) {
  const std::vector<TokenId> tokens = RandomTokens(70, 1);
  DraftContext first;
  ASSERT_TRUE(Fill(tokens, &first));
  EXPECT_EQ(first.computed, 70u);
  EXPECT_EQ(first.slots.size(), 3u);
  EXPECT_EQ(first.open.size(), 2u);
  const SlotId block = first.slots[1];
  kv_->Release(&first);
  EXPECT_EQ(first.computed, 0u);
  EXPECT_EQ(kv_->slots_free(), 8u) << "two blocks are kept";

  DraftContext next;
  kv_->Extend({}, tokens, &next);
  EXPECT_EQ(next.computed, 64u);
  EXPECT_EQ(next.slots[1], block);
  // The last token is left to be computed, for its logits.
  DraftContext shorter;
  kv_->Extend({}, std::span(tokens).first(64), &shorter);
  EXPECT_EQ(shorter.computed, 32u);
  DraftContext stranger;
  kv_->Extend(BlockKey{1, 2}, tokens, &stranger);
  EXPECT_EQ(stranger.computed, 0u) << "of another kin";
}

TEST_F(DraftKvTest, HoldsEqualBlocksOnce) {
  const std::vector<TokenId> tokens = RandomTokens(40, 2);
  DraftContext contexts[2];
  ASSERT_TRUE(Fill(tokens, &contexts[0]));
  ASSERT_TRUE(Fill(tokens, &contexts[1]));
  EXPECT_EQ(contexts[0].slots[0], contexts[1].slots[0]);
  EXPECT_NE(contexts[0].slots[1], contexts[1].slots[1]);
  EXPECT_EQ(kv_->slots_free(), 10u - 1 - 2 * 3);
  kv_->Release(&contexts[0]);
  EXPECT_EQ(kv_->blocks_kept(), 0u) << "still in use";
  kv_->Release(&contexts[1]);
  EXPECT_EQ(kv_->blocks_kept(), 1u);
}

TEST_F(DraftKvTest, GivesUpTheLongestUnusedAndNothingThatIsInUse) {
  const std::vector<TokenId> old = RandomTokens(64, 3);
  const std::vector<TokenId> recent = RandomTokens(64, 4);
  for (const auto& tokens : {old, recent}) {
    DraftContext context;
    ASSERT_TRUE(Fill(tokens, &context));
    kv_->Release(&context);
  }
  EXPECT_EQ(kv_->slots_free(), 6u);
  DraftContext large;
  ASSERT_TRUE(Fill(RandomTokens(5 * 32, 5), &large));
  DraftContext look;
  kv_->Extend({}, RandomTokens(65, 3), &look);
  EXPECT_EQ(look.computed, 32u) << "its last block went first";
  kv_->Release(&look);
  DraftContext one_more;
  EXPECT_TRUE(kv_->Reserve(32, &one_more));
  EXPECT_FALSE(kv_->Reserve(64, &one_more)) << "the rest is in use";
  EXPECT_EQ(large.computed, 5u * 32);
  kv_->Release(&large);
  EXPECT_TRUE(kv_->Reserve(64, &one_more));
}

// ---- What sequences say -------------------------------------------------------------------------

class DraftModel : public testing::Test {
 protected:
  static EngineOptions Options(uint32_t drafts = 12) {
    EngineOptions options;
    options.threads = 2;
    options.step_budget_ns = 0;
    options.draft_tokens_max = drafts;
    options.draft_always = true;
    return options;
  }
  static SequenceSpec Spec(EngineHarness& harness, uint32_t prompt, uint64_t seed,
                           float temperature, uint32_t said = 100) {
    SequenceSpec spec = harness.Spec(RandomTokens(prompt, seed), said);
    spec.sampling.temperature = temperature;
    spec.sampling.seed = seed;
    spec.sampling.ignore_eos = true;
    return spec;
  }
};

// The best oracle: two models that think alike draw alike, with noise, too, unless one forgets a
// token or keeps a wrong one.
TEST_F(DraftModel, IsAlwaysRightWhereItIsTheServedModel) {
  const TinyShape shape;
  const auto model = LoadTinyModel(shape);
  for (const float temperature : {0.0f, 0.9f}) {
    EngineHarness harness(*model, Options(), 4096, model.get(), 512);
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      SequenceSpec spec = Spec(harness, 20 + 31 * static_cast<uint32_t>(seed), seed, temperature);
      if (seed == 2) spec.sampling.top_p = 0.9f;
      if (seed == 3) spec.sampling.repetition_penalty = 1.2f;
      if (seed == 4) spec.sampling.biases = {{7, 4.0f}};
      harness.Submit(std::move(spec));
    }
    harness.Run();
    const EngineCounters& counters = harness.engine().counters();
    EXPECT_GT(counters.model_drafted_tokens.load(), 250u);
    EXPECT_EQ(counters.model_accepted_tokens.load(), counters.model_drafted_tokens.load());
    EXPECT_LT(counters.steps.load(), 60u) << "of 100 tokens each";
  }
}

TEST_F(DraftModel, ChangesNothingThatIsSaid) {
  const TinyShape shape;
  const auto model = LoadTinyModel(shape);
  TinyShape other = shape;
  other.layers = 1;
  other.seed = 77;
  const auto wrong = LoadTinyModel(other);
  for (const auto& [draft, slots] : {std::pair{model.get(), 512u}, {wrong.get(), 512u},
                                     {model.get(), 20u}}) {
    for (const float temperature : {0.0f, 0.8f}) {
      std::vector<SequenceResult> results[2];
      for (const bool drafts : {false, true}) {
        EngineHarness harness(*model, Options(drafts ? 12 : 0), 8192, drafts ? draft : nullptr,
                              slots);
        std::vector<SequenceId> ids;
        for (uint64_t seed = 1; seed <= 6; ++seed) {
          SequenceSpec spec = Spec(harness, 11 + 29 * static_cast<uint32_t>(seed), seed,
                                   temperature, 60 + static_cast<uint32_t>(seed));
          spec.sampling.want_logprobs = seed % 2 == 0;
          spec.sampling.logits_hash = true;
          ids.push_back(harness.Submit(std::move(spec)));
          harness.Step();
        }
        harness.Run();
        for (const SequenceId id : ids) results[drafts].push_back(harness.result(id));
        if (drafts && draft == wrong.get()) {
          const EngineCounters& counters = harness.engine().counters();
          EXPECT_LT(counters.model_accepted_tokens.load(), counters.model_drafted_tokens.load());
        }
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        SCOPED_TRACE(testing::Message() << "sequence " << i << " slots " << slots);
        const SequenceResult& with = results[1][i];
        const SequenceResult& without = results[0][i];
        EXPECT_EQ(with.tokens, without.tokens);
        EXPECT_EQ(with.finished->logits_hash, without.finished->logits_hash);
        EXPECT_EQ(with.finished->computed, without.finished->computed);
      }
    }
  }
}

// Wrong guesses now and then, so that each of the next ones stands on KV that was undone.
TEST_F(DraftModel, GoesOnRightAfterWrongGuesses) {
  const TinyShape shape;
  const auto model = LoadTinyModel(shape);
  EngineHarness harness(*model, Options(), 4096, model.get(), 512);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    // What the served model reads in 16 bits, the draft model reads in 8: now and then they differ.
    SequenceSpec spec = harness.Spec(RandomTokens(50, seed), 300, Fidelity::kExact);
    spec.sampling.temperature = 1.0f;
    spec.sampling.seed = seed;
    spec.sampling.ignore_eos = true;
    harness.Submit(std::move(spec));
  }
  harness.Run();
  const EngineCounters& counters = harness.engine().counters();
  const double share = static_cast<double>(counters.model_accepted_tokens.load()) /
                       static_cast<double>(counters.model_drafted_tokens.load());
  EXPECT_GT(share, 0.7);
  EXPECT_LT(share, 0.999);
}

TEST_F(DraftModel, ComputesOfALaterTurnWhatItAdds) {
  const TinyShape shape;
  const auto model = LoadTinyModel(shape);
  EngineOptions options = Options();
  options.chunk_tokens_max = 32;  // of both models in a step
  uint64_t steps[2];
  for (const bool is_later : {false, true}) {
    EngineHarness harness(*model, options, 4096, model.get(), 512);
    if (is_later) harness.RunAlone(Spec(harness, 200, 9, 0.0f, 40));
    const uint64_t before = harness.engine().counters().steps.load();
    harness.RunAlone(Spec(harness, 200, 9, 0.0f, 40));
    steps[is_later] = harness.engine().counters().steps.load() - before;
  }
  EXPECT_LE(steps[1] + 5, steps[0]);
}

TEST_F(DraftModel, GivesBackWhatCancelledSequencesHeld) {
  const TinyShape shape;
  const auto model = LoadTinyModel(shape);
  EngineHarness harness(*model, Options(), 4096, model.get(), 40);
  std::vector<SequenceId> ids;
  for (uint64_t round = 0; round < 12; ++round) {
    const SequenceId id = harness.Submit(Spec(harness, 90, round, 0.0f, 200));
    for (int i = 0; i < 6; ++i) harness.Step();
    EXPECT_TRUE(harness.engine().Cancel(id));
    ids.push_back(id);
  }
  harness.Run();
  for (const SequenceId id : ids) {
    EXPECT_EQ(harness.result(id).finished->cause, FinishCause::kCancelled);
  }
  // What they held is free again: another one is served as the first was.
  const uint64_t before = harness.engine().counters().model_drafted_tokens.load();
  harness.RunAlone(Spec(harness, 90, 99, 0.0f, 100));
  EXPECT_GT(harness.engine().counters().model_drafted_tokens.load(), before + 60);
}

TEST_F(DraftModel, RefusesAnArenaOfAnotherModel) {
  const TinyShape shape;
  const auto model = LoadTinyModel(shape);
  auto arena = KvArena::Create(model->kv_geometry(), 64);
  KvGeometry other = model->kv_geometry();
  ++other.layers;
  auto draft_arena = KvArena::Create(other, 64);
  EXPECT_FALSE(
      Engine::Create(*model, **arena, Options(), {model.get(), draft_arena->get()}).ok());
}

}  // namespace
}  // namespace kairos
