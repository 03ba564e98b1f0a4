// SPDX-License-Identifier: Apache-2.0
// The forward pass against plain double arithmetic over the same weights.
#include "sidecar/engine/forward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/support/forward_logits.h"
#include "tests/support/tiny_model.h"

namespace kairos {
namespace {

std::vector<TokenId> RandomTokens(uint32_t count, uint32_t vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocabulary);
  return tokens;
}

// Root of the squared error over that of the squared reference.
double RelativeError(const std::vector<float>& got, const std::vector<std::vector<double>>& want) {
  double error = 0.0, size = 0.0;
  size_t at = 0;
  for (const auto& row : want) {
    for (const double value : row) {
      error += (got[at] - value) * (got[at] - value);
      size += value * value;
      ++at;
    }
  }
  return std::sqrt(error / size);
}

struct Case {
  const char* name;
  TinyShape shape;
  Fidelity fidelity;
  double bound;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  TinyShape floats;
  floats.matrix_type = 0;
  floats.embedding_type = 0;
  // Float weights, 16-bit KV: only the KV's rounding is left.
  cases.push_back({"float_exact", floats, Fidelity::kExact, 2e-3});
  cases.push_back({"float_sealed", floats, Fidelity::kDefault, 3e-2});
  TinyShape quantised;
  cases.push_back({"q4_1_exact", quantised, Fidelity::kExact, 3e-2});
  cases.push_back({"q4_1_sealed", quantised, Fidelity::kDefault, 3e-2});
  TinyShape other = quantised;
  other.matrix_type = 8;
  other.embedding_type = 3;
  other.separate_head = true;
  other.rope_factors = true;
  other.kv_heads = 1;
  other.head_dim = 64;
  cases.push_back({"q8_0_llama3", other, Fidelity::kDefault, 3e-2});
  TinyShape odd = quantised;  // no width is a multiple of a panel's 16 rows times the threads
  odd.hidden = 96;
  odd.feed_forward = 224;
  odd.heads = odd.kv_heads = 1;
  odd.head_dim = 96;
  odd.vocabulary = 277;
  odd.separate_head = true;
  cases.push_back({"one_head_odd_widths", odd, Fidelity::kDefault, 3e-2});
  TinyShape q4_0 = quantised;
  q4_0.matrix_type = 2;
  q4_0.kv_heads = 4;
  cases.push_back({"q4_0_no_groups", q4_0, Fidelity::kDefault, 3e-2});
  return cases;
}

TEST(Forward, StaysCloseToDoubleArithmeticOnTheSameWeights) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const ReferenceModel reference(c.shape, BuildTinyGguf(c.shape));
    const auto model = LoadTinyModel(c.shape);
    const auto tokens = RandomTokens(300, c.shape.vocabulary, 7);
    const double error =
        RelativeError(AllLogits(*model, tokens, 512, c.fidelity, 1), reference.Forward(tokens));
    EXPECT_LT(error, c.bound);
    std::printf("%s: relative error %.2e\n", c.name, error);
  }
}

TEST(Forward, GivesTheSameBitsForEveryChunkingAndThreadCount) {
  const TinyShape shape;
  const auto model = LoadTinyModel(shape);
  const auto tokens = RandomTokens(333, shape.vocabulary, 11);
  for (const Fidelity fidelity : {Fidelity::kDefault, Fidelity::kExact}) {
    const auto want = AllLogits(*model, tokens, 512, fidelity, 1);
    for (const uint32_t chunk : {1u, 7u, 32u, 45u, 64u, 300u}) {
      SCOPED_TRACE(chunk);
      EXPECT_TRUE(AllLogits(*model, tokens, chunk, fidelity, chunk % 2 + 2) == want);
    }
  }
}

TEST(Forward, GivesTheSameBitsOnEveryTierOfThisMachine) {
  const TinyShape shape;
  const auto tokens = RandomTokens(100, shape.vocabulary, 13);
  const auto want = AllLogits(*LoadTinyModel(shape, "scalar"), tokens, 64, Fidelity::kDefault, 2);
  uint32_t tiers = 0;
  for (const char* name : {"avx2", "avx_vnni", "avx512_vnni"}) {
    if (FindKernels(name) == nullptr) continue;
    ++tiers;
    EXPECT_TRUE(AllLogits(*LoadTinyModel(shape, name), tokens, 64, Fidelity::kDefault, 2) == want)
        << name;
  }
  if (tiers == 0) GTEST_SKIP() << "no vector tier on this machine";
}

