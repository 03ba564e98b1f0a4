// SPDX-License-Identifier: Apache-2.0
// How many guessed tokens a step should check, from what checking one costs and how often such
// guesses were right; and whether a draft model should guess them. Decides time only: which tokens
// come does not depend on it.
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
  // In place of a match's length: of guesses that a draft model made.
  static constexpr uint32_t kOfModel = 0xffffffffu;

  // The chance that the next token of such a guess is right, when those before it were.
  double Chance(uint32_t match) const { return chances_[Class(match)]; }
  // `right` tokens of a guess were right; the one after them was wrong unless `all`.
  void Observe(uint32_t match, uint32_t right, bool all);

 private:
  static uint32_t Class(uint32_t match);

  std::array<float, 5> chances_{0.3f, 0.5f, 0.7f, 0.85f, 0.7f};
};

// A guess about one sequence.
class DraftProposal {
 public:
  DraftProposal() = default;
  // `most` tokens were guessed, each right with `chance` when those before it were.
  DraftProposal(uint32_t most, double chance) : most_(most), chance_(chance), gain_(chance) {}

  uint32_t most() const { return most_; }
  double chance() const { return chance_; }
  uint32_t grant() const { return grant_; }  // how many to check
  double expected() const;                   // of these, how many will be right
  // The chance that the next one and all before it are right; 0 where all are granted.
  double gain() const { return grant_ < most_ ? gain_ : 0.0; }
  void GrantOne() {
    ++grant_;
    gain_ *= chance_;
  }
  void GrantAll() { grant_ = most_; }
  void GrantNone() {
    grant_ = 0;
    gain_ = chance_;
  }

 private:
  uint32_t most_ = 0;
  uint32_t grant_ = 0;
  double chance_ = 0.0;
  double gain_ = 0.0;
};

// What a step is expected to bring.
struct StepForecast {
  double tokens = 0.0;
  double ns = 0.0;  // 0: not known yet

  double rate() const { return ns > 0.0 ? tokens / ns : 0.0; }
};

// Sets the grants of one step of `sequences` sequences so that tokens come fastest: guessed tokens
// are taken, the likeliest first, while each adds more than the step's average yields for its time.
// `spent_ns` goes to making the guesses, whatever is granted.
StepForecast PlanDrafts(const StepCost& cost, uint32_t sequences,
                        std::span<DraftProposal> proposals, double spent_ns = 0.0);

// Whether a draft model should guess in this step, and how much. `pass` is the cost of one pass of
// that model, which guesses one token of each sequence that it works for; `limit_ns` the most that
// all its passes may take. `by_model[i]` is what it could propose in place of proposals[i], where
// that is likelier to be right; nothing where it cannot. Where tokens come faster with it, those
// proposals are replaced, taken[i] is 1 for each, and all grants are set anew; otherwise proposals
// are as they were.
void PlanModelDrafts(const StepCost& cost, const StepCost& pass, uint32_t sequences,
                     double limit_ns, std::span<DraftProposal> proposals,
                     std::span<const DraftProposal> by_model, std::span<uint8_t> taken);

// A sequence that a draft model might guess for, if it first computed what it has not of it.
struct CatchUpCase {
  uint32_t most = 0;         // guesses of a step
  double chance = 0.0;       // of each to be right when those before it were
  double expected = 0.0;     // right guesses of a step without the model
  double tokens_left = 0.0;  // that the sequence is expected to say yet
  double token_ns = 0.0;     // that the engine takes for a token without the model
  double pass_ns = 0.0;      // the sequence's share of a pass
  double check_ns = 0.0;     // to check one guess more
};

// What the model's guesses would save until the sequence ends, in ns; 0: nothing.
double SavedByModel(const CatchUpCase& sequence);

}  // namespace kairos
