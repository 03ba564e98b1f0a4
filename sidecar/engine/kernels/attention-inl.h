// SPDX-License-Identifier: Apache-2.0
// Attention of a tier (see vector-inl.h, which comes first). Rows, that is (query, head) pairs, go
// through the split in tiles that share each load of K and V. A tile makes all scores of its run,
// then the maximum, the exponentials and the weighted values, so nothing is ever rescaled.
#pragma once

#include "sidecar/engine/kernels/vector-inl.h"

namespace kairos {
namespace {

static_assert(kRowTile <= kRowTileMax);

// A tile's place in the split and its scratch.
template <int T>
struct RowTile {
  const float* queries[T];
  const int16_t* words[T];     // queries in 16 bits
  float query_scales[T];
  float* scores[T];            // then probabilities; [kScoreTokens]
  uint32_t own_tokens[T];      // visible in the own block, never falling with t
  int32_t hidden_tokens[T];    // first tokens of the run that have left the row's window
  Floats highest[T];
  float* values[T];
};

template <int T>
void PrepareTile(const AttentionSplit& split, uint32_t first_row, bool any_sealed,
                 RowTile<T>& tile) {
  float* scores = static_cast<float*>(split.scratch);
  int16_t* words = reinterpret_cast<int16_t*>(scores + kRowTileMax * kScoreTokens);
  for (uint32_t t = 0; t < T; ++t) {
    const uint64_t row = first_row + t;
    const uint64_t query = row / split.group;
    tile.queries[t] =
        split.queries + query * split.query_stride + row % split.group * split.head_dim;
    tile.scores[t] = scores + t * kScoreTokens;
    tile.values[t] = split.values + row * split.head_dim;
    tile.own_tokens[t] =
        split.own_k != nullptr ? split.own_first + static_cast<uint32_t>(query) + 1 : 0;
    tile.hidden_tokens[t] = split.hidden_tokens + static_cast<int32_t>(query);
    tile.highest[t] = Set(kLowestScore);
    int16_t* target = words + t * split.head_dim;
    tile.words[t] = target;
    if (!any_sealed) continue;
    Floats greatest = Set(0.0f);
    for (uint32_t i = 0; i < split.head_dim; i += kLanes) {
      greatest = Max(Abs(Load(tile.queries[t] + i)), greatest);
    }
    const float amax = MaxLane(greatest);
    tile.query_scales[t] = Scale(amax, kWordMax);
    const Floats inverse = Set(Inverse(amax, kWordMax));
    for (uint32_t i = 0; i < split.head_dim; i += kLanes) {
      StoreWords(target + i, Quantize(Mul(Load(tile.queries[t] + i), inverse), kWordMax));
    }
  }
}

// `scores` of 16 tokens from token `at` of the run, minus infinity for those that the window of row
// t hides: no maximum takes it, and its exponential is zero.
template <int T>
Floats InWindow(Floats scores, uint32_t at, uint32_t t, const RowTile<T>& tile) {
  const int32_t hidden = tile.hidden_tokens[t] - static_cast<int32_t>(at);
  if (hidden <= 0) return scores;
  const uint32_t lanes = Smaller(static_cast<uint32_t>(hidden), kLanes);
  return KeepFirst(Set(-__builtin_inff()), lanes, scores);
}

template <int T>
void ScoreSealed(const uint8_t* sealed, uint32_t head_dim, uint32_t at, RowTile<T>& tile) {
  for (uint32_t group = 0; group < kBlockTokens / kLanes; ++group) {
    Ints dots[T];
    MultiplyPairs<T>(sealed + static_cast<uint64_t>(group) * head_dim * 16, 32, head_dim / 2,
                     tile.words, dots);
    const Floats k_scales = LoadHalfs(sealed + SealedKScales(head_dim) + group * 32);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const Floats scale = Mul(Set(tile.query_scales[t]), k_scales);
      const Floats scores =
          InWindow<T>(Mul(ToFloats(dots[t]), scale), at + group * kLanes, t, tile);
      tile.highest[t] = Max(scores, tile.highest[t]);
      Store(tile.scores[t] + at + group * kLanes, scores);
    }
  }
}

// Scores of the first `limits[t]` tokens of a 16-bit block; the others become minus infinity, which
// no maximum takes and whose exponential is zero.
template <int T>
void ScoreHalf(const uint8_t* half_k, uint32_t head_dim, uint32_t at, const uint32_t limits[T],
               RowTile<T>& tile) {
  for (uint32_t group = 0; group * kLanes < limits[T - 1]; ++group) {
    Floats scores[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) scores[t] = Set(0.0f);
    const uint8_t* keys = half_k + static_cast<uint64_t>(group) * head_dim * 32;
    MultiplyColumns<ColumnKind::kHalf, T>(keys, 32, head_dim, tile.queries, scores);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const uint32_t first = group * kLanes;
      const uint32_t visible = limits[t] > first ? Smaller(limits[t] - first, kLanes) : 0;
      if (visible < kLanes) scores[t] = KeepFirst(scores[t], visible, Set(-__builtin_inff()));
      scores[t] = InWindow<T>(scores[t], at + first, t, tile);
      tile.highest[t] = Max(scores[t], tile.highest[t]);
      Store(tile.scores[t] + at + first, scores[t]);
    }
  }
}

