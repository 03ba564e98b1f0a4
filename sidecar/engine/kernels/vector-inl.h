// SPDX-License-Identifier: Apache-2.0
// The table's entries for a tier with 16-lane vectors, over the operations that the tier's source
// file defines before it includes this: Floats and Ints of 16 lanes, Pairs of 32 bytes widened to
// 16 bits, and the integer dots of a block of weights.
//
// Everything has internal linkage and calls no inline function of other headers: a function
// compiled with a tier's flags must never be the copy that the linker keeps for the whole program.
#pragma once

#include <cstdint>
#include <cstring>

#include "sidecar/engine/kernels/arithmetic.h"
#include "sidecar/engine/kernels/kernel_table.h"

namespace kairos {
namespace {

constexpr uint32_t kLanes = 16;

inline uint32_t Smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

inline void Prefetch(const uint8_t* bytes, uint64_t count) {
  for (uint64_t i = 0; i < count; i += 64) __builtin_prefetch(bytes + i);
}

// The first `count` lanes, the rest zero.
inline Floats LoadSome(const float* x, uint32_t count) {
  if (count >= kLanes) return Load(x);
  float lanes[kLanes] = {};
  std::memcpy(lanes, x, count * sizeof(float));
  return Load(lanes);
}

inline void StoreSome(float* x, uint32_t count, Floats value) {
  if (count >= kLanes) return Store(x, value);
  float lanes[kLanes];
  Store(lanes, value);
  std::memcpy(x, lanes, count * sizeof(float));
}

inline Floats Exp(Floats x) {
  const Floats bounded = Min(Max(x, Set(kExpLowest)), Set(kExpHighest));
  const Ints n = ToInts(Mul(bounded, Set(kLog2E)));
  const Floats count = ToFloats(n);
  Floats r = Fma(count, Set(-kLn2High), bounded);
  r = Fma(count, Set(-kLn2Low), r);
  Floats q = Fma(Set(kExpC6), r, Set(kExpC5));
  q = Fma(q, r, Set(kExpC4));
  q = Fma(q, r, Set(kExpC3));
  q = Fma(q, r, Set(kExpC2));
  const Floats y = Add(Fma(q, Mul(r, r), r), Set(1.0f));
  return ZeroBelow(x, kExpLowest, Mul(y, PowerOfTwo(n)));
}

inline Ints Quantize(Floats x, float limit) { return ToInts(Min(Max(x, Set(-limit)), Set(limit))); }

// Reciprocal scale of a magnitude maximum, zero where everything becomes zero.
inline float Inverse(float amax, float limit) { return amax < kMagnitudeMin ? 0.0f : limit / amax; }
inline float Scale(float amax, float limit) { return amax < kMagnitudeMin ? 0.0f : amax / limit; }

enum class ColumnKind { kFloat, kHalf, kBrainHalf };

template <ColumnKind kKind>
inline Floats LoadColumn(const uint8_t* column) {
  if constexpr (kKind == ColumnKind::kHalf) return LoadHalfs(column);
  if constexpr (kKind == ColumnKind::kBrainHalf) return LoadBrainHalfs(column);
  return Load(reinterpret_cast<const float*>(column));
}

// acc[t] += column j of 16 values * x[t][j], over `count` columns that lie `stride` bytes apart.
template <ColumnKind kKind, int T>
inline void MultiplyColumns(const uint8_t* columns, uint64_t stride, uint64_t count,
                            const float* const x[T], Floats acc[T]) {
  for (uint64_t j = 0; j < count; ++j, columns += stride) {
    const Floats column = LoadColumn<kKind>(columns);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) acc[t] = Fma(column, Set(x[t][j]), acc[t]);
  }
}

// dots[t] = sum over `count` column pairs (16 rows x 2 bytes) of pair j times words[t][2j, 2j + 1].
// `count` is a multiple of 4. A chain of dots waits for the latency of its instruction, so with few
// tokens each has several: kPairChains of the tier in all keep it busy.
template <int T>
inline void MultiplyPairs(const uint8_t* pairs, uint64_t stride, uint32_t count,
                          const int16_t* const words[T], Ints dots[T]) {
  constexpr uint32_t kChains = kPairChains / T >= 4 ? 4 : kPairChains / T >= 2 ? 2 : 1;
  Ints chains[kChains][T];
#pragma GCC unroll 4
  for (uint32_t c = 0; c < kChains; ++c) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) chains[c][t] = ZeroInts();
  }
  for (uint32_t j = 0; j < count; j += kChains) {
#pragma GCC unroll 4
    for (uint32_t c = 0; c < kChains; ++c, pairs += stride) {
      const Pairs pair = LoadPairs(pairs);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        chains[c][t] = AddPairDots(chains[c][t], pair, words[t] + 2 * (j + c));
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    dots[t] = chains[0][t];
#pragma GCC unroll 4
    for (uint32_t c = 1; c < kChains; ++c) dots[t] = AddInts(dots[t], chains[c][t]);
  }
}

