// SPDX-License-Identifier: Apache-2.0
// The integers of a block of weights as vectors of 64 bytes, over the operations on vectors that
// the tier's source file defines before it includes this. Layouts: PanelLayout in kernel_table.h.
#pragma once

#include <cstdint>

namespace kairos {
namespace {

struct VectorPair {
  Vector first, second;
};

// Vectors 2 * pair and 2 * pair + 1, of bytes of at most 15.
inline VectorPair LoadNibblePair(const uint8_t* nibbles, uint32_t pair) {
  const Vector both = LoadVector(nibbles + pair * 64);
  return {LowNibbles(both), HighNibbles(both)};
}

// Vectors V and V + 1, of bytes of at most 31; V is even.
template <int V>
inline VectorPair LoadFivePair(const uint8_t* fives) {
  const VectorPair lower = LoadNibblePair(fives, V / 2);
  const Vector plane = LoadVector(fives + 256);
  return {Or(lower.first, FifthBits<V>(plane)), Or(lower.second, FifthBits<V + 1>(plane))};
}

inline void StorePair(uint8_t* bytes, VectorPair pair) {
  StoreVector(bytes, pair.first);
  StoreVector(bytes + 64, pair.second);
}

inline void UnpackNibbles(const uint8_t* nibbles, uint8_t* bytes) {
  for (uint32_t pair = 0; pair < 4; ++pair) {
    StorePair(bytes + pair * 128, LoadNibblePair(nibbles, pair));
  }
}

inline void UnpackFives(const uint8_t* fives, uint8_t* bytes) {
  StorePair(bytes, LoadFivePair<0>(fives));
  StorePair(bytes + 128, LoadFivePair<2>(fives));
  StorePair(bytes + 256, LoadFivePair<4>(fives));
  StorePair(bytes + 384, LoadFivePair<6>(fives));
}

}  // namespace
}  // namespace kairos
