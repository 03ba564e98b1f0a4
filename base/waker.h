// SPDX-License-Identifier: Apache-2.0
// Puts one thread of this process to sleep on a descriptor and lets any other thread wake it.
// The sleeper: Prepare(), look at its queues once more, then Sleep() or poll fd() with others, then
// Finish(). A waker calls Wake() after it pushed; it costs one load and no syscall while the
// sleeper is awake. Lost wake-ups are impossible because both sides fence between their store and
// their load.
#pragma once

#include <atomic>
#include <cstdint>

namespace kairos {

class Waker {
 public:
  Waker();
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  // Any thread; never blocks.
  void Wake();
  // As Wake(), for a word that the owner reads before Prepare() and not after it, such as a stop
  // flag: also the next Sleep() returns at once where the owner is awake now. Costs a syscall.
  void Interrupt();

  // Owner only.
  void Prepare();
  // Blocks until Wake() or the time-out; -1 waits without limit. Only between Prepare and Finish.
  void Sleep(int timeout_ms);
  void Finish();
  int fd() const { return fd_; }

 private:
  std::atomic<bool> asleep_{false};
  int fd_ = -1;
};

}  // namespace kairos
