// SPDX-License-Identifier: Apache-2.0
// Every tier gives the bits of `scalar`, for every entry of the table. Tiers of this CPU run as
// they are; those with VNNI also run on an emulation of their instructions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/engine/kernels/kernel_inputs.h"

namespace kairos {

#if defined(KAIROS_KERNELS_X86)
extern const KernelTable kEmulatedAvx512Kernels;
extern const KernelTable kEmulatedAvxVnniKernels;
#endif

namespace {

constexpr uint64_t kSeed = 20240611;

const KernelTable* Find(const std::string& name) {
#if defined(KAIROS_KERNELS_X86)
  // The emulations are made of AVX2 instructions.
  const bool emulates = FindKernels("avx2") != nullptr;
  if (name == "avx512_emulated") return emulates ? &kEmulatedAvx512Kernels : nullptr;
  if (name == "avx_vnni_emulated") return emulates ? &kEmulatedAvxVnniKernels : nullptr;
#endif
  return FindKernels(name.c_str());
}

template <typename T>
::testing::AssertionResult SameBits(const std::vector<T>& expected, const std::vector<T>& actual) {
  for (uint64_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(&expected[i], &actual[i], sizeof(T)) != 0) {
      return ::testing::AssertionFailure() << "element " << i << " of " << expected.size() << ": "
                                           << +expected[i] << " and " << +actual[i];
    }
  }
  return ::testing::AssertionSuccess();
}

class KernelConformance : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    tier_ = Find(GetParam());
    if (tier_ == nullptr) GTEST_SKIP() << GetParam() << " does not run on this CPU";
    RecordProperty("seed", std::to_string(kSeed));
  }

  void ExpectSameMatmul(WeightType type, uint32_t rows, uint32_t columns, uint32_t m) {
    const uint32_t cols = ColumnsOf(type, columns);
    SCOPED_TRACE("type " + std::to_string(static_cast<uint32_t>(type)) + " rows " +
                 std::to_string(rows) + " cols " + std::to_string(cols) + " m " +
                 std::to_string(m));
    RandomMatrix matrix(inputs_, type, rows, cols);
    const std::vector<float> x = inputs_.Floats(uint64_t{m} * cols, 1.0f);
    const uint64_t stride = rows + 5;
    std::vector<float> expected(stride * m, 7.0f), actual(stride * m, 7.0f);
    const uint32_t panels = matrix.packed().panels();
    if (!IsQuantized(LayoutOf(type))) {
      scalar_.matmul_float(matrix.packed(), 0, panels, x.data(), cols, m, expected.data(), stride);
      tier_->matmul_float(matrix.packed(), 0, panels, x.data(), cols, m, actual.data(), stride);
    } else {
      Activations rows_of_x(scalar_, x, m, cols);
      scalar_.matmul_quantized(matrix.packed(), 0, panels, rows_of_x.at(0), m, expected.data(),
                               stride);
      tier_->matmul_quantized(matrix.packed(), 0, panels, rows_of_x.at(0), m, actual.data(),
                              stride);
    }
    EXPECT_TRUE(SameBits(expected, actual));
  }

  void ExpectSameSplit(const SplitShape& shape) {
    SCOPED_TRACE("head_dim " + std::to_string(shape.head_dim) + " group " +
                 std::to_string(shape.group) + " queries " + std::to_string(shape.query_count) +
                 " blocks " + std::to_string(shape.blocks) + " sealed " +
                 std::to_string(shape.sealed_mask) + " own " + std::to_string(shape.own) + "+" +
                 std::to_string(shape.own_first) + " magnitude " + std::to_string(shape.magnitude));
    RandomSplit split(inputs_, scalar_, shape);
    const RandomSplit::Result expected = split.Run(scalar_);
    const RandomSplit::Result actual = split.Run(*tier_);
    EXPECT_TRUE(SameBits(expected.maxima, actual.maxima));
    EXPECT_TRUE(SameBits(expected.sums, actual.sums));
    EXPECT_TRUE(SameBits(expected.values, actual.values));
    for (const float value : actual.values) ASSERT_TRUE(std::isfinite(value));
  }

  const KernelTable& scalar_ = *FindKernels("scalar");
  const KernelTable* tier_ = nullptr;
  Inputs inputs_{kSeed};
};