template <int T>
void WeighSealed(const uint8_t* sealed, uint32_t head_dim, uint32_t at, RowTile<T>& tile) {
  alignas(64) int16_t words[T][kBlockTokens];
  const int16_t* rows[T];
  Floats scales[T];
  const Floats low_scales = LoadHalfs(sealed + SealedVScales(head_dim));
  const Floats high_scales = LoadHalfs(sealed + SealedVScales(head_dim) + 32);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const Floats low = Mul(Load(tile.scores[t] + at), low_scales);
    const Floats high = Mul(Load(tile.scores[t] + at + kLanes), high_scales);
    const float amax = MaxLane(Max(low, high));
    const Floats inverse = Set(Inverse(amax, kWordMax));
    StoreWords(words[t], Quantize(Mul(low, inverse), kWordMax));
    StoreWords(words[t] + kLanes, Quantize(Mul(high, inverse), kWordMax));
    scales[t] = Set(Scale(amax, kWordMax));
    rows[t] = words[t];
  }
  for (uint32_t i = 0; i < head_dim; i += kLanes) {
    Ints dots[T];
    MultiplyPairs<T>(sealed + SealedV(head_dim) + i * 2, 2ull * head_dim, kBlockTokens / 2, rows,
                     dots);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      Store(tile.values[t] + i, Fma(ToFloats(dots[t]), scales[t], Load(tile.values[t] + i)));
    }
  }
}

template <int T>
void WeighHalf(const uint8_t* half_v, uint32_t head_dim, uint32_t at, const uint32_t limits[T],
               RowTile<T>& tile) {
  // Tokens past a row's limit may hold anything, so they are skipped, not multiplied by zero.
  const uint32_t common = limits[0];
  const uint64_t stride = 2ull * head_dim;
  for (uint32_t i = 0; i < head_dim; i += kLanes) {
    const float* probabilities[T];
    Floats acc[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      probabilities[t] = tile.scores[t] + at;
      acc[t] = Load(tile.values[t] + i);
    }
    MultiplyColumns<ColumnKind::kHalf, T>(half_v + i * 2, stride, common, probabilities, acc);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      if (limits[t] > common) {
        const float* rest = probabilities[t] + common;
        MultiplyColumns<ColumnKind::kHalf, 1>(half_v + common * stride + i * 2, stride,
                                              limits[t] - common, &rest, acc + t);
      }
      Store(tile.values[t] + i, acc[t]);
    }
  }
}

// Scores to probabilities, over `tokens` tokens (a multiple of 16).
template <int T>
void Normalize(const AttentionSplit& split, uint32_t first_row, uint32_t tokens, RowTile<T>& tile) {
  for (uint32_t t = 0; t < T; ++t) {
    // Adding zero makes the maximum's sign of zero independent of the order of comparison.
    const float highest = MaxLane(tile.highest[t]) + 0.0f;
    Floats lanes = Set(0.0f);
    for (uint32_t i = 0; i < tokens; i += kLanes) {
      const Floats probability = Exp(Subtract(Load(tile.scores[t] + i), Set(highest)));
      Store(tile.scores[t] + i, probability);
      lanes = Add(lanes, probability);
    }
    split.maxima[first_row + t] = highest;
    split.sums[first_row + t] = SumLanes(lanes);
    for (uint32_t i = 0; i < split.head_dim; i += kLanes) Store(tile.values[t] + i, Set(0.0f));
  }
}

constexpr uint32_t kPrefetchBlocks = 2;

void PrefetchKeys(const AttentionSplit& split, uint32_t b) {
  if (b >= split.block_count) {
    if (b == split.block_count && split.own_k != nullptr) {
      Prefetch(split.own_k, HalfTileBytes(split.head_dim));
    }
  } else if (split.sealed[b] != nullptr) {
    Prefetch(split.sealed[b], SealedV(split.head_dim));
  } else {
    Prefetch(split.half_k[b], HalfTileBytes(split.head_dim));
  }
}

