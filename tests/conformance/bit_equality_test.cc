// SPDX-License-Identifier: Apache-2.0
// What the test model computes for a sequence is the same to the last bit, however it came about:
// alone or in company, on any number of threads, in any chunks, on shared or copied blocks, kept
// or computed again from its tokens. Compared is a hash of the logits of every step.
//
// $KAIROS_FULL=1 runs all start lengths in both fidelities over 256 tokens (minutes); otherwise a
// few of them over 40. Skipped without the test model (see tests/README.md).
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <utility>

#include "sidecar/engine/kernels/kernel_table.h"
#include "sidecar/model/gguf.h"
#include "tests/support/engine_harness.h"

namespace kairos {
namespace {

constexpr uint32_t kSlots = 4096;
constexpr uint64_t kSeed = 20;

bool FullGrid() {
  const char* value = std::getenv("KAIROS_FULL");
  return value != nullptr && *value != '\0' && *value != '0';
}

// A start length around the edges of blocks (32) and of attention splits (256).
struct Start {
  uint32_t length = 0;
  Fidelity fidelity = Fidelity::kDefault;
  friend auto operator<=>(const Start&, const Start&) = default;

  std::string name() const {
    return std::to_string(length) + (fidelity == Fidelity::kExact ? " exact" : " default");
  }
};

std::vector<Start> Starts() {
  const std::vector<uint32_t> full = {31, 32, 33, 255, 256, 257, 511, 512, 513, 3000};
  const std::vector<uint32_t> some = {31, 32, 257, 513};
  std::vector<Start> starts;
  for (const uint32_t length : FullGrid() ? full : some) {
    starts.push_back({length, Fidelity::kDefault});
    if (FullGrid() || length == 31 || length == 257) starts.push_back({length, Fidelity::kExact});
  }
  return starts;
}

uint32_t GeneratedTokens() { return FullGrid() ? 256 : 40; }

std::unique_ptr<Model> LoadTestModel(const KernelTable* kernels) {
  std::string error;
  auto file = GgufFile::Open(TestModelPath(), &error);
  if (!file.ok() || kernels == nullptr) return nullptr;
  auto model = Model::Load(**file, *kernels, {}, &error);
  return model.ok() ? model.Take() : nullptr;
}

std::vector<TokenId> Prompt(uint32_t count, uint32_t vocabulary, uint64_t seed = kSeed) {
  std::mt19937_64 random(seed * 100'003 + count);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocabulary);
  return tokens;
}

EngineOptions Options(uint32_t threads, uint32_t chunk) {
  EngineOptions options;
  options.threads = threads;
  options.chunk_tokens_max = chunk;
  options.step_budget_ns = 0;
  return options;
}

// Noise keeps greedy decoding from ending in a loop of few tokens.
SamplingParams Noisy(uint64_t seed) {
  SamplingParams params;
  params.temperature = 0.8f;
  params.seed = seed;
  params.ignore_eos = true;
  params.logits_hash = true;
  return params;
}

// Tokens that were sampled and the hash of the logits each was sampled from.
struct Trace {
  std::vector<TokenId> tokens;
  std::vector<uint64_t> hashes;
};

Trace TraceOf(const SequenceResult& result) {
  Trace trace;
  trace.tokens = result.tokens;
  for (const EngineEvent& event : result.events) trace.hashes.push_back(event.logits_hash);
  return trace;
}

class BitEquality : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!TestModelPath().empty()) model_ = LoadTestModel(ChooseKernels()).release();
  }
  static void TearDownTestSuite() {
    delete std::exchange(model_, nullptr);
    references_.clear();
  }
  void SetUp() override {
    if (TestModelPath().empty())
      GTEST_SKIP() << "no model file; set KAIROS_TEST_MODEL or run tools/model";
    ASSERT_NE(model_, nullptr) << "the model file or $KAIROS_KERNELS is unusable";
  }

  static uint32_t vocabulary() { return model_->parameters().vocabulary; }