TEST_P(KernelConformance, MatmulMatchesScalarForEveryTokenCount) {
  for (const WeightType type : WeightTypes()) {
    for (uint32_t m = 1; m <= 17; ++m) ExpectSameMatmul(type, 37, 96, m);
    for (const uint32_t m : {32u, 65u, 131u}) ExpectSameMatmul(type, 20, 64, m);
  }
}

TEST_P(KernelConformance, MatmulMatchesScalarForManyShapes) {
  for (const WeightType type : WeightTypes()) {
    for (uint32_t i = 0; i < 6; ++i) {
      ExpectSameMatmul(type, 1 + inputs_.Below(70), 32 * (1 + inputs_.Below(64)),
                       1 + inputs_.Below(20));
    }
    // More columns than are unpacked at once.
    ExpectSameMatmul(type, 17, 4128, 19);
  }
}

TEST_P(KernelConformance, MatmulMatchesScalarForExtremeCodes) {
  // Weights of -128 and activations of -127 in every place: the largest sums that can occur.
  std::vector<uint8_t> row;
  for (uint32_t b = 0; b < 4; ++b) {
    row.insert(row.end(), {0x00, 0x3c});
    row.insert(row.end(), 32, 0x80);
  }
  AlignedBytes panel(PanelBytes(WeightType::kQ8_0, 128));
  const uint8_t* rows[kPanelRows];
  for (const uint8_t*& pointer : rows) pointer = row.data();
  PackPanel(WeightType::kQ8_0, rows, 128, panel.data());
  const PackedMatrix matrix{WeightType::kQ8_0, 16, 128, PanelBytes(WeightType::kQ8_0, 128),
                            panel.data()};
  for (const float sign : {1.0f, -1.0f}) {
    Activations x(scalar_, std::vector<float>(128, sign), 1, 128);
    std::vector<float> out(16);

    tier_->matmul_quantized(matrix, 0, 1, x.at(0), 1, out.data(), 16);

    for (const float value : out) EXPECT_NEAR(value, -128.0f * 128.0f * sign, 0.01f);
  }
}

TEST_P(KernelConformance, MatmulMatchesScalarWhereEveryCodeIsTheGreatestOrTheLeast) {
  for (const WeightType type : WeightTypes()) {
    if (!IsQuantized(LayoutOf(type))) continue;
    for (const uint8_t code : {0x00, 0xff}) {
      // Scales and sub-scales are made of the codes too, so all halves are 1 to stay finite.
      RandomMatrix matrix(inputs_, type, 16, 256, [&](std::vector<uint8_t>* row) {
        std::fill(row->begin(), row->end(), code);
        inputs_.SetHalves(type, 1.0f, row);
      });
      for (const float sign : {1.0f, -1.0f}) {
        for (const uint32_t m : {1u, 4u, 17u}) {
          Activations x(scalar_, std::vector<float>(256 * m, sign), m, 256);
          std::vector<float> expected(16 * m), actual(16 * m);
          scalar_.matmul_quantized(matrix.packed(), 0, 1, x.at(0), m, expected.data(), 16);
          tier_->matmul_quantized(matrix.packed(), 0, 1, x.at(0), m, actual.data(), 16);
          EXPECT_TRUE(SameBits(expected, actual)) << static_cast<uint32_t>(type) << " " << sign;
        }
      }
    }
  }
}

TEST_P(KernelConformance, MatmulDoesNotDependOnTokenCountOrPanelRange) {
  for (const WeightType type : WeightTypes()) {
    if (!IsQuantized(LayoutOf(type))) continue;
    const uint32_t rows = 75, cols = ColumnsOf(type, 160), m = 45;
    RandomMatrix matrix(inputs_, type, rows, cols);
    Activations x(scalar_, inputs_.Floats(m * cols, 1.0f), m, cols);
    std::vector<float> together(m * rows), apart(m * rows);
    const uint32_t panels = matrix.packed().panels();

    tier_->matmul_quantized(matrix.packed(), 0, panels, x.at(0), m, together.data(), rows);
    for (uint32_t t = 0; t < m; ++t) {
      for (uint32_t p = 0; p < panels; ++p) {
        tier_->matmul_quantized(matrix.packed(), p, p + 1, x.at(t), 1, apart.data() + t * rows,
                                rows);
      }
    }

    EXPECT_TRUE(SameBits(together, apart));
  }
}

