// SPDX-License-Identifier: Apache-2.0
// What `kairosctl top` shows of two looks at a sidecar, one after the other. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kairos/kairos.h"

namespace kairos {

struct TopLook {
  uint64_t taken_ns = 0;       // monotonic
  uint64_t taken_unix_ms = 0;
  std::vector<std::pair<std::string, double>> stats;
  std::vector<kairos_session_t> sessions;

  // 0 for a figure that this sidecar does not have.
  double Figure(const char* name) const;
};

// Lines for people, at most `lines` of at most `columns` characters; 0 means no limit. Rates are
// those between the two looks. Running sessions come first, then the last used.
std::vector<std::string> TopLines(const TopLook& before, const TopLook& now, size_t lines,
                                  size_t columns);
// The same as one JSON object.
std::string TopJson(const TopLook& before, const TopLook& now);

}  // namespace kairos
