// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/end_finder.h"

#include <iterator>

namespace kairos {
namespace {

constexpr uint32_t kWatchedTokens = 512;  // of a reply's last
// Above the way, tokens at which every single one is looked at: by so many may one lengthen it.
constexpr uint32_t kNearTokens = 64;
constexpr uint32_t kLookEvery = 16;  // tokens, while they are not near

}  // namespace

// Of the matcher's tokens, the one to go on by.
std::optional<TokenId> EndFinder::Next(LlgMatcher* matcher, std::span<const uint32_t> mask) const {
  uint32_t forced[64];
  if (llg_matcher_compute_ff_tokens(matcher, forced, std::size(forced)) > 0) {
    return static_cast<TokenId>(forced[0]);
  }
  return closing_.Choose(mask);
}

// From where the walker is; at most a little above `limit`, since no more is of interest.
uint32_t EndFinder::Walk(uint32_t limit) {
  uint32_t way = 0;
  while (way <= limit && !llg_matcher_is_accepting(walker_.get())) {
    uint32_t tokens[64];
    int32_t count = llg_matcher_compute_ff_tokens(walker_.get(), tokens, std::size(tokens));
    if (count <= 0) {
      if (!ComputeMatcherMask(walker_.get(), walk_mask_)) return limit + 1;
      const std::optional<TokenId> token = closing_.Choose(walk_mask_);
      if (!token) return limit + 1;
      tokens[0] = static_cast<uint32_t>(*token);
      count = 1;
    }
    for (int32_t i = 0; i < count; ++i) {
      if (llg_matcher_consume_token(walker_.get(), tokens[i]) != 0) return limit + 1;
      ++walked_;
      ++way;
    }
  }
  return is_prose_ ? way : way + 1;  // the end token
}

// The way from `matcher`, or from behind `first`.
uint32_t EndFinder::Measure(LlgMatcher* matcher, std::optional<TokenId> first, uint32_t limit) {
  if (!walker_) {
    walker_.reset(llg_clone_matcher(matcher));
    walk_mask_.resize((llg_matcher_get_mask_byte_size(matcher) + 3) / 4);
  }
  uint32_t way = limit + 1;
  walked_ = 0;
  if (!first) {
    way = Walk(limit);
  } else if (llg_matcher_consume_token(walker_.get(), static_cast<uint32_t>(*first)) == 0) {
    walked_ = 1;
    way = Walk(limit);
  }
  // A walk that ran into a limit, or a grammar that cannot go back: begun anew when asked again.
  if (llg_matcher_is_error(walker_.get()) ||
      (walked_ > 0 && llg_matcher_rollback(walker_.get(), walked_) != 0)) {
    walker_.reset();
  }
  return way;
}

void EndFinder::Look(LlgMatcher* matcher, std::span<const uint32_t> mask, uint32_t tokens_left) {
  is_short_ = false;
  tokens_left_ = tokens_left;
  if (tokens_left > kWatchedTokens) return;
  const bool is_near = tokens_left <= way_ + kNearTokens && !is_too_late_;
  if (!is_near && since_ < kLookEvery) return;
  if (!is_measured_) way_ = Measure(matcher, std::nullopt, tokens_left);
  is_measured_ = true;
  since_ = 0;
  tried_.reset();
  // Where this way leads nowhere in time, the model may still know one.
  is_too_late_ = way_ > tokens_left;
  is_short_ = tokens_left <= way_ + kNearTokens && !is_too_late_;
  if (!is_short_) return;
  if (llg_matcher_is_accepting(matcher)) {
    soonest_ = end_ >= 0 ? std::optional<TokenId>(end_) : std::nullopt;
  } else {
    soonest_ = Next(matcher, mask);
  }
}

bool EndFinder::LeavesTime(LlgMatcher* matcher, TokenId token) {
  tried_ = token;
  tried_way_ = Measure(matcher, token, tokens_left_);
  return tried_way_ < tokens_left_;
}

void EndFinder::Consume(TokenId token) {
  if (since_ < kLookEvery) ++since_;
  is_measured_ = tried_ == token;
  if (is_measured_) way_ = tried_way_;
  tried_.reset();
  if (walker_ && llg_matcher_consume_token(walker_.get(), static_cast<uint32_t>(token)) != 0) {
    walker_.reset();
  }
}

}  // namespace kairos
