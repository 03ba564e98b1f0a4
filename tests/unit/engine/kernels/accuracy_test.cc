// SPDX-License-Identifier: Apache-2.0
// The oracle itself against plain double arithmetic, with bounds from the rounding that it states.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "tests/unit/engine/kernels/kernel_inputs.h"

namespace kairos {
namespace {

const KernelTable& Scalar() { return *FindKernels("scalar"); }

TEST(KernelAccuracy, QuantizedMatmulIsThatOfTheDequantizedOperands) {
  Inputs inputs(11);
  for (const WeightType type : WeightTypes()) {
    if (!IsQuantized(LayoutOf(type))) continue;
    const uint32_t rows = 33, cols = 1536, m = 3;
    RandomMatrix matrix(inputs, type, rows, cols);
    Activations x(Scalar(), inputs.Floats(m * cols, 1.0f), m, cols);
    std::vector<float> out(m * rows);
    Scalar().matmul_quantized(matrix.packed(), 0, matrix.packed().panels(), x.at(0), m, out.data(),
                              rows);
    std::vector<float> weights(cols);
    for (uint32_t n = 0; n < rows; ++n) {
      DequantizePackedRow(matrix.packed(), n, weights.data());
      for (uint32_t t = 0; t < m; ++t) {
        double exact = 0, size = 0;
        for (uint32_t c = 0; c < cols; ++c) {
          const double activation =
              double{x.scales()[t * cols / 32 + c / 32]} * x.values()[t * cols + c];
          exact += weights[c] * activation;
          size += std::fabs(weights[c] * activation);
        }
        // Two fma and a product per group round at 2^-24 of partial sums, and the offsets cancel
        // part of the dots: 4 * 48 groups of half an ulp cover it.
        EXPECT_NEAR(out[t * rows + n], exact, size * 192 * 0x1p-25) << n << " " << t;
      }
    }
  }
}

TEST(KernelAccuracy, QuantizedActivationsAreWithinHalfAStep) {
  Inputs inputs(12);
  const std::vector<float> x = inputs.Floats(640, 3.0f);
  Activations rows(Scalar(), x, 1, 640);
  for (uint32_t i = 0; i < x.size(); ++i) {
    const float scale = rows.scales()[i / 32];
    EXPECT_NEAR(scale * static_cast<float>(rows.values()[i]), x[i], scale * 0.5001f);
  }
}

TEST(KernelAccuracy, SumsOfExponentialsAreThoseOfDoubles) {
  Inputs inputs(13);
  const std::vector<float> x = inputs.Floats(1000, 5.0f);
  double exact = 0;
  for (const float value : x) exact += std::exp(double{value} * 1.25 - 20.0);
  const float sum = Scalar().sum_exponentials(x.data(), 1000, 1.25f, 20.0f);
  EXPECT_NEAR(sum, exact, exact * 1e-5);
}

TEST(KernelAccuracy, SiluIsWithinFewUlps) {
  std::vector<float> gate, up, out;
  for (float x = -100.0f; x <= 100.0f; x += 0.037f) gate.push_back(x);
  up.assign(gate.size(), 1.0f);
  out.resize(gate.size());
  Scalar().silu_multiply(gate.data(), up.data(), static_cast<uint32_t>(gate.size()), out.data());
  for (uint32_t i = 0; i < gate.size(); ++i) {
    const double exact = gate[i] / (1.0 + std::exp(-double{gate[i]}));
    // exp is within 2 ulp; below -88 it is held at its greatest value, a difference of 1e-36.
    EXPECT_NEAR(out[i], exact, std::fabs(exact) * 4 * 0x1p-23 + 1e-35) << gate[i];
  }
}

TEST(KernelAccuracy, GeluIsThatOfDoubles) {
  std::vector<float> gate, up, out;
  for (float x = -60.0f; x <= 60.0f; x += 0.013f) gate.push_back(x);
  for (const float x : {0.0f, -3e38f, 3e38f}) gate.push_back(x);
  up.assign(gate.size(), 1.0f);
  out.resize(gate.size());
  Scalar().gelu_multiply(gate.data(), up.data(), static_cast<uint32_t>(gate.size()), out.data());
  for (uint32_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i];
    const double tanh = std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x));
    // Left of -5 the tail is below 1e-6 of x, and the error of exp's argument shows in it.
    EXPECT_NEAR(out[i], 0.5 * x * (1.0 + tanh), std::fabs(x) * 3e-7) << x;
  }
}

TEST(KernelAccuracy, RmsNormDividesByRootMeanSquare) {
  Inputs inputs(13);
  const std::vector<float> x = inputs.Floats(576, 5.0f);
  const std::vector<float> weight = inputs.Floats(576, 1.0f);
  std::vector<float> out(576);
  Scalar().rms_norm(x.data(), weight.data(), 1e-5f, 576, out.data());
  double squares = 0;
  for (const float value : x) squares += double{value} * value;
  const double inverse = 1.0 / std::sqrt(squares / 576 + 1e-5);
  for (uint32_t i = 0; i < 576; ++i) {
    const double exact = x[i] * inverse * weight[i];
    EXPECT_NEAR(out[i], exact, std::fabs(exact) * 24 * 0x1p-23);
  }
}

