// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the forward pass: formats, and one row of function pointers per ISA tier.
//
// Every tier computes the same bits. That is possible because each operation below states its order
// of
// operations: integer dots are exact, every float accumulation is one chain of fused multiply-adds
// per output element (or 16 lanes with a fixed tree), and no sum is ever split by thread, batch or
// tile. It buys batch invariance, resume equality and a strong test: any tier against `scalar`, bit
// for bit.
//
// Inputs are finite; other values give unspecified numbers but no undefined behaviour. A magnitude
// maximum below kMagnitudeMin quantises to zeros.
//
// Owner: none. All functions are pure over their arguments, thread-safe and never block.
// What it does not do: allocate, choose threads, know sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/units.h"

namespace kairos {

// ---- Weights -----------------------------------------------------------------------------------

// GGUF tensor types that can be packed. Numbers are GGUF's.
enum class WeightType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

inline constexpr uint32_t kPanelRows = 16;   // output rows of one panel
inline constexpr uint32_t kGroupSize = 32;   // weights, and activations, that share a scale

// A matrix [rows, cols] is kept as panels of 16 rows, each panel contiguous, blocks of 32 columns
// in order. This is what one block of one panel holds. The integers of a block form eight vectors
// of 64: element 4*r + i of vector v is row r, column 4*v + i.
enum class PanelLayout : uint8_t {
  kFloat,      // [32 columns][16 rows] values; F32
  kHalf,       // as kFloat; F16
  kBrainHalf,  // as kFloat; BF16
  // f16 scale[16], f16 offset[16], 256 B: byte 64*p + j is element j of vector 2p in its low and of
  // vector 2p+1 in its high half. value = scale * q + offset. Q4_0 (offset = -8 * scale), Q4_1,
  // Q4_K.
  kNibbles,
  // As kNibbles, then 64 B of fifth bits: bit v of byte j belongs to element j of vector v. Q5_0
  // (offset = -16 * scale), Q5_1, Q5_K.
  kFives,
  kBytes,      // f16 scale[16], 512 B: the vectors as signed bytes; Q8_0
  kHalfBytes,  // f16 scale[16] of columns 0-15, f16 scale[16] of columns 16-31, 512 B; Q6_K
};

constexpr PanelLayout LayoutOf(WeightType type) {
  switch (type) {
    case WeightType::kF32: return PanelLayout::kFloat;
    case WeightType::kF16: return PanelLayout::kHalf;
    case WeightType::kBF16: return PanelLayout::kBrainHalf;
    case WeightType::kQ4_0:
    case WeightType::kQ4_1:
    case WeightType::kQ4_K: return PanelLayout::kNibbles;
    case WeightType::kQ5_0:
    case WeightType::kQ5_1:
    case WeightType::kQ5_K: return PanelLayout::kFives;
    case WeightType::kQ8_0: return PanelLayout::kBytes;
    case WeightType::kQ6_K: break;
  }
  return PanelLayout::kHalfBytes;
}

// Float layouts are multiplied with float activations, the others with quantised ones.
constexpr bool IsQuantized(PanelLayout layout) {
  return layout != PanelLayout::kFloat && layout != PanelLayout::kHalf &&
         layout != PanelLayout::kBrainHalf;
}

// Columns of a row that GGUF stores as one unit: 1, 32 or 256.
uint32_t SourceColumns(WeightType type);

// A last panel with fewer rows is padded with zeros. `cols` is a multiple of 32, and of 256 for the
// K types. Their scales, products of a half and a 6 or 8 bit number in the file, are kept as the
// nearest half.
struct PackedMatrix {
  WeightType type = WeightType::kF32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint64_t panel_bytes = 0;
  const uint8_t* data = nullptr;  // 64-byte aligned