TEST_P(KernelConformance, MatmulWritesOnlyItsRows) {
  RandomMatrix matrix(inputs_, WeightType::kQ4_1, 40, 64);
  Activations x(scalar_, inputs_.Floats(3 * 64, 1.0f), 3, 64);
  std::vector<float> out(3 * 40, 9.0f);

  tier_->matmul_quantized(matrix.packed(), 1, 2, x.at(0), 3, out.data(), 40);

  for (uint32_t t = 0; t < 3; ++t) {
    for (uint32_t n = 0; n < 40; ++n) {
      EXPECT_EQ(out[t * 40 + n] == 9.0f, n < 16 || n >= 32) << t << " " << n;
    }
  }
}

TEST_P(KernelConformance, QuantizeRowMatchesScalar) {
  for (const float deviation : {1.0f, 1e-20f, 1e-33f, 1e-38f, 1e30f, 0.0f}) {
    const std::vector<float> x = inputs_.Floats(640, deviation);
    Activations expected(scalar_, x, 1, 640);
    Activations actual(*tier_, x, 1, 640);
    EXPECT_TRUE(SameBits(expected.values(), actual.values())) << deviation;
    EXPECT_TRUE(SameBits(expected.scales(), actual.scales())) << deviation;
    EXPECT_TRUE(SameBits(expected.sums(), actual.sums())) << deviation;
  }
}

TEST_P(KernelConformance, RowOperationsMatchScalar) {
  for (const uint32_t count : {1u, 15u, 16u, 64u, 100u, 576u, 1536u}) {
    SCOPED_TRACE(count);
    for (const float deviation : {1.0f, 100.0f}) {
      const std::vector<float> x = inputs_.Floats(count, deviation);
      const std::vector<float> y = inputs_.Floats(count, 1.0f);
      std::vector<float> expected(count), actual(count);
      scalar_.rms_norm(x.data(), y.data(), 1e-5f, count, expected.data());
      tier_->rms_norm(x.data(), y.data(), 1e-5f, count, actual.data());
      EXPECT_TRUE(SameBits(expected, actual)) << "rms_norm";

      scalar_.silu_multiply(x.data(), y.data(), count, expected.data());
      actual = x;
      tier_->silu_multiply(actual.data(), y.data(), count, actual.data());
      EXPECT_TRUE(SameBits(expected, actual)) << "silu_multiply";

      scalar_.gelu_multiply(x.data(), y.data(), count, expected.data());
      actual = x;
      tier_->gelu_multiply(actual.data(), y.data(), count, actual.data());
      EXPECT_TRUE(SameBits(expected, actual)) << "gelu_multiply";

      std::vector<float> odd = x;
      odd[0] = std::numeric_limits<float>::quiet_NaN();
      for (const std::vector<float>& values : {x, odd}) {
        EXPECT_EQ(scalar_.sum_exponentials(values.data(), count, 1.3f, 2.0f * deviation),
                  tier_->sum_exponentials(values.data(), count, 1.3f, 2.0f * deviation));
      }

      expected = actual = x;
      scalar_.add(expected.data(), y.data(), count);
      tier_->add(actual.data(), y.data(), count);
      EXPECT_TRUE(SameBits(expected, actual)) << "add";
    }
  }
}

TEST_P(KernelConformance, RopeMatchesScalar) {
  for (const uint32_t head_dim : {16u, 48u, 64u, 80u, 128u, 256u}) {
    const std::vector<float> cos = inputs_.Floats(head_dim / 2, 1.0f);
    const std::vector<float> sin = inputs_.Floats(head_dim / 2, 1.0f);
    std::vector<float> expected = inputs_.Floats(head_dim * 3, 1.0f);
    std::vector<float> actual = expected;
    scalar_.rope(expected.data(), 3, head_dim, cos.data(), sin.data());
    tier_->rope(actual.data(), 3, head_dim, cos.data(), sin.data());
    EXPECT_TRUE(SameBits(expected, actual)) << head_dim;
  }
}

