// SPDX-License-Identifier: Apache-2.0
// In which order tokens lead to the end of a reply: what to take when few tokens are left.
// Immutable after construction; any thread.
#pragma once

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
  // in where it has a token. Of a text that may not be anything else, its longest token. Nothing
  // where the mask is empty.
  std::optional<TokenId> Choose(std::span<const uint32_t> mask) const;
  // A few others of the mask's that lead elsewhere than `chosen`: of what closes and separates the
  // best of each kind, and where few tokens may come, the longest of each first byte.
  std::vector<TokenId> Others(std::span<const uint32_t> mask, TokenId chosen) const;

 private:
  struct Rank {
    uint32_t number = 0;         // lower is nearer to the end; kinds are kKindRanks apart
    std::vector<uint32_t> mask;  // of its tokens
  };
  using Ranks = std::vector<Rank>;  // by number

  TokenId LongestOfOneText(std::span<const uint32_t> mask) const;
  const Ranks& RanksFor(std::span<const uint32_t> mask) const;
  static std::optional<TokenId> FirstOf(const Rank& rank, std::span<const uint32_t> mask);

  Ranks between_;  // between the values of JSON
  Ranks in_text_;  // inside a string, where brackets close nothing
  std::vector<TokenId> text_signs_;  // allowed together only inside a string
  struct Shape {
    uint8_t first = 0;  // byte
    uint16_t bytes = 0;
  };
  std::vector<Shape> shapes_;  // of each token
};

}  // namespace kairos
