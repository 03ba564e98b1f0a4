// SPDX-License-Identifier: Apache-2.0
// The engine: a continuous batch of sequences over one model on one device.
// Owner: the engine thread runs DoWork(); Submit, Cancel and PollEvent are the conductor's. The two
// meet only in bounded queues. The engine knows no sessions, tiers or clients.
//
// 1. Output of a sequence depends on its tokens, sampling and fidelity alone: not on batch mates,
//    chunking or threads, bit for bit.
// 2. Decoding sequences run in every step; prefill fills what the step's time budget leaves.
// 3. Guessed tokens may be checked beside a sequence's next one, several at once; only what would
//    have been drawn anyway is kept, so the output is that without guesses, bit for bit.
// 4. Cancel takes effect before the next step and keeps what was prefilled.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "base/waker.h"
#include "sidecar/engine/sequence.h"

namespace kairos {

class Model;    // sidecar/engine/models/model.h: weights and hyper-parameters, immutable
class KvArena;  // sidecar/engine/kv_arena.h: memory of the slots

struct EngineOptions {
  uint32_t threads = 2;                  // compute threads, this one included
  uint32_t sequences_max = 64;           // in one step
  uint32_t chunk_tokens_max = 512;       // prefill tokens of one step, all sequences
  uint64_t step_budget_ns = 50'000'000;  // 0: no budget, chunk_tokens_max alone bounds a step
  uint32_t draft_tokens_max = 0;         // guessed tokens of a sequence in one step, 0 to 31
  bool draft_always = false;             // whatever it costs; for tests, whose steps are tiny
  std::vector<std::string> token_bytes;  // per token, for stop strings; or empty
  std::vector<TokenId> end_tokens;       // end a generation unless ignore_eos
};

// A smaller model whose tokens mean the same as the served one's, to guess them, and memory for its
// KV. Both null: none.
struct DraftParts {
  const Model* model = nullptr;
  KvArena* arena = nullptr;
};

// Written by the engine thread, readable by any.
struct EngineCounters {
  std::atomic<uint64_t> steps{0};
  std::atomic<uint64_t> prefill_tokens{0};
  std::atomic<uint64_t> decode_tokens{0};
  std::atomic<uint64_t> step_ns{0};
  std::atomic<uint64_t> drafted_tokens{0};   // guessed and checked
  std::atomic<uint64_t> accepted_tokens{0};  // of them, those that came
  std::atomic<uint64_t> model_drafted_tokens{0};   // of both, those that the draft model guessed
  std::atomic<uint64_t> model_accepted_tokens{0};
  std::atomic<uint64_t> model_draft_ns{0};         // of step_ns, the draft model's work
  std::atomic<uint32_t> sequences_running{0};
  std::atomic<uint32_t> sequences_waiting{0};
};

class Engine {
 public:
  // `model`, `arena` and `draft` outlive the engine. Starts the worker pool's threads, not the
  // engine thread.
  static Result<std::unique_ptr<Engine>> Create(const Model& model, KvArena& arena,
                                                const EngineOptions& options,
                                                const DraftParts& draft = {});
  virtual ~Engine() = default;

  // Conductor only, never block. False when the queue is full: try again later.
  [[nodiscard]] virtual bool Submit(SequenceSpec&& spec) = 0;
  [[nodiscard]] virtual bool Cancel(SequenceId id) = 0;
  virtual std::optional<EngineEvent> PollEvent() = 0;
  // Woken after events were pushed. Set before the engine thread starts.
  virtual void SetEventWaker(Waker* waker) = 0;

  // Engine thread only. Runs at most one step; false when there was nothing to do.
  virtual bool DoWork(uint64_t now_ns) = 0;
  // The engine thread sleeps on it; Submit and Cancel wake it.
  virtual Waker& waker() = 0;
  virtual const EngineCounters& counters() const = 0;
};

}  // namespace kairos
