// SPDX-License-Identifier: Apache-2.0
// Time as numbers: nanoseconds of the monotonic clock for durations, Unix milliseconds for records.
#pragma once

#include <cstdint>
#include <ctime>

namespace kairos {

inline uint64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

inline uint64_t UnixMs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000u +
         static_cast<uint64_t>(now.tv_nsec) / 1'000'000u;
}

}  // namespace kairos
