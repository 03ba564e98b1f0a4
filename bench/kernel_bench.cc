// SPDX-License-Identifier: Apache-2.0
// Speed of the kernels on one core, at the shapes of SmolLM2-135M. $KAIROS_KERNELS chooses the
// tier. Reports operations and, for weights and KV, bytes read per second.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "tests/unit/engine/kernels/kernel_inputs.h"

namespace kairos {
namespace {

const KernelTable& Kernels() {
  static const KernelTable* const kernels = ChooseKernels();
  KAIROS_CHECK(kernels != nullptr);
  return *kernels;
}

// A matrix whose panels all hold the same 16 random rows: speed does not depend on values.
class RepeatedPanels {
 public:
  RepeatedPanels(Inputs& inputs, WeightType type, uint32_t rows, uint32_t cols)
      : bytes_(rows / kPanelRows * PanelBytes(type, cols)) {
    const RandomMatrix panel(inputs, type, kPanelRows, cols);
    packed_ = panel.packed();
    packed_.rows = rows;
    packed_.data = bytes_.data();
    for (uint32_t p = 0; p < packed_.panels(); ++p) {
      std::memcpy(bytes_.data() + p * packed_.panel_bytes, panel.packed().data,
                  packed_.panel_bytes);
    }
  }
  const PackedMatrix& packed() const { return packed_; }

 private:
  AlignedBytes bytes_;
  PackedMatrix packed_;
};

void Matmul(benchmark::State& state, WeightType type, uint32_t rows, uint32_t cols) {
  const uint32_t m = static_cast<uint32_t>(state.range(0));
  Inputs inputs(1);
  const RepeatedPanels matrix(inputs, type, rows, cols);
  Activations x(Kernels(), inputs.Floats(uint64_t{m} * cols, 1.0f), m, cols);
  std::vector<float> out(uint64_t{m} * rows);
  for (auto _ : state) {
    Kernels().matmul_quantized(matrix.packed(), 0, matrix.packed().panels(), x.at(0), m, out.data(),
                               rows);
    benchmark::DoNotOptimize(out.data());
  }
  const double runs = static_cast<double>(state.iterations());
  const double operations = 2.0 * m * rows * cols * runs;
  const double bytes =
      static_cast<double>(matrix.packed().panels() * matrix.packed().panel_bytes) * runs;
  state.counters["op/s"] = benchmark::Counter(operations, benchmark::Counter::kIsRate);
  state.counters["B/s"] = benchmark::Counter(bytes, benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(Matmul, qkv, WeightType::kQ4_1, 960, 576)->Arg(1)->Arg(4)->Arg(8)->Arg(512);
BENCHMARK_CAPTURE(Matmul, gate_up, WeightType::kQ4_1, 3072, 576)->Arg(1)->Arg(4)->Arg(8)->Arg(512);
BENCHMARK_CAPTURE(Matmul, down, WeightType::kQ4_1, 576, 1536)->Arg(1)->Arg(4)->Arg(8)->Arg(512);
BENCHMARK_CAPTURE(Matmul, head, WeightType::kQ8_0, 49152, 576)->Arg(1)->Arg(4)->Arg(8);
// All weights of the layers, far larger than a cache: what a decoding step streams.
BENCHMARK_CAPTURE(Matmul, layers, WeightType::kQ4_1, 184320, 576)->Arg(1)->Arg(4);

// One run of 256 tokens; many of them in turn, so that KV comes from memory.
void Attention(benchmark::State& state, uint32_t sealed_mask) {
  SplitShape shape;
  shape.head_dim = static_cast<uint32_t>(state.range(0));
  shape.query_count = static_cast<uint32_t>(state.range(1));
  shape.blocks = kSplitTokens / kBlockTokens;
  shape.sealed_mask = sealed_mask;
  shape.own = false;
  Inputs inputs(2);
  std::vector<std::unique_ptr<RandomSplit>> splits;
  for (uint32_t i = 0; i < 128; ++i) {
    splits.push_back(std::make_unique<RandomSplit>(inputs, Kernels(), shape));
  }
  uint64_t next = 0;
  for (auto _ : state) benchmark::DoNotOptimize(splits[next++ % splits.size()]->Run(Kernels()));
  const double runs = static_cast<double>(state.iterations());
  const double tile = static_cast<double>(sealed_mask != 0 ? SealedTileBytes(shape.head_dim)
                                                           : 2 * HalfTileBytes(shape.head_dim));
  const double operations = 4.0 * kSplitTokens * shape.head_dim * shape.group * shape.query_count;
  state.counters["op/s"] = benchmark::Counter(operations * runs, benchmark::Counter::kIsRate);
  state.counters["B/s"] =
      benchmark::Counter(tile * shape.blocks * runs, benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(Attention, sealed, 0xff)->Args({64, 1})->Args({64, 32})->Args({128, 1});
BENCHMARK_CAPTURE(Attention, half, 0)->Args({64, 1})->Args({64, 32})->Args({128, 1});

void QuantizeRow(benchmark::State& state) {
  Inputs inputs(3);
  const std::vector<float> x = inputs.Floats(1536, 1.0f);
  for (auto _ : state) benchmark::DoNotOptimize(Activations(Kernels(), x, 1, 1536));
}
BENCHMARK(QuantizeRow);

void SiluMultiply(benchmark::State& state) {
  Inputs inputs(4);
  const std::vector<float> gate = inputs.Floats(1536, 1.0f);
  const std::vector<float> up = inputs.Floats(1536, 1.0f);
  std::vector<float> out(1536);
  for (auto _ : state) {
    Kernels().silu_multiply(gate.data(), up.data(), 1536, out.data());
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(SiluMultiply);

}  // namespace
}  // namespace kairos

BENCHMARK_MAIN();
