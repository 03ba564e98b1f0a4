// SPDX-License-Identifier: Apache-2.0
// What the tiers with AVX2, FMA and F16C have in common: 16 lanes are two registers. A tier's
// source file includes this first and adds its dots (see vector-inl.h).
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace kairos {
namespace {

constexpr uint32_t kTokenTile = 4;
constexpr uint32_t kRowTile = 4;

struct Floats {
  __m256 low, high;
};
struct Ints {
  __m256i low, high;
};
struct Pairs {
  __m256i low, high;
};
struct Vector {
  __m256i low, high;
};
using Four = __m256i;

inline __m256i LoadRegister(const void* bytes) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(bytes));
}

inline void StoreRegister(void* bytes, __m256i value) {
  _mm256_storeu_si256(static_cast<__m256i*>(bytes), value);
}

inline Four BroadcastFour(const void* bytes) {
  int32_t four;
  std::memcpy(&four, bytes, sizeof(four));
  return _mm256_set1_epi32(four);
}

inline Floats Load(const float* x) { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }

inline void Store(float* x, Floats value) {
  _mm256_storeu_ps(x, value.low);
  _mm256_storeu_ps(x + 8, value.high);
}

inline Floats Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

inline Floats LoadHalfs(const void* bytes) {
  const __m128i* halfs = static_cast<const __m128i*>(bytes);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halfs)), _mm256_cvtph_ps(_mm_loadu_si128(halfs + 1))};
}

// bfloat16: the upper half of a float.
inline Floats LoadBrainHalfs(const void* bytes) {
  const __m128i* halfs = static_cast<const __m128i*>(bytes);
  const auto widen = [](__m128i words) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
  };
  return {widen(_mm_loadu_si128(halfs)), widen(_mm_loadu_si128(halfs + 1))};
}

inline void StoreHalfs(void* bytes, Floats value) {
  __m128i* halfs = static_cast<__m128i*>(bytes);
  _mm_storeu_si128(halfs, _mm256_cvtps_ph(value.low, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(halfs + 1, _mm256_cvtps_ph(value.high, _MM_FROUND_TO_NEAREST_INT));
}

inline Floats Add(Floats a, Floats b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

inline Floats Subtract(Floats a, Floats b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

inline Floats Mul(Floats a, Floats b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

inline Floats Divide(Floats a, Floats b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}

inline Floats Fma(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

inline Floats FmaSubtract(Floats a, Floats b, Floats c) {
  return {_mm256_fmsub_ps(a.low, b.low, c.low), _mm256_fmsub_ps(a.high, b.high, c.high)};
}

inline Floats Max(Floats a, Floats b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

inline Floats Min(Floats a, Floats b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

inline Floats Abs(Floats x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
}

// value where x >= limit, else zero.
inline Floats ZeroBelow(Floats x, float limit, Floats value) {
  const __m256 least = _mm256_set1_ps(limit);
  return {_mm256_and_ps(_mm256_cmp_ps(x.low, least, _CMP_GE_OQ), value.low),
          _mm256_and_ps(_mm256_cmp_ps(x.high, least, _CMP_GE_OQ), value.high)};
}

inline Floats WherePositive(Floats x, Floats yes, Floats no) {
  const __m256 zero = _mm256_setzero_ps();
  return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(x.low, zero, _CMP_GT_OQ)),
          _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(x.high, zero, _CMP_GT_OQ))};
}

// The first `count` lanes of x, then lanes of `rest`.
inline Floats KeepFirst(Floats x, uint32_t count, Floats rest) {
  const __m256i limit = _mm256_set1_epi32(static_cast<int32_t>(count));
  const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i high = _mm256_add_epi32(low, _mm256_set1_epi32(8));
  return {
      _mm256_blendv_ps(rest.low, x.low, _mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, low))),
      _mm256_blendv_ps(rest.high, x.high, _mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, high)))};
}

// Lanes 8 apart, then 4, 2, 1.
inline float SumLanes(Floats x) {
  const __m256 eight = _mm256_add_ps(x.low, x.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline float MaxLane(Floats x) {
  const __m256 eight = _mm256_max_ps(x.low, x.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline Ints ZeroInts() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }

inline Ints AddInts(Ints a, Ints b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}

inline int32_t SumInts(Ints x) {
  const __m256i eight = _mm256_add_epi32(x.low, x.high);
  const __m128i four =
      _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

inline Ints ToInts(Floats x) { return {_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)}; }
inline Floats ToFloats(Ints x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }

inline Floats PowerOfTwo(Ints n) {
  const __m256i bias = _mm256_set1_epi32(127);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.low, bias), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.high, bias), 23))};
}

// 16 words in order from values that fit.
inline __m256i ToWords(Ints x) {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(x.low, x.high), 0xd8);
}

inline void StoreWords(int16_t* words, Ints x) { StoreRegister(words, ToWords(x)); }

inline void StoreBytes(int8_t* bytes, Ints x) {
  const __m256i words = ToWords(x);
  const __m128i packed =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes), packed);
}

// Bytes of `even` and `odd` alternating.
inline void StoreBytePairs(uint8_t* bytes, Ints even, Ints odd) {
  const __m256i mask = _mm256_set1_epi16(255);
  const __m256i evens = _mm256_and_si256(ToWords(even), mask);
  StoreRegister(bytes, _mm256_or_si256(evens, _mm256_slli_epi16(ToWords(odd), 8)));
}

inline Pairs LoadPairs(const uint8_t* bytes) {
  const __m128i* halves = reinterpret_cast<const __m128i*>(bytes);
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(halves)),
          _mm256_cvtepi8_epi16(_mm_loadu_si128(halves + 1))};
}

// Keeps an accumulator where it is: left alone, the compiler gathers the additions of many steps at
// the end, runs out of registers and spills the products, or moves it to and fro.
inline __m256i Pin(__m256i accumulator) {
  __asm__("" : "+x"(accumulator));
  return accumulator;
}

// ---- A vector of 64 weights ---------------------------------------------------------------------

inline Vector LoadVector(const uint8_t* bytes) {
  return {LoadRegister(bytes), LoadRegister(bytes + 32)};
}

inline void StoreVector(uint8_t* bytes, Vector value) {
  StoreRegister(bytes, value.low);
  StoreRegister(bytes + 32, value.high);
}

inline Vector LowNibbles(Vector both) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(both.low, mask), _mm256_and_si256(both.high, mask)};
}

inline Vector HighNibbles(Vector both) {
  return LowNibbles({_mm256_srli_epi16(both.low, 4), _mm256_srli_epi16(both.high, 4)});
}

inline Vector Or(Vector a, Vector b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}

// The fifth bits of vector V in place.
template <int V>
inline Vector FifthBits(Vector plane) {
  const auto in_place = [](__m256i moved) {
    if constexpr (V < 4) moved = _mm256_slli_epi16(moved, 4 - V);
    if constexpr (V > 4) moved = _mm256_srli_epi16(moved, V - 4);
    return _mm256_and_si256(moved, _mm256_set1_epi8(16));
  };
  return {in_place(plane.low), in_place(plane.high)};
}

}  // namespace
}  // namespace kairos