void PrefetchValues(const AttentionSplit& split, uint32_t b) {
  if (b >= split.block_count) {
    if (b == split.block_count && split.own_v != nullptr) {
      Prefetch(split.own_v, HalfTileBytes(split.head_dim));
    }
  } else if (split.sealed[b] != nullptr) {
    Prefetch(split.sealed[b] + SealedV(split.head_dim), SealedV(split.head_dim));
  } else {
    Prefetch(split.half_v[b], HalfTileBytes(split.head_dim));
  }
}

template <int T>
void AttendTile(const AttentionSplit& split, uint32_t first_row, bool any_sealed) {
  RowTile<T> tile;
  PrepareTile<T>(split, first_row, any_sealed, tile);
  uint32_t whole[T];
  for (uint32_t t = 0; t < T; ++t) whole[t] = kBlockTokens;

  // The first tile of rows brings the split into the cache.
  if (first_row == 0) {
    for (uint32_t b = 0; b < kPrefetchBlocks; ++b) PrefetchKeys(split, b);
  }
  for (uint32_t b = 0; b < split.block_count; ++b) {
    if (first_row == 0) PrefetchKeys(split, b + kPrefetchBlocks);
    if (split.sealed[b] != nullptr) {
      ScoreSealed<T>(split.sealed[b], split.head_dim, b * kBlockTokens, tile);
    } else {
      ScoreHalf<T>(split.half_k[b], split.head_dim, b * kBlockTokens, whole, tile);
    }
  }
  const uint32_t own_start = split.block_count * kBlockTokens;
  const uint32_t own_most = tile.own_tokens[T - 1];
  if (own_most > 0) ScoreHalf<T>(split.own_k, split.head_dim, own_start, tile.own_tokens, tile);

  if (first_row == 0) {
    for (uint32_t b = 0; b < kPrefetchBlocks; ++b) PrefetchValues(split, b);
  }
  Normalize<T>(split, first_row, own_start + (own_most + kLanes - 1) / kLanes * kLanes, tile);

  for (uint32_t b = 0; b < split.block_count; ++b) {
    if (first_row == 0) PrefetchValues(split, b + kPrefetchBlocks);
    if (split.sealed[b] != nullptr) {
      WeighSealed<T>(split.sealed[b], split.head_dim, b * kBlockTokens, tile);
    } else {
      WeighHalf<T>(split.half_v[b], split.head_dim, b * kBlockTokens, whole, tile);
    }
  }
  if (own_most > 0) WeighHalf<T>(split.own_v, split.head_dim, own_start, tile.own_tokens, tile);
}

void Attend(const AttentionSplit& split) {
  bool any_sealed = false;
  for (uint32_t b = 0; b < split.block_count; ++b) any_sealed |= split.sealed[b] != nullptr;
  const uint32_t rows = split.query_count * split.group;
  uint32_t row = 0;
  for (; row + kRowTile <= rows; row += kRowTile) AttendTile<kRowTile>(split, row, any_sealed);
  for (; row + 4 <= rows; row += 4) AttendTile<4>(split, row, any_sealed);
  switch (rows - row) {
    case 3: return AttendTile<3>(split, row, any_sealed);
    case 2: return AttendTile<2>(split, row, any_sealed);
    case 1: return AttendTile<1>(split, row, any_sealed);
    default: return;
  }
}

void Merge(const float* maxima, const float* sums, const float* values, uint32_t splits,
           uint64_t split_stride, uint32_t rows, uint32_t head_dim, float* out,
           uint64_t out_stride) {
  for (uint64_t r = 0; r < rows; ++r) {
    float highest = kLowestScore;
    for (uint64_t s = 0; s < splits; ++s) {
      const float maximum = maxima[s * split_stride + r];
      highest = maximum > highest ? maximum : highest;
    }
    float* row = out + r * out_stride;
    for (uint32_t i = 0; i < head_dim; i += kLanes) Store(row + i, Set(0.0f));
    Floats total = Set(0.0f);
    for (uint64_t s = 0; s < splits; ++s) {
      const uint64_t at = s * split_stride + r;
      const Floats weight = Exp(Set(maxima[at] - highest));
      total = Fma(weight, Set(sums[at]), total);
      const float* part = values + at * head_dim;
      for (uint32_t i = 0; i < head_dim; i += kLanes) {
        Store(row + i, Fma(weight, Load(part + i), Load(row + i)));
      }
    }
    for (uint32_t i = 0; i < head_dim; i += kLanes) {
      Store(row + i, WherePositive(total, Divide(Load(row + i), total), Set(0.0f)));
    }
  }
}

}  // namespace
}  // namespace kairos
