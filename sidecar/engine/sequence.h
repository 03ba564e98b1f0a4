// SPDX-License-Identifier: Apache-2.0
// What travels between conductor and engine: a sequence (one turn inside the engine) and its
// events. Plain values, moved through bounded queues; neither side keeps pointers into the other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/units.h"
#include "sidecar/engine/token_constraint.h"

namespace kairos {

enum class Fidelity : int32_t { kDefault = 0, kExact = 1 };  // numbers of kairos.h

struct SamplingParams {
  float temperature = 0.0f;  // 0: greedy
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  int32_t penalty_window = 64;  // tokens looked back; -1: all
  uint64_t seed = 0;            // noise is keyed by (seed, position)
  uint32_t logprobs = 0;        // alternatives reported per token, 0..20
  bool want_logprobs = false;
  bool ignore_eos = false;
  bool logits_hash = false;
  std::vector<std::string> stops;  // byte strings
  std::vector<std::pair<TokenId, float>> biases;
};

struct SequenceSpec {
  SequenceId id;
  std::vector<TokenId> tokens;  // the whole context; KV of [0, computed) is in the slots
  uint32_t computed = 0;        // less than tokens.size()
  uint32_t max_new_tokens = 0;  // 0: prefill only, no token is sampled
  Fidelity fidelity = Fidelity::kDefault;
  // Slots for every block of tokens.size() + max_new_tokens, in the order of BlockSlots. Default
  // fidelity: written when the block seals. Exact: K half, then V half for each. Window slots of a
  // block whose window is past may be kNoSlot, or another block's since.
  std::vector<SlotId> slots;
  // Default fidelity: K and V halves of the one block that is not sealed yet.
  std::vector<SlotId> open;
  // When given, the first computed % 32 tokens of the unfinished block are copied from these slots
  // before the first step (copy-on-write). Otherwise they are already in place.
  std::vector<SlotId> open_source;
  // Only sequences of equal kin may share what a draft model computed: who reads the time that a
  // turn takes must not learn of others.
  Hash128 kin;
  SamplingParams sampling;
  // Null: any token may come. Copies of a spec share it, so only one of them may run.
  std::shared_ptr<TokenConstraint> constraint;
  int32_t priority = 0;
  uint64_t deadline_ns = 0;  // monotonic; 0: none
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0f;
};

enum class FinishCause : int32_t {
  kEndToken,
  kLength,
  kStopString,
  kCancelled,
  kDeadline,
  kPrefilled,
  kConstraintFailed,  // the grammar reached its work limits; the last token is not in the log
  kDeadEnd,           // nothing that the grammar allows can follow
};

struct EngineEvent {
  enum class Kind : int32_t { kToken, kFinished };
  Kind kind = Kind::kToken;
  SequenceId id;
  // kToken. An end-of-generation token is reported like any other, then kFinished follows.
  TokenId token = 0;
  float logprob = 0.0f;
  std::vector<TokenLogprob> alternatives;
  // kFinished. KV of the first `computed` tokens (context and generated) is in the slots.
  FinishCause cause = FinishCause::kLength;
  uint32_t computed = 0;
  uint32_t forced = 0;        // of the generated tokens, those that a grammar left no choice in
  uint64_t queue_ns = 0;    // submit to first step
  uint64_t prefill_ns = 0;  // first step to first token
  uint64_t decode_ns = 0;   // first token to end
  uint64_t model_ns = 0;    // sum over its steps of the time inside the forward pass and sampling
  // Where wanted. kToken: of the logits it was drawn from; kFinished: those in order, chained.
  uint64_t logits_hash = 0;
  uint64_t time_ns = 0;  // monotonic time of the event
};

}  // namespace kairos
