// SPDX-License-Identifier: Apache-2.0
// Which tokens may come next in one sequence, as a grammar says it.
// Moves with its SequenceSpec into the engine; from then on the engine thread owns it. For parts of
// a step it lends it to the mask thread, and then to the worker that samples the sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"

namespace kairos {

// Words of a mask over `vocabulary` tokens: bit (t % 32) of word t / 32 is token t.
constexpr uint32_t MaskWords(uint32_t vocabulary) { return (vocabulary + 31) / 32; }

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Sets the bits of the tokens that may come now, in MaskWords(vocabulary) words; end tokens are
  // among them only where the text may end. `tokens_left` may still come, this one included. False
  // where the grammar's work limits are reached.
  [[nodiscard]] virtual bool ComputeMask(std::span<uint32_t> mask, uint32_t tokens_left) = 0;
  // Whether tokens run short: what is drawn from the last mask is then to be asked about.
  virtual bool IsShortOfTokens() = 0;
  // While they do, of a token of the last mask: whether the text can still be ended in the tokens
  // that are left after it. Where it cannot, another is to be drawn.
  virtual bool LeavesTimeToEnd(TokenId token) = 0;
  // While they do: leaves in the last mask only the token that ends the text soonest.
  virtual void LeaveSoonestEnd(std::span<uint32_t> mask) = 0;
  // Goes on by a token of the last mask. False where it was none, or a limit is reached.
  [[nodiscard]] virtual bool Consume(TokenId token) = 0;
  // After one of these was false: nothing that the grammar allows can follow. Otherwise it was a
  // limit.
  virtual bool IsDeadEnd() = 0;
  // The tokens that must come now, whatever the model says; they are not consumed. Only those that
  // the tokenizer itself would make of the forced text, or the end token where the text is whole.
  virtual void Forced(std::vector<TokenId>* out) = 0;
  // How many of `tokens` may come from here, one after the other; none is consumed.
  virtual uint32_t CountAllowed(std::span<const TokenId> tokens) = 0;
};

}  // namespace kairos
