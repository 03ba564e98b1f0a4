// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/token_guesser.h"

#include <algorithm>

#include "sidecar/engine/token_constraint.h"

namespace kairos {

void TokenGuesser::Plan(std::span<const GuessCase> cases) {
  if (drafts_max_ == 0) return;
  proposals_.assign(cases.size(), {});
  for (size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].most > 0) Guess(cases[i], &proposals_[i]);
  }
  if (always_) {
    for (DraftProposal& proposal : proposals_) proposal.GrantAll();
  } else {
    PlanDrafts(cost_, static_cast<uint32_t>(cases.size()), proposals_);
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].guesses->drafts_.resize(proposals_[i].grant());
  }
}

// What the grammar would refuse is not worth checking.
void TokenGuesser::Guess(const GuessCase& one, DraftProposal* proposal) {
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

void TokenGuesser::SeeFirst(SequenceGuesses* guesses, TokenId token) {
  if (!guesses->drafts_.empty() || guesses->guessed_ == SequenceGuesses::kNoToken) return;
  const bool would = token == guesses->guessed_;
  Record(guesses, would ? 1 : 0, would);
}

void TokenGuesser::Close(SequenceGuesses* guesses, bool ended) {
  if (guesses->count() > 0) {
    Record(guesses, guesses->right_, ended || guesses->right_ == guesses->count());
  }
  guesses->guessed_ = SequenceGuesses::kNoToken;
  guesses->drafts_.clear();
  guesses->right_ = 0;
}

void TokenGuesser::Record(SequenceGuesses* guesses, uint32_t right, bool all) {
  guesses->record_.Observe(guesses->match_, right, all);
  record_.Observe(guesses->match_, right, all);
}

}  // namespace kairos
