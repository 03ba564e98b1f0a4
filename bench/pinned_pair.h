// SPDX-License-Identifier: Apache-2.0
// Two threads that spin for each other, on a core each while this object lives; then free as
// before. Without it a scheduler with other work may put both on one core, where each waits for the
// other's time slice. Does nothing on a machine with one core.
#pragma once

#include <sched.h>
#include <sys/types.h>

namespace kairos {

class PinnedPair {
 public:
  // The calling thread and thread `other` of any process of this user.
  explicit PinnedPair(pid_t other) : other_(other) {
    if (sched_getaffinity(0, sizeof(own_before_), &own_before_) != 0) return;
    if (sched_getaffinity(other_, sizeof(other_before_), &other_before_) != 0) return;
    int cores[2];
    int found = 0;
    for (int core = 0; core < CPU_SETSIZE && found < 2; ++core) {
      if (CPU_ISSET(core, &own_before_) && CPU_ISSET(core, &other_before_)) cores[found++] = core;
    }
    pinned_ = found == 2 && Pin(0, cores[0]) && Pin(other_, cores[1]);
  }
  ~PinnedPair() {
    if (!pinned_) return;
    sched_setaffinity(0, sizeof(own_before_), &own_before_);
    sched_setaffinity(other_, sizeof(other_before_), &other_before_);
  }
  PinnedPair(const PinnedPair&) = delete;
  PinnedPair& operator=(const PinnedPair&) = delete;

 private:
  static bool Pin(pid_t thread, int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    return sched_setaffinity(thread, sizeof(set), &set) == 0;
  }

  pid_t other_;
  cpu_set_t own_before_;
  cpu_set_t other_before_;
  bool pinned_ = false;
};

}  // namespace kairos
