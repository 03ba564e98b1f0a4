// SPDX-License-Identifier: Apache-2.0
// The tier for AVX2, FMA and F16C: 16 lanes are two registers.
// Built with -mavx2 -mfma -mf16c; reached only through the table, after the CPU was asked.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "sidecar/engine/kernels/tiers.h"

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

inline __m256i LoadRegister(const void* bytes) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(bytes));
}

inline void StoreRegister(void* bytes, __m256i value) {
  _mm256_storeu_si256(static_cast<__m256i*>(bytes), value);
}

inline __m256i BroadcastFour(const void* bytes) {
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
// the end, runs out of registers and spills the products.
inline __m256i Pin(__m256i accumulator) {
  __asm__("" : "+x"(accumulator));
  return accumulator;
}

inline Ints AddPairDots(Ints acc, Pairs pairs, const int16_t* words) {
  const __m256i two = BroadcastFour(words);
  return {Pin(_mm256_add_epi32(acc.low, _mm256_madd_epi16(pairs.low, two))),
          Pin(_mm256_add_epi32(acc.high, _mm256_madd_epi16(pairs.high, two)))};
}

// ---- Dots of a block of weights
// ------------------------------------------------------------------

template <int T>
inline void ClearSums(__m256i sums_low[T], __m256i sums_high[T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) sums_low[t] = sums_high[t] = _mm256_setzero_si256();
}

// Eight products of unsigned 4-bit weights add up in 16 bits: 8 * 2 * 15 * 127 = 30480.
template <int T>
inline void AddSmallVector(__m256i low, __m256i high, const int8_t* const x[T], uint32_t vector,
                           __m256i sums_low[T], __m256i sums_high[T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const __m256i four = BroadcastFour(x[t] + vector * 4);
    sums_low[t] = Pin(_mm256_add_epi16(sums_low[t], _mm256_maddubs_epi16(low, four)));
    sums_high[t] = Pin(_mm256_add_epi16(sums_high[t], _mm256_maddubs_epi16(high, four)));
  }
}

template <int T>
inline void WidenSums(const __m256i sums_low[T], const __m256i sums_high[T], Ints dots[T]) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    dots[t] = {_mm256_madd_epi16(sums_low[t], ones), _mm256_madd_epi16(sums_high[t], ones)};
  }
}

template <int T>
inline void NibbleDots(const uint8_t* nibbles, const int8_t* const x[T], Ints dots[T]) {
  const __m256i mask = _mm256_set1_epi8(15);
  __m256i sums_low[T], sums_high[T];
  ClearSums<T>(sums_low, sums_high);
#pragma GCC unroll 4
  for (uint32_t pair = 0; pair < 4; ++pair) {
    const __m256i low = LoadRegister(nibbles + pair * 64);
    const __m256i high = LoadRegister(nibbles + pair * 64 + 32);
    AddSmallVector<T>(_mm256_and_si256(low, mask), _mm256_and_si256(high, mask), x, 2 * pair,
                      sums_low, sums_high);
    AddSmallVector<T>(_mm256_and_si256(_mm256_srli_epi16(low, 4), mask),
                      _mm256_and_si256(_mm256_srli_epi16(high, 4), mask), x, 2 * pair + 1, sums_low,
                      sums_high);
  }
  WidenSums<T>(sums_low, sums_high, dots);
}

inline void UnpackNibbles(const uint8_t* nibbles, uint8_t* bytes) {
  const __m256i mask = _mm256_set1_epi8(15);
  for (uint32_t pair = 0; pair < 4; ++pair, nibbles += 64, bytes += 128) {
    for (uint32_t half = 0; half < 64; half += 32) {
      const __m256i both = LoadRegister(nibbles + half);
      StoreRegister(bytes + half, _mm256_and_si256(both, mask));
      StoreRegister(bytes + 64 + half, _mm256_and_si256(_mm256_srli_epi16(both, 4), mask));
    }
  }
}

// Bytes of at most 15.
template <int T>
inline void SmallByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  __m256i sums_low[T], sums_high[T];
  ClearSums<T>(sums_low, sums_high);
#pragma GCC unroll 8
  for (uint32_t vector = 0; vector < 8; ++vector) {
    AddSmallVector<T>(LoadRegister(bytes + vector * 64), LoadRegister(bytes + vector * 64 + 32), x,
                      vector, sums_low, sums_high);
  }
  WidenSums<T>(sums_low, sums_high, dots);
}

// The fifth bits of vector V in place, of 32 elements of the plane.
template <int V>
inline __m256i FifthBits(__m256i plane) {
  __m256i moved = plane;
  if constexpr (V < 4) moved = _mm256_slli_epi16(plane, 4 - V);
  if constexpr (V > 4) moved = _mm256_srli_epi16(plane, V - 4);
  return _mm256_and_si256(moved, _mm256_set1_epi8(16));
}

// Two vectors of bytes of at most 31.
struct FivePair {
  __m256i first_low, first_high, second_low, second_high;
};

template <int V>
inline FivePair LoadFivePair(const uint8_t* fives) {
  const __m256i mask = _mm256_set1_epi8(15);
  const auto lower = [mask](__m256i both) { return _mm256_and_si256(both, mask); };
  const __m256i low = LoadRegister(fives + V * 32);
  const __m256i high = LoadRegister(fives + V * 32 + 32);
  const __m256i low_plane = LoadRegister(fives + 256);
  const __m256i high_plane = LoadRegister(fives + 288);
  return {_mm256_or_si256(lower(low), FifthBits<V>(low_plane)),
          _mm256_or_si256(lower(high), FifthBits<V>(high_plane)),
          _mm256_or_si256(lower(_mm256_srli_epi16(low, 4)), FifthBits<V + 1>(low_plane)),
          _mm256_or_si256(lower(_mm256_srli_epi16(high, 4)), FifthBits<V + 1>(high_plane))};
}

