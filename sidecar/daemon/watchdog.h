// SPDX-License-Identifier: Apache-2.0
// Tells the service manager that the threads which must not hang go round: conductor and engine.
// Each counts its rounds. Three times in the manager's period the main thread wakes them; where
// each has made a round since, WATCHDOG=1 goes out, else nothing does, and the manager ends the
// process when its period is over. Without a manager that asks for it, none of this happens.
// Owner: main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/waker.h"
#include "shm/counters.h"

namespace kairos {

class Watchdog {
 public:
  // `notify` gets what goes to the manager.
  explicit Watchdog(std::function<void(std::string_view)> notify)
      : notify_(std::move(notify)) {}

  // The manager's period, from $WATCHDOG_USEC and $WATCHDOG_PID; 0: nobody asks for it.
  static uint64_t PeriodNsFromEnvironment();

  // Watches from now on; 0 turns it off. `thread` is a name for the log and outlives this, as the
  // others do.
  void Start(uint64_t period_ns, uint64_t now_ns) {
    interval_ns_ = period_ns / 3;
    looked_ns_ = now_ns;
  }
  void Watch(const char* thread, const Counter& rounds, Waker& waker) {
    watched_.push_back({thread, &rounds, &waker});
  }
  // Any number of times; does what is due.
  void Look(uint64_t now_ns);

 private:
  struct Watched {
    const char* thread;
    const Counter* rounds;
    Waker* waker;
    uint64_t rounds_seen = 0;
    bool late = false;
  };
  std::function<void(std::string_view)> notify_;
  std::vector<Watched> watched_;
  uint64_t interval_ns_ = 0;
  uint64_t looked_ns_ = 0;
};

}  // namespace kairos