  static SequenceSpec Spec(EngineHarness& harness, const Start& start) {
    SequenceSpec spec = harness.Spec(Prompt(start.length, vocabulary()), GeneratedTokens(),
                                     start.fidelity);
    spec.sampling = Noisy(kSeed);
    return spec;
  }

  // The same sequence from `tokens` on, which begin with the prompt.
  static SequenceSpec Continuation(EngineHarness& harness, const Start& start,
                                   const std::vector<TokenId>& tokens) {
    const uint32_t said = static_cast<uint32_t>(tokens.size()) - start.length;
    SequenceSpec spec = harness.Spec(tokens, GeneratedTokens() - said, start.fidelity);
    spec.sampling = Noisy(kSeed);
    return spec;
  }

  // Alone in a fresh engine, one thread, the prompt in as few steps as possible.
  static const Trace& Reference(const Start& start) {
    Trace& trace = references_[start];
    if (trace.hashes.empty()) {
      EngineHarness harness(*model_, Options(1, 512), kSlots);
      trace = TraceOf(harness.RunAlone(Spec(harness, start)));
    }
    return trace;
  }

  // `got` equals the reference from its step `skip` on.
  static void ExpectReference(const Start& start, const SequenceResult& got, uint32_t skip = 0) {
    const Trace& want = Reference(start);
    const Trace trace = TraceOf(got);
    ASSERT_EQ(want.hashes.size(), GeneratedTokens());
    ASSERT_EQ(trace.hashes.size() + skip, want.hashes.size());
    for (size_t step = 0; step < trace.hashes.size(); ++step) {
      ASSERT_EQ(trace.hashes[step], want.hashes[step + skip])
          << "logits of step " << step + skip << " of start length " << start.name() << ", seed "
          << kSeed;
      ASSERT_EQ(trace.tokens[step], want.tokens[step + skip]);
    }
  }

  static std::vector<TokenId> TokensAfter(const Start& start, uint32_t steps) {
    std::vector<TokenId> tokens = Prompt(start.length, vocabulary());
    const Trace& trace = Reference(start);
    tokens.insert(tokens.end(), trace.tokens.begin(), trace.tokens.begin() + steps);
    return tokens;
  }

  // Sequences of no interest that keep an engine busy, until it has `count` in all.
  static void AddMates(EngineHarness& harness, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      SequenceSpec spec = harness.Spec(Prompt(7 + 23 * i, vocabulary(), 1000 + i),
                                       GeneratedTokens() - i % 7,
                                       i % 3 == 0 ? Fidelity::kExact : Fidelity::kDefault);
      spec.sampling = Noisy(i);
      harness.Submit(std::move(spec));
    }
  }

  inline static Model* model_ = nullptr;
  inline static std::map<Start, Trace> references_;
};

TEST_F(BitEquality, HoldsForEveryStepToBeDifferent) {
  for (const Start& start : Starts()) {
    const Trace& trace = Reference(start);
    ASSERT_EQ(trace.hashes.size(), GeneratedTokens());
    std::map<uint64_t, int> seen;
    for (const uint64_t hash : trace.hashes) ++seen[hash];
    EXPECT_EQ(seen.size(), trace.hashes.size()) << start.name();
    EXPECT_FALSE(seen.contains(0)) << start.name();
  }
}

TEST_F(BitEquality, TellsFidelitiesApartWhereThereAreSealedBlocks) {
  EXPECT_NE(Reference({257, Fidelity::kDefault}).hashes[0],
            Reference({257, Fidelity::kExact}).hashes[0]);
  EXPECT_EQ(Reference({31, Fidelity::kDefault}).hashes[0],
            Reference({31, Fidelity::kExact}).hashes[0]);
}

