// SPDX-License-Identifier: Apache-2.0
// Owns an object of llguidance (its llguidance.h has the calls).
#pragma once

#include <llguidance.h>

#include <cstdint>
#include <memory>
#include <span>

#include "base/check.h"

namespace kairos {

struct FreeMatcher {
  void operator()(LlgMatcher* matcher) const { llg_free_matcher(matcher); }
};
using MatcherHandle = std::unique_ptr<LlgMatcher, FreeMatcher>;

// Sets the bits of the tokens that the matcher allows next; false where a limit is reached or
// nothing can follow. `mask` holds a bit for each token at least.
inline bool ComputeMatcherMask(LlgMatcher* matcher, std::span<uint32_t> mask) {
  const size_t bytes = llg_matcher_get_mask_byte_size(matcher);
  KAIROS_CHECK(mask.size_bytes() >= bytes);
  return llg_matcher_compute_mask_into(matcher, mask.data(), bytes) == 0;
}

}  // namespace kairos
