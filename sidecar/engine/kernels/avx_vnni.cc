// SPDX-License-Identifier: Apache-2.0
// The tier for AVX2 with AVX-VNNI, as processors without AVX-512 have it: the registers of the AVX2
// tier and the dots of the AVX-512 one.
// Built with -mavx2 -mfma -mf16c -mavxvnni; reached only through the table, after the CPU was
// asked. A test also builds this file against an emulation of the two instructions.
#include "sidecar/engine/kernels/avx2-inl.h"

namespace kairos {
namespace {

constexpr uint32_t kPairChains = 4;

inline Ints SubtractInts(Ints a, Ints b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}

inline Ints AddPairDots(Ints acc, Pairs pairs, const int16_t* words) {
  const Four two = BroadcastFour(words);
  return {Pin(_mm256_dpwssd_avx_epi32(acc.low, pairs.low, two)),
          Pin(_mm256_dpwssd_avx_epi32(acc.high, pairs.high, two))};
}

inline Four RaisedZero() { return _mm256_set1_epi8(-128); }
inline Four Raise(Four x) { return _mm256_xor_si256(x, RaisedZero()); }

inline Ints AddDots(Ints dots, Vector weights, Four x) {
  return {_mm256_dpbusd_avx_epi32(dots.low, weights.low, x),
          _mm256_dpbusd_avx_epi32(dots.high, weights.high, x)};
}

inline Ints AddRaisedDots(Ints dots, Vector weights, Four raised) {
  return {_mm256_dpbusd_avx_epi32(dots.low, raised, weights.low),
          _mm256_dpbusd_avx_epi32(dots.high, raised, weights.high)};
}

}  // namespace
}  // namespace kairos

#include "sidecar/engine/kernels/vnni-inl.h"

#include "sidecar/engine/kernels/tier-inl.h"

namespace kairos {

constinit const KernelTable kAvxVnniKernels = TableOfTier("avx_vnni");

}  // namespace kairos
