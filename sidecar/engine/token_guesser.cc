// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/token_guesser.h"

#include <algorithm>
#include <limits>

#include "sidecar/engine/token_constraint.h"

namespace kairos {
namespace {

constexpr double kTurnTokensLeftMin = 16.0;
constexpr double kNewestTurn = 0.1;  // weight in the average

}  // namespace

uint64_t TokenGuesser::Plan(std::span<const GuessCase> cases, const GuessTime& time) {
  if (drafts_max_ == 0) return 0;
  proposals_.assign(cases.size(), {});
  for (size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].most > 0) GuessFromText(cases[i], &proposals_[i]);
  }
  if (always_) {
    for (DraftProposal& proposal : proposals_) proposal.GrantAll();
  } else {
    PlanDrafts(cost_, static_cast<uint32_t>(cases.size()), proposals_);
  }
  const uint64_t draft_ns = model_drafter_ == nullptr ? 0 : GuessByModel(cases, time);
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].guesses->drafts_.resize(proposals_[i].grant());
  }
  return draft_ns;
}

// What the grammar would refuse is not worth checking.
void TokenGuesser::GuessFromText(const GuessCase& one, DraftProposal* proposal) {
  SequenceGuesses& guesses = *one.guesses;
  const NgramDrafter::Guess guess = guesses.drafter_.Look(one.spec->tokens, drafts_max_);
  TokenConstraint* constraint = one.spec->constraint.get();
  auto count = static_cast<uint32_t>(guess.tokens.size());
  if (count > 0 && constraint != nullptr) count = constraint->CountAllowed(guess.tokens);
  if (count == 0) return;
  guesses.guessed_ = guess.tokens[0];
  guesses.match_ = guess.match;
  guesses.drafts_.assign(guess.tokens.begin(), guess.tokens.begin() + count);
  *proposal = DraftProposal(std::min(count, one.most), guesses.record_.Chance(guess.match));
}

// The draft model's guesses, where they bring more than those from the text. It knows no grammar.
uint64_t TokenGuesser::GuessByModel(std::span<const GuessCase> cases, const GuessTime& time) {
  candidates_.clear();
  for (size_t i = 0; i < cases.size(); ++i) {
    const GuessCase& one = cases[i];
    if (one.spec->constraint != nullptr || one.spec->max_new_tokens == 0) continue;
    DraftCandidate candidate;
    candidate.proposal = static_cast<uint32_t>(i);
    candidate.context = &one.guesses->context_;
    candidate.spec = one.spec;
    candidate.most = std::min(drafts_max_, one.most);
    candidate.chance = one.guesses->record_.Chance(DraftRecord::kOfModel);
    candidate.tokens_left = std::min<double>(
        one.spec->max_new_tokens - one.generated,
        std::max(turn_tokens_ - one.generated, kTurnTokensLeftMin));
    candidates_.push_back(std::move(candidate));
  }
  // What the others of the step may have to wait for is bounded; whoever is alone delays nobody.
  constexpr double kUnbounded = std::numeric_limits<double>::infinity();
  const ModelDrafter::Step step{cost_,
                                static_cast<uint32_t>(cases.size()),
                                time.prefill_token_ns,
                                time.is_alone ? kUnbounded : time.left_ns / 2,
                                time.left_ns / 2,
                                always_};
  const uint64_t draft_ns = model_drafter_->Work(step, proposals_, candidates_);
  for (DraftCandidate& candidate : candidates_) {
    SequenceGuesses& guesses = *cases[candidate.proposal].guesses;
    if (candidate.guesses.empty()) continue;
    guesses.guessed_by_model_ = candidate.guesses[0];
    guesses.drafts_are_by_model_ = candidate.is_checked;
    if (candidate.is_checked) guesses.drafts_ = std::move(candidate.guesses);
  }
  return draft_ns;
}

void TokenGuesser::SeeFirst(SequenceGuesses* guesses, TokenId token) {
  const auto see = [&](TokenId guessed, uint32_t match) {
    if (guessed == SequenceGuesses::kNoToken) return;
    Record(guesses, match, guessed == token ? 1 : 0, guessed == token);
  };
  const bool are_checked = guesses->count() > 0;
  const bool are_by_model = guesses->drafts_are_by_model_;
  if (!are_checked || are_by_model) see(guesses->guessed_, guesses->match_);
  if (!are_checked || !are_by_model) see(guesses->guessed_by_model_, DraftRecord::kOfModel);
}

void TokenGuesser::Close(SequenceGuesses* guesses, bool ended) {
  if (guesses->count() > 0) {
    const uint32_t match =
        guesses->drafts_are_by_model_ ? DraftRecord::kOfModel : guesses->match_;
    Record(guesses, match, guesses->right_, ended || guesses->right_ == guesses->count());
  }
  guesses->guessed_ = SequenceGuesses::kNoToken;
  guesses->guessed_by_model_ = SequenceGuesses::kNoToken;
  guesses->drafts_are_by_model_ = false;
  guesses->drafts_.clear();
  guesses->right_ = 0;
}

void TokenGuesser::Record(SequenceGuesses* guesses, uint32_t match, uint32_t right, bool all) {
  guesses->record_.Observe(match, right, all);
  record_.Observe(match, right, all);
}

void TokenGuesser::Release(SequenceGuesses* guesses, uint32_t generated) {
  if (model_drafter_ != nullptr) model_drafter_->Release(&guesses->context_);
  if (generated > 0) turn_tokens_ += kNewestTurn * (generated - turn_tokens_);
}

}  // namespace kairos