  PanelLayout layout() const { return LayoutOf(type); }
  uint32_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
};

// All of WeightType, in the order in which people are told of them.
std::span<const WeightType> WeightTypes();
// Bytes of one packed panel of `cols` columns.
uint64_t PanelBytes(WeightType type, uint32_t cols);
// Packs 16 rows in GGUF's layout (null: a row of zeros) into `panel`. Row pointers need no
// alignment, so rows can come from several tensors, permuted.
void PackPanel(WeightType type, const uint8_t* const rows[kPanelRows], uint32_t cols,
               uint8_t* panel);
// Whether all scales, offsets and float values of a packed panel are finite.
bool PanelIsFinite(WeightType type, uint32_t cols, const uint8_t* panel);
// Values of one GGUF row as float.
void DequantizeRow(WeightType type, const uint8_t* row, uint32_t cols, float* out);
// Row `row` of a packed matrix as float; equals DequantizeRow of its source, bit for bit.
void DequantizePackedRow(const PackedMatrix& matrix, uint32_t row, float* out);

// ---- Activations -------------------------------------------------------------------------------

// Rows in 8 bits with a scale per 32 columns. Strides are `cols` and `cols / 32`.
struct QuantizedRows {
  int8_t* values = nullptr;   // [rows, cols], in -127..127
  float* scales = nullptr;    // [rows, cols / 32]
  float* sums = nullptr;      // [rows, cols / 32] scale * sum of the group's values
};

// Below it a reciprocal scale would leave the range of float.
inline constexpr float kMagnitudeMin = 1e-30f;

// ---- KV tiles ----------------------------------------------------------------------------------
// A tile is one layer and KV head of one block of 32 tokens, head_dim = d (a multiple of 16, at
// most kHeadDimMax). Tiles are 32-byte aligned.

// Up to here the integer dot of a 16-bit query with an 8-bit key fits 32 bits.
inline constexpr uint32_t kHeadDimMax = 512;
// Where maxima start. A split that sees no token returns it, with a sum and values of zero.
inline constexpr float kLowestScore = -1e30f;

// 16-bit tiles: K as [2 token groups][d][16 tokens] f16, V as [32 tokens][d] f16.
inline constexpr uint64_t HalfTileBytes(uint32_t head_dim) { return 64ull * head_dim; }
// Sealed INT8 tile: K [2 token groups][d / 2][16 tokens][2 dims] int8, f16 K scale[32],
// V [16 token pairs][d][2 tokens] int8, f16 V scale[32]. One scale per token.
inline constexpr uint64_t SealedTileBytes(uint32_t head_dim) { return 64ull * head_dim + 128; }

// A window that hides nothing of any run.
inline constexpr int32_t kNothingHidden = -static_cast<int32_t>(kBlockTokens);

// One work item of attention: queries of one sequence that lie in one block, all heads of one KV
// head, against one run of at most 256 KV tokens aligned to 256.
struct AttentionSplit {
  uint32_t head_dim = 0;
  uint32_t group = 0;           // query heads of this KV head
  uint32_t query_count = 0;     // 1..32, consecutive positions
  const float* queries = nullptr;    // query i, head g at queries + i * query_stride + g * head_dim
  uint64_t query_stride = 0;         // floats; values are rotated and scaled by 1/sqrt(d)
  // Earlier whole blocks of this run, 0..8 (0..7 with an own block); all queries see all.
  uint32_t block_count = 0;
  const uint8_t* sealed[kSplitTokens / kBlockTokens] = {};  // INT8 tile, or null where 16-bit
  const uint8_t* half_k[kSplitTokens / kBlockTokens] = {};  // 16-bit tiles where `sealed` is null
  const uint8_t* half_v[kSplitTokens / kBlockTokens] = {};
  // The queries' own block, when it is in this run: query i sees own tokens 0..own_first + i.
  const uint8_t* own_k = nullptr;    // 16-bit tiles, or null
  const uint8_t* own_v = nullptr;
  uint32_t own_first = 0;            // index of query 0 in its block; own_first + query_count <= 32
  // Tokens of the run, counted from its first block here, that query 0 does not see because they
  // have left its window; query i does not see i more. Negative: the window ends before the run.
  int32_t hidden_tokens = kNothingHidden;
  // Results per (query i, head g), at index i * group + g: maximum, sum of exponentials, weighted
  // V.
  float* maxima = nullptr;
  float* sums = nullptr;
  float* values = nullptr;           // [query_count * group, head_dim], not divided by the sum
  void* scratch = nullptr;           // AttentionScratchBytes(), 64-byte aligned
};

// Does not depend on the tier.
uint64_t AttentionScratchBytes(uint32_t head_dim, uint32_t group);

// ---- The table ---------------------------------------------------------------------------------

struct KernelTable {
  const char* name;  // "scalar", "avx2", "avx512_vnni"

