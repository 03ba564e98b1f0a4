// SPDX-License-Identifier: Apache-2.0
// Runs one kernel of the AVX2 tier on fixed inputs: `kernel_work NAME TIMES`. Without arguments it
// lists the names. For tests that count instructions (kernel_instructions.py).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/engine/kernels/kernel_inputs.h"

namespace kairos {
namespace {

// Shapes of SmolLM2-135M: rows and columns of a projection, 3 query heads of a KV head.
constexpr uint32_t kRows = 576;
constexpr uint32_t kCols = 768;  // also a multiple of 256, for the K types

using Work = std::function<void(const KernelTable&, uint32_t times)>;

void Matmul(WeightType type, uint32_t tokens, const KernelTable& kernels, uint32_t times) {
  Inputs inputs(1);
  const RandomMatrix matrix(inputs, type, kRows, kCols);
  Activations x(kernels, inputs.Floats(uint64_t{tokens} * kCols, 1.0f), tokens, kCols);
  std::vector<float> out(uint64_t{tokens} * kRows);
  for (uint32_t i = 0; i < times; ++i) {
    kernels.matmul_quantized(matrix.packed(), 0, matrix.packed().panels(), x.at(0), tokens,
                             out.data(), kRows);
  }
}

void Attention(bool sealed, uint32_t queries, const KernelTable& kernels, uint32_t times) {
  Inputs inputs(2);
  SplitShape shape;
  shape.query_count = queries;
  shape.blocks = 7;
  shape.sealed_mask = sealed ? 0x7f : 0;
  RandomSplit split(inputs, kernels, shape);
  for (uint32_t i = 0; i < times; ++i) split.Run(kernels);
}

void Rows(const KernelTable& kernels, uint32_t times) {
  Inputs inputs(3);
  const std::vector<float> x = inputs.Floats(1536, 1.0f), y = inputs.Floats(1536, 1.0f);
  std::vector<float> out(1536), scales(48), sums(48);
  std::vector<int8_t> values(1536);
  for (uint32_t i = 0; i < times; ++i) {
    kernels.rms_norm(x.data(), y.data(), 1e-5f, 1536, out.data());
    kernels.silu_multiply(x.data(), y.data(), 1536, out.data());
    kernels.gelu_multiply(x.data(), y.data(), 1536, out.data());
    kernels.add(out.data(), y.data(), 1536);
    kernels.quantize_row(out.data(), 1536, values.data(), scales.data(), sums.data());
  }
}

struct Case {
  std::string name;
  Work work;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const std::pair<const char*, WeightType> types[] = {
      {"q4_1", WeightType::kQ4_1}, {"q8_0", WeightType::kQ8_0}, {"q5_0", WeightType::kQ5_0},
      {"q6_k", WeightType::kQ6_K}};
  for (const auto& [name, type] : types) {
    for (const uint32_t tokens : {1u, 4u, 32u}) {
      cases.push_back({std::string("matmul_") + name + "_" + std::to_string(tokens),
                       [type = type, tokens](const KernelTable& kernels, uint32_t times) {
                         Matmul(type, tokens, kernels, times);
                       }});
    }
  }
  for (const bool sealed : {true, false}) {
    for (const uint32_t queries : {1u, 32u}) {
      cases.push_back({std::string("attention_") + (sealed ? "int8_" : "half_") +
                           std::to_string(queries),
                       [sealed, queries](const KernelTable& kernels, uint32_t times) {
                         Attention(sealed, queries, kernels, times);
                       }});
    }
  }
  cases.push_back({"row_operations", Rows});
  return cases;
}

int Run(const char* name, uint32_t times) {
  const KernelTable* kernels = FindKernels("avx2");
  if (kernels == nullptr) {
    std::fprintf(stderr, "no AVX2 on this processor\n");
    return 77;
  }
  for (const Case& c : Cases()) {
    if (c.name == name) {
      c.work(*kernels, times);
      return 0;
    }
  }
  std::fprintf(stderr, "no such kernel: %s\n", name);
  return 2;
}

}  // namespace
}  // namespace kairos

int main(int argc, char** argv) {
  if (argc == 3) return kairos::Run(argv[1], static_cast<uint32_t>(std::atoi(argv[2])));
  for (const auto& c : kairos::Cases()) std::printf("%s\n", c.name.c_str());
  return 0;
}
