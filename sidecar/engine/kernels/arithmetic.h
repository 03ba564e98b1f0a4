// SPDX-License-Identifier: Apache-2.0
// Numbers that every tier must agree on, so that tiers give the same bits.
//
// Exp(x): x is clamped to [kExpLowest, kExpHighest] and is zero below kExpLowest.
//   n = nearest-even(x * kLog2E);  r = fma(n, -kLn2High, x);  r = fma(n, -kLn2Low, r)
//   q = c6;  q = fma(q, r, c5) ... fma(q, r, c2);  y = fma(q, r * r, r) + 1;  result = y * 2^n
// The polynomial is a minimax fit on |r| <= ln(2) / 2, relative error 5e-9 before rounding.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace kairos {

inline constexpr float kExpLowest = -87.0f;   // 2^n stays normal
inline constexpr float kExpHighest = 88.0f;   // the result stays finite
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2High = 0x1.62ep-1f;  // few bits, so that n * kLn2High is exact
inline constexpr float kLn2Low = 0x1.0bfbe8p-15f;
// c2 .. c6
inline constexpr float kExpC2 = 0x1.fffffcp-2f;
inline constexpr float kExpC3 = 0x1.55549p-3f;
inline constexpr float kExpC4 = 0x1.5558f4p-5f;
inline constexpr float kExpC5 = 0x1.123a6cp-7f;
inline constexpr float kExpC6 = 0x1.6a2352p-10f;

// GELU in its tanh form: x^3's factor, and -2 * sqrt(2 / pi).
inline constexpr float kGeluCubic = 0.044715f;
inline constexpr float kGeluInner = -1.5957691216057308f;

inline constexpr float kWordMax = 32767.0f;  // int16 queries and probabilities
inline constexpr float kByteMax = 127.0f;    // int8 activations, keys and values

// Tokens of one split, own block included, with room for a caller that passes one block too many.
inline constexpr uint32_t kScoreTokens = kSplitTokens + kBlockTokens;
// Most (query, head) rows that a tier takes through a split together.
inline constexpr uint32_t kRowTileMax = 8;

}  // namespace kairos