  // out[m, n] for output rows of panels [panel_begin, panel_end); rows past matrix.rows are not
  // written. Quantised types, per output: acc = 0; for each group b in order: acc =
  // fma(float(dot_b), weight_scale_b * activation_scale_b, acc), and with offsets acc =
  // fma(offset_b, sum_b, acc). kHalfBytes: one fma for each half of the group, in order, with its
  // own dot and scale.
  void (*matmul_quantized)(const PackedMatrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                           const QuantizedRows& x, uint32_t m, float* out, uint64_t out_stride);
  // Float layouts: acc = fma(weight, x, acc) over columns in order.
  void (*matmul_float)(const PackedMatrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                       const float* x, uint64_t x_stride, uint32_t m, float* out,
                       uint64_t out_stride);
  // One row: per group, scale = amax / 127, value = nearest-even(x * (127 / amax)); zeros for amax
  // 0.
  void (*quantize_row)(const float* x, uint32_t cols, int8_t* values, float* scales, float* sums);
  // out = x * (1 / sqrt(mean(x^2) + eps)) * weight. The sum runs in 16 lanes (lane = index mod 16),
  // then lanes 8 apart, 4, 2, 1 are added. out may alias x.
  void (*rms_norm)(const float* x, const float* weight, float eps, uint32_t cols, float* out);
  // Rotates half-split pairs (a, b) = (i, i + d/2) of `heads` heads in place; cos, sin: [d/2].
  // a' = fma(a, cos, -(b * sin)), b' = fma(a, sin, b * cos).
  void (*rope)(float* x, uint32_t heads, uint32_t head_dim, const float* cos, const float* sin);
  // out = gate / (1 + exp(-gate)) * up, with the table's own exponential (arithmetic.h). out may
  // alias gate.
  void (*silu_multiply)(const float* gate, const float* up, uint32_t count, float* out);
  // The tanh form of GELU, by tanh(u) = 2 / (1 + exp(-2u)) - 1: inner = gate * gate * gate;
  // inner = fma(inner, kGeluCubic, gate); out = gate / (1 + exp(inner * kGeluInner)) * up. out may
  // alias gate.
  void (*gelu_multiply)(const float* gate, const float* up, uint32_t count, float* out);
  // Sum of exp(x * scale - top), with the table's own exponential, in 16 lanes by index, folded as
  // in rms_norm. What is not a number counts as zero.
  float (*sum_exponentials)(const float* x, uint32_t count, float scale, float top);
  // x += y
  void (*add)(float* x, const float* y, uint32_t count);
  // Writes token `index` (0..31) of a 16-bit tile pair from float K and V of head_dim values.
  void (*store_half)(const float* k, const float* v, uint32_t head_dim, uint32_t index,
                     uint8_t* half_k, uint8_t* half_v);
  // Quantises a full 16-bit tile pair to a sealed tile: scale = f16(amax / 127), value =
  // nearest-even(x / scale) clamped to -127..127.
  void (*seal_tile)(const uint8_t* half_k, const uint8_t* half_v, uint32_t head_dim,
                    uint8_t* sealed);
  // Scores of sealed blocks: queries as int16 with one scale (amax / 32767), exact integer dots,
  // then float(dot) * (query_scale * k_scale). Of 16-bit blocks: fma over dims in order. The
  // maximum is that of the whole run; exponentials are summed in 16 lanes by token index, folded as
  // in rms_norm. Probabilities times V scale are requantised to int16 per block (amax / 32767);
  // weighted V accumulates one fma per block (sealed) or per visible token (16-bit), in order.
  // Tokens hidden by the window have the score minus infinity and count as visible otherwise.
  void (*attention_split)(const AttentionSplit& split);
  // Folds run results in order: from (max, sum, values) of `splits` runs per (query, head), runs
  // `split_stride` rows apart, into out = values / sum, or zeros where nothing was visible. Weights
  // are exp(max - greatest max); both sums are chains of fma over the runs.
  void (*attention_merge)(const float* maxima, const float* sums, const float* values,
                          uint32_t splits, uint64_t split_stride, uint32_t rows, uint32_t head_dim,
                          float* out, uint64_t out_stride);
};

// The best tier this CPU and OS support, or the one $KAIROS_KERNELS names. Null when that name is
// unknown or unsupported here.
const KernelTable* ChooseKernels();
// A tier by name; null when this CPU lacks it.
const KernelTable* FindKernels(const char* name);
// Whether this build has a tier of that name, on whatever CPU; and all names, best first: "a, b".
bool IsKernelName(const char* name);
std::string KernelNames();

}  // namespace kairos
