// SPDX-License-Identifier: Apache-2.0
// Finds the shortest way that is known to the end of a constrained text, so that the text is ended
// within its tokens and yet nothing is chosen in the model's place that the model had time for.
//
// It walks ahead on a copy of the matcher: what is forced is taken as it stands, and where there is
// a choice, what ClosingOrder says. The way is measured anew at every token once the tokens that
// are left come near it, and now and then before.
// Belongs to the constraint whose text it watches, and like it to one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "sidecar/grammar/closing_order.h"
#include "sidecar/grammar/matcher_handle.h"

namespace kairos {

class EndFinder {
 public:
  // `end` is the token that ends a reply, or negative. Prose may end anywhere between its calls,
  // and needs no end token. `closing` outlives this.
  EndFinder(TokenId end, bool is_prose, const ClosingOrder& closing)
      : end_(end), is_prose_(is_prose), closing_(closing) {}

  // At `matcher`, with `mask` as its mask and `tokens_left` still to come.
  void Look(LlgMatcher* matcher, std::span<const uint32_t> mask, uint32_t tokens_left);
  // There is no mask to look at.
  void Rest() { is_short_ = false; }
  // Whether the tokens that are left are few enough to be watched, and yet enough for the way.
  bool is_short() const { return is_short_; }
  // Both after a Look that found it short. Whether the text at `matcher` can still end in time
  // after `token`, which ends no reply.
  bool LeavesTime(LlgMatcher* matcher, TokenId token);
  // The token that goes the shortest way.
  std::optional<TokenId> Soonest() const { return soonest_; }
  // The text goes on by this token.
  void Consume(TokenId token);

 private:
  uint32_t Walk(uint32_t limit);
  uint32_t Measure(LlgMatcher* matcher, std::optional<TokenId> first, uint32_t limit);
  std::optional<TokenId> Next(LlgMatcher* matcher, std::span<const uint32_t> mask) const;

  const TokenId end_;
  const bool is_prose_;
  const ClosingOrder& closing_;

  // Where the text is, once it was looked at; walks go ahead of it and come back. Copying a matcher
  // takes longer than a walk, so it is kept.
  MatcherHandle walker_;
  uint32_t walked_ = 0;  // tokens that the walker is ahead
  std::vector<uint32_t> walk_mask_;

  bool is_short_ = false;
  bool is_too_late_ = false;  // when it was measured last
  uint32_t tokens_left_ = 0;
  std::optional<TokenId> soonest_;
  uint32_t way_ = 0;             // as measured last
  bool is_measured_ = false;     // at this very place of the text
  uint32_t since_ = UINT32_MAX;  // tokens since it was measured
  // The token asked about last, and the way from there.
  std::optional<TokenId> tried_;
  uint32_t tried_way_ = 0;
};

}  // namespace kairos
