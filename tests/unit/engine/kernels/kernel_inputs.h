// SPDX-License-Identifier: Apache-2.0
// Seeded inputs for the kernel tests: GGUF rows, packed matrices, activations, KV tiles, splits.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "sidecar/engine/kernels/half-inl.h"
#include "sidecar/engine/kernels/kernel_table.h"

namespace kairos {

// The columns, made as many as the type can have.
inline uint32_t ColumnsOf(WeightType type, uint32_t columns) {
  const uint32_t unit = SourceColumns(type);
  return (columns + unit - 1) / unit * unit;
}

class Inputs {
 public:
  explicit Inputs(uint64_t seed) : random_(seed) {}

  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }

  float Gaussian(float deviation) {
    return std::normal_distribution<float>(0.0f, deviation)(random_);
  }

  std::vector<float> Floats(uint64_t count, float deviation) {
    std::vector<float> values(count);
    for (float& value : values) value = Gaussian(deviation);
    return values;
  }

  // One row in GGUF's layout. Quantised bytes are uniform, so every code occurs, -128 included.
  std::vector<uint8_t> GgufRow(WeightType type, uint32_t cols) {
    std::vector<uint8_t> row;
    for (uint32_t c = 0; c < cols; c += SourceColumns(type)) AppendUnit(type, row);
    return row;
  }

  // Gives every half of a quantised row's blocks one value.
  static void SetHalves(WeightType type, float value, std::vector<uint8_t>* row) {
    std::vector<uint8_t> unit;
    Inputs(1).AppendUnit(type, unit);
    const uint16_t half = FloatToHalf(value);
    const bool has_offset = type == WeightType::kQ4_1 || type == WeightType::kQ5_1 ||
                            type == WeightType::kQ4_K || type == WeightType::kQ5_K;
    for (size_t at = 0; at < row->size(); at += unit.size()) {
      uint8_t* first = row->data() + at + (type == WeightType::kQ6_K ? 208 : 0);
      std::memcpy(first, &half, sizeof(half));
      if (has_offset) std::memcpy(first + 2, &half, sizeof(half));
    }
  }

 private:
  // What a row has for SourceColumns(type) columns.
  void AppendUnit(WeightType type, std::vector<uint8_t>& row) {
    switch (type) {
      case WeightType::kF32: return AppendBits(Gaussian(0.1f), row);
      case WeightType::kF16: return AppendBits(FloatToHalf(Gaussian(0.1f)), row);
      case WeightType::kBF16:
        return AppendBits(
            static_cast<uint16_t>(std::bit_cast<uint32_t>(Gaussian(0.1f)) >> 16), row);
      case WeightType::kQ4_0: return AppendBlock(1, 16, row);
      case WeightType::kQ4_1: return AppendBlock(2, 16, row);
      case WeightType::kQ5_0: return AppendBlock(1, 20, row);
      case WeightType::kQ5_1: return AppendBlock(2, 20, row);
      case WeightType::kQ8_0: return AppendBlock(1, 32, row);
      case WeightType::kQ4_K: return AppendBlock(2, 140, row);
      case WeightType::kQ5_K: return AppendBlock(2, 172, row);
      case WeightType::kQ6_K:
        AppendBlock(0, 208, row);
        return AppendBlock(1, 0, row);
    }
  }

  void AppendBlock(uint32_t halves, uint32_t bytes, std::vector<uint8_t>& row) {
    for (uint32_t i = 0; i < halves; ++i) AppendBits(FloatToHalf(Gaussian(0.01f)), row);
    for (uint32_t i = 0; i < bytes; ++i) row.push_back(static_cast<uint8_t>(random_()));
  }

  template <typename Value>
  static void AppendBits(Value value, std::vector<uint8_t>& row) {
    const auto bytes = std::bit_cast<std::array<uint8_t, sizeof(Value)>>(value);
    row.insert(row.end(), bytes.begin(), bytes.end());
  }

  std::mt19937_64 random_;
};