// Four products add up in 16 bits: 4 * 2 * 31 * 127 = 31496.
template <int T, int V>
inline void AddFivePair(const uint8_t* fives, const int8_t* const x[T], __m256i sums_low[T],
                        __m256i sums_high[T]) {
  const FivePair pair = LoadFivePair<V>(fives);
  AddSmallVector<T>(pair.first_low, pair.first_high, x, V, sums_low, sums_high);
  AddSmallVector<T>(pair.second_low, pair.second_high, x, V + 1, sums_low, sums_high);
}

template <int T>
inline void AddWidened(const __m256i sums_low[T], const __m256i sums_high[T], Ints dots[T]) {
  Ints wide[T];
  WidenSums<T>(sums_low, sums_high, wide);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) dots[t] = AddInts(dots[t], wide[t]);
}

template <int T>
inline void FiveDots(const uint8_t* fives, const int8_t* const x[T], Ints dots[T]) {
  __m256i sums_low[T], sums_high[T];
  ClearSums<T>(sums_low, sums_high);
  AddFivePair<T, 0>(fives, x, sums_low, sums_high);
  AddFivePair<T, 2>(fives, x, sums_low, sums_high);
  WidenSums<T>(sums_low, sums_high, dots);
  ClearSums<T>(sums_low, sums_high);
  AddFivePair<T, 4>(fives, x, sums_low, sums_high);
  AddFivePair<T, 6>(fives, x, sums_low, sums_high);
  AddWidened<T>(sums_low, sums_high, dots);
}

template <int V>
inline void UnpackFivePair(const uint8_t* fives, uint8_t* bytes) {
  const FivePair pair = LoadFivePair<V>(fives);
  StoreRegister(bytes + V * 64, pair.first_low);
  StoreRegister(bytes + V * 64 + 32, pair.first_high);
  StoreRegister(bytes + V * 64 + 64, pair.second_low);
  StoreRegister(bytes + V * 64 + 96, pair.second_high);
}

inline void UnpackFives(const uint8_t* fives, uint8_t* bytes) {
  UnpackFivePair<0>(fives, bytes);
  UnpackFivePair<2>(fives, bytes);
  UnpackFivePair<4>(fives, bytes);
  UnpackFivePair<6>(fives, bytes);
}

// Bytes of at most 31.
template <int T>
inline void MediumByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  __m256i sums_low[T], sums_high[T];
#pragma GCC unroll 2
  for (uint32_t first = 0; first < 8; first += 4) {
    ClearSums<T>(sums_low, sums_high);
#pragma GCC unroll 4
    for (uint32_t vector = first; vector < first + 4; ++vector) {
      AddSmallVector<T>(LoadRegister(bytes + vector * 64), LoadRegister(bytes + vector * 64 + 32),
                        x, vector, sums_low, sums_high);
    }
    if (first == 0) {
      WidenSums<T>(sums_low, sums_high, dots);
    } else {
      AddWidened<T>(sums_low, sums_high, dots);
    }
  }
}

// A vector of signed bytes times four activations: the sign of the weight moves to the activation.
struct SignedVector {
  __m256i low, high, low_size, high_size;
};

inline SignedVector LoadSigned(const uint8_t* bytes) {
  const __m256i low = LoadRegister(bytes);
  const __m256i high = LoadRegister(bytes + 32);
  return {low, high, _mm256_abs_epi8(low), _mm256_abs_epi8(high)};
}

inline Pairs SignedProducts(const SignedVector& weights, __m256i four) {
  return {_mm256_maddubs_epi16(weights.low_size, _mm256_sign_epi8(four, weights.low)),
          _mm256_maddubs_epi16(weights.high_size, _mm256_sign_epi8(four, weights.high))};
}

// Four vectors of signed bytes of magnitude 32 at most: 4 * 2 * 32 * 127 = 32512.
template <int T>
inline void HalfByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  __m256i sums_low[T], sums_high[T];
  ClearSums<T>(sums_low, sums_high);
#pragma GCC unroll 4
  for (uint32_t vector = 0; vector < 4; ++vector) {
    const SignedVector weights = LoadSigned(bytes + vector * 64);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const Pairs products = SignedProducts(weights, BroadcastFour(x[t] + vector * 4));
      sums_low[t] = Pin(_mm256_add_epi16(sums_low[t], products.low));
      sums_high[t] = Pin(_mm256_add_epi16(sums_high[t], products.high));
    }
  }
  WidenSums<T>(sums_low, sums_high, dots);
}

// Two products reach 2 * 128 * 127 = 32512, so each result is widened before the next is added.
template <int T>
inline void SignedByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) dots[t] = ZeroInts();
#pragma GCC unroll 8
  for (uint32_t vector = 0; vector < 8; ++vector) {
    const SignedVector weights = LoadSigned(bytes + vector * 64);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const Pairs products = SignedProducts(weights, BroadcastFour(x[t] + vector * 4));
      dots[t] = {Pin(_mm256_add_epi32(dots[t].low, _mm256_madd_epi16(products.low, ones))),
                 Pin(_mm256_add_epi32(dots[t].high, _mm256_madd_epi16(products.high, ones)))};
    }
  }
}

}  // namespace
}  // namespace kairos

#include "sidecar/engine/kernels/attention-inl.h"
#include "sidecar/engine/kernels/matmul-inl.h"

namespace kairos {

const KernelTable kAvx2Kernels = {
    .name = "avx2",
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
