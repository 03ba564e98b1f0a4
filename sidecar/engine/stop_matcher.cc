// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/stop_matcher.h"

#include <algorithm>

namespace kairos {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    if (stop.empty()) continue;
    stops_.push_back(stop);
    keep_ = std::max(keep_, stop.size() - 1);
  }
}

bool StopMatcher::Append(std::string_view bytes) {
  if (stops_.empty()) return false;
  tail_.append(bytes);
  for (const std::string& stop : stops_) {
    if (tail_.find(stop) != std::string::npos) return true;
  }
  if (tail_.size() > keep_) tail_.erase(0, tail_.size() - keep_);
  return false;
}

}  // namespace kairos
