// SPDX-License-Identifier: Apache-2.0
// The AVX-512 tier's own source, built against SIMDe instead of the instructions, as the table
// kEmulatedAvx512Kernels. It lets any AVX2 machine check that tier's arithmetic bit for bit.
#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
#pragma GCC diagnostic pop

#include "sidecar/engine/kernels/kernel_table.h"

namespace {

// What SIMDe lacks, from the 256-bit instructions.
inline simde__m512 HalvesToFloats(__m256i halfs) {
  simde__m512_private result;
  result.m256[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(halfs));
  result.m256[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(halfs, 1));
  return simde__m512_from_private(result);
}

inline __m256i FloatsToHalves(simde__m512 floats) {
  const simde__m512_private source = simde__m512_to_private(floats);
  return _mm256_set_m128i(_mm256_cvtps_ph(source.m256[1], _MM_FROUND_TO_NEAREST_INT),
                          _mm256_cvtps_ph(source.m256[0], _MM_FROUND_TO_NEAREST_INT));
}

inline __m256 UpperFloats(simde__m512 floats) { return simde__m512_to_private(floats).m256[1]; }

// Nearest-even, as the instruction; a cast would truncate.
inline simde__m512i FloatsToInts(simde__m512 floats) {
  const simde__m512_private source = simde__m512_to_private(floats);
  simde__m512i_private result;
  result.m256i[0] = _mm256_cvtps_epi32(source.m256[0]);
  result.m256i[1] = _mm256_cvtps_epi32(source.m256[1]);
  return simde__m512i_from_private(result);
}

inline simde__m512 IntsToFloats(simde__m512i ints) {
  const simde__m512i_private source = simde__m512i_to_private(ints);
  simde__m512_private result;
  result.m256[0] = _mm256_cvtepi32_ps(source.m256i[0]);
  result.m256[1] = _mm256_cvtepi32_ps(source.m256i[1]);
  return simde__m512_from_private(result);
}

inline simde__m512i WordsToInts(__m256i words) {
  simde__m512i_private result;
  result.m256i[0] = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(words));
  result.m256i[1] = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(words, 1));
  return simde__m512i_from_private(result);
}

inline __m256i IntsToWords(simde__m512i ints) {
  const simde__m512i_private source = simde__m512i_to_private(ints);
  int16_t words[16];
  for (int i = 0; i < 16; ++i) words[i] = static_cast<int16_t>(source.i32[i]);
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
}

inline __m128i IntsToBytes(simde__m512i ints) {
  const simde__m512i_private source = simde__m512i_to_private(ints);
  int8_t bytes[16];
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<int8_t>(source.i32[i]);
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

}  // namespace

#undef _mm512_cvtps_ph
#undef _mm512_extractf32x8_ps
#undef _mm512_cvtps_epi32
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtepi32_epi16
#undef _mm512_cvtepi32_epi8
#define _mm512_cvtph_ps(halfs) HalvesToFloats(halfs)
#define _mm512_cvtepu16_epi32(words) WordsToInts(words)
#define _mm512_cvtps_ph(floats, rounding) FloatsToHalves(floats)
#define _mm512_extractf32x8_ps(floats, half) UpperFloats(floats)
#define _mm512_cvtps_epi32(floats) FloatsToInts(floats)
#define _mm512_cvtepi32_ps(ints) IntsToFloats(ints)
#define _mm512_cvtepi32_epi16(ints) IntsToWords(ints)
#define _mm512_cvtepi32_epi8(ints) IntsToBytes(ints)
#define kAvx512VnniKernels kEmulatedAvx512Kernels

namespace kairos {
extern const KernelTable kEmulatedAvx512Kernels;
}

#include "sidecar/engine/kernels/avx512_vnni.cc"
