// SPDX-License-Identifier: Apache-2.0
// The shapes are those of SmolLM2-135M; no model is needed, since speed does not depend on values.
#include "bench/kernel_bench.h"

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/json_line.h"
#include "bench/quantiles.h"
#include "tests/unit/engine/kernels/kernel_inputs.h"

namespace kairos {
namespace {

constexpr const char* kOperations = "op/s";
constexpr const char* kBytes = "B/s";

const KernelTable& Kernels() {
  static const KernelTable* const kernels = ChooseKernels();
  KAIROS_CHECK(kernels != nullptr);
  return *kernels;
}

// A matrix whose panels all hold the same 16 random rows.
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
  state.counters[kOperations] = benchmark::Counter(operations, benchmark::Counter::kIsRate);
  state.counters[kBytes] = benchmark::Counter(bytes, benchmark::Counter::kIsRate);
}

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
  state.counters[kOperations] = benchmark::Counter(operations * runs, benchmark::Counter::kIsRate);
  state.counters[kBytes] =
      benchmark::Counter(tile * shape.blocks * runs, benchmark::Counter::kIsRate);
}

void QuantizeRow(benchmark::State& state) {
  Inputs inputs(3);
  const std::vector<float> x = inputs.Floats(1536, 1.0f);
  for (auto _ : state) benchmark::DoNotOptimize(Activations(Kernels(), x, 1, 1536));
}

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
using Case = benchmark::internal::Benchmark;

std::vector<Case*> RegisterCases() {
  struct Product {
    const char* name;
    WeightType type;
    uint32_t rows;
    uint32_t cols;
    std::vector<int64_t> tokens;
  };
  const Product products[] = {
      {"matmul/qkv", WeightType::kQ4_1, 960, 576, {1, 4, 8, 512}},
      {"matmul/gate_up", WeightType::kQ4_1, 3072, 576, {1, 4, 8, 512}},
      {"matmul/down", WeightType::kQ4_1, 576, 1536, {1, 4, 8, 512}},
      {"matmul/head", WeightType::kQ8_0, 49152, 576, {1, 4, 8}},
      // All weights of the layers, far larger than a cache: what a decoding step streams.
      {"matmul/layers", WeightType::kQ4_1, 184320, 576, {1, 4, 8, 16}},
  };
  std::vector<Case*> cases;
  for (const Product& product : products) {
    cases.push_back(benchmark::RegisterBenchmark(product.name, Matmul, product.type, product.rows,
                                                 product.cols));
    for (const int64_t tokens : product.tokens) cases.back()->Arg(tokens);
  }
  for (const bool sealed : {true, false}) {
    cases.push_back(benchmark::RegisterBenchmark(
        sealed ? "attention/sealed" : "attention/half", Attention, sealed ? 0xffu : 0u));
    cases.back()->Args({64, 1})->Args({64, 32})->Args({128, 1});  // dimensions of a head, queries
  }
  cases.push_back(benchmark::RegisterBenchmark("quantize_row", QuantizeRow));
  cases.push_back(benchmark::RegisterBenchmark("silu_multiply", SiluMultiply));
  return cases;
}

// Prints each case when its repetitions are done.
class CaseReporter final : public benchmark::BenchmarkReporter {
 public:
  explicit CaseReporter(bool json) : json_(json) {}

  bool ReportContext(const Context&) override {
    if (!json_) std::printf("kernels: %s, one thread\n", Kernels().name);
    return true;
  }

  void ReportRuns(const std::vector<Run>& runs) override {
    std::vector<double> ns, operations, bytes;
    std::string name;
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
      name = run.run_name.function_name;
      if (!run.run_name.args.empty()) name += '/' + run.run_name.args;
      ns.push_back(run.GetAdjustedCPUTime());  // others that share the core do not count
      const auto add = [&](const char* counter, std::vector<double>* rates) {
        const auto at = run.counters.find(counter);
        if (at != run.counters.end()) rates->push_back(at->second.value);
      };
      add(kOperations, &operations);
      add(kBytes, &bytes);
    }
    if (ns.empty()) return;
    ++cases_;
    if (json_) {
      Line("kernels.run_ns", ns, "ns", name);
      Line("kernels.operations_per_second", operations, "1/s", name);
      Line("kernels.read_bytes_per_second", bytes, "B/s", name);
      return;
    }
    std::printf("%-24s %12.0f ns (spread %.1f %%)", name.c_str(), Median(ns), 100 * Spread(ns));
    if (!operations.empty()) std::printf(" %8.1f Gop/s", Median(operations) * 1e-9);
    if (!bytes.empty()) std::printf(" %7.1f GB/s read", Median(bytes) * 1e-9);
    std::printf("\n");
    std::fflush(stdout);
  }

  uint32_t cases() const { return cases_; }

 private:
  static void Line(const char* metric, const std::vector<double>& values, const char* unit,
                   const std::string& name) {
    if (values.empty()) return;
    JsonLine(metric, Median(values), unit)
        .Param("case", name)
        .Param("kernels", std::string(Kernels().name))
        .Param("spread", Spread(values))
        .Print();
  }

  const bool json_;
  uint32_t cases_ = 0;
};

}  // namespace

int RunKernelBench(const KernelBenchOptions& options) {
  if (ChooseKernels() == nullptr) {
    std::fprintf(stderr, "kairos-bench kernels: KAIROS_KERNELS names a tier that this machine "
                         "lacks\n");
    return 1;
  }
  for (Case* one : RegisterCases()) {
    one->MinTime(options.quick ? 0.001 : options.seconds);
    one->Repetitions(options.quick ? 1 : static_cast<int>(options.repetitions));
  }
  CaseReporter reporter(options.json);
  benchmark::RunSpecifiedBenchmarks(&reporter, options.cases.empty() ? "." : options.cases);
  if (reporter.cases() > 0) return 0;
  std::fprintf(stderr, "kairos-bench kernels: --cases: \"%s\" matches none\n",
               options.cases.c_str());
  return 1;
}

}  // namespace kairos
