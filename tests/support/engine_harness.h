// SPDX-License-Identifier: Apache-2.0
// Drives an Engine by hand in a test: gives sequences slots of one arena, steps until all have
// finished, and keeps what each one said.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sidecar/engine/engine.h"
#include "sidecar/engine/kv_arena.h"
#include "sidecar/engine/models/model.h"

namespace kairos {

struct SequenceResult {
  std::vector<TokenId> tokens;      // sampled
  std::vector<EngineEvent> events;  // kToken
  std::optional<EngineEvent> finished;
  std::vector<uint64_t> token_steps;  // engine steps done when each token was seen
};

class EngineHarness {
 public:
  EngineHarness(const Model& model, const EngineOptions& options, uint32_t slots = 4096)
      : EngineHarness(model, options, slots, nullptr, 0) {}
  // With a draft model, which outlives it, and `draft_slots` for that one's KV.
  EngineHarness(const Model& model, const EngineOptions& options, uint32_t slots,
                const Model* draft, uint32_t draft_slots);

  // A spec with fresh slots; id is the next number.
  SequenceSpec Spec(std::vector<TokenId> tokens, uint32_t max_new_tokens,
                    Fidelity fidelity = Fidelity::kDefault);
  SequenceId Submit(SequenceSpec spec);
  // One DoWork, then all its events; false when there was neither.
  bool Step();
  // Until nothing is left to do.
  void Run();
  const SequenceResult& result(SequenceId id) { return results_[id.value]; }
  // Submits one sequence that hashes its logits and runs it to its end.
  SequenceResult RunAlone(SequenceSpec spec);

  Engine& engine() { return *engine_; }
  KvArena& arena() { return *arena_; }
  SlotId NewSlot();

 private:
  std::unique_ptr<KvArena> arena_;
  std::unique_ptr<KvArena> draft_arena_;
  BlockLayout layout_;
  std::unique_ptr<Engine> engine_;
  std::map<uint64_t, SequenceResult> results_;
  uint64_t next_id_ = 1;
  uint32_t next_slot_ = 0;
};

// Path of the model file that tests with real weights use, or empty when it is not there.
std::string TestModelPath();

}  // namespace kairos
