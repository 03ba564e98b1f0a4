// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/draft_planner.h"

#include <algorithm>
#include <vector>

namespace kairos {
namespace {

constexpr double kNewestWeight = 0.1;
// What a guessed token costs of a step of one sequence, until it is measured.
constexpr double kDraftShareAtFirst = 0.1;
// A step that a neighbour interrupted says little of what steps cost.
constexpr double kOutlier = 3.0;
constexpr float kRecordWeight = 0.1f;
// Below it a class of guesses would never be tried again: kept, so that one token is.
constexpr float kChanceMin = 0.02f;

void Update(double* average, double value) {
  *average = *average == 0.0 ? value
                             : *average + kNewestWeight * (std::min(value, kOutlier * *average) -
                                                           *average);
}

}  // namespace

double StepCost::DraftNs() const {
  return draft_ns_ > 0.0 ? draft_ns_ : kDraftShareAtFirst * base_ns_ / std::max(sequences_, 1u);
}

double StepCost::BaseNs(uint32_t sequences) const {
  if (base_ns_ == 0.0 || sequences == sequences_) return base_ns_;
  // A row of another sequence reads KV of its own, so this is too low: the next steps will tell.
  const double rows = static_cast<double>(sequences) - static_cast<double>(sequences_);
  return std::max(base_ns_ + rows * DraftNs(), 0.2 * base_ns_);
}

void StepCost::Observe(uint32_t sequences, uint32_t drafts, uint64_t ns) {
  if (sequences != sequences_) {
    base_ns_ = drafts == 0 ? 0.0 : BaseNs(sequences);
    sequences_ = sequences;
  }
  const double cost = static_cast<double>(ns);
  if (drafts == 0) {
    Update(&base_ns_, cost);
  } else if (base_ns_ > 0.0) {
    Update(&draft_ns_, std::max((cost - base_ns_) / drafts, 0.01 * base_ns_));
  }
}

uint32_t DraftRecord::Class(uint32_t match) {
  if (match == kOfModel) return 4;
  return match < 4 ? 0 : match < 8 ? 1 : match < 16 ? 2 : 3;
}

void DraftRecord::Observe(uint32_t match, uint32_t right, bool all) {
  float& chance = chances_[Class(match)];
  for (uint32_t i = 0; i < right; ++i) chance += kRecordWeight * (1.0f - chance);
  if (!all) chance -= kRecordWeight * chance;
  chance = std::max(chance, kChanceMin);
}

double DraftProposal::expected() const {
  double sum = 0.0;
  double gain = 1.0;
  for (uint32_t i = 0; i < grant_; ++i) sum += gain *= chance_;
  return sum;
}

StepForecast PlanDrafts(const StepCost& cost, uint32_t sequences,
                        std::span<DraftProposal> proposals, double spent_ns) {
  StepForecast step;
  if (cost.BaseNs(sequences) == 0.0) return step;
  step.tokens = sequences;
  step.ns = cost.BaseNs(sequences) + spent_ns;
  while (!proposals.empty()) {
    DraftProposal& best = *std::max_element(
        proposals.begin(), proposals.end(),
        [](const DraftProposal& a, const DraftProposal& b) { return a.gain() < b.gain(); });
    const double gain = best.gain();
    if (gain * step.ns <= step.tokens * cost.DraftNs()) break;
    best.GrantOne();
    step.tokens += gain;
    step.ns += cost.DraftNs();
  }
  return step;
}

void PlanModelDrafts(const StepCost& cost, const StepCost& pass, uint32_t sequences,
                     double limit_ns, std::span<DraftProposal> proposals,
                     std::span<const DraftProposal> by_model, std::span<uint8_t> taken) {
  std::vector<uint8_t> takes(proposals.size());
  uint32_t served = 0;
  uint32_t most = 0;
  for (size_t i = 0; i < proposals.size(); ++i) {
    const bool likelier = proposals[i].most() == 0 || by_model[i].chance() > proposals[i].chance();
    if (by_model[i].most() == 0 || !likelier) continue;
    takes[i] = 1;
    ++served;
    most = std::max(most, by_model[i].most());
  }
  std::vector<DraftProposal> trial(proposals.begin(), proposals.end());
  for (DraftProposal& proposal : trial) proposal.GrantNone();
  double best = PlanDrafts(cost, sequences, trial).rate();
  if (served == 0 || best == 0.0) return;
  const double pass_ns = pass.BaseNs(served);
  // The expected tokens rise ever less with each pass, their cost evenly: after the first pass that
  // does not pay none does.
  for (uint32_t passes = 1; passes <= most && passes * pass_ns <= limit_ns; ++passes) {
    for (size_t i = 0; i < proposals.size(); ++i) {
      trial[i] = takes[i] != 0 ? DraftProposal(std::min(passes, by_model[i].most()),
                                               by_model[i].chance())
                               : proposals[i];
      trial[i].GrantNone();
    }
    const double rate = PlanDrafts(cost, sequences, trial, passes * pass_ns).rate();
    if (rate <= best) break;
    best = rate;
    std::copy(trial.begin(), trial.end(), proposals.begin());
    std::copy(takes.begin(), takes.end(), taken.begin());
  }
}

double SavedByModel(const CatchUpCase& sequence) {
  double saved = 0.0;
  double right = 0.0;
  double gain = 1.0;
  for (uint32_t passes = 1; passes <= sequence.most; ++passes) {
    right += gain *= sequence.chance;
    const double of_step = (right - sequence.expected) * sequence.token_ns -
                           passes * (sequence.pass_ns + sequence.check_ns);
    saved = std::max(saved, of_step * sequence.tokens_left / (1.0 + right));
  }
  return saved;
}

}  // namespace kairos
