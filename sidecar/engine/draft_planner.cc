// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/draft_planner.h"

#include <algorithm>

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
  return match < 4 ? 0 : match < 8 ? 1 : match < 16 ? 2 : 3;
}

void DraftRecord::Observe(uint32_t match, uint32_t right, bool all) {
  float& chance = chances_[Class(match)];
  for (uint32_t i = 0; i < right; ++i) chance += kRecordWeight * (1.0f - chance);
  if (!all) chance -= kRecordWeight * chance;
  chance = std::max(chance, kChanceMin);
}

void PlanDrafts(const StepCost& cost, uint32_t sequences, std::span<DraftProposal> proposals) {
  double time = cost.BaseNs(sequences);
  if (time == 0.0) return;
  double tokens = sequences;
  while (!proposals.empty()) {
    DraftProposal& best = *std::max_element(
        proposals.begin(), proposals.end(),
        [](const DraftProposal& a, const DraftProposal& b) { return a.gain() < b.gain(); });
    const double gain = best.gain();
    if (gain * time <= tokens * cost.DraftNs()) return;
    best.GrantOne();
    tokens += gain;
    time += cost.DraftNs();
  }
}

}  // namespace kairos