// ---- Rows --------------------------------------------------------------------------------------

void QuantizeRow(const float* x, uint32_t cols, int8_t* values, float* scales, float* sums) {
  for (uint32_t b = 0; b < cols / kGroupSize; ++b, x += kGroupSize, values += kGroupSize) {
    const Floats first = Load(x);
    const Floats second = Load(x + kLanes);
    const float amax = MaxLane(Max(Abs(first), Abs(second)));
    const Floats inverse = Set(Inverse(amax, kByteMax));
    const Ints low = Quantize(Mul(first, inverse), kByteMax);
    const Ints high = Quantize(Mul(second, inverse), kByteMax);
    StoreBytes(values, low);
    StoreBytes(values + kLanes, high);
    scales[b] = Scale(amax, kByteMax);
    sums[b] = scales[b] * static_cast<float>(SumInts(AddInts(low, high)));
  }
}

void RmsNorm(const float* x, const float* weight, float eps, uint32_t cols, float* out) {
  Floats lanes = Set(0.0f);
  for (uint32_t i = 0; i < cols; i += kLanes) {
    const Floats part = LoadSome(x + i, cols - i);
    lanes = Fma(part, part, lanes);
  }
  const float mean = SumLanes(lanes) / static_cast<float>(cols);
  const Floats inverse = Set(1.0f / __builtin_sqrtf(mean + eps));
  for (uint32_t i = 0; i < cols; i += kLanes) {
    const Floats scaled = Mul(LoadSome(x + i, cols - i), inverse);
    StoreSome(out + i, cols - i, Mul(scaled, LoadSome(weight + i, cols - i)));
  }
}

void Rope(float* x, uint32_t heads, uint32_t head_dim, const float* cos, const float* sin) {
  const uint32_t half = head_dim / 2;
  for (uint32_t h = 0; h < heads; ++h, x += head_dim) {
    for (uint32_t i = 0; i < half; i += kLanes) {
      const uint32_t count = half - i;
      const Floats a = LoadSome(x + i, count);
      const Floats b = LoadSome(x + i + half, count);
      const Floats c = LoadSome(cos + i, count);
      const Floats s = LoadSome(sin + i, count);
      StoreSome(x + i, count, FmaSubtract(a, c, Mul(b, s)));
      StoreSome(x + i + half, count, Fma(a, s, Mul(b, c)));
    }
  }
}

void SiluMultiply(const float* gate, const float* up, uint32_t count, float* out) {
  for (uint32_t i = 0; i < count; i += kLanes) {
    const Floats g = LoadSome(gate + i, count - i);
    const Floats divisor = Add(Set(1.0f), Exp(Subtract(Set(0.0f), g)));
    StoreSome(out + i, count - i, Mul(Divide(g, divisor), LoadSome(up + i, count - i)));
  }
}

void GeluMultiply(const float* gate, const float* up, uint32_t count, float* out) {
  for (uint32_t i = 0; i < count; i += kLanes) {
    const Floats g = LoadSome(gate + i, count - i);
    const Floats inner = Fma(Mul(Mul(g, g), g), Set(kGeluCubic), g);
    const Floats divisor = Add(Set(1.0f), Exp(Mul(inner, Set(kGeluInner))));
    StoreSome(out + i, count - i, Mul(Divide(g, divisor), LoadSome(up + i, count - i)));
  }
}

float SumExponentials(const float* x, uint32_t count, float scale, float top) {
  Floats lanes = Set(0.0f);
  for (uint32_t i = 0; i < count; i += kLanes) {
    const Floats shifted = Subtract(Mul(LoadSome(x + i, count - i), Set(scale)), Set(top));
    const Floats exponentials = Exp(shifted);
    lanes = Add(lanes, count - i < kLanes ? KeepFirst(exponentials, count - i, Set(0.0f))
                                          : exponentials);
  }
  return SumLanes(lanes);
}

