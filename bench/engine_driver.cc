// SPDX-License-Identifier: Apache-2.0
#include "bench/engine_driver.h"

#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "bench/sequence_slots.h"

namespace kairos {

bool EngineDriver::Open(uint32_t threads, uint64_t step_budget_ns) {
  EngineOptions options;
  options.threads = threads;
  options.step_budget_ns = step_budget_ns;
  auto engine = Engine::Create(model_, arena_, options);
  if (!engine.ok()) {
    std::fprintf(stderr, "kairos-bench engine: %s\n", engine.status().message());
    return false;
  }
  engine_ = engine.Take();
  return true;
}

TokenId EngineDriver::NextToken() {
  random_ = random_ * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<TokenId>((random_ >> 33) % model_.parameters().vocabulary);
}

SequenceSpec EngineDriver::Spec(uint32_t tokens, uint32_t new_tokens, uint32_t* next_slot) {
  SequenceSpec spec;
  spec.id = NextId();
  for (uint32_t i = 0; i < tokens; ++i) spec.tokens.push_back(NextToken());
  spec.max_new_tokens = new_tokens;
  spec.sampling.ignore_eos = true;
  *next_slot = TakeSlots(model_.kv_geometry(), tokens + new_tokens, *next_slot, &spec);
  return spec;
}

bool EngineDriver::StepUntil(uint32_t tokens) {
  uint32_t seen = 0;
  while (seen < tokens) {
    if (!engine_->DoWork(MonotonicNs())) return false;
    while (auto event = engine_->PollEvent()) {
      if (event->kind == EngineEvent::Kind::kToken) ++seen;
    }
  }
  return true;
}

void EngineDriver::Drain() {
  while (engine_->DoWork(MonotonicNs()) || engine_->PollEvent()) {
  }
}

}  // namespace kairos
