// SPDX-License-Identifier: Apache-2.0
// Finds stop strings in the bytes of generated tokens, also where they straddle tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kairos {

class StopMatcher {
 public:
  // Empty strings are left out.
  explicit StopMatcher(const std::vector<std::string>& stops);

  // True when a stop string ends inside `bytes`, given what came before.
  bool Append(std::string_view bytes);

 private:
  std::vector<std::string> stops_;
  size_t keep_ = 0;  // longest stop string less one byte
  std::string tail_;
};

}  // namespace kairos