void AddTo(float* x, const float* y, uint32_t count) {
  for (uint32_t i = 0; i < count; i += kLanes) {
    StoreSome(x + i, count - i, Add(LoadSome(x + i, count - i), LoadSome(y + i, count - i)));
  }
}

// ---- KV tiles ----------------------------------------------------------------------------------

// Parts of a sealed tile.
inline uint64_t SealedKScales(uint32_t head_dim) { return 32ull * head_dim; }
inline uint64_t SealedV(uint32_t head_dim) { return 32ull * head_dim + 64; }
inline uint64_t SealedVScales(uint32_t head_dim) { return 64ull * head_dim + 64; }

void StoreHalf(const float* k, const float* v, uint32_t head_dim, uint32_t index, uint8_t* half_k,
               uint8_t* half_v) {
  uint8_t* column = half_k + (static_cast<uint64_t>(index / kLanes) * head_dim * kLanes +
                              index % kLanes) * 2;
  uint8_t* row = half_v + static_cast<uint64_t>(index) * head_dim * 2;
  for (uint32_t i = 0; i < head_dim; i += kLanes, column += kLanes * kLanes * 2) {
    uint16_t halfs[kLanes];
    StoreHalfs(halfs, Load(k + i));
    for (uint32_t j = 0; j < kLanes; ++j) std::memcpy(column + j * kLanes * 2, halfs + j, 2);
    StoreHalfs(row + i * 2, Load(v + i));
  }
}

// Rounds amax / 127 of 16 tokens to the stored scales and returns what to divide by: 1 for a scale
// that became zero, under which every value rounds to zero.
inline Floats StoreScales(uint8_t* scales, Floats amax) {
  StoreHalfs(scales, Divide(amax, Set(kByteMax)));
  const Floats scale = LoadHalfs(scales);
  return WherePositive(scale, scale, Set(1.0f));
}

void SealKeys(const uint8_t* half_k, uint32_t head_dim, uint8_t* sealed) {
  for (uint32_t group = 0; group < kBlockTokens / kLanes; ++group) {
    const uint8_t* source = half_k + static_cast<uint64_t>(group) * head_dim * 32;
    uint8_t* target = sealed + static_cast<uint64_t>(group) * head_dim * 16;
    Floats amax = Set(0.0f);
    for (uint32_t i = 0; i < head_dim; ++i) amax = Max(Abs(LoadHalfs(source + i * 32)), amax);
    const Floats scale = StoreScales(sealed + SealedKScales(head_dim) + group * 32, amax);
    for (uint32_t i = 0; i < head_dim; i += 2, target += 32) {
      const Floats even = Divide(LoadHalfs(source + i * 32), scale);
      const Floats odd = Divide(LoadHalfs(source + i * 32 + 32), scale);
      StoreBytePairs(target, Quantize(even, kByteMax), Quantize(odd, kByteMax));
    }
  }
}

void SealValues(const uint8_t* half_v, uint32_t head_dim, uint8_t* sealed) {
  const uint64_t row_bytes = head_dim * 2;
  float amax[kBlockTokens];
  for (uint32_t t = 0; t < kBlockTokens; ++t) {
    Floats greatest = Set(0.0f);
    for (uint32_t i = 0; i < head_dim; i += kLanes) {
      greatest = Max(Abs(LoadHalfs(half_v + t * row_bytes + i * 2)), greatest);
    }
    amax[t] = MaxLane(greatest);
  }
  float scales[kBlockTokens];
  uint8_t* stored = sealed + SealedVScales(head_dim);
  Store(scales, StoreScales(stored, Load(amax)));
  Store(scales + kLanes, StoreScales(stored + 32, Load(amax + kLanes)));
  uint8_t* target = sealed + SealedV(head_dim);
  for (uint32_t t = 0; t < kBlockTokens; t += 2) {
    for (uint32_t i = 0; i < head_dim; i += kLanes, target += 32) {
      const uint8_t* source = half_v + t * row_bytes + i * 2;
      const Floats even = Divide(LoadHalfs(source), Set(scales[t]));
      const Floats odd = Divide(LoadHalfs(source + row_bytes), Set(scales[t + 1]));
      StoreBytePairs(target, Quantize(even, kByteMax), Quantize(odd, kByteMax));
    }
  }
}

void SealTile(const uint8_t* half_k, const uint8_t* half_v, uint32_t head_dim, uint8_t* sealed) {
  SealKeys(half_k, head_dim, sealed);
  SealValues(half_v, head_dim, sealed);
}

}  // namespace
}  // namespace kairos
