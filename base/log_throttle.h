// SPDX-License-Identifier: Apache-2.0
// Keeps what others can bring about at will from filling the log: of each place at most one line a
// minute, and that line says how many were left out before it.
// Owner: the thread that writes the lines; one object for each place.
#pragma once

#include <cstdint>

namespace kairos {

class LogThrottle {
 public:
  // True: write the line, with *left_out. False: it is counted instead.
  bool Admit(uint64_t now_ns, uint64_t* left_out) {
    constexpr uint64_t kQuietNs = 60'000'000'000;
    if (wrote_ && now_ns - written_ns_ < kQuietNs) {
      ++left_out_;
      return false;
    }
    *left_out = left_out_;
    left_out_ = 0;
    wrote_ = true;
    written_ns_ = now_ns;
    return true;
  }

 private:
  bool wrote_ = false;
  uint64_t written_ns_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace kairos
