// SPDX-License-Identifier: Apache-2.0
// Guesses how a sequence goes on by looking back: where its latest tokens stood before, what came
// then may come again. Agents' text repeats itself: names, numbers and lines of tools' results, the
// shape of calls.
// After "Prompt Lookup Decoding" (A. Saxena, 2023). Owner: the engine thread; 16 bytes a
// token at most.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"

namespace kairos {

class NgramDrafter {
 public:
  // Tokens that must be the same before a guess is made.
  static constexpr uint32_t kMatchMin = 2;

  struct Guess {
    std::span<const TokenId> tokens;  // what followed then; inside the given tokens
    uint32_t match = 0;               // how many tokens before it are the same, counted to 32
  };

  // `tokens` is the whole sequence: as at the last call, and what came since. Up to `count` tokens
  // that followed the longest match, of equal ones the latest; none where nothing matches.
  Guess Look(std::span<const TokenId> tokens, uint32_t count);

 private:
  void Learn(std::span<const TokenId> tokens);
  uint32_t Bucket(const TokenId* last) const;

  // Positions after a pair of tokens, by the pair's hash: the latest, then chained to earlier ones.
  std::vector<uint32_t> latest_;   // [power of two], 0: none
  std::vector<uint32_t> earlier_;  // [position]
};

}  // namespace kairos
