// SPDX-License-Identifier: Apache-2.0
#include "tests/support/forward_logits.h"

#include <algorithm>

#include "sidecar/engine/forward.h"
#include "tests/support/turn_slots.h"

namespace kairos {

std::vector<float> AllLogits(const Model& model, const std::vector<TokenId>& tokens, uint32_t chunk,
                             Fidelity fidelity, uint32_t threads) {
  uint32_t slots_wanted = 0;
  const auto new_slot = [&slots_wanted] { return SlotId{slots_wanted++}; };
  const BlockLayout layout = KvBlockLayout(model.kv_geometry(), chunk);
  const std::vector<SlotId> slots =
      TurnSlots(layout, tokens.size() / kBlockTokens + 1, fidelity, new_slot);
  std::vector<SlotId> open;
  for (uint32_t i = 0; i < 2 * layout.slots(); ++i) open.push_back(new_slot());
  auto arena = KvArena::Create(model.kv_geometry(), slots_wanted);
  WorkerPool pool(threads);
  Forward forward(model, **arena, pool);
  std::vector<float> out;
  const uint32_t vocabulary = model.parameters().vocabulary;
  for (uint32_t at = 0; at < tokens.size(); at += chunk) {
    Segment segment;
    segment.tokens = tokens.data() + at;
    segment.position = at;
    segment.count = std::min<uint32_t>(chunk, static_cast<uint32_t>(tokens.size()) - at);
    segment.logit_rows = segment.count;
    segment.fidelity = fidelity;
    segment.slots = slots.data();
    segment.open = open.data();
    forward.Run({&segment, 1});
    for (uint32_t i = 0; i < segment.count; ++i) {
      out.insert(out.end(), forward.logits(i), forward.logits(i) + vocabulary);
    }
  }
  return out;
}

}  // namespace kairos
