// SPDX-License-Identifier: Apache-2.0
// The guessed tokens of a step: what is guessed about each sequence that decodes, how much of it is
// checked, and what became of it. Decides time only: which tokens come does not depend on it.
// Owner: the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "sidecar/engine/draft_planner.h"
#include "sidecar/engine/ngram_drafter.h"
#include "sidecar/engine/sequence.h"

namespace kairos {

// Of one sequence, from its admission to its end.
class SequenceGuesses {
 public:
  // Tokens that this step checks behind those that are certain.
  const std::vector<TokenId>& drafts() const { return drafts_; }
  uint32_t count() const { return static_cast<uint32_t>(drafts_.size()); }
  // How many of them came.
  uint32_t right() const { return right_; }
  // Whether a token that came is the next of the drafts, which it then counts as right.
  bool Count(TokenId token) {
    if (right_ == count() || token != drafts_[right_]) return false;
    ++right_;
    return true;
  }

 private:
  friend class TokenGuesser;
  static constexpr TokenId kNoToken = -1;

  NgramDrafter drafter_;
  DraftRecord record_;
  std::vector<TokenId> drafts_;
  uint32_t right_ = 0;
  // Of this step: the guess's first token, kNoToken without one, and the length of the match it
  // came from.
  TokenId guessed_ = kNoToken;
  uint32_t match_ = 0;
};

// A sequence that decodes in this step.
struct GuessCase {
  SequenceGuesses* guesses = nullptr;
  const SequenceSpec* spec = nullptr;
  uint32_t most = 0;  // guesses that it has use for and that fill no block; 0: none
};

class TokenGuesser {
 public:
  // `drafts_max` of a sequence in a step; `always`: whatever it costs.
  TokenGuesser(uint32_t drafts_max, bool always) : drafts_max_(drafts_max), always_(always) {}

  // Before the sequence's first step.
  void Admit(SequenceGuesses* guesses) const { guesses->record_ = record_; }
  // Sets the drafts of a step.
  void Plan(std::span<const GuessCase> cases);
  // A guess that was not worth checking still tells how often such guesses are right: to be called
  // with the first token that a step brings to a sequence.
  void SeeFirst(SequenceGuesses* guesses, TokenId token);
  // At the end of a step of the sequence: learns from what came. `ended`: the text did, so that it
  // is unknown whether the next draft was right. No drafts are left.
  void Close(SequenceGuesses* guesses, bool ended);
  // What a step took in which `sequences` decoded and nothing else was computed but `more` tokens
  // of theirs.
  void ObserveStep(uint32_t sequences, uint32_t more, uint64_t ns) {
    cost_.Observe(sequences, more, ns);
  }

 private:
  void Guess(const GuessCase& one, DraftProposal* proposal);
  void Record(SequenceGuesses* guesses, uint32_t right, bool all);

  const uint32_t drafts_max_;
  const bool always_;
  StepCost cost_;
  DraftRecord record_;  // of all sequences: where new ones start
  std::vector<DraftProposal> proposals_;  // of each case
};

}  // namespace kairos
