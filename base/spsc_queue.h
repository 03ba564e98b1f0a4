// SPDX-License-Identifier: Apache-2.0
// A bounded queue between exactly two threads of this process: one pushes, one pops.
// A full queue is an answer (refuse, or retry in the next loop), never a wait. Waking the other
// side is base/waker.h's work, so that one wake-up serves a burst.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"

namespace kairos {

template <typename T>
class SpscQueue {
 public:
  // `capacity` is a power of two.
  explicit SpscQueue(size_t capacity) : cells_(capacity), mask_(capacity - 1) {
    KAIROS_CHECK(capacity > 0 && (capacity & mask_) == 0);
  }

  // Producer only. False, with `value` untouched, when full.
  [[nodiscard]] bool TryPush(T&& value) {
    if (!HasRoom()) return false;
    const size_t tail = tail_.load(std::memory_order_relaxed);
    cells_[tail & mask_] = std::move(value);
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  // Producer only. True: the next TryPush will not be refused.
  [[nodiscard]] bool HasRoom() {
    const size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_cached_ < cells_.size()) return true;
    head_cached_ = head_.load(std::memory_order_acquire);
    return tail - head_cached_ < cells_.size();
  }

  // Consumer only.
  std::optional<T> TryPop() {
    const size_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_cached_) {
      tail_cached_ = tail_.load(std::memory_order_acquire);
      if (head == tail_cached_) return std::nullopt;
    }
    std::optional<T> value(std::move(cells_[head & mask_]));
    cells_[head & mask_] = T{};
    head_.store(head + 1, std::memory_order_release);
    return value;
  }

  // Exact for the consumer ("is there anything?"), a lower bound for others.
  bool empty() const {
    return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_acquire);
  }

 private:
  std::vector<T> cells_;
  const size_t mask_;
  alignas(128) std::atomic<size_t> tail_{0};
  size_t head_cached_ = 0;
  alignas(128) std::atomic<size_t> head_{0};
  size_t tail_cached_ = 0;
};

}  // namespace kairos
