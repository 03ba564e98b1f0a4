// SPDX-License-Identifier: Apache-2.0
// Matrix products of a tier (see vector-inl.h, which comes first). The tier defines, for one block
// of 16 rows x 32 columns and T tokens, the integer dots from nibbles, from nibbles with fifth
// bits, from both unpacked to bytes, and from signed bytes, of all columns or of 16.
//
// Loops: tokens in blocks that stay in L2, then panels, then tiles of T tokens that share each load
// of weights. With more tokens all tiles are done with a chunk of a panel before the next chunk is
// begun, and with many the chunk's integers are unpacked once per block of tokens. An output is one
// chain over the columns whatever the tiling, so its bits never depend on it.
#pragma once

#include "sidecar/engine/kernels/vector-inl.h"

namespace kairos {
namespace {

constexpr uint32_t kUnpackTokens = 16;     // from here unpacking a panel pays
constexpr uint32_t kTokenBlockMax =
    128;  // tokens whose accumulators are kept between column chunks
constexpr uint32_t kTokenBlockBytes = 256 * 1024;  // activations of a block of tokens, half of L2
constexpr uint32_t kUnpackGroups = 64;     // groups of columns unpacked at once: 2048 columns
constexpr uint32_t kPackedGroups = 8;      // groups that all tiles of fewer tokens share at once

constexpr uint32_t kUnpackedBytes = 640;   // 16 float scales, 16 float offsets, the eight vectors

// A block adds fma(dot, scale * activation scale) to an output, kParts times over as many columns,
// and then fma(offset, activation sum) where it has offsets. These say how each layout does it.
struct HalfScales {
  static constexpr bool kFromMemory = true;
  static Floats Scales(const uint8_t* block, int part) { return LoadHalfs(block + part * 32); }
  static Floats Offsets(const uint8_t* block) { return LoadHalfs(block + 32); }
};

struct FloatScales {
  static constexpr bool kFromMemory = false;
  static constexpr bool kOffsets = true;
  static constexpr int kParts = 1;
  static constexpr uint32_t kBytes = kUnpackedBytes;
  static Floats Scales(const uint8_t* block, int) {
    return Load(reinterpret_cast<const float*>(block));
  }
  static Floats Offsets(const uint8_t* block) {
    return Load(reinterpret_cast<const float*>(block + 64));
  }
};

struct UnpackedNibbles : FloatScales {
  template <int T>
  static void Dots(const uint8_t* block, int, const int8_t* const x[T], Ints dots[T]) {
    SmallByteDots<T>(block + 128, x, dots);
  }
};

struct UnpackedFives : FloatScales {
  template <int T>
  static void Dots(const uint8_t* block, int, const int8_t* const x[T], Ints dots[T]) {
    MediumByteDots<T>(block + 128, x, dots);
  }
};

struct Nibbles : HalfScales {
  using Unpacked = UnpackedNibbles;
  static constexpr uint32_t kChunkTokens = 2 * kTokenTile;  // from here going in chunks pays
  static constexpr bool kOffsets = true;
  static constexpr int kParts = 1;
  static constexpr uint32_t kBytes = 320;
  template <int T>
  static void Dots(const uint8_t* block, int, const int8_t* const x[T], Ints dots[T]) {
    NibbleDots<T>(block + 64, x, dots);
  }
  static void UnpackIntegers(const uint8_t* block, uint8_t* bytes) {
    UnpackNibbles(block + 64, bytes);
  }
};

struct Fives : HalfScales {
  using Unpacked = UnpackedFives;
  static constexpr uint32_t kChunkTokens = kUnpackTokens;
  static constexpr bool kOffsets = true;
  static constexpr int kParts = 1;
  static constexpr uint32_t kBytes = 384;
  template <int T>
  static void Dots(const uint8_t* block, int, const int8_t* const x[T], Ints dots[T]) {
    FiveDots<T>(block + 64, x, dots);
  }
  static void UnpackIntegers(const uint8_t* block, uint8_t* bytes) {
    UnpackFives(block + 64, bytes);
  }
};

struct SignedBytes : HalfScales {
  static constexpr bool kOffsets = false;
  static constexpr int kParts = 1;
  static constexpr uint32_t kBytes = 544;
  template <int T>
  static void Dots(const uint8_t* block, int, const int8_t* const x[T], Ints dots[T]) {
    SignedByteDots<T>(block + 32, x, dots);
  }
};

struct HalfBytes : HalfScales {
  static constexpr bool kOffsets = false;
  static constexpr int kParts = 2;
  static constexpr uint32_t kBytes = 576;
  template <int T>
  static void Dots(const uint8_t* block, int part, const int8_t* const x[T], Ints dots[T]) {
    HalfByteDots<T>(block + 64 + part * 256, x, dots);
  }
};

template <typename Layout>
void UnpackBlock(const uint8_t* block, uint8_t* unpacked) {
  Store(reinterpret_cast<float*>(unpacked), LoadHalfs(block));
  Store(reinterpret_cast<float*>(unpacked + 64), LoadHalfs(block + 32));
  Layout::UnpackIntegers(block, unpacked + 128);
}

// Continues acc[t] over `groups` blocks of one panel. x, scales and sums start at the first of
// them.
template <typename Layout, int T>
inline void MultiplyBlocks(const uint8_t* blocks, uint32_t groups, const int8_t* x,
                           uint64_t x_stride, const float* scales, const float* sums,
                           uint64_t group_stride, Floats acc[T]) {
  const int8_t* rows[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) rows[t] = x + t * x_stride;
  for (uint32_t b = 0; b < groups; ++b, blocks += Layout::kBytes) {
    // Ahead of the hardware prefetcher, which stops at page ends.
    if constexpr (Layout::kFromMemory) Prefetch(blocks + 2048, Layout::kBytes);
#pragma GCC unroll 2
    for (int part = 0; part < Layout::kParts; ++part) {
      Ints dots[T];
      Layout::template Dots<T>(blocks, part, rows, dots);
      const Floats weight_scales = Layout::Scales(blocks, part);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const Floats scale = Mul(weight_scales, Set(scales[t * group_stride + b]));
        acc[t] = Fma(ToFloats(dots[t]), scale, acc[t]);
        rows[t] += kGroupSize / Layout::kParts;
      }
    }
    if constexpr (Layout::kOffsets) {
      const Floats offsets = Layout::Offsets(blocks);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) acc[t] = Fma(offsets, Set(sums[t * group_stride + b]), acc[t]);
    }
  }
}

