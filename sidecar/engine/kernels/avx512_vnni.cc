// SPDX-License-Identifier: Apache-2.0
// The tier for AVX-512 (F, BW, VL, DQ) with VNNI: 16 lanes are one register.
// Built with flags of its own; reached only through the table, after the CPU was asked. A test also
// builds this file against an emulation of the instructions, so it sticks to plain intrinsics.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace kairos {
namespace {

constexpr uint32_t kTokenTile = 8;
constexpr uint32_t kRowTile = 8;
constexpr uint32_t kPairChains = 8;

struct Floats {
  __m512 v;
};
struct Ints {
  __m512i v;
};
struct Pairs {
  __m512i v;
};
struct Vector {
  __m512i v;
};
using Four = __m512i;

inline Four BroadcastFour(const void* bytes) {
  int32_t four;
  std::memcpy(&four, bytes, sizeof(four));
  return _mm512_set1_epi32(four);
}

inline Floats Load(const float* x) { return {_mm512_loadu_ps(x)}; }
inline void Store(float* x, Floats value) { _mm512_storeu_ps(x, value.v); }
inline Floats Set(float x) { return {_mm512_set1_ps(x)}; }

inline Floats LoadHalfs(const void* bytes) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(bytes)))};
}

// bfloat16: the upper half of a float.
inline Floats LoadBrainHalfs(const void* bytes) {
  const __m256i words = _mm256_loadu_si256(static_cast<const __m256i*>(bytes));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16))};
}

inline void StoreHalfs(void* bytes, Floats value) {
  _mm256_storeu_si256(static_cast<__m256i*>(bytes),
                      _mm512_cvtps_ph(value.v, _MM_FROUND_TO_NEAREST_INT));
}

inline Floats Add(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Floats Subtract(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Floats Mul(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Floats Divide(Floats a, Floats b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Floats Fma(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Floats FmaSubtract(Floats a, Floats b, Floats c) { return {_mm512_fmsub_ps(a.v, b.v, c.v)}; }
inline Floats Max(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Floats Min(Floats a, Floats b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Floats Abs(Floats x) { return {_mm512_abs_ps(x.v)}; }

// value where x >= limit, else zero.
inline Floats ZeroBelow(Floats x, float limit, Floats value) {
  const __mmask16 kept = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(limit), _CMP_GE_OQ);
  return {_mm512_maskz_mov_ps(kept, value.v)};
}

inline Floats WherePositive(Floats x, Floats yes, Floats no) {
  const __mmask16 positive = _mm512_cmp_ps_mask(x.v, _mm512_setzero_ps(), _CMP_GT_OQ);
  return {_mm512_mask_mov_ps(no.v, positive, yes.v)};
}

// The first `count` lanes of x (less than 16), then lanes of `rest`.
inline Floats KeepFirst(Floats x, uint32_t count, Floats rest) {
  return {_mm512_mask_mov_ps(rest.v, static_cast<__mmask16>((1u << count) - 1), x.v)};
}

inline __m256 LowHalf(__m512 x) { return _mm512_castps512_ps256(x); }
inline __m256 HighHalf(__m512 x) { return _mm512_extractf32x8_ps(x, 1); }

// Lanes 8 apart, then 4, 2, 1.
inline float SumLanes(Floats x) {
  const __m256 eight = _mm256_add_ps(LowHalf(x.v), HighHalf(x.v));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline float MaxLane(Floats x) {
  const __m256 eight = _mm256_max_ps(LowHalf(x.v), HighHalf(x.v));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline Ints ZeroInts() { return {_mm512_setzero_si512()}; }
inline Ints AddInts(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Ints SubtractInts(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }

inline int32_t SumInts(Ints x) {
  const __m256i eight =
      _mm256_add_epi32(_mm512_castsi512_si256(x.v), _mm512_extracti64x4_epi64(x.v, 1));
  const __m128i four =
      _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

inline Ints ToInts(Floats x) { return {_mm512_cvtps_epi32(x.v)}; }
inline Floats ToFloats(Ints x) { return {_mm512_cvtepi32_ps(x.v)}; }

inline Floats PowerOfTwo(Ints n) {
  const __m512i biased = _mm512_add_epi32(n.v, _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}

inline void StoreWords(int16_t* words, Ints x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), _mm512_cvtepi32_epi16(x.v));
}

inline void StoreBytes(int8_t* bytes, Ints x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes), _mm512_cvtepi32_epi8(x.v));
}

// Bytes of `even` and `odd` alternating.
inline void StoreBytePairs(uint8_t* bytes, Ints even, Ints odd) {
  const __m512i evens = _mm512_and_si512(even.v, _mm512_set1_epi32(255));
  const __m512i words = _mm512_or_si512(evens, _mm512_slli_epi32(odd.v, 8));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes), _mm512_cvtepi32_epi16(words));
}

inline Pairs LoadPairs(const uint8_t* bytes) {
  return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)))};
}

// Keeps an accumulator where it is: left alone, the compiler moves it to and fro. The emulation has
// no such registers.
inline __m512i Pin(__m512i accumulator) {
#if defined(__AVX512F__)
  __asm__("" : "+v"(accumulator));
#endif
  return accumulator;
}

inline Ints AddPairDots(Ints acc, Pairs pairs, const int16_t* words) {
  return {Pin(_mm512_dpwssd_epi32(acc.v, pairs.v, BroadcastFour(words)))};
}

// ---- A vector of 64 weights ---------------------------------------------------------------------

inline Vector LoadVector(const uint8_t* bytes) { return {_mm512_loadu_si512(bytes)}; }
inline void StoreVector(uint8_t* bytes, Vector value) { _mm512_storeu_si512(bytes, value.v); }

inline Vector LowNibbles(Vector both) {
  return {_mm512_and_si512(both.v, _mm512_set1_epi8(15))};
}

inline Vector HighNibbles(Vector both) { return LowNibbles({_mm512_srli_epi16(both.v, 4)}); }
inline Vector Or(Vector a, Vector b) { return {_mm512_or_si512(a.v, b.v)}; }

// The fifth bits of vector V in place.
template <int V>
inline Vector FifthBits(Vector plane) {
  __m512i moved = plane.v;
  if constexpr (V < 4) moved = _mm512_slli_epi16(moved, 4 - V);
  if constexpr (V > 4) moved = _mm512_srli_epi16(moved, V - 4);
  return {_mm512_and_si512(moved, _mm512_set1_epi8(16))};
}

inline Four RaisedZero() { return _mm512_set1_epi8(-128); }
inline Four Raise(Four x) { return _mm512_xor_si512(x, RaisedZero()); }

inline Ints AddDots(Ints dots, Vector weights, Four x) {
  return {_mm512_dpbusd_epi32(dots.v, weights.v, x)};
}

inline Ints AddRaisedDots(Ints dots, Vector weights, Four raised) {
  return {_mm512_dpbusd_epi32(dots.v, raised, weights.v)};
}

}  // namespace
}  // namespace kairos

#include "sidecar/engine/kernels/vnni-inl.h"

#include "sidecar/engine/kernels/tier-inl.h"

namespace kairos {

constinit const KernelTable kAvx512VnniKernels = TableOfTier("avx512_vnni");

}  // namespace kairos
