// SPDX-License-Identifier: Apache-2.0
// The inner loops of one tier, each inlined into a function of its own, for kernel_cycles.py: the
// loop of a function NAME_1 serves one token, NAME_3 three, NAME_tile as many as share each load.
// Built once for each tier, with the tier's flags; never linked.
#include KAIROS_TIER_SOURCE

namespace kairos {
namespace {

// Of a task, so that its members are not known to the compiler.
template <typename Layout, int T>
inline void Panel(const void* task, const uint8_t* panel) {
  MultiplyPanel<Layout, T>(*static_cast<const QuantizedTask*>(task), panel, 0);
}

template <typename Layout>
inline void Unpacked(const void* task, const uint8_t* unpacked, uint32_t groups, float* sums) {
  MultiplyChunk<Layout, kTokenTile>(*static_cast<const QuantizedTask*>(task), unpacked, 0, groups,
                                    0, sums);
}

template <int T>
inline void Pairs8Bit(const uint8_t* pairs, uint32_t count, const int16_t* const* words,
                      float* out) {
  const int16_t* rows[T];
  for (int t = 0; t < T; ++t) rows[t] = words[t];
  Ints dots[T];
  MultiplyPairs<T>(pairs, 32, count, rows, dots);
  for (int t = 0; t < T; ++t) Store(out + t * kLanes, ToFloats(dots[t]));
}

}  // namespace
}  // namespace kairos

#define PANEL(name, Layout)                                                                   \
  extern "C" [[gnu::flatten]] void name##_1(const void* task, const uint8_t* panel) {         \
    kairos::Panel<kairos::Layout, 1>(task, panel);                                            \
  }                                                                                           \
  extern "C" [[gnu::flatten]] void name##_tile(const void* task, const uint8_t* panel) {      \
    kairos::Panel<kairos::Layout, kairos::kTokenTile>(task, panel);                           \
  }
#define UNPACKED(name, Layout)                                                                \
  extern "C" [[gnu::flatten]] void name##_tile(const void* task, const uint8_t* unpacked,     \
                                               uint32_t groups, float* sums) {                \
    kairos::Unpacked<kairos::Layout>(task, unpacked, groups, sums);                           \
  }
#define ATTENTION(name, T)                                                                    \
  extern "C" [[gnu::flatten]] void name(const uint8_t* pairs, uint32_t count,                 \
                                        const int16_t* const* words, float* out) {            \
    kairos::Pairs8Bit<T>(pairs, count, words, out);                                           \
  }

PANEL(nibbles, Nibbles)
PANEL(fives, Fives)
PANEL(bytes, SignedBytes)
PANEL(half_bytes, HalfBytes)
UNPACKED(unpacked_nibbles, Nibbles)
UNPACKED(unpacked_fives, Fives)
ATTENTION(attention_int8_1, 1)
ATTENTION(attention_int8_3, 3)
ATTENTION(attention_int8_tile, kairos::kRowTile)