TEST_P(KernelConformance, TilesMatchScalar) {
  for (const uint32_t d : {16u, 64u, 80u, 128u, 256u, 512u}) {
    for (const float deviation : {1.0f, 1e-4f, 1e-6f, 1e-9f, 1e4f, 0.0f}) {
      SCOPED_TRACE(std::to_string(d) + " " + std::to_string(deviation));
      std::vector<uint8_t> expected_k(HalfTileBytes(d)), expected_v(HalfTileBytes(d));
      std::vector<uint8_t> actual_k(HalfTileBytes(d)), actual_v(HalfTileBytes(d));
      for (uint32_t t = 0; t < kBlockTokens; ++t) {
        const std::vector<float> k = inputs_.Floats(d, deviation);
        const std::vector<float> v = inputs_.Floats(d, t % 5 == 0 ? 1e-9f : deviation);
        scalar_.store_half(k.data(), v.data(), d, t, expected_k.data(), expected_v.data());
        tier_->store_half(k.data(), v.data(), d, t, actual_k.data(), actual_v.data());
      }
      ASSERT_TRUE(SameBits(expected_k, actual_k));
      ASSERT_TRUE(SameBits(expected_v, actual_v));

      std::vector<uint8_t> expected(SealedTileBytes(d), 0xaa), actual(SealedTileBytes(d), 0x55);
      scalar_.seal_tile(expected_k.data(), expected_v.data(), d, expected.data());
      tier_->seal_tile(actual_k.data(), actual_v.data(), d, actual.data());
      EXPECT_TRUE(SameBits(expected, actual));
    }
  }
}

TEST_P(KernelConformance, AttentionMatchesScalarForEveryGroup) {
  for (uint32_t group = 1; group <= 8; ++group) {
    for (const uint32_t queries : {1u, 2u, 5u, 32u}) {
      SplitShape shape;
      shape.head_dim = 32;
      shape.group = group;
      shape.query_count = queries;
      shape.blocks = 3;
      shape.sealed_mask = 0b101;
      shape.own_first = inputs_.Below(33 - queries);
      ExpectSameSplit(shape);
    }
  }
}

TEST_P(KernelConformance, AttentionMatchesScalarForManyShapes) {
  const uint32_t kHeadDims[] = {16, 64, 80, 128, 256};
  const float kMagnitudes[] = {1.0f, 0.0f, 30.0f, 1e4f, 1e-35f};
  for (uint32_t i = 0; i < 60; ++i) {
    SplitShape shape;
    shape.head_dim = kHeadDims[i % 5];
    shape.group = 1 + inputs_.Below(8);
    shape.query_count = 1 + inputs_.Below(i % 3 == 0 ? 32 : 4);
    shape.own = inputs_.Below(4) != 0;
    shape.blocks = inputs_.Below(shape.own ? 8 : 9);
    const uint32_t masks[] = {0xff, 0, inputs_.Below(256)};
    shape.sealed_mask = masks[inputs_.Below(3)];
    shape.own_first = inputs_.Below(33 - shape.query_count);
    shape.magnitude = kMagnitudes[inputs_.Below(5)];
    ExpectSameSplit(shape);
  }
}

TEST_P(KernelConformance, AttentionMatchesScalarAtEveryEdgeOfAWindow) {
  for (int32_t hidden = -40; hidden <= 200; hidden += (hidden & 1) + 2) {
    SCOPED_TRACE(hidden);
    SplitShape shape;
    shape.head_dim = 32;
    shape.group = 1 + inputs_.Below(5);
    shape.query_count = 1 + inputs_.Below(32);
    shape.blocks = 4;
    shape.sealed_mask = inputs_.Below(16);
    shape.own = inputs_.Below(2) != 0;
    shape.own_first = inputs_.Below(33 - shape.query_count);
    shape.hidden = hidden;
    ExpectSameSplit(shape);
  }
}

