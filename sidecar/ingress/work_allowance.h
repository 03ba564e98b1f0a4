// SPDX-License-Identifier: Apache-2.0
// What one client may ask of the sidecar while turns run, so that a flood of requests takes no
// noticeable part of the processors from the model. A token bucket in nanoseconds of estimated
// work, kept as the time at which it will be full again.
// Owner: ingress thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kairos {

class WorkAllowance {
 public:
  static constexpr uint64_t kBurstNs = 2'560'000;      // 256 requests at once
  static constexpr uint64_t kPerShare = 100;           // then a hundredth of one core
  static constexpr uint64_t kPauseStepNs = 10'000'000;

  // Estimates, of ingress and conductor together, replies included.
  static constexpr uint64_t kPingNs = 1'000;
  static constexpr uint64_t kRequestNs = 10'000;
  static constexpr uint64_t WorkOfBytes(uint64_t bytes) { return bytes / 4; }

  // Takes work off the allowance, more than is left if need be. Returns 0, or the time from which
  // the client may go on. Pauses end on a common grid, so that many flooding clients wake ingress
  // no more often than one.
  uint64_t Spend(uint64_t work_ns, uint64_t now_ns) {
    full_ns_ = std::max(full_ns_, now_ns) + work_ns * kPerShare;
    if (full_ns_ - now_ns <= kBurstNs * kPerShare) return 0;
    const uint64_t until_ns = full_ns_ - kBurstNs * kPerShare;
    return (until_ns / kPauseStepNs + 1) * kPauseStepNs;
  }

 private:
  uint64_t full_ns_ = 0;
};

}  // namespace kairos
