// SPDX-License-Identifier: Apache-2.0
#include "base/control_group.h"

#include <algorithm>
#include <fstream>

namespace kairos {

GroupLimits ReadGroupLimits(const std::string& own, const std::string& root) {
  GroupLimits limits;
  std::ifstream file(own);
  std::string group;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) group = line.substr(3);
  }
  for (;;) {
    // "max" is no number, so it changes nothing.
    uint64_t bytes = 0;
    if (std::ifstream(root + group + "/memory.max") >> bytes) {
      limits.memory_bytes = std::min(limits.memory_bytes, bytes);
    }
    double quota_us = 0.0;
    double period_us = 0.0;
    if (std::ifstream(root + group + "/cpu.max") >> quota_us >> period_us && period_us > 0.0) {
      limits.processors = std::min(limits.processors, quota_us / period_us);
    }
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return limits;
    group.resize(slash);
  }
}

}  // namespace kairos
