// SPDX-License-Identifier: Apache-2.0
// Finds control and user-defined tokens in text, the longest at each place.
// Immutable after construction; any thread. The texts are borrowed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace kairos {

struct SpecialToken {
  std::string_view text;  // not empty
  TokenId token = 0;
  bool control = false;
};

class SpecialTokens {
 public:
  SpecialTokens() = default;
  explicit SpecialTokens(std::vector<SpecialToken> tokens);

  bool MayStartWith(char byte) const { return starts_[static_cast<uint8_t>(byte)]; }
  // The longest token whose text begins at `position`; null when none. A control token counts only
  // if it ends at or before `control_end`. Time: the length of the match times the logarithm of the
  // count.
  const SpecialToken* Match(std::string_view text, size_t position, size_t control_end) const;

 private:
  std::vector<SpecialToken> tokens_;  // by text, so that a prefix comes before what it begins
  std::array<bool, 256> starts_{};
};

}  // namespace kairos
