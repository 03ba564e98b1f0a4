// SPDX-License-Identifier: Apache-2.0
// The dots of a block of weights for tiers with VNNI, whose instruction adds four products of an
// unsigned and a signed byte to 32 bits and never saturates. The tier's source file defines before
// it includes this:
//   AddDots        adds dots of unsigned weights with four activations that all rows share
//   RaisedZero     four bytes of 128
//   Raise          activations plus 128, so that they are unsigned
//   AddRaisedDots  adds dots of signed weights with raised activations
#pragma once

#include "sidecar/engine/kernels/unpack-inl.h"

namespace kairos {
namespace {

template <int T>
inline void ClearDots(Ints dots[T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) dots[t] = ZeroInts();
}

template <int T>
inline void AddVector(Vector weights, const int8_t* const x[T], uint32_t vector, Ints dots[T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    dots[t] = AddDots(dots[t], weights, BroadcastFour(x[t] + vector * 4));
  }
}

template <int T>
inline void NibbleDots(const uint8_t* nibbles, const int8_t* const x[T], Ints dots[T]) {
  ClearDots<T>(dots);
#pragma GCC unroll 4
  for (uint32_t pair = 0; pair < 4; ++pair) {
    const VectorPair weights = LoadNibblePair(nibbles, pair);
    AddVector<T>(weights.first, x, 2 * pair, dots);
    AddVector<T>(weights.second, x, 2 * pair + 1, dots);
  }
}

template <int T, int V>
inline void AddFivePair(const uint8_t* fives, const int8_t* const x[T], Ints dots[T]) {
  const VectorPair weights = LoadFivePair<V>(fives);
  AddVector<T>(weights.first, x, V, dots);
  AddVector<T>(weights.second, x, V + 1, dots);
}

template <int T>
inline void FiveDots(const uint8_t* fives, const int8_t* const x[T], Ints dots[T]) {
  ClearDots<T>(dots);
  AddFivePair<T, 0>(fives, x, dots);
  AddFivePair<T, 2>(fives, x, dots);
  AddFivePair<T, 4>(fives, x, dots);
  AddFivePair<T, 6>(fives, x, dots);
}

// Bytes of at most 15.
template <int T>
inline void SmallByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  ClearDots<T>(dots);
#pragma GCC unroll 8
  for (uint32_t vector = 0; vector < 8; ++vector) {
    AddVector<T>(LoadVector(bytes + vector * 64), x, vector, dots);
  }
}

// Bytes of at most 31 add up just as well.
template <int T>
inline void MediumByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  SmallByteDots<T>(bytes, x, dots);
}

// Weights times raised activations are too much by 128 times the sum of a row's weights, which all
// tokens share. Moving each weight's sign to the activation would cost an instruction per product.
template <int T, uint32_t kVectors>
inline void SignedDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  Ints surplus = ZeroInts();
  ClearDots<T>(dots);
#pragma GCC unroll 8
  for (uint32_t vector = 0; vector < kVectors; ++vector) {
    const Vector weights = LoadVector(bytes + vector * 64);
    surplus = AddRaisedDots(surplus, weights, RaisedZero());
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      dots[t] = AddRaisedDots(dots[t], weights, Raise(BroadcastFour(x[t] + vector * 4)));
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) dots[t] = SubtractInts(dots[t], surplus);
}

template <int T>
inline void SignedByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  SignedDots<T, 8>(bytes, x, dots);
}

template <int T>
inline void HalfByteDots(const uint8_t* bytes, const int8_t* const x[T], Ints dots[T]) {
  SignedDots<T, 4>(bytes, x, dots);
}

}  // namespace
}  // namespace kairos