struct QuantizedTask {
  QuantizedRows x;
  uint32_t cols;
  float* out;            // of the panel's first row
  uint64_t out_stride;
  uint32_t rows;         // of the panel, at most 16
};

// T tokens from `token` on, one whole panel.
template <typename Layout, int T>
void MultiplyPanel(const QuantizedTask& task, const uint8_t* panel, uint64_t token) {
  const uint32_t groups = task.cols / kGroupSize;
  Floats acc[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) acc[t] = Set(0.0f);
  MultiplyBlocks<Layout, T>(panel, groups, task.x.values + token * task.cols, task.cols,
                            task.x.scales + token * groups, task.x.sums + token * groups, groups,
                            acc);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    StoreSome(task.out + (token + t) * task.out_stride, task.rows, acc[t]);
  }
}

// Calls multiply<T>(token) for tiles of T tokens, as large ones as there are.
template <typename Multiply>
inline void ForEachTile(uint64_t begin, uint64_t end, Multiply multiply) {
  for (; begin + kTokenTile <= end; begin += kTokenTile) {
    multiply.template operator()<kTokenTile>(begin);
  }
  for (; begin + 4 <= end; begin += 4) multiply.template operator()<4>(begin);
  switch (end - begin) {
    case 3: return multiply.template operator()<3>(begin);
    case 2: return multiply.template operator()<2>(begin);
    case 1: return multiply.template operator()<1>(begin);
    default: return;
  }
}

template <typename Layout>
void MultiplyTokens(const QuantizedTask& task, const uint8_t* panel, uint64_t begin, uint64_t end) {
  ForEachTile(begin, end,
              [&]<int T>(uint64_t token) { MultiplyPanel<Layout, T>(task, panel, token); });
}

