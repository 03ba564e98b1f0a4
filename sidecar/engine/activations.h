// SPDX-License-Identifier: Apache-2.0
// Rows of activations in the forms that the matrices reading them want: 8-bit groups, float, or
// both.
#pragma once

#include <cstdint>
#include <cstring>

#include "sidecar/engine/aligned_buffer.h"
#include "sidecar/engine/kernels/kernel_table.h"
#include "sidecar/engine/models/model.h"

namespace kairos {

class Activations {
 public:
  void Reserve(uint32_t rows, uint32_t cols) {
    cols_ = cols;
    floats_.Reserve(uint64_t{rows} * cols);
    values_.Reserve(uint64_t{rows} * cols);
    scales_.Reserve(uint64_t{rows} * (cols / kGroupSize));
    sums_.Reserve(uint64_t{rows} * (cols / kGroupSize));
  }
  // What Write has to produce, from the matrices that will read.
  void SetReader(const Projection& reader) {
    quantized_ = reader.reads_quantized();
    float_ = reader.reads_float();
  }

  // Columns [col, col + count) of `row`; col and count are multiples of 32.
  void Write(const KernelTable& kernels, uint32_t row, uint32_t col, uint32_t count,
             const float* x) {
    const uint64_t at = uint64_t{row} * cols_ + col;
    if (float_) std::memcpy(floats_.data() + at, x, count * sizeof(float));
    if (quantized_) {
      kernels.quantize_row(x, count, values_.data() + at, scales_.data() + at / kGroupSize,
                           sums_.data() + at / kGroupSize);
    }
  }

  QuantizedRows quantized(uint32_t row) const {
    const uint64_t at = uint64_t{row} * cols_;
    return {values_.data() + at, scales_.data() + at / kGroupSize, sums_.data() + at / kGroupSize};
  }
  const float* floats(uint32_t row) const { return floats_.data() + uint64_t{row} * cols_; }
  uint32_t cols() const { return cols_; }

 private:
  uint32_t cols_ = 0;
  bool quantized_ = true;
  bool float_ = false;
  AlignedBuffer<float> floats_;
  AlignedBuffer<int8_t> values_;
  AlignedBuffer<float> scales_;
  AlignedBuffer<float> sums_;
};

}  // namespace kairos