// The prompt repeats itself, so that there is much to guess; noise makes many guesses wrong.
TEST_F(BitEquality, HoldsWithGuessedTokens) {
  const std::vector<TokenId> words = Prompt(41, vocabulary());
  std::vector<TokenId> prompt;
  while (prompt.size() < 257) prompt.insert(prompt.end(), words.begin(), words.end());
  for (const Fidelity fidelity : {Fidelity::kDefault, Fidelity::kExact}) {
    for (const float temperature : {0.0f, 0.4f}) {
      SCOPED_TRACE(testing::Message() << "temperature " << temperature);
      Trace traces[2];
      uint64_t drafted = 0, accepted = 0;
      for (const bool guesses : {false, true}) {
        EngineOptions options = Options(2, 512);
        options.draft_tokens_max = guesses ? 16 : 0;
        options.draft_always = true;
        EngineHarness harness(*model_, options, kSlots);
        SequenceSpec spec = harness.Spec(prompt, GeneratedTokens(), fidelity);
        spec.sampling = Noisy(kSeed);
        spec.sampling.temperature = temperature;
        const SequenceId id = harness.Submit(std::move(spec));
        AddMates(harness, 3);
        harness.Run();
        traces[guesses] = TraceOf(harness.result(id));
        drafted = harness.engine().counters().drafted_tokens.load();
        accepted = harness.engine().counters().accepted_tokens.load();
      }
      EXPECT_EQ(traces[1].tokens, traces[0].tokens);
      EXPECT_EQ(traces[1].hashes, traces[0].hashes);
      EXPECT_EQ(traces[0].hashes.size(), GeneratedTokens());
      EXPECT_GT(accepted, 0u);
      EXPECT_GT(drafted, accepted);
    }
  }
}

TEST_F(BitEquality, HoldsForEveryChunkAndThreadCount) {
  const std::pair<uint32_t, uint32_t> ways[] = {{2, 32}, {2, 512}, {1, 32}};
  for (const auto& [threads, chunk] : ways) {
    SCOPED_TRACE(testing::Message() << threads << " threads, chunks of " << chunk);
    for (const Start& start : Starts()) {
      EngineHarness harness(*model_, Options(threads, chunk), kSlots);
      ExpectReference(start, harness.RunAlone(Spec(harness, start)));
    }
  }
}

TEST_F(BitEquality, HoldsAmongThirtyOneMates) {
  const std::vector<Start> starts = Starts();
  const std::pair<uint32_t, uint32_t> ways[] = {{2, 96}, {1, 512}};
  for (const auto& [threads, chunk] : ways) {
    SCOPED_TRACE(testing::Message() << threads << " threads, chunks of " << chunk);
    EngineHarness harness(*model_, Options(threads, chunk), kSlots);
    AddMates(harness, 32 - static_cast<uint32_t>(starts.size()));
    std::vector<SequenceId> ids;
    for (const Start& start : starts) {
      ids.push_back(harness.Submit(Spec(harness, start)));
      harness.Step();  // they meet at different points of their lives
    }
    harness.Run();
    for (size_t i = 0; i < starts.size(); ++i) ExpectReference(starts[i], harness.result(ids[i]));
  }
}

// Slots of the whole blocks among the first `tokens` are those of `owner`.
void ShareBlocks(const SequenceSpec& owner, uint32_t tokens, SequenceSpec* spec) {
  const uint32_t per_block = owner.fidelity == Fidelity::kExact ? 2 : 1;
  const uint32_t slots = tokens / kBlockTokens * per_block;
  for (uint32_t i = 0; i < slots; ++i) spec->slots[i] = owner.slots[i];
}

// Gives `spec` what `owner` has computed: whole blocks shared, the unfinished one to be copied.
void Fork(const SequenceSpec& owner, uint32_t computed, SequenceSpec* spec) {
  ShareBlocks(owner, computed, spec);
  spec->computed = computed;
  if (computed % kBlockTokens == 0) return;
  const uint32_t block = computed / kBlockTokens;
  for (uint32_t half = 0; half < 2; ++half) {
    spec->open_source.push_back(owner.fidelity == Fidelity::kExact ? owner.slots[2 * block + half]
                                                                   : owner.open[half]);
  }
}

