// SPDX-License-Identifier: Apache-2.0
// From logits to a token. A pure function of (parameters, tokens so far, logits): the noise is
// keyed by seed and position, so the same prefix gives the same token whoever computes it and when.
//
// Order: the mask of a grammar, logit biases, repetition and presence penalty over the window,
// temperature, top-k, top-p, min-p, then the largest of logit plus Gumbel noise. Log-probabilities
// are those of the untouched logits. A logit that is not a number never wins.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "sidecar/engine/kernels/kernel_table.h"
#include "sidecar/engine/sequence.h"

namespace kairos {

struct Sample {
  TokenId token = 0;
  float logprob = 0.0f;                    // where log-probabilities are wanted
  std::vector<TokenLogprob> alternatives;  // most likely first
  uint64_t logits_hash = 0;                // of the row, where wanted
};

class Sampler {
 public:
  // `kernels` outlives the sampler.
  explicit Sampler(const KernelTable& kernels) : kernels_(&kernels) {}
  // `tokens` is all before the one drawn: its position is tokens.size(). `logits` is changed.
  // `mask` has a bit for each token that may be drawn (token_constraint.h), or is empty: all may.
  Sample Draw(const SamplingParams& params, std::span<const TokenId> tokens,
              std::span<float> logits, std::span<const uint32_t> mask = {});

 private:
  struct Candidate {
    float logit;  // divided by the temperature
    TokenId token;
  };
  // More likely, or as likely and of a smaller number.
  static bool IsBefore(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }

  void ReportLogprobs(const SamplingParams& params, std::span<const float> logits, Sample* sample);
  void ApplyPenalties(const SamplingParams& params, std::span<const TokenId> tokens,
                      std::span<float> logits);
  TokenId DrawNoisy(const SamplingParams& params, uint64_t position, std::span<const float> logits);
  float FloorOfTopP(float top_p, std::span<const float> logits, float scale, float top,
                    double* target) const;
  void CutTopP(float top, double target);

  const KernelTable* kernels_;
  std::vector<Candidate> candidates_;
  std::vector<TokenId> window_;
  std::vector<float> raw_;
};

// Index of the greatest value, the first of equals; 0 when there is no number among them.
uint32_t GreatestIndex(std::span<const float> values);

}  // namespace kairos
