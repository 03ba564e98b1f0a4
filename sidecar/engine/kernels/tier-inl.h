// SPDX-License-Identifier: Apache-2.0
// The whole table of a tier with 16-lane vectors (see vector-inl.h), for the end of its source
// file.
#pragma once

#include "sidecar/engine/kernels/attention-inl.h"
#include "sidecar/engine/kernels/matmul-inl.h"
#include "sidecar/engine/kernels/tiers.h"

namespace kairos {
namespace {

consteval KernelTable TableOfTier(const char* name) {
  return {
      .name = name,
      .matmul_quantized = MatmulQuantized,
      .matmul_float = MatmulFloat,
      .quantize_row = QuantizeRow,
      .rms_norm = RmsNorm,
      .rope = Rope,
      .silu_multiply = SiluMultiply,
      .gelu_multiply = GeluMultiply,
      .sum_exponentials = SumExponentials,
      .add = AddTo,
      .store_half = StoreHalf,
      .seal_tile = SealTile,
      .attention_split = Attend,
      .attention_merge = Merge,
  };
}

}  // namespace
}  // namespace kairos