// Bytes that start on a cache line.
class AlignedBytes {
 public:
  explicit AlignedBytes(uint64_t size) : bytes_(size + 64) {}
  uint8_t* data() {
    const uintptr_t address = reinterpret_cast<uintptr_t>(bytes_.data());
    return bytes_.data() + (64 - address % 64) % 64;
  }

 private:
  std::vector<uint8_t> bytes_;
};

class RandomMatrix {
 public:
  // `change`, where given, is called with each row before it is packed.
  RandomMatrix(Inputs& inputs, WeightType type, uint32_t rows, uint32_t cols,
               const std::function<void(std::vector<uint8_t>*)>& change = {})
      : bytes_((rows + kPanelRows - 1) / kPanelRows * PanelBytes(type, cols)) {
    packed_.type = type;
    packed_.rows = rows;
    packed_.cols = cols;
    packed_.panel_bytes = PanelBytes(type, cols);
    packed_.data = bytes_.data();
    for (uint32_t n = 0; n < rows; ++n) {
      sources_.push_back(inputs.GgufRow(type, cols));
      if (change) change(&sources_.back());
    }
    for (uint32_t p = 0; p < packed_.panels(); ++p) {
      const uint8_t* panel_rows[kPanelRows] = {};
      for (uint32_t r = 0; r < kPanelRows && p * kPanelRows + r < rows; ++r) {
        panel_rows[r] = sources_[p * kPanelRows + r].data();
      }
      PackPanel(type, panel_rows, cols, bytes_.data() + p * packed_.panel_bytes);
    }
  }
  RandomMatrix(const RandomMatrix&) = delete;
  RandomMatrix& operator=(const RandomMatrix&) = delete;

  const PackedMatrix& packed() const { return packed_; }
  const std::vector<uint8_t>& source(uint32_t row) const { return sources_[row]; }

 private:
  AlignedBytes bytes_;
  PackedMatrix packed_;
  std::vector<std::vector<uint8_t>> sources_;
};

class Activations {
 public:
  Activations(const KernelTable& kernels, const std::vector<float>& x, uint32_t rows, uint32_t cols)
      : values_(uint64_t{rows} * cols), scales_(uint64_t{rows} * cols / kGroupSize),
        sums_(scales_.size()), cols_(cols) {
    for (uint32_t t = 0; t < rows; ++t) {
      const QuantizedRows row = at(t);
      kernels.quantize_row(x.data() + uint64_t{t} * cols, cols, row.values, row.scales, row.sums);
    }
  }

  QuantizedRows at(uint32_t row) {
    const uint64_t groups = cols_ / kGroupSize;
    return {values_.data() + uint64_t{row} * cols_, scales_.data() + row * groups,
            sums_.data() + row * groups};
  }
  const std::vector<int8_t>& values() const { return values_; }
  const std::vector<float>& scales() const { return scales_; }
  const std::vector<float>& sums() const { return sums_; }

 private:
  std::vector<int8_t> values_;
  std::vector<float> scales_;
  std::vector<float> sums_;
  uint32_t cols_;
};

// A split with storage of its own. Tokens that no query may see hold NaN.
struct SplitShape {
  uint32_t head_dim = 64;
  uint32_t group = 3;
  uint32_t query_count = 1;
  uint32_t blocks = 0;
  uint32_t sealed_mask = 0;  // bit b: block b is sealed
  bool own = true;
  uint32_t own_first = 0;
  int32_t hidden = kNothingHidden;  // of query 0
  float magnitude = 1.0f;    // of queries; keys and values have deviation 1
};

