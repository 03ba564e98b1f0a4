// SPDX-License-Identifier: Apache-2.0
// Guesses how sequences go on with a draft model: a smaller model of the same vocabulary, which
// computes ahead what the served model then checks. It draws with the sampling and the noise of the
// sequence, so that both models draw the same token wherever they think alike.
// Owner: the engine thread. Decides and takes time only: which tokens come does not depend on it.
//
// 1. It guesses where tokens are expected to come faster so, by measured costs and successes, and
//    first computes what it lacks of a sequence where that is expected to pay.
// 2. Where it never pays, looking whether it would by now takes 1 % of the steps' time at most.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "sidecar/engine/draft_kv.h"
#include "sidecar/engine/draft_planner.h"
#include "sidecar/engine/forward.h"
#include "sidecar/engine/sampler.h"
#include "sidecar/engine/sequence.h"

namespace kairos {

// A sequence that decodes in this step and may be guessed about.
struct DraftCandidate {
  uint32_t proposal = 0;             // its place among the step's proposals
  DraftContext* context = nullptr;
  SequenceSpec* spec = nullptr;      // its tokens grow while guesses are made, and shrink again
  uint32_t most = 0;                 // guesses that may be checked, so that they fill no block
  double chance = 0.0;               // of the model's guesses
  double tokens_left = 0.0;          // that it is expected to say yet
  // What came of it.
  std::vector<TokenId> guesses;
  bool is_checked = false;  // else only to be compared with what comes
};

class ModelDrafter {
 public:
  // What of the step is known before its guesses are made.
  struct Step {
    const StepCost& cost;           // of the served model
    uint32_t sequences = 0;         // that decode
    double prefill_token_ns = 0.0;  // of the served model; 0: not measured yet
    double passes_ns_max = 0.0;     // for guesses of this step
    double catch_up_ns_max = 0.0;   // for what is computed for those of later steps
    bool always = false;            // whatever it costs
  };

  // All outlive it. A token has the same meaning in both models' vocabularies, of which one may be
  // longer than the other. `guesses_max` is that of a sequence in a step.
  ModelDrafter(const Model& model, KvArena& arena, const Model& served, WorkerPool& pool,
               uint32_t guesses_max, uint32_t chunk_tokens_max);

  // Makes the guesses of a step. `proposals` are planned by other means; those of candidates that
  // are checked are replaced, and grants set anew. Returns the time it took in ns.
  uint64_t Work(const Step& step, std::span<DraftProposal> proposals,
                std::span<DraftCandidate> candidates);
  // What a step took besides: a share of it may go to looking whether guesses would pay.
  void Credit(uint64_t step_ns);
  // The sequence ends. What was computed of it is kept for others that begin like it.
  void Release(DraftContext* context) { kv_.Release(context); }

 private:
  // What the model lacks of a sequence before it can guess; at least 1, the newest token.
  static uint32_t Behind(const DraftCandidate& candidate) {
    return static_cast<uint32_t>(candidate.spec->tokens.size()) - candidate.context->computed;
  }
  void Align(DraftCandidate* candidate) const;
  void Extend(DraftCandidate* candidate);
  void GiveUpUnused(std::span<DraftCandidate> candidates);
  bool CanServe(const DraftCandidate& candidate) const;
  bool IsReady(const DraftCandidate& candidate);
  double TokenNsByWeights(const Step& step) const;
  bool IsWorthIt(const Step& step, const DraftCandidate& candidate, double expected,
                 bool hopes) const;
  DraftCandidate* Nearest(const Step& step, std::span<const DraftProposal> proposals,
                          std::span<DraftCandidate> candidates, bool hopes) const;
  void Plan(const Step& step, std::span<DraftProposal> proposals,
            std::span<DraftCandidate> candidates);
  void Guess();
  void RunPass(uint32_t pass);
  void CatchUp(DraftCandidate* candidate, double ns);
  void Probe(DraftCandidate* candidate);

  const Model& model_;
  WorkerPool& pool_;
  const uint32_t vocabulary_;        // tokens that both models know
  const double cost_share_;          // of a pass, by weights; until it is measured
  const uint32_t guesses_max_;
  const uint32_t chunk_tokens_max_;
  Forward forward_;
  DraftKv kv_;
  StepCost pass_cost_;
  double token_ns_ = 0.0;   // of a token in CatchUp; 0: not measured yet
  double credit_ns_ = 0.0;  // for Probe
  // Of CatchUp's, and those found that earlier sequences had left: how often a token is of use.
  double tokens_computed_;
  double tokens_found_;

  // One step's.
  std::vector<DraftProposal> by_model_;  // of each proposal
  std::vector<uint8_t> taken_;
  double served_token_ns_ = 0.0;         // that the served model takes for a token without it
  double pass_share_ns_ = 0.0;           // of a pass, for each candidate
  double pass_ns_by_weights_ = 0.0;
  std::vector<DraftCandidate*> served_;  // that guesses are made for
  std::vector<uint32_t> counts_;         // how many, of each served
  std::vector<Segment> segments_;
  std::vector<DraftCandidate*> drawn_;   // of each segment
  std::vector<Sampler> samplers_;        // of each worker
};

}  // namespace kairos
