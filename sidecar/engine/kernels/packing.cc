// SPDX-License-Identifier: Apache-2.0
// GGUF rows to panels and back (kernel_table.h has the layout). Portable code, used at load.
#include <cstring>

#include "base/check.h"
#include "sidecar/engine/kernels/half-inl.h"
#include "sidecar/engine/kernels/kernel_table.h"

namespace kairos {
namespace {

constexpr uint32_t kPanelValues = kPanelRows * kGroupSize;
constexpr uint32_t kScalesBytes = kPanelRows * 2;
constexpr uint32_t kVectorBytes = 64;  // 16 rows x 4 columns

// Bytes of one row's block of 32 values in GGUF.
uint32_t SourceBlockBytes(WeightType type) {
  switch (type) {
    case WeightType::kF32: return kGroupSize * 4;
    case WeightType::kF16: return kGroupSize * 2;
    case WeightType::kQ4_0: return 2 + kGroupSize / 2;
    case WeightType::kQ4_1: return 4 + kGroupSize / 2;
    case WeightType::kQ8_0: return 2 + kGroupSize;
  }
  KAIROS_CHECK(false);
  return 0;
}

// Bytes of one block of 16 rows in a panel.
uint32_t PackedBlockBytes(WeightType type) {
  switch (type) {
    case WeightType::kF32: return kPanelValues * 4;
    case WeightType::kF16: return kPanelValues * 2;
    case WeightType::kQ4_0:
    case WeightType::kQ4_1: return 2 * kScalesBytes + kPanelValues / 2;
    case WeightType::kQ8_0: return kScalesBytes + kPanelValues;
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

// GGUF keeps value j in the low half of byte j and value j + 16 in its high half.
uint32_t SourceNibble(const uint8_t* nibbles, uint32_t column) {
  return column < 16 ? nibbles[column] & 15u : nibbles[column - 16] >> 4;
}

// Byte of (row, column) inside the eight vectors of a block.
uint32_t VectorOffset(uint32_t row, uint32_t column) {
  return (column / 4) * kVectorBytes + row * 4 + column % 4;
}

void PackRowBlock(WeightType type, const uint8_t* source, uint32_t row, uint8_t* block) {
  if (type == WeightType::kF32 || type == WeightType::kF16) {
    const uint32_t width = type == WeightType::kF32 ? 4 : 2;
    for (uint32_t c = 0; c < kGroupSize; ++c) {
      std::memcpy(block + (c * kPanelRows + row) * width, source + c * width, width);
    }
    return;
  }
  std::memcpy(block + row * 2, source, 2);
  if (type == WeightType::kQ8_0) {
    for (uint32_t c = 0; c < kGroupSize; ++c) {
      block[kScalesBytes + VectorOffset(row, c)] = source[2 + c];
    }
    return;
  }
  uint8_t* offset = block + kScalesBytes + row * 2;
  if (type == WeightType::kQ4_1) {
    std::memcpy(offset, source + 2, 2);
  } else {
    // -8 times a half is exact unless it overflows; DequantizeRow takes the same path.
    Store16(offset, FloatToHalf(-8.0f * HalfToFloat(Load16(source))));
  }
  const uint8_t* nibbles = source + (type == WeightType::kQ4_1 ? 4 : 2);
  uint8_t* packed = block + 2 * kScalesBytes;
  for (uint32_t c = 0; c < kGroupSize; ++c) {
    const uint32_t at = VectorOffset(row, c);
    const uint32_t pair = at / (2 * kVectorBytes);
    const uint32_t shift = (at / kVectorBytes) % 2 * 4;
    uint8_t& byte = packed[pair * kVectorBytes + at % kVectorBytes];
    byte = static_cast<uint8_t>(byte | (SourceNibble(nibbles, c) << shift));
  }
}

float Value4(float scale, float offset, uint32_t quant) {
  return scale * static_cast<float>(quant) + offset;
}

void DequantizePackedBlock(WeightType type, const uint8_t* block, uint32_t row, float* out) {
  if (type == WeightType::kF32) {
    for (uint32_t c = 0; c < kGroupSize; ++c) {
      std::memcpy(out + c, block + (c * kPanelRows + row) * 4, 4);
    }
    return;
  }
  if (type == WeightType::kF16) {
    for (uint32_t c = 0; c < kGroupSize; ++c) {
      out[c] = HalfToFloat(Load16(block + (c * kPanelRows + row) * 2));
    }
    return;
  }
  const float scale = HalfToFloat(Load16(block + row * 2));
  if (type == WeightType::kQ8_0) {
    for (uint32_t c = 0; c < kGroupSize; ++c) {
      const uint8_t byte = block[kScalesBytes + VectorOffset(row, c)];
      out[c] = scale * static_cast<float>(static_cast<int8_t>(byte));
    }
    return;
  }
  const float offset = HalfToFloat(Load16(block + kScalesBytes + row * 2));
  for (uint32_t c = 0; c < kGroupSize; ++c) {
    const uint32_t at = VectorOffset(row, c);
    const uint8_t byte =
        block[2 * kScalesBytes + at / (2 * kVectorBytes) * kVectorBytes + at % kVectorBytes];
    const uint32_t quant = (at / kVectorBytes) % 2 == 0 ? byte & 15u : byte >> 4;
    out[c] = Value4(scale, offset, quant);
  }
}

}  // namespace

uint64_t PanelBytes(WeightType type, uint32_t cols) {
  return static_cast<uint64_t>(cols / kGroupSize) * PackedBlockBytes(type);
}

void PackPanel(WeightType type, const uint8_t* const rows[kPanelRows], uint32_t cols,
               uint8_t* panel) {
  KAIROS_CHECK(cols % kGroupSize == 0);
  std::memset(panel, 0, PanelBytes(type, cols));
  const uint32_t source_bytes = SourceBlockBytes(type);
  const uint32_t packed_bytes = PackedBlockBytes(type);
  for (uint32_t row = 0; row < kPanelRows; ++row) {
    if (rows[row] == nullptr) continue;
    for (uint64_t b = 0; b < cols / kGroupSize; ++b) {
      PackRowBlock(type, rows[row] + b * source_bytes, row, panel + b * packed_bytes);
    }
  }
}

void DequantizeRow(WeightType type, const uint8_t* row, uint32_t cols, float* out) {
  KAIROS_CHECK(cols % kGroupSize == 0);
  const uint32_t bytes = SourceBlockBytes(type);
  for (uint32_t b = 0; b < cols / kGroupSize; ++b, row += bytes, out += kGroupSize) {
    if (type == WeightType::kF32) {
      std::memcpy(out, row, kGroupSize * sizeof(float));
      continue;
    }
    if (type == WeightType::kF16) {
      for (uint32_t c = 0; c < kGroupSize; ++c) out[c] = HalfToFloat(Load16(row + c * 2));
      continue;
    }
    const float scale = HalfToFloat(Load16(row));
    if (type == WeightType::kQ8_0) {
      for (uint32_t c = 0; c < kGroupSize; ++c) {
        out[c] = scale * static_cast<float>(static_cast<int8_t>(row[2 + c]));
      }
      continue;
    }
    const bool with_offset = type == WeightType::kQ4_1;
    const float offset = with_offset ? HalfToFloat(Load16(row + 2))
                                     : HalfToFloat(FloatToHalf(-8.0f * scale));
    const uint8_t* nibbles = row + (with_offset ? 4 : 2);
    for (uint32_t c = 0; c < kGroupSize; ++c) {
      out[c] = Value4(scale, offset, SourceNibble(nibbles, c));
    }
  }
}

void DequantizePackedRow(const PackedMatrix& matrix, uint32_t row, float* out) {
  const uint8_t* panel = matrix.data + row / kPanelRows * matrix.panel_bytes;
  const uint32_t bytes = PackedBlockBytes(matrix.type);
  for (uint64_t b = 0; b < matrix.cols / kGroupSize; ++b) {
    DequantizePackedBlock(matrix.type, panel + b * bytes, row % kPanelRows, out + b * kGroupSize);
  }
}

}  // namespace kairos
