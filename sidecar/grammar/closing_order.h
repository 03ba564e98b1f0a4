// SPDX-License-Identifier: Apache-2.0
// In which order tokens lead to the end of a reply: what to take when few tokens are left.
// Immutable after construction; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sidecar/chat/tokenizer.h"

namespace kairos {

class ClosingOrder {
 public:
  explicit ClosingOrder(const Tokenizer& tokenizer);

  // Of the tokens of `mask`, one that brings the end of JSON text nearest: an end token, what
  // closes most, what separates, plain characters, what opens, and bytes that text is not spelled
  // in where it has a token. Nothing where the mask is empty.
  std::optional<TokenId> Choose(std::span<const uint32_t> mask) const;

 private:
  static constexpr size_t kRanks = 9;
  using Ranks = std::array<std::vector<uint32_t>, kRanks>;  // a mask of the tokens of each rank

  Ranks between_;  // between the values of JSON
  Ranks in_text_;  // inside a string, where brackets close nothing
  std::vector<TokenId> text_signs_;  // allowed together only inside a string
};

}  // namespace kairos
