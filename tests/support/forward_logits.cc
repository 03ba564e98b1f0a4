// SPDX-License-Identifier: Apache-2.0
#include "tests/support/forward_logits.h"

#include <algorithm>

#include "sidecar/engine/forward.h"

namespace kairos {

std::vector<float> AllLogits(const Model& model, const std::vector<TokenId>& tokens, uint32_t chunk,
                             Fidelity fidelity, uint32_t threads) {
  const uint32_t slots_wanted = 2 * (static_cast<uint32_t>(tokens.size()) / kBlockTokens + 1);
  auto arena = KvArena::Create(model.kv_geometry(), slots_wanted + 2);
  WorkerPool pool(threads);
  Forward forward(model, **arena, pool);
  std::vector<SlotId> slots;
  for (uint32_t i = 0; i < slots_wanted; ++i) slots.push_back(SlotId{i});
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
    segment.open[0] = SlotId{slots_wanted};
    segment.open[1] = SlotId{slots_wanted + 1};
    forward.Run({&segment, 1});
    for (uint32_t i = 0; i < segment.count; ++i) {
      out.insert(out.end(), forward.logits(i), forward.logits(i) + vocabulary);
    }
  }
  return out;
}

}  // namespace kairos
