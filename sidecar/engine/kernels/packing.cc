// SPDX-License-Identifier: Apache-2.0
// GGUF rows to panels and back (kernel_table.h has the layouts). Portable code, used at load.
// The formats of the rows are the ggml project's (ggml-common.h, block_*).
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "sidecar/engine/kernels/half-inl.h"
#include "sidecar/engine/kernels/kernel_table.h"

namespace kairos {
namespace {

constexpr uint32_t kPanelValues = kPanelRows * kGroupSize;
constexpr uint32_t kScalesBytes = kPanelRows * 2;
constexpr uint32_t kVectorBytes = 64;  // 16 rows x 4 columns
constexpr uint32_t kSuperColumns = 256;

constexpr WeightType kWeightTypes[] = {
    WeightType::kF32,  WeightType::kF16,  WeightType::kBF16, WeightType::kQ4_0,
    WeightType::kQ4_1, WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ8_0,
    WeightType::kQ4_K, WeightType::kQ5_K, WeightType::kQ6_K};

// Bytes of SourceColumns(type) columns of one row in GGUF.
uint32_t SourceBytes(WeightType type) {
  switch (type) {
    case WeightType::kF32: return 4;
    case WeightType::kF16:
    case WeightType::kBF16: return 2;
    case WeightType::kQ4_0: return 18;
    case WeightType::kQ4_1: return 20;
    case WeightType::kQ5_0: return 22;
    case WeightType::kQ5_1: return 24;
    case WeightType::kQ8_0: return 34;
    case WeightType::kQ4_K: return 144;
    case WeightType::kQ5_K: return 176;
    case WeightType::kQ6_K: return 210;
  }
  KAIROS_CHECK(false);
  return 0;
}

// Where the integers of a block start, and how many bytes the block has.
uint32_t HeaderBytes(PanelLayout layout) {
  switch (layout) {
    case PanelLayout::kFloat:
    case PanelLayout::kHalf:
    case PanelLayout::kBrainHalf: return 0;
    case PanelLayout::kBytes: return kScalesBytes;
    default: return 2 * kScalesBytes;
  }
}

uint32_t PackedBlockBytes(PanelLayout layout) {
  switch (layout) {
    case PanelLayout::kFloat: return kPanelValues * 4;
    case PanelLayout::kHalf:
    case PanelLayout::kBrainHalf: return kPanelValues * 2;
    case PanelLayout::kNibbles: return HeaderBytes(layout) + kPanelValues / 2;
    case PanelLayout::kFives: return HeaderBytes(layout) + kPanelValues / 2 + kVectorBytes;
    case PanelLayout::kBytes:
    case PanelLayout::kHalfBytes: return HeaderBytes(layout) + kPanelValues;
  }
  KAIROS_CHECK(false);
  return 0;
}

uint16_t Load16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

void Store16(uint8_t* bytes, uint16_t value) { std::memcpy(bytes, &value, sizeof(value)); }

uint16_t TimesHalf(float factor, uint16_t half) {
  return FloatToHalf(factor * HalfToFloat(half));
}

float BrainToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// ---- Groups of 32 columns as GGUF has them -----------------------------------------------------

// value = scale * q + offset; of kHalfBytes the second 16 columns have a scale of their own, and of
// layouts of signed bytes the offset is zero.
struct Group {
  uint16_t scales[2] = {};  // halves
  uint16_t offset = 0;      // half
  uint8_t quants[kGroupSize];
};

// Value j is the low half of byte j, and value j + 16 its high half.
void ReadNibbles(const uint8_t* nibbles, Group* group) {
  for (uint32_t j = 0; j < 16; ++j) {
    group->quants[j] = nibbles[j] & 15;
    group->quants[j + 16] = nibbles[j] >> 4;
  }
}

// Bit j of a little-endian word belongs to value j.
void AddFifthBits(const uint8_t* bits, Group* group) {
  for (uint32_t j = 0; j < kGroupSize; ++j) {
    const uint32_t bit = (bits[j / 8] >> (j % 8)) & 1u;
    group->quants[j] = static_cast<uint8_t>(group->quants[j] | bit << 4);
  }
}

// Scale and minimum of sub-block j of 8, six bits each in 12 bytes: the first four whole, of the
// others the low four bits, their upper two in the top bits of the first eight bytes.
void ReadSixBits(const uint8_t* packed, uint32_t j, float* scale, float* minimum) {
  uint32_t first, second;
  if (j < 4) {
    first = packed[j] & 63;
    second = packed[j + 4] & 63;
  } else {
    first = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    second = packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
  }
  *scale = static_cast<float>(first);
  *minimum = static_cast<float>(second);
}

// Q4_K and Q5_K: of each 32 bytes the low halves are one group and the high halves the next.
void ReadScaledGroup(const uint8_t* super, uint32_t index, bool fives, Group* group) {
  float scale, minimum;
  ReadSixBits(super + 4, index, &scale, &minimum);
  group->scales[0] = TimesHalf(scale, Load16(super));
  group->offset = TimesHalf(-minimum, Load16(super + 2));
  const uint8_t* high = super + 16;
  const uint8_t* low = super + (fives ? 48 : 16) + index / 2 * 32;
  for (uint32_t j = 0; j < kGroupSize; ++j) {
    const uint32_t nibble = index % 2 == 0 ? low[j] & 15u : low[j] >> 4;
    const uint32_t bit = fives ? (high[j] >> index) & 1u : 0u;
    group->quants[j] = static_cast<uint8_t>(nibble | bit << 4);
  }
}

// Q6_K: per half of 128 values 64 bytes of low and 32 of high bits.
void ReadSixBitGroup(const uint8_t* super, uint32_t index, Group* group) {
  const uint32_t half = index / 4;
  const uint32_t quarter = index % 4;
  const uint8_t* low = super + half * 64 + quarter % 2 * 32;
  const uint8_t* high = super + 128 + half * 32;
  const uint8_t* scales = super + 192 + index * 2;
  for (uint32_t i = 0; i < 2; ++i) {
    const float scale = static_cast<float>(static_cast<int8_t>(scales[i]));
    group->scales[i] = TimesHalf(scale, Load16(super + 208));
  }
  for (uint32_t j = 0; j < kGroupSize; ++j) {
    const uint32_t nibble = quarter < 2 ? low[j] & 15u : low[j] >> 4;
    const uint32_t top = (high[j] >> (2 * quarter)) & 3u;
    group->quants[j] = static_cast<uint8_t>(static_cast<int32_t>(nibble | top << 4) - 32);
  }
}

Group ReadGroup(WeightType type, const uint8_t* row, uint64_t index) {
  const uint64_t unit = index * kGroupSize / SourceColumns(type);
  const uint8_t* source = row + unit * SourceBytes(type);
  const uint32_t part = static_cast<uint32_t>(index % (kSuperColumns / kGroupSize));
  Group group;
  group.scales[0] = Load16(source);
  switch (type) {
    case WeightType::kQ4_0:
      group.offset = TimesHalf(-8.0f, group.scales[0]);
      ReadNibbles(source + 2, &group);
      break;
    case WeightType::kQ4_1:
      group.offset = Load16(source + 2);
      ReadNibbles(source + 4, &group);
      break;
    case WeightType::kQ5_0:
      group.offset = TimesHalf(-16.0f, group.scales[0]);
      ReadNibbles(source + 6, &group);
      AddFifthBits(source + 2, &group);
      break;
    case WeightType::kQ5_1:
      group.offset = Load16(source + 2);
      ReadNibbles(source + 8, &group);
      AddFifthBits(source + 4, &group);
      break;
    case WeightType::kQ8_0:
      std::memcpy(group.quants, source + 2, kGroupSize);
      break;
    case WeightType::kQ4_K:
    case WeightType::kQ5_K:
      ReadScaledGroup(source, part, type == WeightType::kQ5_K, &group);
      break;
    case WeightType::kQ6_K:
      ReadSixBitGroup(source, part, &group);
      break;
    default:
      KAIROS_CHECK(false);
  }
  return group;
}

float ValueOf(PanelLayout layout, const Group& group, uint32_t column) {
  const uint8_t quant = group.quants[column];
  switch (layout) {
    case PanelLayout::kBytes:
      return HalfToFloat(group.scales[0]) * static_cast<float>(static_cast<int8_t>(quant));
    case PanelLayout::kHalfBytes:
      return HalfToFloat(group.scales[column / 16]) *
             static_cast<float>(static_cast<int8_t>(quant));
    default:
      return HalfToFloat(group.scales[0]) * static_cast<float>(quant) + HalfToFloat(group.offset);
  }
}

// ---- Blocks of panels --------------------------------------------------------------------------

// Byte of (row, column) inside the eight vectors of a block.
uint32_t VectorOffset(uint32_t row, uint32_t column) {
  return (column / 4) * kVectorBytes + row * 4 + column % 4;
}

void PackGroup(PanelLayout layout, const Group& group, uint32_t row, uint8_t* block) {
  Store16(block + row * 2, group.scales[0]);
  uint8_t* second = block + kScalesBytes + row * 2;
  uint8_t* packed = block + HeaderBytes(layout);
  if (layout == PanelLayout::kBytes || layout == PanelLayout::kHalfBytes) {
    if (layout == PanelLayout::kHalfBytes) Store16(second, group.scales[1]);
    for (uint32_t c = 0; c < kGroupSize; ++c) packed[VectorOffset(row, c)] = group.quants[c];
    return;
  }
  Store16(second, group.offset);
  uint8_t* fifths = packed + kPanelValues / 2;
  for (uint32_t c = 0; c < kGroupSize; ++c) {
    const uint32_t vector = c / 4;
    const uint32_t at = VectorOffset(row, c) % kVectorBytes;
    uint8_t& byte = packed[vector / 2 * kVectorBytes + at];
    byte = static_cast<uint8_t>(byte | (group.quants[c] & 15u) << (vector % 2 * 4));
    if (layout == PanelLayout::kFives) {
      fifths[at] = static_cast<uint8_t>(fifths[at] | (group.quants[c] >> 4) << vector);
    }
  }
}

Group UnpackGroup(PanelLayout layout, const uint8_t* block, uint32_t row) {
  Group group;
  group.scales[0] = Load16(block + row * 2);
  const uint8_t* second = block + kScalesBytes + row * 2;
  const uint8_t* packed = block + HeaderBytes(layout);
  if (layout == PanelLayout::kBytes || layout == PanelLayout::kHalfBytes) {
    if (layout == PanelLayout::kHalfBytes) group.scales[1] = Load16(second);
    for (uint32_t c = 0; c < kGroupSize; ++c) group.quants[c] = packed[VectorOffset(row, c)];
    return group;
  }
  group.offset = Load16(second);
  for (uint32_t c = 0; c < kGroupSize; ++c) {
    const uint32_t vector = c / 4;
    const uint32_t at = VectorOffset(row, c) % kVectorBytes;
    uint32_t quant = packed[vector / 2 * kVectorBytes + at] >> (vector % 2 * 4) & 15u;
    if (layout == PanelLayout::kFives) {
      quant |= (packed[kPanelValues / 2 + at] >> vector & 1u) << 4;
    }
    group.quants[c] = static_cast<uint8_t>(quant);
  }
  return group;
}

float FloatAt(PanelLayout layout, const uint8_t* bytes) {
  if (layout == PanelLayout::kHalf) return HalfToFloat(Load16(bytes));
  if (layout == PanelLayout::kBrainHalf) return BrainToFloat(Load16(bytes));
  float value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

}  // namespace

std::span<const WeightType> WeightTypes() { return kWeightTypes; }

uint32_t SourceColumns(WeightType type) {
  switch (type) {
    case WeightType::kF32:
    case WeightType::kF16:
    case WeightType::kBF16: return 1;
    case WeightType::kQ4_K:
    case WeightType::kQ5_K:
    case WeightType::kQ6_K: return kSuperColumns;
    default: return kGroupSize;
  }
}

uint64_t PanelBytes(WeightType type, uint32_t cols) {
  return static_cast<uint64_t>(cols / kGroupSize) * PackedBlockBytes(LayoutOf(type));
}

void PackPanel(WeightType type, const uint8_t* const rows[kPanelRows], uint32_t cols,
               uint8_t* panel) {
  KAIROS_CHECK(cols % kGroupSize == 0 && cols % SourceColumns(type) == 0);
  std::memset(panel, 0, PanelBytes(type, cols));
  const PanelLayout layout = LayoutOf(type);
  const uint32_t packed_bytes = PackedBlockBytes(layout);
  for (uint32_t row = 0; row < kPanelRows; ++row) {
    if (rows[row] == nullptr) continue;
    if (!IsQuantized(layout)) {
      const uint32_t width = SourceBytes(type);
      for (uint64_t c = 0; c < cols; ++c) {
        std::memcpy(panel + (c * kPanelRows + row) * width, rows[row] + c * width, width);
      }
      continue;
    }
    for (uint64_t b = 0; b < cols / kGroupSize; ++b) {
      PackGroup(layout, ReadGroup(type, rows[row], b), row, panel + b * packed_bytes);
    }
  }
}

bool PanelIsFinite(WeightType type, uint32_t cols, const uint8_t* panel) {
  const PanelLayout layout = LayoutOf(type);
  if (!IsQuantized(layout)) {
    const uint32_t width = SourceBytes(type);
    for (uint64_t i = 0; i < uint64_t{cols} * kPanelRows; ++i) {
      if (!std::isfinite(FloatAt(layout, panel + i * width))) return false;
    }
    return true;
  }
  const uint32_t bytes = PackedBlockBytes(layout);
  for (uint64_t b = 0; b < cols / kGroupSize; ++b) {
    for (uint32_t i = 0; i < HeaderBytes(layout); i += 2) {
      if ((Load16(panel + b * bytes + i) & 0x7c00u) == 0x7c00u) return false;
    }
  }
  return true;
}

void DequantizeRow(WeightType type, const uint8_t* row, uint32_t cols, float* out) {
  KAIROS_CHECK(cols % kGroupSize == 0 && cols % SourceColumns(type) == 0);
  const PanelLayout layout = LayoutOf(type);
  if (!IsQuantized(layout)) {
    for (uint64_t c = 0; c < cols; ++c) out[c] = FloatAt(layout, row + c * SourceBytes(type));
    return;
  }
  for (uint64_t b = 0; b < cols / kGroupSize; ++b) {
    const Group group = ReadGroup(type, row, b);
    for (uint32_t c = 0; c < kGroupSize; ++c) *out++ = ValueOf(layout, group, c);
  }
}

void DequantizePackedRow(const PackedMatrix& matrix, uint32_t row, float* out) {
  const PanelLayout layout = matrix.layout();
  const uint8_t* panel = matrix.data + row / kPanelRows * matrix.panel_bytes;
  const uint32_t in_panel = row % kPanelRows;
  if (!IsQuantized(layout)) {
    const uint32_t width = SourceBytes(matrix.type);
    for (uint64_t c = 0; c < matrix.cols; ++c) {
      out[c] = FloatAt(layout, panel + (c * kPanelRows + in_panel) * width);
    }
    return;
  }
  const uint32_t bytes = PackedBlockBytes(layout);
  for (uint64_t b = 0; b < matrix.cols / kGroupSize; ++b) {
    const Group group = UnpackGroup(layout, panel + b * bytes, in_panel);
    for (uint32_t c = 0; c < kGroupSize; ++c) *out++ = ValueOf(layout, group, c);
  }
}

}  // namespace kairos
