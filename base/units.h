// SPDX-License-Identifier: Apache-2.0
// Strong ids and the sizes that every layer agrees on.
#pragma once

#include <cstdint>
#include <functional>

namespace kairos {

// Tokens of one KV block (docs/ARCHITECTURE.md, "KV blocks").
inline constexpr uint32_t kBlockTokens = 32;
// Attention is split over KV in runs of this many tokens, merged in order, so that the result does
// not depend on who else is in the step.
inline constexpr uint32_t kSplitTokens = 256;

using TokenId = int32_t;

// A number that is not interchangeable with others of the same width.
template <typename Tag, typename Number>
struct StrongNumber {
  Number value{};
  friend bool operator==(StrongNumber a, StrongNumber b) { return a.value == b.value; }
  friend auto operator<=>(StrongNumber a, StrongNumber b) { return a.value <=> b.value; }
};

using SessionId = StrongNumber<struct SessionIdTag, uint64_t>;       // 0: none
using Version = StrongNumber<struct VersionTag, uint64_t>;           // 0: before the first turn
using SequenceId = StrongNumber<struct SequenceIdTag, uint64_t>;     // a turn inside the engine
using AttachmentId = StrongNumber<struct AttachmentIdTag, uint32_t>; // one client process
using RequestId = StrongNumber<struct RequestIdTag, uint64_t>;       // unique within an attachment
// One slot of the KV arena: a sealed INT8 block, or the K or the V half of a 16-bit block.
using SlotId = StrongNumber<struct SlotIdTag, uint32_t>;
inline constexpr SlotId kNoSlot{0xffffffffu};

}  // namespace kairos

template <typename Tag, typename Number>
struct std::hash<kairos::StrongNumber<Tag, Number>> {
  size_t operator()(kairos::StrongNumber<Tag, Number> id) const noexcept {
    return std::hash<Number>{}(id.value);
  }
};
