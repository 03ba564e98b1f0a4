// SPDX-License-Identifier: Apache-2.0
// Compute threads that share the items of one job at a time. The caller is worker 0 and takes part.
//
// Items are claimed one by one, so a worker that loses its core to a neighbour delays one item, not
// a fixed share. An idle worker spins for a bounded time (jobs follow each other within
// microseconds in a forward pass), then sleeps; the caller waits for stragglers in the same way.
// Run() belongs to one thread, the engine's. Results must not depend on which worker runs an item.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"

namespace kairos {

class WorkerPool {
 public:
  // `threads` workers including the caller of Run; at least 1.
  explicit WorkerPool(uint32_t threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // RESOURCE_EXHAUSTED where the system refused a thread: those that it gave do all the work.
  const Status& started() const { return started_; }
  uint32_t threads() const { return static_cast<uint32_t>(threads_.size()) + 1; }
  // Workers that take part in jobs, the caller included; the others sleep. Any thread may ask.
  uint32_t active() const { return active_.load(std::memory_order_relaxed); }
  // Between jobs, by the caller of Run; 1 <= workers <= threads(). All take part at first.
  void SetActive(uint32_t workers);

  // Calls task(item, worker) once for each item in [0, items) and returns when all are done; what
  // they wrote is then visible to the caller. worker < threads().
  template <typename Task>
  void Run(uint32_t items, Task&& task) {
    for (uint32_t base = 0; base < items; base += kItemsOfJobMax) {
      auto shifted = [&task, base](uint32_t item, uint32_t worker) { task(base + item, worker); };
      const uint32_t left = items - base;
      RunErased(left < kItemsOfJobMax ? left : kItemsOfJobMax, &shifted,
                [](void* context, uint32_t item, uint32_t worker) {
                  (*static_cast<decltype(shifted)*>(context))(item, worker);
                });
    }
  }

 private:
  static constexpr uint32_t kItemsOfJobMax = 0xffff;
  using Invoke = void (*)(void* context, uint32_t item, uint32_t worker);

  void RunErased(uint32_t items, void* context, Invoke invoke);
  void WorkerLoop(uint32_t worker);
  void Rest(uint32_t worker);
  bool ClaimAndRun(uint32_t worker);
  bool HasWork() const;
  void WaitUntilDone();

  // Job number (high 32 bits), items (16) and the next unclaimed item (16) in one word: a claim
  // succeeds only while the job it was read for is unfinished, which keeps context_ and invoke_
  // valid.
  alignas(128) std::atomic<uint64_t> claim_{0};
  alignas(128) std::atomic<uint32_t> unfinished_{0};
  std::atomic<void*> context_{nullptr};
  std::atomic<Invoke> invoke_{nullptr};
  uint32_t job_ = 0;

  alignas(128) std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};
  // Written by the caller before it publishes a job in claim_: who loads that sees this. Under
  // mutex_, so that no worker misses the change that ends its rest.
  alignas(128) std::atomic<uint32_t> active_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::condition_variable rested_;
  std::vector<std::thread> threads_;
  Status started_;
};

// Counts the finished parts of one result; the caller that finishes the last part is told.
class PartCountdown {
 public:
  void Reset(uint32_t parts) { left_.store(parts, std::memory_order_relaxed); }
  // True for exactly one caller, which then sees what the others wrote before their calls.
  bool FinishOne() { return left_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

 private:
  std::atomic<uint32_t> left_{0};
};

}  // namespace kairos
