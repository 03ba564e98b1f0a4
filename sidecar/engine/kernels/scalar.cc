// SPDX-License-Identifier: Apache-2.0
// The oracle: every entry of the table in the plainest code that has the stated order of
// operations. Built for the x86-64 floor, so std::fma may be a library call; other tiers exist for
// speed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "sidecar/engine/kernels/arithmetic.h"
#include "sidecar/engine/kernels/half-inl.h"
#include "sidecar/engine/kernels/tiers.h"

namespace kairos {
namespace {

constexpr uint32_t kLanes = 16;

// As the vector instructions: the second operand when the comparison is false.
float Greater(float a, float b) { return a > b ? a : b; }
float Less(float a, float b) { return a < b ? a : b; }

float Exp(float x) {
  if (!(x >= kExpLowest)) return 0.0f;
  x = Less(x, kExpHighest);
  const int32_t n = static_cast<int32_t>(std::lrintf(x * kLog2E));
  const float count = static_cast<float>(n);
  float r = std::fma(count, -kLn2High, x);
  r = std::fma(count, -kLn2Low, r);
  float q = kExpC6;
  q = std::fma(q, r, kExpC5);
  q = std::fma(q, r, kExpC4);
  q = std::fma(q, r, kExpC3);
  q = std::fma(q, r, kExpC2);
  const float y = std::fma(q, r * r, r) + 1.0f;
  return y * std::bit_cast<float>((n + 127) << 23);
}

// Nearest-even, clamped to -limit..limit.
int32_t ToInteger(float value, float limit) {
  return static_cast<int32_t>(std::lrintf(Less(Greater(value, -limit), limit)));
}

float Magnitude(const float* x, uint32_t count) {
  float amax = 0.0f;
  for (uint32_t i = 0; i < count; ++i) amax = Greater(std::fabs(x[i]), amax);
  return amax;
}

float SumLanes(float lanes[kLanes]) {
  for (uint32_t width = kLanes / 2; width > 0; width /= 2) {
    for (uint32_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

float LoadHalf(const uint8_t* bytes, uint64_t index) {
  uint16_t half;
  std::memcpy(&half, bytes + index * 2, sizeof(half));
  return HalfToFloat(half);
}

float LoadBrainHalf(const uint8_t* bytes, uint64_t index) {
  uint16_t bits;
  std::memcpy(&bits, bytes + index * 2, sizeof(bits));
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

void StoreHalfAt(uint8_t* bytes, uint64_t index, float value) {
  const uint16_t half = FloatToHalf(value);
  std::memcpy(bytes + index * 2, &half, sizeof(half));
}

// ---- Matrices ----------------------------------------------------------------------------------

// `quants` are the integers of a block, behind its scales.
int32_t QuantAt(PanelLayout layout, const uint8_t* quants, uint32_t row, uint32_t column) {
  const uint32_t vector = column / 4;
  const uint32_t at = row * 4 + column % 4;
  if (layout == PanelLayout::kBytes || layout == PanelLayout::kHalfBytes) {
    return static_cast<int8_t>(quants[vector * 64 + at]);
  }
  const uint8_t byte = quants[vector / 2 * 64 + at];
  const int32_t nibble = vector % 2 == 0 ? byte & 15 : byte >> 4;
  if (layout == PanelLayout::kNibbles) return nibble;
  return nibble | (quants[256 + at] >> vector & 1) << 4;
}

// Dot of columns [begin, end) of one row of a block with as many activations.
int32_t BlockDot(PanelLayout layout, const uint8_t* quants, uint32_t row, uint32_t begin,
                 uint32_t end, const int8_t* x) {
  int32_t dot = 0;
  for (uint32_t c = begin; c < end; ++c) dot += QuantAt(layout, quants, row, c) * x[c];
  return dot;
}

void MatmulQuantized(const PackedMatrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                     const QuantizedRows& x, uint32_t m, float* out, uint64_t out_stride) {
  const uint32_t groups = matrix.cols / kGroupSize;
  const PanelLayout layout = matrix.layout();
  const bool with_offset = layout == PanelLayout::kNibbles || layout == PanelLayout::kFives;
  const uint32_t header = layout == PanelLayout::kBytes ? 32 : 64;
  const uint32_t parts = layout == PanelLayout::kHalfBytes ? 2 : 1;
  const uint64_t block_bytes = PanelBytes(matrix.type, kGroupSize);
  for (uint32_t n = panel_begin * kPanelRows; n < panel_end * kPanelRows && n < matrix.rows; ++n) {
    const uint8_t* panel = matrix.data + n / kPanelRows * matrix.panel_bytes;
    const uint32_t row = n % kPanelRows;
    for (uint64_t t = 0; t < m; ++t) {
      float acc = 0.0f;
      for (uint64_t b = 0; b < groups; ++b) {
        const uint8_t* block = panel + b * block_bytes;
        const int8_t* values = x.values + t * matrix.cols + b * kGroupSize;
        for (uint32_t i = 0; i < parts; ++i) {
          const uint32_t columns = kGroupSize / parts;
          const int32_t dot =
              BlockDot(layout, block + header, row, i * columns, (i + 1) * columns, values);
          const float scale = LoadHalf(block, i * kPanelRows + row) * x.scales[t * groups + b];
          acc = std::fma(static_cast<float>(dot), scale, acc);
        }
        if (with_offset) {
          acc = std::fma(LoadHalf(block, kPanelRows + row), x.sums[t * groups + b], acc);
        }
      }
      out[t * out_stride + n] = acc;
    }
  }
}

void MatmulFloat(const PackedMatrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                 const float* x, uint64_t x_stride, uint32_t m, float* out, uint64_t out_stride) {
  for (uint32_t n = panel_begin * kPanelRows; n < panel_end * kPanelRows && n < matrix.rows; ++n) {
    const uint8_t* panel = matrix.data + n / kPanelRows * matrix.panel_bytes;
    for (uint64_t t = 0; t < m; ++t) {
      float acc = 0.0f;
      for (uint64_t c = 0; c < matrix.cols; ++c) {
        const uint64_t at = c * kPanelRows + n % kPanelRows;
        float weight;
        switch (matrix.layout()) {
          case PanelLayout::kHalf: weight = LoadHalf(panel, at); break;
          case PanelLayout::kBrainHalf: weight = LoadBrainHalf(panel, at); break;
          default: std::memcpy(&weight, panel + at * sizeof(float), sizeof(float));
        }
        acc = std::fma(weight, x[t * x_stride + c], acc);
      }
      out[t * out_stride + n] = acc;
    }
  }
}

// ---- Rows --------------------------------------------------------------------------------------

void QuantizeRow(const float* x, uint32_t cols, int8_t* values, float* scales, float* sums) {
  for (uint32_t b = 0; b < cols / kGroupSize; ++b, x += kGroupSize, values += kGroupSize) {
    const float amax = Magnitude(x, kGroupSize);
    const bool zero = amax < kMagnitudeMin;
    const float inverse = kByteMax / amax;
    int32_t sum = 0;
    for (uint32_t i = 0; i < kGroupSize; ++i) {
      const int32_t value = zero ? 0 : ToInteger(x[i] * inverse, kByteMax);
      values[i] = static_cast<int8_t>(value);
      sum += value;
    }
    scales[b] = zero ? 0.0f : amax / kByteMax;
    sums[b] = scales[b] * static_cast<float>(sum);
  }
}

void RmsNorm(const float* x, const float* weight, float eps, uint32_t cols, float* out) {
  float lanes[kLanes] = {};
  for (uint32_t i = 0; i < cols; ++i) lanes[i % kLanes] = std::fma(x[i], x[i], lanes[i % kLanes]);
  const float mean = SumLanes(lanes) / static_cast<float>(cols);
  const float inverse = 1.0f / std::sqrt(mean + eps);
  for (uint32_t i = 0; i < cols; ++i) out[i] = x[i] * inverse * weight[i];
}

void Rope(float* x, uint32_t heads, uint32_t head_dim, const float* cos, const float* sin) {
  const uint32_t half = head_dim / 2;
  for (uint32_t h = 0; h < heads; ++h, x += head_dim) {
    for (uint32_t i = 0; i < half; ++i) {
      const float a = x[i];
      const float b = x[i + half];
      x[i] = std::fma(a, cos[i], -(b * sin[i]));
      x[i + half] = std::fma(a, sin[i], b * cos[i]);
    }
  }
}

void SiluMultiply(const float* gate, const float* up, uint32_t count, float* out) {
  for (uint32_t i = 0; i < count; ++i) out[i] = gate[i] / (1.0f + Exp(-gate[i])) * up[i];
}

void GeluMultiply(const float* gate, const float* up, uint32_t count, float* out) {
  for (uint32_t i = 0; i < count; ++i) {
    const float g = gate[i];
    const float inner = std::fma(g * g * g, kGeluCubic, g);
    out[i] = g / (1.0f + Exp(inner * kGeluInner)) * up[i];
  }
}

float SumExponentials(const float* x, uint32_t count, float scale, float top) {
  float lanes[kLanes] = {};
  for (uint32_t i = 0; i < count; ++i) lanes[i % kLanes] += Exp(x[i] * scale - top);
  return SumLanes(lanes);
}

void Add(float* x, const float* y, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) x[i] += y[i];
}

// ---- KV tiles ----------------------------------------------------------------------------------

uint64_t HalfKIndex(uint32_t head_dim, uint32_t token, uint32_t dim) {
  return (static_cast<uint64_t>(token / kLanes) * head_dim + dim) * kLanes + token % kLanes;
}

uint64_t SealedKIndex(uint32_t head_dim, uint32_t token, uint32_t dim) {
  const uint64_t pair = static_cast<uint64_t>(token / kLanes) * (head_dim / 2) + dim / 2;
  return (pair * kLanes + token % kLanes) * 2 + dim % 2;
}

uint64_t SealedVIndex(uint32_t head_dim, uint32_t token, uint32_t dim) {
  return (static_cast<uint64_t>(token / 2) * head_dim + dim) * 2 + token % 2;
}

// Parts of a sealed tile.
uint64_t SealedKScales(uint32_t head_dim) { return 32ull * head_dim; }
uint64_t SealedV(uint32_t head_dim) { return SealedKScales(head_dim) + 64; }
uint64_t SealedVScales(uint32_t head_dim) { return SealedV(head_dim) + 32ull * head_dim; }

void StoreHalf(const float* k, const float* v, uint32_t head_dim, uint32_t index, uint8_t* half_k,
               uint8_t* half_v) {
  for (uint32_t i = 0; i < head_dim; ++i) {
    StoreHalfAt(half_k, HalfKIndex(head_dim, index, i), k[i]);
    StoreHalfAt(half_v, static_cast<uint64_t>(index) * head_dim + i, v[i]);
  }
}

// The scale of a token of sealed K or V, rounded to what is stored.
float TokenScale(const float* values, uint32_t head_dim) {
  return HalfToFloat(FloatToHalf(Magnitude(values, head_dim) / kByteMax));
}

uint8_t SealedByte(float value, float scale) {
  return scale == 0.0f ? 0 : static_cast<uint8_t>(ToInteger(value / scale, kByteMax));
}

void SealTile(const uint8_t* half_k, const uint8_t* half_v, uint32_t head_dim, uint8_t* sealed) {
  float values[kHeadDimMax];
  for (uint32_t t = 0; t < kBlockTokens; ++t) {
    for (uint32_t i = 0; i < head_dim; ++i) {
      values[i] = LoadHalf(half_k, HalfKIndex(head_dim, t, i));
    }
    const float k_scale = TokenScale(values, head_dim);
    for (uint32_t i = 0; i < head_dim; ++i) {
      sealed[SealedKIndex(head_dim, t, i)] = SealedByte(values[i], k_scale);
    }
    StoreHalfAt(sealed + SealedKScales(head_dim), t, k_scale);

    for (uint32_t i = 0; i < head_dim; ++i) {
      values[i] = LoadHalf(half_v, static_cast<uint64_t>(t) * head_dim + i);
    }
    const float v_scale = TokenScale(values, head_dim);
    for (uint32_t i = 0; i < head_dim; ++i) {
      sealed[SealedV(head_dim) + SealedVIndex(head_dim, t, i)] = SealedByte(values[i], v_scale);
    }
    StoreHalfAt(sealed + SealedVScales(head_dim), t, v_scale);
  }
}

// ---- Attention ---------------------------------------------------------------------------------

// int16 values of `x`; returns their scale.
float QuantizeWords(const float* x, uint32_t count, int32_t* words) {
  const float amax = Magnitude(x, count);
  const bool zero = amax < kMagnitudeMin;
  const float inverse = kWordMax / amax;
  for (uint32_t i = 0; i < count; ++i) words[i] = zero ? 0 : ToInteger(x[i] * inverse, kWordMax);
  return zero ? 0.0f : amax / kWordMax;
}

void ScoreSealed(const uint8_t* sealed, uint32_t head_dim, const int32_t* words, float query_scale,
                 float* scores) {
  for (uint32_t t = 0; t < kBlockTokens; ++t) {
    int32_t dot = 0;
    for (uint32_t i = 0; i < head_dim; ++i) {
      dot += words[i] * static_cast<int8_t>(sealed[SealedKIndex(head_dim, t, i)]);
    }
    const float scale = query_scale * LoadHalf(sealed + SealedKScales(head_dim), t);
    scores[t] = static_cast<float>(dot) * scale;
  }
}

void ScoreHalf(const uint8_t* half_k, uint32_t head_dim, const float* query, uint32_t tokens,
               float* scores) {
  for (uint32_t t = 0; t < tokens; ++t) {
    float acc = 0.0f;
    for (uint32_t i = 0; i < head_dim; ++i) {
      acc = std::fma(LoadHalf(half_k, HalfKIndex(head_dim, t, i)), query[i], acc);
    }
    scores[t] = acc;
  }
}

void WeighSealed(const uint8_t* sealed, uint32_t head_dim, const float* probabilities,
                 float* values) {
  float weights[kBlockTokens];
  for (uint32_t t = 0; t < kBlockTokens; ++t) {
    weights[t] = probabilities[t] * LoadHalf(sealed + SealedVScales(head_dim), t);
  }
  int32_t words[kBlockTokens];
  const float scale = QuantizeWords(weights, kBlockTokens, words);
  for (uint32_t i = 0; i < head_dim; ++i) {
    int32_t dot = 0;
    for (uint32_t t = 0; t < kBlockTokens; ++t) {
      const uint8_t byte = sealed[SealedV(head_dim) + SealedVIndex(head_dim, t, i)];
      dot += words[t] * static_cast<int8_t>(byte);
    }
    values[i] = std::fma(static_cast<float>(dot), scale, values[i]);
  }
}

void WeighHalf(const uint8_t* half_v, uint32_t head_dim, const float* probabilities,
               uint32_t tokens, float* values) {
  for (uint32_t t = 0; t < tokens; ++t) {
    for (uint32_t i = 0; i < head_dim; ++i) {
      const float value = LoadHalf(half_v, static_cast<uint64_t>(t) * head_dim + i);
      values[i] = std::fma(value, probabilities[t], values[i]);
    }
  }
}

// Query `i` of one head.
void AttendRow(const AttentionSplit& split, uint32_t i, const float* query, float* maximum,
               float* sum, float* values) {
  const uint32_t head_dim = split.head_dim;
  const uint32_t own_tokens = split.own_k != nullptr ? split.own_first + i + 1 : 0;
  float scores[kScoreTokens];
  int32_t words[kHeadDimMax];
  const float query_scale = QuantizeWords(query, head_dim, words);
  for (uint32_t b = 0; b < split.block_count; ++b) {
    float* block_scores = scores + b * kBlockTokens;
    if (split.sealed[b] != nullptr) {
      ScoreSealed(split.sealed[b], head_dim, words, query_scale, block_scores);
    } else {
      ScoreHalf(split.half_k[b], head_dim, query, kBlockTokens, block_scores);
    }
  }
  const uint32_t own_start = split.block_count * kBlockTokens;
  const uint32_t tokens = own_start + own_tokens;
  if (own_tokens > 0) ScoreHalf(split.own_k, head_dim, query, own_tokens, scores + own_start);

  const int32_t hidden = split.hidden_tokens + static_cast<int32_t>(i);
  for (int32_t t = 0; t < hidden && t < static_cast<int32_t>(tokens); ++t) {
    scores[t] = -std::numeric_limits<float>::infinity();
  }

  float highest = kLowestScore;
  for (uint32_t t = 0; t < tokens; ++t) highest = Greater(scores[t], highest);
  highest += 0.0f;  // -0 and +0 compare equal: without this the sign would depend on the order
  float lanes[kLanes] = {};
  for (uint32_t t = 0; t < tokens; ++t) {
    scores[t] = Exp(scores[t] - highest);
    lanes[t % kLanes] += scores[t];
  }
  *maximum = highest;
  *sum = SumLanes(lanes);

  std::fill(values, values + head_dim, 0.0f);
  for (uint32_t b = 0; b < split.block_count; ++b) {
    const float* block_scores = scores + b * kBlockTokens;
    if (split.sealed[b] != nullptr) {
      WeighSealed(split.sealed[b], head_dim, block_scores, values);
    } else {
      WeighHalf(split.half_v[b], head_dim, block_scores, kBlockTokens, values);
    }
  }
  if (own_tokens > 0) WeighHalf(split.own_v, head_dim, scores + own_start, own_tokens, values);
}

void Attend(const AttentionSplit& split) {
  for (uint32_t i = 0; i < split.query_count; ++i) {
    for (uint32_t g = 0; g < split.group; ++g) {
      const uint64_t row = static_cast<uint64_t>(i) * split.group + g;
      const float* query = split.queries + i * split.query_stride + g * split.head_dim;
      AttendRow(split, i, query, split.maxima + row, split.sums + row,
                split.values + row * split.head_dim);
    }
  }
}

void Merge(const float* maxima, const float* sums, const float* values, uint32_t splits,
           uint64_t split_stride, uint32_t rows, uint32_t head_dim, float* out,
           uint64_t out_stride) {
  for (uint64_t r = 0; r < rows; ++r) {
    float highest = kLowestScore;
    for (uint64_t s = 0; s < splits; ++s) highest = Greater(maxima[s * split_stride + r], highest);
    float total = 0.0f;
    float* row = out + r * out_stride;
    for (uint32_t i = 0; i < head_dim; ++i) row[i] = 0.0f;
    for (uint64_t s = 0; s < splits; ++s) {
      const uint64_t at = s * split_stride + r;
      const float weight = Exp(maxima[at] - highest);
      total = std::fma(weight, sums[at], total);
      for (uint32_t i = 0; i < head_dim; ++i) {
        row[i] = std::fma(weight, values[at * head_dim + i], row[i]);
      }
    }
    for (uint32_t i = 0; i < head_dim; ++i) row[i] = total > 0.0f ? row[i] / total : 0.0f;
  }
}

}  // namespace

const KernelTable kScalarKernels = {
    .name = "scalar",
    .matmul_quantized = MatmulQuantized,
    .matmul_float = MatmulFloat,
    .quantize_row = QuantizeRow,
    .rms_norm = RmsNorm,
    .rope = Rope,
    .silu_multiply = SiluMultiply,
    .gelu_multiply = GeluMultiply,
    .sum_exponentials = SumExponentials,
    .add = Add,
    .store_half = StoreHalf,
    .seal_tile = SealTile,
    .attention_split = Attend,
    .attention_merge = Merge,
};

}  // namespace kairos
