// SPDX-License-Identifier: Apache-2.0
// f16 <-> f32 in integer code, for files built without F16C. Equal to the instructions, bit for
// bit: nearest-even, subnormals kept, NaN payloads shifted and made quiet.
// Internal linkage: every translation unit has its own copy, built with its own flags.
#pragma once

#include <bit>
#include <cstdint>

namespace kairos {
namespace {

inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1f) {
    const uint32_t quiet = fraction != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (fraction << 13));
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  }
  // Subnormal or zero: fraction * 2^-24 is exact in float.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  }
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65536 and above
  if (magnitude < 0x38800000u) {
    // Subnormal in half. Adding 0.5 leaves multiples of 2^-24 in the low bits, rounded by the FPU.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  // A carry out of the fraction moves into the exponent, up to infinity, as it should.
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace
}  // namespace kairos
