// SPDX-License-Identifier: Apache-2.0
// Pieces of text that are one token each. Filled once, then immutable; the texts are borrowed.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "sidecar/chat/bpe_merges.h"

namespace kairos {

class PieceIndex {
 public:
  PieceIndex() : PieceIndex(0) {}
  explicit PieceIndex(size_t count) : slots_(std::bit_ceil(std::max<size_t>(count, 4) * 2)) {}

  // At most `count` different pieces. Of equal ones the first stays.
  void Insert(std::string_view piece, TokenId token) {
    Slot& slot = slots_[SlotOf(piece)];
    if (slot.token != kNoToken) return;
    slot = {piece, token};
    bytes_max_ = std::max(bytes_max_, piece.size());
  }

  // kNoToken when `piece` is none of them.
  TokenId Find(std::string_view piece) const {
    if (piece.size() > bytes_max_) return kNoToken;
    return slots_[SlotOf(piece)].token;
  }

 private:
  struct Slot {
    std::string_view piece;
    TokenId token = kNoToken;
  };
  // The slot that holds `piece`, or the empty one where it belongs.
  size_t SlotOf(std::string_view piece) const {
    size_t slot = HashBytes(piece.data(), piece.size()) & (slots_.size() - 1);
    while (slots_[slot].token != kNoToken && slots_[slot].piece != piece) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }

  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  size_t bytes_max_ = 0;
};

}  // namespace kairos
