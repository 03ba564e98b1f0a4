// SPDX-License-Identifier: Apache-2.0
// The AVX-VNNI tier's own source, with its two instructions made of AVX2's, as the table
// kEmulatedAvxVnniKernels. It lets any AVX2 machine check that tier's arithmetic bit for bit.
#include <immintrin.h>

#include "sidecar/engine/kernels/kernel_table.h"

namespace {

// Even and odd bytes apart: two products of a byte of 255 do not fit 16 bits.
inline __m256i AddQuadDots(__m256i sums, __m256i unsigned_bytes, __m256i signed_bytes) {
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(unsigned_bytes, _mm256_set1_epi16(255)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(signed_bytes, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(unsigned_bytes, 8),
                                        _mm256_srai_epi16(signed_bytes, 8));
  return _mm256_add_epi32(sums, _mm256_add_epi32(even, odd));
}

}  // namespace

#define _mm256_dpbusd_avx_epi32(sums, a, b) AddQuadDots(sums, a, b)
#define _mm256_dpwssd_avx_epi32(sums, a, b) _mm256_add_epi32(sums, _mm256_madd_epi16(a, b))
#define kAvxVnniKernels kEmulatedAvxVnniKernels

namespace kairos {
extern const KernelTable kEmulatedAvxVnniKernels;
}

#include "sidecar/engine/kernels/avx_vnni.cc"