TEST_P(KernelConformance, AttentionDoesNotDependOnQueriesInTheChunk) {
  SplitShape shape;
  shape.group = 3;
  shape.query_count = 11;
  shape.blocks = 4;
  shape.sealed_mask = 0xf;
  shape.hidden = 27;
  RandomSplit split(inputs_, scalar_, shape);
  const RandomSplit::Result together = split.Run(*tier_);
  for (uint32_t i = 0; i < shape.query_count; ++i) {
    const RandomSplit::Result alone = split.RunOne(*tier_, i);
    const uint64_t at = uint64_t{i} * shape.group;
    EXPECT_EQ(std::memcmp(alone.sums.data(), &together.sums[at], shape.group * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(alone.values.data(), &together.values[at * shape.head_dim],
                          shape.group * shape.head_dim * sizeof(float)), 0) << i;
  }
}

TEST_P(KernelConformance, MergeMatchesScalarWithEmptySplits) {
  const uint32_t d = 64, rows = 5;
  for (const uint32_t splits : {0u, 1u, 3u, 9u}) {
    const uint64_t stride = rows + 2;
    std::vector<float> maxima = inputs_.Floats(splits * stride, 20.0f);
    std::vector<float> sums = inputs_.Floats(splits * stride, 1.0f);
    std::vector<float> values = inputs_.Floats(splits * stride * d, 1.0f);
    for (uint64_t i = 0; i < splits * stride; ++i) {
      sums[i] = std::fabs(sums[i]) + 1.0f;
      // Row 0 sees nothing in any split, row 1 nothing in every other.
      if (i % stride == 0 || (i % stride == 1 && i / stride % 2 == 0)) {
        maxima[i] = kLowestScore;
        sums[i] = 0.0f;
        std::fill_n(values.begin() + static_cast<int64_t>(i * d), d, 0.0f);
      }
    }
    std::vector<float> expected(rows * (d + 3), 5.0f), actual(rows * (d + 3), 5.0f);

    scalar_.attention_merge(maxima.data(), sums.data(), values.data(), splits, stride, rows, d,
                            expected.data(), d + 3);
    tier_->attention_merge(maxima.data(), sums.data(), values.data(), splits, stride, rows, d,
                           actual.data(), d + 3);

    EXPECT_TRUE(SameBits(expected, actual)) << splits;
    for (uint32_t i = 0; i < d; ++i) EXPECT_EQ(actual[i], 0.0f);
  }
}

constexpr const char* kTierNames[] = {
    "scalar", "avx2", "avx_vnni", "avx512_vnni",
#if defined(KAIROS_KERNELS_X86)
    "avx_vnni_emulated", "avx512_emulated",
#endif
};

INSTANTIATE_TEST_SUITE_P(Tiers, KernelConformance, ::testing::ValuesIn(kTierNames),
                         [](const auto& tier) { return std::string(tier.param); });

#if defined(KAIROS_KERNELS_X86)
TEST(KernelChoice, FindsTheTiersWhoseInstructionsTheSystemLists) {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> words;
  for (std::string word; file >> word;) words.insert(word);
  if (!words.contains("flags")) GTEST_SKIP() << "the system lists no instructions";
  const auto has = [&](std::initializer_list<const char*> flags) {
    return std::all_of(flags.begin(), flags.end(),
                       [&](const char* flag) { return words.contains(flag); });
  };
  const bool avx2 = has({"avx2", "fma"});
  EXPECT_EQ(FindKernels("avx2") != nullptr, avx2);
  EXPECT_EQ(FindKernels("avx_vnni") != nullptr, avx2 && has({"avx_vnni"}));
  EXPECT_EQ(FindKernels("avx512_vnni") != nullptr,
            avx2 && has({"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"}));
  EXPECT_EQ(KernelNames(), "avx512_vnni, avx_vnni, avx2, scalar");
}
#endif

TEST(KernelChoice, RefusesUnknownName) {
  EXPECT_EQ(FindKernels("mmx"), nullptr);
  ASSERT_EQ(setenv("KAIROS_KERNELS", "mmx", 1), 0);
  EXPECT_EQ(ChooseKernels(), nullptr);
  ASSERT_EQ(setenv("KAIROS_KERNELS", "scalar", 1), 0);
  EXPECT_EQ(ChooseKernels(), FindKernels("scalar"));
  ASSERT_EQ(unsetenv("KAIROS_KERNELS"), 0);
  EXPECT_NE(ChooseKernels(), nullptr);
}

}  // namespace
}  // namespace kairos
