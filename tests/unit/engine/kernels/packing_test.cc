// SPDX-License-Identifier: Apache-2.0
// Panels hold exactly what the GGUF rows hold, and half-precision conversion is exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/engine/kernels/kernel_inputs.h"

namespace kairos {
namespace {

// Values of one block whose codes are known, from the format's description alone.
TEST(Packing, DequantizesQ4WithLowNibblesFirst) {
  std::vector<uint8_t> row(20, 0);
  row[1] = 0x40;  // scale 2
  row[3] = 0xbc;  // offset -1
  for (uint32_t i = 0; i < 16; ++i) row[4 + i] = static_cast<uint8_t>(i | (15 - i) << 4);

  float values[32];
  DequantizeRow(WeightType::kQ4_1, row.data(), 32, values);

  for (uint32_t i = 0; i < 16; ++i) {
    EXPECT_EQ(values[i], 2.0f * static_cast<float>(i) - 1.0f);
    EXPECT_EQ(values[16 + i], 2.0f * static_cast<float>(15 - i) - 1.0f);
  }
}

TEST(Packing, DequantizesQ8AsSignedBytes) {
  std::vector<uint8_t> row(34, 0);
  row[1] = 0x38;  // scale 0.5
  row[2] = 0x80;
  row[33] = 0x7f;

  float values[32];
  DequantizeRow(WeightType::kQ8_0, row.data(), 32, values);

  EXPECT_EQ(values[0], -64.0f);
  EXPECT_EQ(values[1], 0.0f);
  EXPECT_EQ(values[31], 63.5f);
}

TEST(Packing, DequantizesQ4ZeroAroundEight) {
  std::vector<uint8_t> row(18, 0x80);
  row[0] = 0x00;
  row[1] = 0x3c;  // scale 1

  float values[32];
  DequantizeRow(WeightType::kQ4_0, row.data(), 32, values);

  EXPECT_EQ(values[0], -8.0f);
  EXPECT_EQ(values[16], 0.0f);
}

TEST(Packing, KeepsEveryValueBitForBit) {
  Inputs inputs(1);
  for (const WeightType type : WeightTypes()) {
    for (const uint32_t rows : {1u, 16u, 37u}) {
      for (const uint32_t least : {32u, 96u, 576u}) {
        const uint32_t cols = ColumnsOf(type, least);
        RandomMatrix matrix(inputs, type, rows, cols);
        std::vector<float> from_source(cols), from_panel(cols);
        for (uint32_t n = 0; n < rows; ++n) {
          DequantizeRow(type, matrix.source(n).data(), cols, from_source.data());
          DequantizePackedRow(matrix.packed(), n, from_panel.data());
          ASSERT_EQ(std::memcmp(from_source.data(), from_panel.data(), cols * sizeof(float)), 0)
              << "type " << static_cast<uint32_t>(type) << " row " << n << " cols " << cols;
        }
      }
    }
  }
}

TEST(Packing, PadsMissingRowsWithZeros) {
  Inputs inputs(2);
  for (const WeightType type : WeightTypes()) {
    const uint32_t cols = ColumnsOf(type, 64);
    RandomMatrix matrix(inputs, type, 3, cols);
    std::vector<float> values(cols, 1.0f);
    for (uint32_t n = 3; n < kPanelRows; ++n) {
      DequantizePackedRow(matrix.packed(), n, values.data());
      for (const float value : values) ASSERT_EQ(value, 0.0f);
    }
  }
}

std::vector<uint8_t> BytesOfHex(const std::string& hex) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Rows that tools/make_weight_goldens.py recorded from another reader of the formats.
TEST(Packing, ReadsEveryTypeAsTheReferenceDoes) {
  std::ifstream goldens("tests/goldens/weights/rows.txt");
  uint32_t number, cols;
  std::string row_hex, values_hex;
  uint32_t types = 0;
  for (; goldens >> number >> cols >> row_hex >> values_hex; ++types) {
    const auto type = static_cast<WeightType>(number);
    ASSERT_NE(std::ranges::find(WeightTypes(), type), WeightTypes().end()) << number;
    const std::vector<uint8_t> row = BytesOfHex(row_hex);
    const std::vector<uint8_t> expected_bytes = BytesOfHex(values_hex);
    std::vector<float> values(cols), expected(cols);
    ASSERT_EQ(expected_bytes.size(), cols * sizeof(float));
    std::memcpy(expected.data(), expected_bytes.data(), expected_bytes.size());
    DequantizeRow(type, row.data(), cols, values.data());
    // The scales of K types are rounded to halves; everything else is exact, but that a sum of a
    // product and an offset rounds once or twice.
    const bool is_rounded = SourceColumns(type) > kGroupSize;
    float greatest = 0.0f;
    for (const float value : expected) greatest = std::max(greatest, std::fabs(value));
    for (uint32_t c = 0; c < cols; ++c) {
      const float tolerance = greatest * (is_rounded ? 0x1p-10f : 0x1p-22f);
      ASSERT_NEAR(values[c], expected[c], tolerance) << "type " << number << " column " << c;
    }
  }
  EXPECT_EQ(types, WeightTypes().size());
}

TEST(Packing, FindsScalesThatAreNotFinite) {
  Inputs inputs(3);
  for (const WeightType type : WeightTypes()) {
    const uint32_t cols = ColumnsOf(type, 64);
    std::vector<uint8_t> row = inputs.GgufRow(type, cols);
    const uint8_t* rows[kPanelRows] = {};
    rows[5] = row.data();
    std::vector<uint8_t> panel(PanelBytes(type, cols));
    PackPanel(type, rows, cols, panel.data());
    EXPECT_TRUE(PanelIsFinite(type, cols, panel.data())) << static_cast<uint32_t>(type);
    // Of floats the upper half; elsewhere the first scale, which Q6_K has at the end.
    const size_t at = type == WeightType::kF32 ? 2 : type == WeightType::kQ6_K ? 208 : 0;
    row[at] = 0x80, row[at + 1] = 0x7f;
    PackPanel(type, rows, cols, panel.data());
    EXPECT_FALSE(PanelIsFinite(type, cols, panel.data())) << static_cast<uint32_t>(type);
  }
}

TEST(Half, KeepsEveryHalfThroughFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const bool signalling = (half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0 && (half & 0x200) == 0;
    const uint16_t expected = signalling ? static_cast<uint16_t>(half | 0x200) : half;
    ASSERT_EQ(FloatToHalf(HalfToFloat(half)), expected) << bits;
  }
}

TEST(Half, RoundsToNearestEven) {
  struct Case {
    const char* name;
    float value;
    uint16_t half;
  };
  constexpr Case kCases[] = {
      {"one", 1.0f, 0x3c00},
      {"tie to even, down", 1.0f + 0x1p-11f, 0x3c00},
      {"tie to even, up", 1.0f + 0x1.8p-10f, 0x3c02},
      {"just above a tie", 1.0f + 0x1.002p-11f, 0x3c01},
      {"greatest", 65504.0f, 0x7bff},
      {"last that rounds down", 65519.996f, 0x7bff},
      {"tie to infinity", 65520.0f, 0x7c00},
      {"far above", 1e30f, 0x7c00},
      {"smallest normal", 0x1p-14f, 0x0400},
      {"carry into the smallest normal", 0x1.ffcp-15f, 0x0400},
      {"smallest subnormal", 0x1p-24f, 0x0001},
      {"tie to zero", 0x1p-25f, 0x0000},
      {"just above that tie", 0x1.0002p-25f, 0x0001},
      {"negative", -2.5f, 0xc100},
      {"negative zero", -0.0f, 0x8000},
  };
  for (const Case& c : kCases) EXPECT_EQ(FloatToHalf(c.value), c.half) << c.name;
}

TEST(Half, ReadsSubnormalsAndInfinity) {
  EXPECT_EQ(HalfToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(HalfToFloat(0x03ff), 1023.0f * 0x1p-24f);
  EXPECT_EQ(HalfToFloat(0x7c00), INFINITY);
  EXPECT_EQ(HalfToFloat(0xfbff), -65504.0f);
}

}  // namespace
}  // namespace kairos