// Some groups of a panel's columns.
struct Chunk {
  const uint8_t* blocks;
  uint32_t first_group, groups;
};

// A chunk against T tokens whose accumulators are in memory.
template <typename Layout, int T>
void MultiplyChunk(const QuantizedTask& task, const Chunk& chunk, uint64_t token,
                   float* accumulators) {
  const uint32_t row_groups = task.cols / kGroupSize;
  const uint64_t at = token * row_groups + chunk.first_group;
  Floats acc[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) acc[t] = Load(accumulators + t * kLanes);
  MultiplyBlocks<Layout, T>(chunk.blocks, chunk.groups, task.x.values + at * kGroupSize, task.cols,
                            task.x.scales + at, task.x.sums + at, row_groups, acc);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) Store(accumulators + t * kLanes, acc[t]);
}

// The chunk of blocks as they are in memory. What the first tile asks for ahead comes while the
// others multiply.
template <typename Layout>
void MultiplyPacked(const QuantizedTask& task, const Chunk& chunk, uint64_t begin, uint64_t end,
                    float* accumulators) {
  ForEachTile(begin, end, [&]<int T>(uint64_t token) {
    MultiplyChunk<Layout, T>(task, chunk, token, accumulators + (token - begin) * kLanes);
  });
}

// The chunk unpacked. The blocks behind it come into the cache meanwhile, a part with each tile:
// all at once, or when they are unpacked, they would be waited for.
template <typename Layout>
void MultiplyUnpacked(const QuantizedTask& task, const Chunk& chunk, uint64_t begin, uint64_t end,
                      float* accumulators) {
  alignas(64) uint8_t unpacked[kUnpackGroups * kUnpackedBytes];
  for (uint32_t b = 0; b < chunk.groups; ++b) {
    UnpackBlock<Layout>(chunk.blocks + b * Layout::kBytes, unpacked + b * kUnpackedBytes);
  }
  const uint64_t bytes = static_cast<uint64_t>(chunk.groups) * Layout::kBytes;
  const uint64_t part = bytes / ((end - begin + kTokenTile - 1) / kTokenTile);
  const uint8_t* next = chunk.blocks + bytes;
  const Chunk bytes_chunk{unpacked, chunk.first_group, chunk.groups};
  ForEachTile(begin, end, [&]<int T>(uint64_t token) {
    Prefetch(next, part);
    next += part;
    MultiplyChunk<typename Layout::Unpacked, T>(task, bytes_chunk, token,
                                                accumulators + (token - begin) * kLanes);
  });
}

// Multiplies a panel chunk by chunk, so that all tiles are done with one before the next.
template <typename Layout>
void MultiplyInChunks(const QuantizedTask& task, const uint8_t* panel, uint64_t begin,
                      uint64_t end) {
  alignas(64) float accumulators[kTokenBlockMax * kLanes];
  const uint64_t tokens = end - begin;
  const bool unpack = tokens >= kUnpackTokens;
  const uint32_t chunk_groups = unpack ? kUnpackGroups : kPackedGroups;
  const uint32_t groups = task.cols / kGroupSize;
  std::memset(accumulators, 0, tokens * kLanes * sizeof(float));
  for (uint32_t first = 0; first < groups; first += chunk_groups) {
    const Chunk chunk{panel + static_cast<uint64_t>(first) * Layout::kBytes, first,
                      Smaller(chunk_groups, groups - first)};
    if (unpack) {
      MultiplyUnpacked<Layout>(task, chunk, begin, end, accumulators);
    } else {
      MultiplyPacked<Layout>(task, chunk, begin, end, accumulators);
    }
  }
  for (uint64_t t = 0; t < tokens; ++t) {
    StoreSome(task.out + (begin + t) * task.out_stride, task.rows, Load(accumulators + t * kLanes));
  }
}