TEST(KernelAccuracy, RopeRotatesPairs) {
  Inputs inputs(14);
  std::vector<float> cos, sin;
  for (uint32_t i = 0; i < 32; ++i) {
    cos.push_back(std::cos(0.3f * static_cast<float>(i)));
    sin.push_back(std::sin(0.3f * static_cast<float>(i)));
  }
  const std::vector<float> before = inputs.Floats(128, 1.0f);
  std::vector<float> after = before;
  Scalar().rope(after.data(), 2, 64, cos.data(), sin.data());
  for (uint32_t h = 0; h < 2; ++h) {
    for (uint32_t i = 0; i < 32; ++i) {
      const double a = before[h * 64 + i], b = before[h * 64 + 32 + i];
      EXPECT_NEAR(after[h * 64 + i], a * cos[i] - b * sin[i], 1e-6);
      EXPECT_NEAR(after[h * 64 + 32 + i], a * sin[i] + b * cos[i], 1e-6);
    }
  }
}

// Softmax attention of one query in double over the 16-bit keys and values.
std::vector<double> ExactAttention(RandomSplit& split, uint32_t query, uint32_t head) {
  const SplitShape& shape = split.shape();
  const uint32_t tokens =
      shape.blocks * kBlockTokens + (shape.own ? shape.own_first + query + 1 : 0);
  std::vector<double> scores(tokens), out(shape.head_dim);
  double highest = -1e300, sum = 0;
  const auto first =
      static_cast<uint32_t>(std::max(shape.hidden + static_cast<int32_t>(query), 0));
  for (uint32_t t = first; t < tokens; ++t) {
    for (uint32_t i = 0; i < shape.head_dim; ++i) {
      scores[t] += double{split.query(query, head)[i]} * split.key(t, i);
    }
    highest = std::max(highest, scores[t]);
  }
  for (uint32_t t = first; t < tokens; ++t) sum += scores[t] = std::exp(scores[t] - highest);
  for (uint32_t t = first; t < tokens; ++t) {
    for (uint32_t i = 0; i < shape.head_dim; ++i) out[i] += scores[t] / sum * split.value(t, i);
  }
  return out;
}

// Root mean square difference over that of the output, after the merge of one split.
double RelativeError(RandomSplit& split) {
  const SplitShape& shape = split.shape();
  const uint32_t d = shape.head_dim, rows = shape.query_count * shape.group;
  const RandomSplit::Result result = split.Run(Scalar());
  std::vector<float> out(uint64_t{rows} * d);
  Scalar().attention_merge(result.maxima.data(), result.sums.data(), result.values.data(), 1, rows,
                           rows, d, out.data(), d);
  double difference = 0, size = 0;
  for (uint32_t r = 0; r < rows; ++r) {
    const std::vector<double> exact = ExactAttention(split, r / shape.group, r % shape.group);
    for (uint32_t i = 0; i < d; ++i) {
      difference += std::pow(out[r * d + i] - exact[i], 2);
      size += std::pow(exact[i], 2);
    }
  }
  return std::sqrt(difference / size);
}

TEST(KernelAccuracy, AttentionLeavesOutWhatTheWindowHides) {
  Inputs inputs(16);
  for (const int32_t hidden : {-3, 0, 1, 17, 31, 32, 70, 120, 136}) {
    SCOPED_TRACE(hidden);
    SplitShape shape;
    shape.query_count = 7;
    shape.blocks = 4;
    shape.own_first = 9;
    shape.hidden = hidden;
    RandomSplit split(inputs, Scalar(), shape);
    EXPECT_LT(RelativeError(split), 3e-6);
  }
}

TEST(KernelAccuracy, HalfAttentionIsSoftmaxAttention) {
  Inputs inputs(15);
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    SplitShape shape;
    shape.head_dim = head_dim;
    shape.query_count = 7;
    shape.blocks = 4;
    shape.own_first = 9;
    RandomSplit split(inputs, Scalar(), shape);
    // Chains of d and 160 fma, each within 2^-24 of its partial sum, errors random in sign.
    EXPECT_LT(RelativeError(split), 3e-6) << head_dim;
  }
}

TEST(KernelAccuracy, SealedAttentionLosesOnlyTheEightBitsOfKeysAndValues) {
  Inputs inputs(16);
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    SplitShape shape;
    shape.head_dim = head_dim;
    shape.query_count = 7;
    shape.blocks = 7;
    shape.sealed_mask = 0x7f;
    RandomSplit split(inputs, Scalar(), shape);
    const double error = RelativeError(split);
    // Gaussian rows of d values have amax near 3 deviations, so a step is 1/42 and its rounding
    // error 1/42 / sqrt(12) = 0.7 % of a deviation: once from V, once from the scores.
    EXPECT_LT(error, 0.014) << head_dim;
    EXPECT_GT(error, 1e-4) << "the blocks were not read in their sealed form";
  }
}

TEST(KernelAccuracy, SplitWithoutTokensHasNoWeight) {
  Inputs inputs(17);
  SplitShape shape;
  shape.own = false;
  RandomSplit split(inputs, Scalar(), shape);
  const RandomSplit::Result result = split.Run(Scalar());
  for (const float maximum : result.maxima) EXPECT_EQ(maximum, kLowestScore);
  for (const float sum : result.sums) EXPECT_EQ(sum, 0.0f);
  for (const float value : result.values) EXPECT_EQ(value, 0.0f);
}

TEST(KernelAccuracy, MergeOfTwoSplitsIsOneSoftmax) {
  // Two runs with one token each, of score 1 and 3.
  const float maxima[] = {1.0f, 3.0f};
  const float sums[] = {1.0f, 1.0f};
  std::vector<float> values(32, 2.0f);
  for (uint32_t i = 16; i < 32; ++i) values[i] = 5.0f;
  std::vector<float> out(16);
  Scalar().attention_merge(maxima, sums, values.data(), 2, 1, 1, 16, out.data(), 16);
  const double weight = std::exp(-2.0);
  for (const float value : out) EXPECT_NEAR(value, (2 * weight + 5) / (1 + weight), 1e-6);
}

}  // namespace
}  // namespace kairos
