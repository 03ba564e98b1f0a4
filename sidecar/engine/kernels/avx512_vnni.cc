// SPDX-License-Identifier: Apache-2.0
// The tier for AVX-512 (F, BW, VL, DQ) with VNNI: 16 lanes are one register.
// Built with flags of its own; reached only through the table, after the CPU was asked. A test also
// builds this file against an emulation of the instructions, so it sticks to plain intrinsics.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "sidecar/engine/kernels/tiers.h"

namespace kairos {
namespace {

constexpr uint32_t kTokenTile = 8;
constexpr uint32_t kRowTile = 8;

struct Floats {
  __m512 v;
};
struct Ints {
  __m512i v;
};
struct Pairs {
  __m512i v;
};

inline __m512i BroadcastFour(const void* bytes) {
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

inline Ints AddPairDots(Ints acc, Pairs pairs, const int16_t* words) {
  return {_mm512_dpwssd_epi32(acc.v, pairs.v, BroadcastFour(words))};
}

// ---- Dots of a block of weights
// ------------------------------------------------------------------

template <int T>
inline void AddVector(__m512i weights, const int8_t* const x[T], uint32_t vector, Ints dots[T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    dots[t].v = _mm512_dpbusd_epi32(dots[t].v, weights, BroadcastFour(x[t] + vector * 4));
  }
}

template <int T>
inline void NibbleDots(const uint8_t* nibbles, const int8_t* const x[T], Ints dots[T]) {
  const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) dots[t] = ZeroInts();
#pragma GCC unroll 4
  for (uint32_t pair = 0; pair < 4; ++pair) {
    const __m512i both = _mm512_loadu_si512(nibbles + pair * 64);
    AddVector<T>(_mm512_and_si512(both, mask), x, 2 * pair, dots);
    AddVector<T>(_mm512_and_si512(_mm512_srli_epi16(both, 4), mask), x, 2 * pair + 1, dots);
  }
}

inline void UnpackNibbles(const uint8_t* nibbles, uint8_t* bytes) {
  const __m512i mask = _mm512_set1_epi8(15);
  for (uint32_t pair = 0; pair < 4; ++pair, nibbles += 64, bytes += 128) {
    const __m512i both = _mm512_loadu_si512(nibbles);
    _mm512_storeu_si512(bytes, _mm512_and_si512(both, mask));
    _mm512_storeu_si512(bytes + 64, _mm512_and_si512(_mm512_srli_epi16(both, 4), mask));
  }
}

// Bytes of at most 15.
template <int T>
inline void SmallByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) dots[t] = ZeroInts();
#pragma GCC unroll 8
  for (uint32_t vector = 0; vector < 8; ++vector) {
    AddVector<T>(_mm512_loadu_si512(bytes + vector * 64), x, vector, dots);
  }
}

// Bytes of at most 31 add up just as well.
template <int T>
inline void MediumByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  SmallByteDots<T>(bytes, x, dots);
}

// The fifth bits of vector V in place.
template <int V>
inline __m512i FifthBits(__m512i plane) {
  __m512i moved = plane;
  if constexpr (V < 4) moved = _mm512_slli_epi16(plane, 4 - V);
  if constexpr (V > 4) moved = _mm512_srli_epi16(plane, V - 4);
  return _mm512_and_si512(moved, _mm512_set1_epi8(16));
}

template <int V>
inline void LoadFivePair(const uint8_t* fives, __m512i* first, __m512i* second) {
  const __m512i mask = _mm512_set1_epi8(15);
  const __m512i both = _mm512_loadu_si512(fives + V * 32);
  const __m512i plane = _mm512_loadu_si512(fives + 256);
  *first = _mm512_or_si512(_mm512_and_si512(both, mask), FifthBits<V>(plane));
  *second = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(both, 4), mask),
                            FifthBits<V + 1>(plane));
}

template <int T, int V>
inline void AddFivePair(const uint8_t* fives, const int8_t* const x[T], Ints dots[T]) {
  __m512i first, second;
  LoadFivePair<V>(fives, &first, &second);
  AddVector<T>(first, x, V, dots);
  AddVector<T>(second, x, V + 1, dots);
}

template <int T>
inline void FiveDots(const uint8_t* fives, const int8_t* const x[T], Ints dots[T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) dots[t] = ZeroInts();
  AddFivePair<T, 0>(fives, x, dots);
  AddFivePair<T, 2>(fives, x, dots);
  AddFivePair<T, 4>(fives, x, dots);
  AddFivePair<T, 6>(fives, x, dots);
}

template <int V>
inline void UnpackFivePair(const uint8_t* fives, uint8_t* bytes) {
  __m512i first, second;
  LoadFivePair<V>(fives, &first, &second);
  _mm512_storeu_si512(bytes + V * 64, first);
  _mm512_storeu_si512(bytes + V * 64 + 64, second);
}

inline void UnpackFives(const uint8_t* fives, uint8_t* bytes) {
  UnpackFivePair<0>(fives, bytes);
  UnpackFivePair<2>(fives, bytes);
  UnpackFivePair<4>(fives, bytes);
  UnpackFivePair<6>(fives, bytes);
}

// The sign of the weight moves to the activation; a magnitude of 128 is fine as an unsigned byte.
template <int T, uint32_t kVectors>
inline void SignedDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) dots[t] = ZeroInts();
#pragma GCC unroll 8
  for (uint32_t vector = 0; vector < kVectors; ++vector) {
    const __m512i weights = _mm512_loadu_si512(bytes + vector * 64);
    const __m512i sizes = _mm512_abs_epi8(weights);
    const __mmask64 negative = _mm512_movepi8_mask(weights);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const __m512i four = BroadcastFour(x[t] + vector * 4);
      const __m512i turned = _mm512_mask_sub_epi8(four, negative, _mm512_setzero_si512(), four);
      dots[t].v = _mm512_dpbusd_epi32(dots[t].v, sizes, turned);
    }
  }
}

template <int T>
inline void SignedByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  SignedDots<T, 8>(bytes, x, dots);
}

template <int T>
inline void HalfByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  SignedDots<T, 4>(bytes, x, dots);
}

}  // namespace
}  // namespace kairos

#include "sidecar/engine/kernels/attention-inl.h"
#include "sidecar/engine/kernels/matmul-inl.h"

namespace kairos {

const KernelTable kAvx512VnniKernels = {
    .name = "avx512_vnni",
    .matmul_quantized = MatmulQuantized,
    .matmul_float = MatmulFloat,
    .quantize_row = QuantizeRow,
    .rms_norm = RmsNorm,
    .rope = Rope,
    .silu_multiply = SiluMultiply,
    .gelu_multiply = GeluMultiply,
    .sum_exponentials = SumExponentials,
    .add = AddTo,
    .store_half = StoreHalf,
    .seal_tile = SealTile,
    .attention_split = Attend,
    .attention_merge = Merge,
};

}  // namespace kairos