TEST_F(BitEquality, HoldsForSequencesThatShareAPrefix) {
  EngineHarness harness(*model_, Options(2, 160), kSlots);
  std::vector<std::pair<Start, SequenceId>> twins;
  for (const Start& start : Starts()) {
    const uint32_t shared = (start.length - 1) / kBlockTokens * kBlockTokens;
    if (shared == 0) continue;
    SequenceSpec owner = harness.Spec(Prompt(start.length, vocabulary()), 0, start.fidelity);
    owner.tokens.resize(shared);
    harness.RunAlone(owner);
    for (int i = 0; i < 2; ++i) {
      SequenceSpec twin = Spec(harness, start);
      ShareBlocks(owner, shared, &twin);
      twin.computed = shared;
      twins.emplace_back(start, harness.Submit(std::move(twin)));
    }
  }
  ASSERT_FALSE(twins.empty());
  harness.Run();
  for (const auto& [start, id] : twins) ExpectReference(start, harness.result(id));
}

// The model drafts for itself. It reads its own KV in 8 bits, so beside exact sequences its guesses
// are wrong at times.
TEST_F(BitEquality, HoldsWithADraftModel) {
  uint64_t wrong = 0;
  for (const Fidelity fidelity : {Fidelity::kDefault, Fidelity::kExact}) {
    for (const float temperature : {0.0f, 0.8f}) {
      SCOPED_TRACE(testing::Message() << "temperature " << temperature);
      std::vector<Trace> traces[2];
      for (const bool drafts : {false, true}) {
        EngineOptions options = Options(2, 512);
        options.draft_tokens_max = drafts ? 16 : 0;
        options.draft_always = true;
        EngineHarness harness(*model_, options, kSlots, drafts ? model_ : nullptr, 512);
        const auto add_noise = [&](SequenceSpec* spec, uint64_t seed) {
          spec->sampling = Noisy(seed);
          spec->sampling.temperature = temperature;
        };
        SequenceSpec parent = harness.Spec(Prompt(70, vocabulary()), 23, fidelity);
        add_noise(&parent, 1);
        const SequenceResult begun = harness.RunAlone(parent);
        traces[drafts].push_back(TraceOf(begun));
        std::vector<TokenId> tokens = parent.tokens;
        tokens.insert(tokens.end(), begun.tokens.begin(), begun.tokens.end());
        std::vector<SequenceId> ids;
        for (const uint64_t seed : {1, 2}) {
          SequenceSpec child = harness.Spec(tokens, GeneratedTokens(), fidelity);
          add_noise(&child, seed);
          Fork(parent, begun.finished->computed, &child);
          ids.push_back(harness.Submit(std::move(child)));
        }
        SequenceSpec cancelled = harness.Spec(Prompt(40, vocabulary(), 5), 200, fidelity);
        const SequenceId cancelled_id = harness.Submit(std::move(cancelled));
        AddMates(harness, 2);
        for (int i = 0; i < 4; ++i) harness.Step();
        EXPECT_TRUE(harness.engine().Cancel(cancelled_id));
        harness.Run();
        for (const SequenceId id : ids) traces[drafts].push_back(TraceOf(harness.result(id)));
        if (!drafts) continue;
        const uint64_t guessed = harness.engine().counters().model_drafted_tokens.load();
        const uint64_t right = harness.engine().counters().model_accepted_tokens.load();
        EXPECT_GT(guessed, 2 * GeneratedTokens());
        EXPECT_GT(right, guessed / 2);
        if (fidelity == Fidelity::kExact) wrong += guessed - right;
      }
      ASSERT_EQ(traces[0].size(), traces[1].size());
      for (size_t i = 0; i < traces[0].size(); ++i) {
        EXPECT_EQ(traces[1][i].tokens, traces[0][i].tokens) << i;
        EXPECT_EQ(traces[1][i].hashes, traces[0][i].hashes) << i;
      }
    }
  }
  EXPECT_GT(wrong, 0u);
}