template <typename Layout>
void MultiplySmallBytes(const QuantizedTask& task, const uint8_t* panel, uint64_t begin,
                        uint64_t end) {
  if (end - begin >= Layout::kChunkTokens) {
    MultiplyInChunks<Layout>(task, panel, begin, end);
  } else {
    MultiplyTokens<Layout>(task, panel, begin, end);
  }
}

void MatmulQuantized(const PackedMatrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                     const QuantizedRows& x, uint32_t m, float* out, uint64_t out_stride) {
  const uint32_t fitting = kTokenBlockBytes / matrix.cols / kTokenTile * kTokenTile;
  const uint32_t block = Smaller(kTokenBlockMax, fitting < kTokenTile ? kTokenTile : fitting);
  for (uint32_t begin = 0; begin < m; begin += block) {
    const uint32_t end = Smaller(m, begin + block);
    for (uint32_t p = panel_begin; p < panel_end; ++p) {
      const uint32_t first_row = p * kPanelRows;
      if (first_row >= matrix.rows) return;
      const QuantizedTask task{x, matrix.cols, out + first_row, out_stride,
                               Smaller(kPanelRows, matrix.rows - first_row)};
      const uint8_t* panel = matrix.data + p * matrix.panel_bytes;
      switch (matrix.layout()) {
        case PanelLayout::kNibbles: MultiplySmallBytes<Nibbles>(task, panel, begin, end); break;
        case PanelLayout::kFives: MultiplySmallBytes<Fives>(task, panel, begin, end); break;
        case PanelLayout::kHalfBytes: MultiplyTokens<HalfBytes>(task, panel, begin, end); break;
        default: MultiplyTokens<SignedBytes>(task, panel, begin, end);
      }
    }
  }
}

// ---- 16 and 32-bit weights ---------------------------------------------------------------------

template <ColumnKind kKind>
constexpr uint64_t kColumnBytes = kPanelRows * (kKind == ColumnKind::kFloat ? 4 : 2);

template <ColumnKind kKind, int T>
void MultiplyFloatPanel(const uint8_t* panel, uint32_t cols, const float* x, uint64_t x_stride,
                        float* out, uint64_t out_stride, uint32_t rows) {
  const float* inputs[T];
  Floats acc[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    inputs[t] = x + t * x_stride;
    acc[t] = Set(0.0f);
  }
  MultiplyColumns<kKind, T>(panel, kColumnBytes<kKind>, cols, inputs, acc);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) StoreSome(out + t * out_stride, rows, acc[t]);
}

template <ColumnKind kKind>
void MatmulFloatTyped(const PackedMatrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                      const float* x, uint64_t x_stride, uint32_t m, float* out,
                      uint64_t out_stride) {
  for (uint32_t p = panel_begin; p < panel_end && p * kPanelRows < matrix.rows; ++p) {
    const uint8_t* panel = matrix.data + p * matrix.panel_bytes;
    const uint32_t rows = Smaller(kPanelRows, matrix.rows - p * kPanelRows);
    float* to = out + p * kPanelRows;
    uint64_t t = 0;
    for (; t + kTokenTile <= m; t += kTokenTile) {
      MultiplyFloatPanel<kKind, kTokenTile>(panel, matrix.cols, x + t * x_stride, x_stride,
                                            to + t * out_stride, out_stride, rows);
    }
    for (; t < m; ++t) {
      MultiplyFloatPanel<kKind, 1>(panel, matrix.cols, x + t * x_stride, x_stride,
                                   to + t * out_stride, out_stride, rows);
    }
  }
}

void MatmulFloat(const PackedMatrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                 const float* x, uint64_t x_stride, uint32_t m, float* out, uint64_t out_stride) {
  auto* multiply = MatmulFloatTyped<ColumnKind::kFloat>;
  if (matrix.layout() == PanelLayout::kHalf) multiply = MatmulFloatTyped<ColumnKind::kHalf>;
  if (matrix.layout() == PanelLayout::kBrainHalf) {
    multiply = MatmulFloatTyped<ColumnKind::kBrainHalf>;
  }
  multiply(matrix, panel_begin, panel_end, x, x_stride, m, out, out_stride);
}

}  // namespace
}  // namespace kairos
