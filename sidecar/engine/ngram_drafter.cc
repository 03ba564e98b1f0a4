// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/ngram_drafter.h"

#include <algorithm>
#include <bit>

namespace kairos {
namespace {

constexpr uint32_t kMatchMax = 32;       // longer ones say no more
constexpr uint32_t kCandidatesMax = 32;  // bounds the time of a look
constexpr size_t kBucketsMin = 256;

}  // namespace

uint32_t NgramDrafter::Bucket(const TokenId* last) const {
  const uint64_t pair = static_cast<uint64_t>(static_cast<uint32_t>(last[-1])) << 32 |
                        static_cast<uint32_t>(last[0]);
  const uint64_t mixed = pair * 0x9e3779b97f4a7c15u;
  return static_cast<uint32_t>(mixed >> (64 - std::countr_zero(latest_.size())));
}

void NgramDrafter::Learn(std::span<const TokenId> tokens) {
  if (latest_.size() < tokens.size() || latest_.empty()) {
    latest_.assign(std::bit_ceil(std::max(tokens.size() + tokens.size() / 2, kBucketsMin)), 0);
    earlier_.clear();
  }
  // The position after the last token has nothing that followed yet: it is learned next time.
  for (size_t position = earlier_.size(); position < tokens.size(); ++position) {
    uint32_t before = 0;
    if (position >= kMatchMin) {
      uint32_t& latest = latest_[Bucket(&tokens[position - 1])];
      before = latest;
      latest = static_cast<uint32_t>(position);
    }
    earlier_.push_back(before);
  }
}

NgramDrafter::Guess NgramDrafter::Look(std::span<const TokenId> tokens, uint32_t count) {
  Guess best;
  if (tokens.size() <= kMatchMin || count == 0) return best;
  Learn(tokens);
  const size_t size = tokens.size();
  uint32_t at = latest_[Bucket(&tokens[size - 1])];
  for (uint32_t i = 0; i < kCandidatesMax && at != 0; ++i, at = earlier_[at]) {
    uint32_t match = 0;
    const uint32_t most = std::min(at, kMatchMax);
    while (match < most && tokens[at - 1 - match] == tokens[size - 1 - match]) ++match;
    if (match < kMatchMin || match <= best.match) continue;
    best.match = match;
    best.tokens = tokens.subspan(at, std::min<size_t>(count, size - at));
    if (match == kMatchMax) break;
  }
  return best;
}

}  // namespace kairos
