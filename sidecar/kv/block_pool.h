// SPDX-License-Identifier: Apache-2.0
// Which slots of the KV arena are free, and how many users each taken one has.
// Owner: conductor; of a draft model's KV, the engine thread. Knows ids and counts only: no memory,
// no tokens, no sequences.
//
// 1. A slot is free (count 0) or taken (count >= 1); the free list holds exactly the free ones.
// 2. Allocate never evicts; making room is the prefix index's and the restorer's work.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/units.h"

namespace kairos {

class BlockPool {
 public:
  explicit BlockPool(uint32_t slots) : counts_(slots, 0) {
    free_.reserve(slots);
    // Handed out lowest first, so that neighbouring blocks of a session tend to be neighbours in
    // memory.
    for (uint32_t i = slots; i-- > 0;) free_.push_back(SlotId{i});
  }

  // kNoSlot when none is free. The slot starts with one user.
  SlotId Allocate() {
    if (free_.empty()) return kNoSlot;
    const SlotId slot = free_.back();
    free_.pop_back();
    counts_[slot.value] = 1;
    return slot;
  }

  void Share(SlotId slot) {
    KAIROS_CHECK(counts_[slot.value] > 0);
    ++counts_[slot.value];
  }

  void Release(SlotId slot) {
    KAIROS_CHECK(counts_[slot.value] > 0);
    if (--counts_[slot.value] == 0) free_.push_back(slot);
  }

  uint32_t users(SlotId slot) const { return counts_[slot.value]; }
  uint32_t slots_free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t slots_total() const { return static_cast<uint32_t>(counts_.size()); }

 private:
  std::vector<uint32_t> counts_;
  std::vector<SlotId> free_;
};

}  // namespace kairos
