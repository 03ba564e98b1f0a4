// SPDX-License-Identifier: Apache-2.0
// A sequence inside the engine, from Submit to its kFinished event: what was asked, how far it
// came, and what the present step does with it. Owner: the engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/units.h"
#include "sidecar/engine/draft_kv.h"
#include "sidecar/engine/draft_planner.h"
#include "sidecar/engine/ngram_drafter.h"
#include "sidecar/engine/sequence.h"
#include "sidecar/engine/stop_matcher.h"

namespace kairos {

// Forced tokens that a sequence computes as it decodes; more are read like a prompt.
inline constexpr uint32_t kForcedInStep = 8;
inline constexpr TokenId kNoToken = -1;

struct Running {
  Running(SequenceSpec&& from, uint64_t submitted, uint64_t arrival)
      : spec(std::move(from)),
        computed(spec.computed),
        prompt_tokens(static_cast<uint32_t>(spec.tokens.size())),
        submit_ns(submitted),
        order(arrival),
        stops(spec.sampling.stops) {}

  SequenceSpec spec;  // tokens grow with what is sampled
  uint32_t computed;
  uint32_t prompt_tokens;
  uint64_t submit_ns;
  uint64_t order;
  StopMatcher stops;
  uint64_t first_step_ns = 0;
  uint64_t first_token_ns = 0;
  uint64_t model_ns = 0;
  uint64_t logits_hash = 0;
  uint32_t forced = 0;          // tokens that the grammar left no choice in
  std::vector<uint32_t> mask;   // of the next token, where there is a constraint
  NgramDrafter drafter;
  DraftRecord record;
  // Of this step: the guess's first token, kNoToken without one, the length of the match it came
  // from, and the tokens of it that are checked.
  TokenId guessed = kNoToken;
  uint32_t match = 0;
  std::vector<TokenId> drafts;
  bool drafts_are_models = false;       // the draft model guessed them
  TokenId guessed_by_model = kNoToken;  // as `guessed`
  DraftContext context;                 // what the draft model computed of it, kept between steps
  uint32_t right = 0;            // of the drafts, those that came
  std::vector<TokenId> decoded;  // what this step computes: what is left, then the drafts
  bool finished = false;

  uint32_t left() const { return static_cast<uint32_t>(spec.tokens.size()) - computed; }
  bool samples() const { return spec.max_new_tokens > 0; }
  uint32_t generated() const { return static_cast<uint32_t>(spec.tokens.size()) - prompt_tokens; }
  uint32_t tokens_left() const { return spec.max_new_tokens - generated(); }
  bool decodes() const { return left() == 1 || (generated() > 0 && left() <= kForcedInStep); }
  // How many guesses a step may check beside the next token. Drafts stay inside the open block: it
  // keeps its 16-bit form until its last token is known to be right.
  uint32_t drafts_max() const {
    const uint32_t last = computed + left() - 1;
    const uint32_t in_block = kBlockTokens - 1 - last % kBlockTokens;
    return std::min(in_block, tokens_left() - 1);
  }
  // Of a sampled sequence: whether this step has the logits of its next token.
  bool has_logits() const { return !finished && left() == 0; }
};

}  // namespace kairos