class RandomSplit {
 public:
  RandomSplit(Inputs& inputs, const KernelTable& writer, const SplitShape& shape) : shape_(shape) {
    const uint32_t d = shape.head_dim;
    stride_ = uint64_t{d} * shape.group + 16;
    queries_ = inputs.Floats(stride_ * shape.query_count,
                             shape.magnitude / std::sqrt(static_cast<float>(d)));
    for (uint32_t b = 0; b < shape.blocks + (shape.own ? 1 : 0); ++b) {
      const bool own = b == shape.blocks;
      const uint32_t tokens = own ? shape.own_first + shape.query_count : kBlockTokens;
      AlignedBytes k(HalfTileBytes(d)), v(HalfTileBytes(d)), sealed(SealedTileBytes(d));
      std::memset(k.data(), 0xff, HalfTileBytes(d));
      std::memset(v.data(), 0xff, HalfTileBytes(d));
      for (uint32_t t = 0; t < tokens; ++t) {
        const std::vector<float> key = inputs.Floats(d, 1.0f);
        const std::vector<float> value = inputs.Floats(d, 1.0f);
        writer.store_half(key.data(), value.data(), d, t, k.data(), v.data());
      }
      if (!own) writer.seal_tile(k.data(), v.data(), d, sealed.data());
      half_k_.push_back(std::move(k));
      half_v_.push_back(std::move(v));
      sealed_.push_back(std::move(sealed));
    }
  }

  struct Result {
    std::vector<float> maxima, sums, values;
  };

  Result Run(const KernelTable& kernels) { return RunQueries(kernels, 0, shape_.query_count); }

  // Query `query` in a call of its own.
  Result RunOne(const KernelTable& kernels, uint32_t query) {
    return RunQueries(kernels, query, 1);
  }

  bool sealed(uint32_t b) const { return b < shape_.blocks && (shape_.sealed_mask >> b & 1) != 0; }
  const SplitShape& shape() const { return shape_; }
  const float* query(uint32_t i, uint32_t g) const {
    return queries_.data() + i * stride_ + g * shape_.head_dim;
  }
  // 16-bit values, also of sealed blocks.
  float key(uint32_t token, uint32_t dim) {
    const uint32_t t = token % kBlockTokens;
    return Half(half_k_[token / kBlockTokens], (t / 16 * shape_.head_dim + dim) * 16 + t % 16);
  }
  float value(uint32_t token, uint32_t dim) {
    return Half(half_v_[token / kBlockTokens], token % kBlockTokens * shape_.head_dim + dim);
  }

 private:
  Result RunQueries(const KernelTable& kernels, uint32_t first, uint32_t count) {
    const uint32_t d = shape_.head_dim;
    const uint64_t rows = uint64_t{count} * shape_.group;
    Result result{std::vector<float>(rows, NAN), std::vector<float>(rows, NAN),
                  std::vector<float>(rows * d, NAN)};
    AlignedBytes scratch(AttentionScratchBytes(d, shape_.group));
    AttentionSplit split;
    split.head_dim = d;
    split.group = shape_.group;
    split.query_count = count;
    split.queries = queries_.data() + first * stride_;
    split.query_stride = stride_;
    split.block_count = shape_.blocks;
    split.hidden_tokens = shape_.hidden + static_cast<int32_t>(first);
    for (uint32_t b = 0; b < shape_.blocks; ++b) {
      if (sealed(b)) {
        split.sealed[b] = sealed_[b].data();
      } else {
        split.half_k[b] = half_k_[b].data();
        split.half_v[b] = half_v_[b].data();
      }
    }
    if (shape_.own) {
      split.own_k = half_k_[shape_.blocks].data();
      split.own_v = half_v_[shape_.blocks].data();
      split.own_first = shape_.own_first + first;
    }
    split.maxima = result.maxima.data();
    split.sums = result.sums.data();
    split.values = result.values.data();
    split.scratch = scratch.data();
    kernels.attention_split(split);
    return result;
  }

  static float Half(AlignedBytes& bytes, uint64_t index) {
    uint16_t half;
    std::memcpy(&half, bytes.data() + index * 2, 2);
    return HalfToFloat(half);
  }

  SplitShape shape_;
  uint64_t stride_ = 0;
  std::vector<float> queries_;
  std::vector<AlignedBytes> half_k_, half_v_, sealed_;
};

}  // namespace kairos
