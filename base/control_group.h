// SPDX-License-Identifier: Apache-2.0
// What the process's control group, and those above it, let it have (cgroup version 2).
// Any thread; reads procfs and sysfs.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace kairos {

struct GroupLimits {
  uint64_t memory_bytes = std::numeric_limits<uint64_t>::max();      // the least memory.max
  double processors = std::numeric_limits<double>::infinity();       // the least cpu.max
};

// `own` names the group of the process in a line "0::/GROUP", below `root`. What cannot be read
// limits nothing.
GroupLimits ReadGroupLimits(const std::string& own = "/proc/self/cgroup",
                            const std::string& root = "/sys/fs/cgroup");

}  // namespace kairos
