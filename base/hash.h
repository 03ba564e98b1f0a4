// SPDX-License-Identifier: Apache-2.0
// 64- and 128-bit XXH3 of bytes, and chaining. One place, so that every checksum is of one kind.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>

namespace kairos {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

inline uint64_t HashBytes(const void* data, size_t size, uint64_t seed = 0) {
  return XXH3_64bits_withSeed(data, size, seed);
}

inline Hash128 HashBytes128(const void* data, size_t size, uint64_t seed = 0) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(data, size, seed);
  return {hash.low64, hash.high64};
}

// `next` folded into `chain`; order matters.
inline uint64_t HashChain(uint64_t chain, uint64_t next) {
  const uint64_t pair[2] = {chain, next};
  return XXH3_64bits(pair, sizeof(pair));
}

}  // namespace kairos
