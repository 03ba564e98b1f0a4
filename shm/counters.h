// SPDX-License-Identifier: Apache-2.0
// A number that one thread counts and any thread reads.
#pragma once

#include <atomic>
#include <cstdint>

namespace kairos {

class Counter {
 public:
  // Owner thread only; a plain load and store, since there is one writer.
  void Add(uint64_t amount = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  void Set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  // Any thread. Relaxed: a counter orders nothing.
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// A switch that any thread turns and the owner looks at.
class Flag {
 public:
  void Set(bool on) { on_.store(on, std::memory_order_release); }
  bool on() const { return on_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> on_{false};
};

}  // namespace kairos