// A prefix of 530 tokens in the same slots for all, then words of each one's own; one step with one
// to three new tokens each, together and one sequence after the other.
TEST(Forward, GivesTheSameBitsWhetherAPrefixIsReadOnceOrForEach) {
  const TinyShape shape;
  const auto model = LoadTinyModel(shape);
  const uint32_t common = 530, sequences = 15;
  for (const Fidelity fidelity : {Fidelity::kDefault, Fidelity::kExact}) {
    const uint32_t per_block = fidelity == Fidelity::kExact ? 2 : 1;
    const uint32_t shared_blocks = common / kBlockTokens;
    const auto arena = KvArena::Create(model->kv_geometry(), 1000);
    WorkerPool pool(2);
    Forward forward(*model, **arena, pool);
    uint32_t next_slot = 0;
    std::vector<std::vector<TokenId>> tokens;
    std::vector<std::vector<SlotId>> slots;
    std::vector<Segment> segments(sequences);
    std::vector<std::array<SlotId, 2>> open(sequences);
    for (uint32_t i = 0; i < sequences; ++i) {
      tokens.push_back(RandomTokens(common, shape.vocabulary, 5));
      // The step ends before the block does, so that it can be computed twice.
      const uint32_t length = 544 + 32 * (i % 4) + 5 + i + 1 + i % 3;
      const auto own = RandomTokens(length - common, shape.vocabulary, 100 + i);
      tokens[i].insert(tokens[i].end(), own.begin(), own.end());
      slots.push_back(i == 0 ? std::vector<SlotId>()
                             : std::vector<SlotId>(slots[0].begin(),
                                                   slots[0].begin() + shared_blocks * per_block));
      // The last ones share less: their second run lies elsewhere.
      const uint32_t kept = i > 12 ? 10 * per_block : shared_blocks * per_block;
      if (i > 0) slots[i].resize(kept);
      while (slots[i].size() < 30 * per_block) slots[i].push_back(SlotId{next_slot++});
      open[i] = {SlotId{next_slot}, SlotId{next_slot + 1}};
      segments[i].open = open[i].data();
      next_slot += 2;
    }
    for (uint32_t i = 0; i < sequences; ++i) {
      Segment& segment = segments[i];
      segment.tokens = tokens[i].data();
      segment.count = static_cast<uint32_t>(tokens[i].size()) - 1 - i % 3;
      segment.fidelity = fidelity;
      segment.slots = slots[i].data();
      forward.Run({&segment, 1});
      segment.position = segment.count;
      segment.tokens += segment.count;
      segment.count = 1 + i % 3;
      segment.logit_rows = segment.count;
    }
    std::vector<float> alone, together;
    for (const Segment& segment : segments) {
      forward.Run({&segment, 1});
      EXPECT_EQ(forward.shared_runs(), 0u);
      alone.insert(alone.end(), forward.logits(0), forward.logits(segment.count));
    }
    forward.Run(segments);
    EXPECT_GE(forward.shared_runs(), 2u);
    together.insert(together.end(), forward.logits(0), forward.logits(30));
    EXPECT_EQ(alone.size(), together.size());
    EXPECT_TRUE(alone == together);
  }
}

TEST(Forward, SeesOnlyEarlierTokens) {
  const TinyShape shape;
  const auto model = LoadTinyModel(shape);
  auto tokens = RandomTokens(80, shape.vocabulary, 17);
  const auto before = AllLogits(*model, tokens, 512, Fidelity::kDefault, 1);
  tokens[70] = (tokens[70] + 1) % static_cast<TokenId>(shape.vocabulary);
  const auto after = AllLogits(*model, tokens, 512, Fidelity::kDefault, 1);
  const size_t boundary = 70 * shape.vocabulary;
  EXPECT_TRUE(
      std::equal(before.begin(), before.begin() + static_cast<ptrdiff_t>(boundary), after.begin()));
  EXPECT_FALSE(std::equal(before.begin() + static_cast<ptrdiff_t>(boundary), before.end(),
                          after.begin() + static_cast<ptrdiff_t>(boundary)));
}

}  // namespace
}  // namespace kairos
