// SPDX-License-Identifier: Apache-2.0
// The tier for AVX2, FMA and F16C. Products of bytes add up in 16 bits, so each layout says how
// many of them fit.
// Built with -mavx2 -mfma -mf16c; reached only through the table, after the CPU was asked.
#include "sidecar/engine/kernels/avx2-inl.h"
#include "sidecar/engine/kernels/unpack-inl.h"

namespace kairos {
namespace {

constexpr uint32_t kPairChains = 1;

inline Ints AddPairDots(Ints acc, Pairs pairs, const int16_t* words) {
  const __m256i two = BroadcastFour(words);
  return {Pin(_mm256_add_epi32(acc.low, _mm256_madd_epi16(pairs.low, two))),
          Pin(_mm256_add_epi32(acc.high, _mm256_madd_epi16(pairs.high, two)))};
}

// ---- Dots of a block of weights -----------------------------------------------------------------

template <int T>
inline void ClearSums(Pairs sums[T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) sums[t] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
}

// Eight products of unsigned 4-bit weights add up in 16 bits: 8 * 2 * 15 * 127 = 30480.
template <int T>
inline void AddVector(Vector weights, const int8_t* const x[T], uint32_t vector, Pairs sums[T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const Four four = BroadcastFour(x[t] + vector * 4);
    sums[t] = {Pin(_mm256_add_epi16(sums[t].low, _mm256_maddubs_epi16(weights.low, four))),
               Pin(_mm256_add_epi16(sums[t].high, _mm256_maddubs_epi16(weights.high, four)))};
  }
}

template <int T>
inline void WidenSums(const Pairs sums[T], Ints dots[T]) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    dots[t] = {_mm256_madd_epi16(sums[t].low, ones), _mm256_madd_epi16(sums[t].high, ones)};
  }
}

template <int T>
inline void AddWidened(const Pairs sums[T], Ints dots[T]) {
  Ints wide[T];
  WidenSums<T>(sums, wide);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) dots[t] = AddInts(dots[t], wide[t]);
}

template <int T>
inline void NibbleDots(const uint8_t* nibbles, const int8_t* const x[T], Ints dots[T]) {
  Pairs sums[T];
  ClearSums<T>(sums);
#pragma GCC unroll 4
  for (uint32_t pair = 0; pair < 4; ++pair) {
    const VectorPair weights = LoadNibblePair(nibbles, pair);
    AddVector<T>(weights.first, x, 2 * pair, sums);
    AddVector<T>(weights.second, x, 2 * pair + 1, sums);
  }
  WidenSums<T>(sums, dots);
}

// Bytes of at most 15.
template <int T>
inline void SmallByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  Pairs sums[T];
  ClearSums<T>(sums);
#pragma GCC unroll 8
  for (uint32_t vector = 0; vector < 8; ++vector) {
    AddVector<T>(LoadVector(bytes + vector * 64), x, vector, sums);
  }
  WidenSums<T>(sums, dots);
}

// Four products add up in 16 bits: 4 * 2 * 31 * 127 = 31496.
template <int T, int V>
inline void AddFivePair(const uint8_t* fives, const int8_t* const x[T], Pairs sums[T]) {
  const VectorPair weights = LoadFivePair<V>(fives);
  AddVector<T>(weights.first, x, V, sums);
  AddVector<T>(weights.second, x, V + 1, sums);
}

template <int T>
inline void FiveDots(const uint8_t* fives, const int8_t* const x[T], Ints dots[T]) {
  Pairs sums[T];
  ClearSums<T>(sums);
  AddFivePair<T, 0>(fives, x, sums);
  AddFivePair<T, 2>(fives, x, sums);
  WidenSums<T>(sums, dots);
  ClearSums<T>(sums);
  AddFivePair<T, 4>(fives, x, sums);
  AddFivePair<T, 6>(fives, x, sums);
  AddWidened<T>(sums, dots);
}

// Bytes of at most 31.
template <int T>
inline void MediumByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  Pairs sums[T];
#pragma GCC unroll 2
  for (uint32_t first = 0; first < 8; first += 4) {
    ClearSums<T>(sums);
#pragma GCC unroll 4
    for (uint32_t vector = first; vector < first + 4; ++vector) {
      AddVector<T>(LoadVector(bytes + vector * 64), x, vector, sums);
    }
    if (first == 0) {
      WidenSums<T>(sums, dots);
    } else {
      AddWidened<T>(sums, dots);
    }
  }
}

// A vector of signed bytes times four activations: the sign of the weight moves to the activation.
struct SignedVector {
  Vector weights, sizes;
};

inline SignedVector LoadSigned(const uint8_t* bytes) {
  const Vector weights = LoadVector(bytes);
  return {weights, {_mm256_abs_epi8(weights.low), _mm256_abs_epi8(weights.high)}};
}

inline Pairs SignedProducts(const SignedVector& vector, Four four) {
  return {
      _mm256_maddubs_epi16(vector.sizes.low, _mm256_sign_epi8(four, vector.weights.low)),
      _mm256_maddubs_epi16(vector.sizes.high, _mm256_sign_epi8(four, vector.weights.high))};
}

// Four vectors of signed bytes of magnitude 32 at most: 4 * 2 * 32 * 127 = 32512.
template <int T>
inline void HalfByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  Pairs sums[T];
  ClearSums<T>(sums);
#pragma GCC unroll 4
  for (uint32_t vector = 0; vector < 4; ++vector) {
    const SignedVector weights = LoadSigned(bytes + vector * 64);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const Pairs products = SignedProducts(weights, BroadcastFour(x[t] + vector * 4));
      sums[t] = {Pin(_mm256_add_epi16(sums[t].low, products.low)),
                 Pin(_mm256_add_epi16(sums[t].high, products.high))};
    }
  }
  WidenSums<T>(sums, dots);
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

#include "sidecar/engine/kernels/tier-inl.h"

namespace kairos {

constinit const KernelTable kAvx2Kernels = TableOfTier("avx2");

}  // namespace kairos
