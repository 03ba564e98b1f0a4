// SPDX-License-Identifier: Apache-2.0
// How many guessed tokens a step should check, from what checking one costs and how often such
// guesses were right. Decides time only: which tokens come does not depend on it.
// Owner: the engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace kairos {

// What steps without prefill cost, measured as they go.
class StepCost {
 public:
  // A step of `sequences` sequences that checked `drafts` guessed tokens besides.
  void Observe(uint32_t sequences, uint32_t drafts, uint64_t ns);
  // Of a step that checks none, with that many sequences; 0: not measured yet.
  double BaseNs(uint32_t sequences) const;
  double DraftNs() const;  // of one guessed token more

 private:
  uint32_t sequences_ = 0;  // of the steps that base_ns_ is about
  double base_ns_ = 0.0;
  double draft_ns_ = 0.0;  // 0: not measured yet
};

// How often guesses about one sequence were right, by the length of the match they came from.
class DraftRecord {
 public:
  // The chance that the next token of such a guess is right, when those before it were.
  double Chance(uint32_t match) const { return chances_[Class(match)]; }
  // `right` tokens of a guess were right; the one after them was wrong unless `all`.
  void Observe(uint32_t match, uint32_t right, bool all);

 private:
  static uint32_t Class(uint32_t match);

  std::array<float, 4> chances_{0.3f, 0.5f, 0.7f, 0.85f};
};

// A guess about one sequence.
class DraftProposal {
 public:
  DraftProposal() = default;
  // `most` tokens were guessed, each right with `chance` when those before it were.
  DraftProposal(uint32_t most, double chance) : most_(most), chance_(chance), gain_(chance) {}

  uint32_t grant() const { return grant_; }  // how many to check
  // The chance that the next one and all before it are right; 0 where all are granted.
  double gain() const { return grant_ < most_ ? gain_ : 0.0; }
  void GrantOne() {
    ++grant_;
    gain_ *= chance_;
  }
  void GrantAll() { grant_ = most_; }

 private:
  uint32_t most_ = 0;
  uint32_t grant_ = 0;
  double chance_ = 0.0;
  double gain_ = 0.0;
};

// Sets the grants of one step of `sequences` sequences so that tokens come fastest: guessed tokens
// are taken, the likeliest first, while each adds more than the step's average yields for its time.
void PlanDrafts(const StepCost& cost, uint32_t sequences, std::span<DraftProposal> proposals);

}  // namespace kairos