TEST_F(BitEquality, HoldsForForksAndForTheSequenceTheyLeft) {
  const uint32_t said = GeneratedTokens() / 2 + 3;
  EngineHarness harness(*model_, Options(2, 64), kSlots);
  std::vector<std::pair<Start, SequenceId>> equals;
  std::vector<std::pair<Start, SequenceId>> strays;
  for (const Start& start : Starts()) {
    const std::vector<TokenId> tokens = TokensAfter(start, said);
    const uint32_t computed = static_cast<uint32_t>(tokens.size()) - 1;
    SequenceSpec parent = Spec(harness, start);
    SequenceSpec begin = parent;
    begin.max_new_tokens = said;
    const SequenceResult begun = harness.RunAlone(std::move(begin));
    ASSERT_EQ(begun.finished->computed, computed);
    SequenceSpec child = Continuation(harness, start, tokens);
    Fork(parent, computed, &child);
    SequenceSpec stray = Continuation(harness, start, tokens);
    Fork(parent, computed, &stray);
    stray.sampling = Noisy(kSeed + 1);
    SequenceSpec rest = Continuation(harness, start, tokens);
    rest.slots = parent.slots;
    rest.open = parent.open;
    rest.computed = computed;
    strays.emplace_back(start, harness.Submit(std::move(stray)));
    equals.emplace_back(start, harness.Submit(std::move(child)));
    equals.emplace_back(start, harness.Submit(std::move(rest)));
    harness.Step();
  }
  harness.Run();
  for (const auto& [start, id] : equals) ExpectReference(start, harness.result(id), said);
  size_t astray = 0;  // now and then a sequence is in a loop that no seed leads out of
  for (const auto& [start, id] : strays) {
    const SequenceResult& stray = harness.result(id);
    EXPECT_EQ(stray.events[0].logits_hash, Reference(start).hashes[said]) << start.name();
    astray += stray.events.back().logits_hash != Reference(start).hashes.back();
  }
  EXPECT_GE(astray * 2, strays.size());
}

TEST_F(BitEquality, HoldsForSequencesResumedFromTheirTokensAlone) {
  for (const uint32_t said : {1u, GeneratedTokens() / 2, GeneratedTokens() - 1}) {
    SCOPED_TRACE(testing::Message() << "stopped after " << said);
    EngineHarness harness(*model_, Options(2, 512), kSlots);
    std::vector<std::pair<Start, SequenceId>> resumed;
    for (const Start& start : Starts()) {
      resumed.emplace_back(
          start, harness.Submit(Continuation(harness, start, TokensAfter(start, said))));
    }
    harness.Run();
    for (const auto& [start, id] : resumed) ExpectReference(start, harness.result(id), said);
  }
}

TEST_F(BitEquality, HoldsForEveryTierOfThisMachine) {
  struct Try {
    const char* tier;
    uint32_t length;
    uint32_t said;
  };
  // The last steps of a long start and, where a tier is slow, few tokens.
  const Try tries[] = {
      {"avx2", 257, 24}, {"avx_vnni", 257, 24}, {"avx512_vnni", 257, 24}, {"scalar", 33, 8}};
  uint32_t compared = 0;
  for (const Try& attempt : tries) {
    const KernelTable* kernels = FindKernels(attempt.tier);
    if (kernels == nullptr || kernels == ChooseKernels()) continue;
    SCOPED_TRACE(attempt.tier);
    std::unique_ptr<Model> other = LoadTestModel(kernels);
    ASSERT_NE(other, nullptr);
    for (const Fidelity fidelity : {Fidelity::kDefault, Fidelity::kExact}) {
      Trace traces[2];
      const Model* models[2] = {model_, other.get()};
      for (int i = 0; i < 2; ++i) {
        EngineHarness harness(*models[i], Options(2, 512), 64);
        SequenceSpec spec = harness.Spec(Prompt(attempt.length, vocabulary()), attempt.said,
                                         fidelity);
        spec.sampling = Noisy(kSeed);
        traces[i] = TraceOf(harness.RunAlone(std::move(spec)));
      }
      EXPECT_EQ(traces[0].hashes, traces[1].hashes);
      EXPECT_EQ(traces[0].tokens, traces[1].tokens);
      EXPECT_EQ(traces[0].hashes.size(), attempt.said);
      ++compared;
    }
  }
  if (compared == 0) GTEST_SKIP() << "no second tier on this machine";
}

}  // namespace
}  // namespace kairos
