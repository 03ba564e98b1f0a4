// SPDX-License-Identifier: Apache-2.0
// The guessed tokens of a step: what is guessed about each sequence that decodes, from its own text
// or by a draft model, how much of it is checked, and what became of it. Decides time only: which
// tokens come does not depend on it.
// Owner: the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/units.h"
#include "sidecar/engine/draft_planner.h"
#include "sidecar/engine/model_drafter.h"
#include "sidecar/engine/ngram_drafter.h"
#include "sidecar/engine/sequence.h"

namespace kairos {

// Of one sequence, from its admission to its end.
class SequenceGuesses {
 public:
  // Tokens that this step checks behind those that are certain.
  const std::vector<TokenId>& drafts() const { return drafts_; }
  uint32_t count() const { return static_cast<uint32_t>(drafts_.size()); }
  bool are_by_model() const { return drafts_are_by_model_; }
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
  // Of this step: the first token that is guessed from the text, kNoToken without one, the length
  // of the match it came from, and the first one that the draft model guesses.
  TokenId guessed_ = kNoToken;
  uint32_t match_ = 0;
  TokenId guessed_by_model_ = kNoToken;
  bool drafts_are_by_model_ = false;
  DraftContext context_;  // what the draft model computed of the sequence
};

// A sequence that decodes in this step.
struct GuessCase {
  SequenceGuesses* guesses = nullptr;
  SequenceSpec* spec = nullptr;
  uint32_t most = 0;       // guesses that it has use for and that fill no block; 0: none
  uint32_t generated = 0;  // tokens so far
};

// How long the guesses of a step may take.
struct GuessTime {
  double left_ns = 0.0;    // that others of the step may wait; infinite: they have all the time
  bool is_alone = false;   // there are no others
  double prefill_token_ns = 0.0;  // what a token of a prompt takes; 0: not measured yet
};

class TokenGuesser {
 public:
  // `drafts_max` of a sequence in a step; `always`: whatever it costs. `model_drafter` may be null.
  TokenGuesser(uint32_t drafts_max, bool always, std::unique_ptr<ModelDrafter> model_drafter)
      : drafts_max_(drafts_max), always_(always), model_drafter_(std::move(model_drafter)) {}

  // Before the sequence's first step.
  void Admit(SequenceGuesses* guesses) const { guesses->record_ = record_; }
  // Sets the drafts of a step. Returns the time that a draft model worked, in ns.
  uint64_t Plan(std::span<const GuessCase> cases, const GuessTime& time);
  // Guesses that were not worth checking still tell how often such ones are right: to be called
  // with the first token that a step brings to a sequence.
  void SeeFirst(SequenceGuesses* guesses, TokenId token);
  // At the end of a step of the sequence: learns from what came. `ended`: the text did, so that it
  // is unknown whether the next draft was right. No drafts are left.
  void Close(SequenceGuesses* guesses, bool ended);
  // What a step took, without the draft model's work, in which `sequences` decoded and nothing else
  // was computed but `more` tokens of theirs.
  void ObserveDecode(uint32_t sequences, uint32_t more, uint64_t ns) {
    cost_.Observe(sequences, more, ns);
  }
  // What any step took, without the draft model's work.
  void ObserveStep(uint64_t ns) {
    if (model_drafter_ != nullptr) model_drafter_->Credit(ns);
  }
  // The sequence has ended after `generated` tokens.
  void Release(SequenceGuesses* guesses, uint32_t generated);

 private:
  void GuessFromText(const GuessCase& one, DraftProposal* proposal);
  uint64_t GuessByModel(std::span<const GuessCase> cases, const GuessTime& time);
  void Record(SequenceGuesses* guesses, uint32_t match, uint32_t right, bool all);

  static constexpr double kTurnTokensAtFirst = 128.0;  // until some turns have ended

  const uint32_t drafts_max_;
  const bool always_;
  StepCost cost_;
  DraftRecord record_;  // of all sequences: where new ones start
  std::unique_ptr<ModelDrafter> model_drafter_;  // null without a draft model
  double turn_tokens_ = kTurnTokensAtFirst;      // that turns say, on average
  std::vector<DraftProposal> proposals_;         // of each case
  std::vector<DraftCandidate> candidates_;       // those that the draft model may guess about
};

}  // namespace kairos
