// SPDX-License-Identifier: Apache-2.0
// What this machine can do at best, measured now: the limits that an engine's speed is a share of.
// Each call starts `threads` threads, runs for about a fifth of a second and blocks meanwhile.
#pragma once

#include <cstdint>

namespace kairos {

// Bytes per second that `threads` threads together read in order from memory far larger than
// caches. 0 when memory is short.
double ReadBandwidth(uint32_t threads);

// 8-bit multiply and add operations (two per product) per second of `threads` threads in registers,
// with the instructions of the named kernel tier. 0 for a tier without such instructions here.
double MultiplyAddRate(const char* tier, uint32_t threads);

}  // namespace kairos
