// SPDX-License-Identifier: Apache-2.0
#include "tests/support/engine_harness.h"

#include <unistd.h>

#include <cstdlib>

#include "base/check.h"
#include "base/clock.h"
#include "tests/support/turn_slots.h"

namespace kairos {

EngineHarness::EngineHarness(const Model& model, const EngineOptions& options, uint32_t slots,
                             const Model* draft, uint32_t draft_slots) {
  auto arena = KvArena::Create(model.kv_geometry(), slots);
  KAIROS_CHECK(arena.ok());
  arena_ = arena.Take();
  layout_ = KvBlockLayout(arena_->geometry(), options.chunk_tokens_max);
  if (draft != nullptr) {
    auto draft_arena = KvArena::Create(draft->kv_geometry(), draft_slots);
    KAIROS_CHECK(draft_arena.ok());
    draft_arena_ = draft_arena.Take();
  }
  auto engine = Engine::Create(model, *arena_, options, {draft, draft_arena_.get()});
  KAIROS_CHECK(engine.ok());
  engine_ = engine.Take();
}

SlotId EngineHarness::NewSlot() {
  KAIROS_CHECK(next_slot_ < arena_->slots());
  return SlotId{next_slot_++};
}

SequenceSpec EngineHarness::Spec(std::vector<TokenId> tokens, uint32_t max_new_tokens,
                                 Fidelity fidelity) {
  SequenceSpec spec;
  spec.id = SequenceId{next_id_++};
  spec.max_new_tokens = max_new_tokens;
  spec.fidelity = fidelity;
  const uint64_t blocks = (tokens.size() + max_new_tokens + kBlockTokens - 1) / kBlockTokens;
  spec.slots = TurnSlots(layout_, blocks, fidelity, [this] { return NewSlot(); });
  if (fidelity == Fidelity::kDefault) {
    for (uint32_t i = 0; i < 2 * layout_.slots(); ++i) spec.open.push_back(NewSlot());
  }
  spec.tokens = std::move(tokens);
  spec.sampling.logits_hash = true;
  return spec;
}

SequenceId EngineHarness::Submit(SequenceSpec spec) {
  const SequenceId id = spec.id;
  KAIROS_CHECK(engine_->Submit(std::move(spec)));
  return id;
}

bool EngineHarness::Step() {
  bool worked = engine_->DoWork(MonotonicNs());
  while (std::optional<EngineEvent> event = engine_->PollEvent()) {
    worked = true;
    SequenceResult& result = results_[event->id.value];
    if (event->kind == EngineEvent::Kind::kFinished) {
      KAIROS_CHECK(!result.finished);
      result.finished = *event;
      continue;
    }
    KAIROS_CHECK(!result.finished);
    result.tokens.push_back(event->token);
    result.token_steps.push_back(engine_->counters().steps.load());
    result.events.push_back(*event);
  }
  return worked;
}

void EngineHarness::Run() {
  while (Step()) {
  }
}

SequenceResult EngineHarness::RunAlone(SequenceSpec spec) {
  const SequenceId id = Submit(std::move(spec));
  Run();
  return result(id);
}

std::string TestModelPath() {
  std::string path;
  if (const char* given = std::getenv("KAIROS_TEST_MODEL")) {
    path = given;
  } else if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0) {
    path = std::string(cache) + "/kairos/models/smollm2-135m.gguf";
  } else if (const char* home = std::getenv("HOME")) {
    path = std::string(home) + "/.cache/kairos/models/smollm2-135m.gguf";
  }
  return access(path.c_str(), R_OK) == 0 ? path : std::string();
}

}  // namespace kairos
