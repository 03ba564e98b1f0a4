// SPDX-License-Identifier: Apache-2.0
// Finds a short way to the end of a constrained text, so that the text is ended within its tokens
// and yet nothing is chosen in the model's place that the model had time for.
//
// It walks ahead on a copy of the matcher: what is forced is taken as it stands, and where there is
// a choice, what ClosingOrder says. Where that takes too long, one choice after the other is made
// in another way. At every token once those that are left come near the way, and now and then
// before, the way is known anew.
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
      : end_(end), end_tokens_(is_prose ? 0 : 1), closing_(closing) {}

  // At `matcher`, with `tokens_left` still to come.
  void Look(LlgMatcher* matcher, uint32_t tokens_left);
  // There is no mask to look at.
  void Rest() { is_short_ = false; }
  // Whether the tokens that are left are few enough to be watched, and yet enough for a way.
  bool is_short() const { return is_short_; }
  // Both after a Look that found it short. Whether the text at `matcher` can still end in time
  // after `token`, which ends no reply.
  bool LeavesTime(LlgMatcher* matcher, TokenId token);
  // The token that goes the known way; nothing where the model has none to end a reply with.
  std::optional<TokenId> Soonest() const;
  // The text goes on by this token.
  void Consume(TokenId token);

 private:
  using Way = std::vector<TokenId>;  // to where the text may end, without the end token
  struct Choice {
    size_t at = 0;  // tokens of the way before it
    std::vector<TokenId> others;
  };

  bool Find(LlgMatcher* matcher, std::optional<TokenId> first, Way* way);
  bool Follow(std::vector<Choice>* choices);
  bool TryOthers(const std::vector<Choice>& choices);
  bool Step(TokenId token);
  bool GoBack(size_t tokens);
  bool FitsWith(size_t tokens) const { return tokens + end_tokens_ <= tokens_left_; }

  const TokenId end_;
  const uint32_t end_tokens_;  // that a text needs behind its last one
  const ClosingOrder& closing_;

  // Where the text is, once it was looked at; walks go ahead of it and come back. Copying a matcher
  // takes longer than a walk, so it is kept.
  MatcherHandle walker_;
  Way walked_;  // what the walker is ahead
  uint32_t steps_left_ = 0;  // that walks may still make at this token
  std::vector<uint32_t> walk_mask_;

  uint32_t tokens_left_ = 0;
  bool is_short_ = false;
  bool is_too_late_ = false;  // no way was found when it was sought last
  std::optional<Way> way_;    // from where the text is, where one is known
  size_t near_ = 0;           // tokens of the way that was found last
  uint32_t since_ = UINT32_MAX;  // tokens since one was sought
  // The token asked about last, and the way behind it.
  std::optional<TokenId> tried_;
  Way tried_way_;
};

}  // namespace kairos
