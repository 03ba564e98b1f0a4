// SPDX-License-Identifier: Apache-2.0
// Drives an engine in this process as the daemon does (Submit, DoWork, PollEvent), with made-up
// prompts. Owner: the bench's one thread; model and arena outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "sidecar/engine/engine.h"
#include "sidecar/engine/kv_arena.h"
#include "sidecar/engine/models/model.h"

namespace kairos {

class EngineDriver {
 public:
  EngineDriver(const Model& model, KvArena& arena) : model_(model), arena_(arena) {}

  // Starts an engine in place of the one before. False, with words on stderr, where it cannot be.
  bool Open(uint32_t threads, uint64_t step_budget_ns);
  Engine& engine() { return *engine_; }

  [[nodiscard]] bool Submit(SequenceSpec&& spec) { return engine_->Submit(std::move(spec)); }

  TokenId NextToken();
  // A sequence of random tokens. Takes its slots from *next_slot on, which it moves.
  SequenceSpec Spec(uint32_t tokens, uint32_t new_tokens, uint32_t* next_slot);
  // A fresh id, and the last one that was given.
  SequenceId NextId() { return SequenceId{++last_id_}; }
  uint64_t last_id() const { return last_id_; }
  // Steps until `tokens` sampled tokens were seen; false when the engine has no work.
  bool StepUntil(uint32_t tokens);
  // Steps that are left, and events nobody waits for.
  void Drain();

 private:
  const Model& model_;
  KvArena& arena_;
  std::unique_ptr<Engine> engine_;
  uint64_t last_id_ = 0;
  uint64_t random_ = 1;
};

}  // namespace kairos
