// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/end_finder.h"

#include <iterator>
#include <utility>

namespace kairos {
namespace {

constexpr uint32_t kWatchedTokens = 512;  // of a reply's last
// Above the way, tokens at which every single one is looked at: by so many may one lengthen it.
constexpr uint32_t kNearTokens = 64;
constexpr uint32_t kLookEvery = 16;  // tokens, while they are not near
constexpr uint32_t kStepsMax = 768;  // of all walks at one token; some take a mask of 5 to 80 us

}  // namespace

// Also out of a walk that ran into a limit: the walker is made anew when it is needed again.
bool EndFinder::GoBack(size_t tokens) {
  const size_t count = walked_.size() - tokens;
  walked_.resize(tokens);
  if (walker_ && !llg_matcher_is_error(walker_.get()) &&
      (count == 0 || llg_matcher_rollback(walker_.get(), count) == 0)) {
    return true;
  }
  walker_.reset();
  return false;
}

bool EndFinder::Step(TokenId token) {
  if (steps_left_ == 0) return false;
  --steps_left_;
  if (llg_matcher_consume_token(walker_.get(), static_cast<uint32_t>(token)) != 0) return false;
  walked_.push_back(token);
  return true;
}

// From where the walker is. False where that takes more than there is time for.
bool EndFinder::Follow(std::vector<Choice>* choices) {
  while (!llg_matcher_is_accepting(walker_.get())) {
    if (!FitsWith(walked_.size() + 1)) return false;
    uint32_t forced[64];
    const int32_t count =
        llg_matcher_compute_ff_tokens(walker_.get(), forced, std::size(forced));
    for (int32_t i = 0; i < count; ++i) {
      if (!Step(static_cast<TokenId>(forced[i]))) return false;
    }
    if (count > 0) continue;
    if (!ComputeMatcherMask(walker_.get(), walk_mask_)) return false;
    const std::optional<TokenId> token = closing_.Choose(walk_mask_);
    if (!token) return false;
    if (choices != nullptr) {
      choices->push_back({walked_.size(), closing_.Others(walk_mask_, *token)});
    }
    if (!Step(*token)) return false;
  }
  return FitsWith(walked_.size());
}

// A walk like the last one but for one choice, the earliest first: what comes first decides most.
bool EndFinder::TryOthers(const std::vector<Choice>& choices) {
  const Way usual = walked_;
  size_t same = usual.size();  // tokens that the walker has in common with `usual`
  for (const Choice& choice : choices) {
    for (const TokenId other : choice.others) {
      if (!GoBack(std::min(same, choice.at))) return false;
      for (size_t i = walked_.size(); i < choice.at; ++i) {
        if (!Step(usual[i])) return false;
      }
      same = choice.at;
      if (Step(other) && Follow(nullptr)) return true;
      if (steps_left_ == 0) return false;
    }
  }
  return false;
}

// A way from `matcher`, or from behind `first`, for which there is time.
bool EndFinder::Find(LlgMatcher* matcher, std::optional<TokenId> first, Way* way) {
  if (!walker_) {
    walker_.reset(llg_clone_matcher(matcher));
    walk_mask_.resize((llg_matcher_get_mask_byte_size(matcher) + 3) / 4);
  }
  walked_.clear();
  std::vector<Choice> choices;
  bool found = false;
  if (!first || Step(*first)) {
    found = Follow(&choices) || TryOthers(choices);
    if (found) way->assign(walked_.begin() + (first ? 1 : 0), walked_.end());
  }
  GoBack(0);
  return found;
}

void EndFinder::Look(LlgMatcher* matcher, uint32_t tokens_left) {
  is_short_ = false;
  tokens_left_ = tokens_left;
  tried_.reset();
  if (tokens_left > kWatchedTokens) return;
  const bool is_near = tokens_left <= near_ + kNearTokens && !is_too_late_;
  if (!is_near && since_ < kLookEvery) return;
  steps_left_ = kStepsMax;
  since_ = 0;
  if (!way_ || !FitsWith(way_->size())) {
    way_.emplace();
    if (!Find(matcher, std::nullopt, &*way_)) way_.reset();
  }
  // Where no way leads there in time, the model may still know one.
  is_too_late_ = !way_;
  if (!way_) return;
  near_ = way_->size() + end_tokens_;
  is_short_ = tokens_left <= near_ + kNearTokens;
}

bool EndFinder::LeavesTime(LlgMatcher* matcher, TokenId token) {
  tried_ = token;
  if (!way_->empty() && way_->front() == token) {
    tried_way_.assign(way_->begin() + 1, way_->end());
    return true;
  }
  if (Find(matcher, token, &tried_way_)) return true;
  tried_.reset();
  return false;
}

std::optional<TokenId> EndFinder::Soonest() const {
  if (!way_->empty()) return way_->front();
  return end_ >= 0 ? std::optional<TokenId>(end_) : std::nullopt;
}

void EndFinder::Consume(TokenId token) {
  if (since_ < kLookEvery) ++since_;
  if (tried_ == token) {
    way_ = std::exchange(tried_way_, {});
  } else if (way_ && !way_->empty() && way_->front() == token) {
    way_->erase(way_->begin());
  } else {
    way_.reset();
  }
  tried_.reset();
  if (walker_ && llg_matcher_consume_token(walker_.get(), static_cast<uint32_t>(token)) != 0) {
    walker_.reset();
  }
}

}  // namespace kairos
