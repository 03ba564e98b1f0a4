// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/worker_pool.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/start_thread.h"

namespace kairos {
namespace {

constexpr uint64_t kSpinNs = 30'000;
constexpr uint32_t kPausesPerClockRead = 64;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// True as soon as `ready` holds, false after kSpinNs.
template <typename Ready>
bool SpinUntil(Ready&& ready) {
  const uint64_t begin = MonotonicNs();
  do {
    for (uint32_t i = 0; i < kPausesPerClockRead; ++i) {
      if (ready()) return true;
      Pause();
    }
  } while (MonotonicNs() - begin < kSpinNs);
  return false;
}

constexpr uint64_t ClaimWord(uint32_t job, uint32_t items) {
  return (uint64_t{job} << 32) | (uint64_t{items} << 16);
}
constexpr uint32_t ItemsOf(uint64_t word) { return static_cast<uint32_t>(word >> 16) & 0xffffu; }
constexpr uint32_t NextOf(uint64_t word) { return static_cast<uint32_t>(word) & 0xffffu; }

}  // namespace

WorkerPool::WorkerPool(uint32_t threads) : active_(threads) {
  KAIROS_CHECK(threads >= 1);
  threads_.reserve(threads - 1);
  for (uint32_t worker = 1; worker < threads; ++worker) {
    std::thread thread;
    started_ = StartThread([this, worker] { WorkerLoop(worker); }, &thread);
    if (!started_.ok()) return;
    threads_.push_back(std::move(thread));
  }
}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_.store(true, std::memory_order_seq_cst);
  }
  work_.notify_all();
  rested_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::SetActive(uint32_t workers) {
  KAIROS_CHECK(workers >= 1 && workers <= threads());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    active_.store(workers, std::memory_order_relaxed);
  }
  rested_.notify_all();
}

bool WorkerPool::HasWork() const {
  const uint64_t word = claim_.load(std::memory_order_seq_cst);
  return NextOf(word) < ItemsOf(word);
}

bool WorkerPool::ClaimAndRun(uint32_t worker) {
  bool ran = false;
  uint64_t word = claim_.load(std::memory_order_acquire);
  while (worker < active() && NextOf(word) < ItemsOf(word)) {
    void* context = context_.load(std::memory_order_relaxed);
    const Invoke invoke = invoke_.load(std::memory_order_relaxed);
    if (!claim_.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      continue;
    }
    invoke(context, NextOf(word), worker);
    ran = true;
    if (unfinished_.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
        caller_sleeps_.load(std::memory_order_seq_cst)) {
      std::lock_guard<std::mutex> lock(mutex_);
      done_.notify_one();
    }
    word = claim_.load(std::memory_order_acquire);
  }
  return ran;
}

void WorkerPool::Rest(uint32_t worker) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (worker >= active() && !stop_.load(std::memory_order_seq_cst)) rested_.wait(lock);
}

void WorkerPool::WorkerLoop(uint32_t worker) {
  while (true) {
    if (worker >= active()) Rest(worker);
    ClaimAndRun(worker);
    if (SpinUntil([this] { return HasWork() || stop_.load(std::memory_order_relaxed); })) {
      if (stop_.load(std::memory_order_seq_cst)) return;
      continue;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (!HasWork() && !stop_.load(std::memory_order_seq_cst)) work_.wait(lock);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    if (stop_.load(std::memory_order_seq_cst)) return;
  }
}

void WorkerPool::WaitUntilDone() {
  const auto done = [this] { return unfinished_.load(std::memory_order_seq_cst) == 0; };
  if (SpinUntil(done)) return;
  std::unique_lock<std::mutex> lock(mutex_);
  caller_sleeps_.store(true, std::memory_order_seq_cst);
  while (!done()) done_.wait(lock);
  caller_sleeps_.store(false, std::memory_order_seq_cst);
}

void WorkerPool::RunErased(uint32_t items, void* context, Invoke invoke) {
  KAIROS_CHECK(items <= kItemsOfJobMax);
  if (items <= 1 || active() == 1) {
    for (uint32_t item = 0; item < items; ++item) invoke(context, item, 0);
    return;
  }
  context_.store(context, std::memory_order_relaxed);
  invoke_.store(invoke, std::memory_order_relaxed);
  unfinished_.store(items, std::memory_order_relaxed);
  ++job_;
  claim_.store(ClaimWord(job_, items), std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
    }
    work_.notify_all();
  }
  ClaimAndRun(0);
  WaitUntilDone();
}

}  // namespace kairos
