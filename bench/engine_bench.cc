// SPDX-License-Identifier: Apache-2.0
// The engine is driven as the daemon drives it (engine_driver.h), so that batching, sampling and
// events are in its times; llama.cpp is timed without sampling. Each repetition of a case runs
// both, one after the other.
#include "bench/engine_bench.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/engine_driver.h"
#include "bench/json_line.h"
#include "bench/machine_limits.h"
#include "bench/quantiles.h"
#include "bench/sequence_slots.h"
#include "bench/stolen_core_bench.h"
#include "bench/svg_plot.h"
#include "sidecar/engine/engine.h"
#include "sidecar/engine/kv_arena.h"
#include "sidecar/engine/models/model.h"
#include "sidecar/model/gguf.h"

namespace kairos {
namespace {

constexpr uint32_t kShortContext = 16;
constexpr uint32_t kWarmSteps = 4;
constexpr uint64_t kStepBudgetNs = 50'000'000;  // the sidecar's default

double Seconds(uint64_t begin_ns) {
  return static_cast<double>(MonotonicNs() - begin_ns) * 1e-9;
}

class EngineBench {
 public:
  EngineBench(const EngineBenchOptions& options, std::unique_ptr<Model> model)
      : options_(options), model_(std::move(model)) {
    if (options_.quick) {
      options_.repetitions = 1;
      options_.prompts = {40};
      options_.contexts = {0};
      options_.batches = {2};
      options_.arrival = 200;
      options_.shared = 300;
    }
    options_.prompts = WhatFits(options_.prompts, 0);
    options_.contexts = WhatFits(options_.contexts, NewTokens(kLongContext + 1));
  }

  int Run(BusyNeighbour* neighbour) {
    if (!Prepare()) return 1;
    if (neighbour != nullptr) return StolenCore(*neighbour);
    if (!options_.peer.name.empty() &&
        !peer_.Start(options_.peer, ModelFile(options_.model), options_.threads, PeerContext())) {
      return 1;
    }
    MeasureLimits();
    for (const uint32_t tokens : options_.prompts) {
      if (!Prefill(tokens)) return 1;
    }
    for (const uint32_t context : options_.contexts) {
      if (!Decode(std::max(context, kShortContext), 1)) return 1;
    }
    for (const uint32_t batch : options_.batches) {
      if (!Decode(kShortContext, batch)) return 1;
    }
    if (options_.shared > 0 && !SharedPrefix(options_.shared)) return 1;
    if (options_.arrival > 0 && !Arrival(options_.arrival)) return 1;
    return WritePlot() ? 0 : 1;
  }

 private:
  bool Prepare() {
    const uint32_t blocks = std::max(1024u, 10 * (options_.shared / kBlockTokens));
    const uint32_t slots = blocks * model_->kv_geometry().slots_per_block();
    auto arena = KvArena::Create(model_->kv_geometry(), slots);
    if (!arena.ok()) {
      std::fprintf(stderr, "kairos-bench engine: %s\n", arena.status().message());
      return false;
    }
    arena_ = arena.Take();
    driver_ = std::make_unique<EngineDriver>(*model_, *arena_);
    return OpenEngine(0);
  }

  // Each case, or where the model allows no so long context, the longest that it allows.
  std::vector<uint32_t> WhatFits(const std::vector<uint32_t>& cases, uint32_t behind) const {
    const uint32_t context = model_->parameters().context;
    std::vector<uint32_t> fitting;
    for (const uint32_t tokens : cases) {
      const uint32_t fits = context <= behind ? tokens : std::min(tokens, context - behind);
      if (std::find(fitting.begin(), fitting.end(), fits) == fitting.end()) fitting.push_back(fits);
    }
    return fitting;
  }

  static constexpr uint32_t kLongContext = 1000;  // from here a decode measures fewer steps

  uint32_t DecodeSteps(uint32_t context, uint32_t batch) const {
    return options_.quick ? 4 : batch > 8 || context > kLongContext ? 16 : 32;
  }

  // Of a sequence after `context` tokens.
  uint32_t NewTokens(uint32_t context, uint32_t batch = 1) const {
    return 1 + kWarmSteps + DecodeSteps(context, batch) * options_.repetitions;
  }

  // Tokens of all the peer's sequences together.
  uint32_t PeerContext() const {
    uint32_t tokens = 4608;  // many short ones
    for (const uint32_t prompt : options_.prompts) tokens = std::max(tokens, prompt + 1);
    for (const uint32_t context : options_.contexts) {
      tokens = std::max(tokens, context + NewTokens(kShortContext));
    }
    return tokens;
  }

  bool OpenEngine(uint64_t step_budget_ns) {
    return driver_->Open(options_.threads, step_budget_ns);
  }

  // ---- Limits -----------------------------------------------------------------------------------

  void MeasureLimits() {
    std::vector<double> reads, products;
    for (uint32_t i = 0; i < options_.repetitions; ++i) {
      reads.push_back(ReadBandwidth(options_.threads));
      products.push_back(MultiplyAddRate(model_->kernels().name, options_.threads));
    }
    // The best of the repetitions: a limit that a neighbour lowered is none.
    read_limit_ = Quantile(reads, 1.0);
    product_limit_ = Quantile(products, 1.0);
    if (!options_.json) {
      std::printf("limits: %.1f GB/s read, %.2f Tera 8-bit operations/s (%s)\n",
                  read_limit_ * 1e-9, product_limit_ * 1e-12, model_->kernels().name);
    }
  }

  // Bytes that one decode step of one sequence reads.
  double StepBytes(uint32_t context) const {
    const HyperParameters& shape = model_->parameters();
    const double tile_bytes = static_cast<double>(SealedTileBytes(shape.head_dim));
    double tokens = 0;  // of all layers
    for (const bool sliding : shape.sliding) {
      tokens += sliding ? std::min(context, shape.window) : context;
    }
    return static_cast<double>(model_->weight_bytes()) +
           tile_bytes / kBlockTokens * shape.kv_heads * tokens;
  }

  static double Operations(const Projection& projection) {
    double sum = 0.0;
    for (uint32_t i = 0; i < projection.count; ++i) {
      sum += 2.0 * projection.parts[i].rows * projection.parts[i].cols;
    }
    return sum;
  }

  // Of the matrix products alone; attention is not counted.
  double PrefillOperations(uint32_t tokens) const {
    double sum = 0.0;
    for (uint32_t i = 0; i < model_->parameters().layers; ++i) {
      const LayerWeights& layer = model_->layer(i);
      sum += Operations(layer.qkv) + Operations(layer.output) + Operations(layer.gate_up) +
             Operations(layer.down);
    }
    return sum * tokens + Operations(model_->head());
  }

  // ---- Cases ------------------------------------------------------------------------------------

  int StolenCore(BusyNeighbour& neighbour) {
    StolenCoreOptions stolen;
    stolen.threads = options_.threads;
    stolen.repetitions = options_.repetitions;
    stolen.json = options_.json;
    if (options_.quick) {
      stolen.prompt = 40;
      stolen.steps = 8;
    }
    return RunStolenCoreBench(stolen, *model_, *arena_, neighbour);
  }

  // Adds the rate of `tokens` in the peer's time; false when the peer failed.
  bool AskPeer(const nlohmann::json& question, double tokens, std::vector<double>* rates) {
    const nlohmann::json answer = peer_.Ask(question);
    const double seconds = answer.is_object() ? answer.value("seconds", 0.0) : 0.0;
    if (seconds <= 0.0) return false;
    if (rates != nullptr) rates->push_back(tokens / seconds);
    return true;
  }

  bool Prefill(uint32_t tokens) {
    std::vector<double> ours, theirs;
    // The first round warms both up.
    for (uint32_t i = 0; i <= options_.repetitions; ++i) {
      uint32_t next_slot = 0;
      SequenceSpec spec = driver_->Spec(tokens, 1, &next_slot);
      const uint64_t begin = MonotonicNs();
      if (!driver_->Submit(std::move(spec)) || !driver_->StepUntil(1)) return Failed("prefill");
      const double seconds = Seconds(begin);
      driver_->Drain();
      if (i > 0) ours.push_back(tokens / seconds);
      if (peer_.running() && !AskPeer({{"do", "prefill"}, {"tokens", tokens}}, tokens,
                                      i > 0 ? &theirs : nullptr)) {
        return Failed("peer");
      }
    }
    AddPoints(&prefill_plot_, tokens, ours, theirs);
    JsonLine line("engine.prefill_tokens_per_second", Median(ours), "1/s");
    line.Param("tokens", tokens).Param("threads", options_.threads).Param("spread", Spread(ours));
    Report(&line, "prefill", tokens, 1, ours, theirs);
    if (product_limit_ > 0.0) {
      const double share = PrefillOperations(tokens) * Median(ours) / tokens / product_limit_;
      Share("engine.multiply_add_limit_share", share, "tokens", tokens);
    }
    return true;
  }

  bool Decode(uint32_t context, uint32_t batch) {
    const uint32_t steps = DecodeSteps(context, batch);
    const uint32_t new_tokens = NewTokens(context, batch);
    uint32_t next_slot = 0;
    for (uint32_t i = 0; i < batch; ++i) {
      if (!driver_->Submit(driver_->Spec(context, new_tokens, &next_slot))) {
        return Failed("submit");
      }
    }
    if (!driver_->StepUntil(batch * (1 + kWarmSteps))) return Failed("decode");
    if (peer_.running() &&
        (peer_.Ask({{"do", "decode_open"}, {"context", context}, {"batch", batch}}).empty() ||
         !AskPeer({{"do", "decode_run"}, {"steps", kWarmSteps}}, 1, nullptr))) {
      return Failed("peer");
    }
    std::vector<double> ours, theirs;
    for (uint32_t i = 0; i < options_.repetitions; ++i) {
      const uint64_t begin = MonotonicNs();
      if (!driver_->StepUntil(batch * steps)) return Failed("decode");
      ours.push_back(batch * steps / Seconds(begin));
      if (peer_.running() &&
          !AskPeer({{"do", "decode_run"}, {"steps", steps}}, batch * steps, &theirs)) {
        return Failed("peer");
      }
    }
    driver_->Drain();
    const uint32_t shown = context == kShortContext ? 0 : context;
    if (batch == 1) AddPoints(&decode_plot_, std::max(context, 64u), ours, theirs);
    if (context == kShortContext && batch == 1) one_ = Median(ours);
    JsonLine line("engine.decode_tokens_per_second", Median(ours), "1/s");
    line.Param("context", shown).Param("batch", batch).Param("threads", options_.threads);
    line.Param("spread", Spread(ours));
    Report(&line, "decode", shown, batch, ours, theirs);
    // R(M): what a step of M sequences costs, in steps of one.
    if (batch > 1 && one_ > 0.0) StepCostRatio(batch, batch * one_ / Median(ours));
    if (batch == 1 && read_limit_ > 0.0) {
      Share("engine.stream_limit_share", StepBytes(context) * Median(ours) / read_limit_, "context",
            shown);
    }
    return true;
  }

  // ---- A prefix that sessions share -------------------------------------------------------------

  // Eight sessions that decode after the same prefix, which lies in memory once for all or, copied,
  // once for each: the second is what an engine pays that does not know of sharing.
  bool SharedPrefix(uint32_t tokens) {
    constexpr uint32_t kSessions = 8, kSteps = 16;
    const uint32_t blocks = tokens / kBlockTokens;
    uint32_t next_slot = 0;
    const SequenceSpec first = driver_->Spec(blocks * kBlockTokens + 1, 1, &next_slot);
    if (!driver_->Submit(SequenceSpec(first)) || !driver_->StepUntil(1)) {
      return Failed("shared prefix");
    }
    driver_->Drain();
    std::vector<double> once, each;
    for (const bool share : {true, false}) {
      for (uint32_t i = 0; i < kSessions; ++i) {
        SequenceSpec spec = first;
        spec.id = driver_->NextId();
        spec.tokens.back() = driver_->NextToken();
        spec.computed = blocks * kBlockTokens;
        spec.max_new_tokens = 1 + kWarmSteps + kSteps * options_.repetitions;
        spec.slots.resize(blocks * model_->kv_geometry().slots_per_block());
        if (!share && i > 0) {
          for (SlotId& slot : spec.slots) {
            const SlotId copy{next_slot++};
            std::memcpy(arena_->slot(copy), arena_->slot(slot), arena_->slot_bytes());
            slot = copy;
          }
        }
        next_slot = TakeSlots(model_->kv_geometry(), 1 + spec.max_new_tokens, next_slot, &spec);
        if (!driver_->Submit(std::move(spec))) return Failed("submit");
      }
      if (!driver_->StepUntil(kSessions * (1 + kWarmSteps))) return Failed("shared prefix");
      for (uint32_t i = 0; i < options_.repetitions; ++i) {
        const uint64_t begin = MonotonicNs();
        if (!driver_->StepUntil(kSessions * kSteps)) return Failed("shared prefix");
        (share ? once : each).push_back(kSessions * kSteps / Seconds(begin));
      }
      driver_->Drain();
    }
    const double ratio = Median(once) / Median(each);
    if (options_.json) {
      JsonLine("engine.shared_prefix_tokens_per_second", Median(once), "1/s")
          .Param("prefix", tokens)
          .Param("batch", kSessions)
          .Peer("own-copies", Median(each), ratio)
          .Print();
    } else {
      std::printf("8 sessions after a shared prefix of %u tokens: %.1f tokens/s, each with a copy "
                  "of its own %.1f: %.2f times\n",
                  tokens, Median(once), Median(each), ratio);
    }
    return true;
  }

  // ---- A long prompt arrives while others decode ------------------------------------------------

  // Milliseconds from token to token of sequences up to `last`, until `token_of` speaks, or for
  // `steps` steps.
  struct Watched {
    std::vector<double> gaps_ms;
    double first_ms = 0.0;  // from now to the first token of `token_of`
  };
  bool Watch(uint64_t first, uint64_t last, uint64_t token_of, uint32_t steps, Watched* out) {
    std::map<uint64_t, uint64_t> spoke;
    const uint64_t begin = MonotonicNs();
    for (uint32_t step = 0; out->first_ms == 0.0 && (token_of != 0 || step < steps); ++step) {
      if (!driver_->engine().DoWork(MonotonicNs())) return Failed("arrival");
      while (auto event = driver_->engine().PollEvent()) {
        if (event->kind != EngineEvent::Kind::kToken) continue;
        const uint64_t id = event->id.value;
        if (id == token_of) out->first_ms = static_cast<double>(event->time_ns - begin) * 1e-6;
        if (id < first || id > last) continue;
        const uint64_t before = std::exchange(spoke[id], event->time_ns);
        if (before == 0) continue;
        out->gaps_ms.push_back(static_cast<double>(event->time_ns - before) * 1e-6);
      }
    }
    return true;
  }

  // The engine as the sidecar runs it: with its time budget, and without guessed tokens, which
  // would make gaps of zero.
  bool Arrival(uint32_t tokens) {
    constexpr uint32_t kDecoding = 8, kContext = 256, kSteps = 100, kTokens = 1500;
    std::vector<double> gaps, gaps_alone, firsts, firsts_alone;
    for (uint32_t i = 0; i < options_.repetitions; ++i) {
      if (!OpenEngine(kStepBudgetNs)) return false;
      uint32_t next_slot = 0;
      Watched alone, with, silent;
      if (!driver_->Submit(driver_->Spec(tokens, 1, &next_slot))) return Failed("submit");
      if (!Watch(0, 0, driver_->last_id(), 0, &alone)) return false;
      driver_->Drain();
      next_slot = 0;
      const uint64_t first = driver_->last_id() + 1;
      for (uint32_t s = 0; s < kDecoding; ++s) {
        if (!driver_->Submit(driver_->Spec(kContext, kTokens, &next_slot))) {
          return Failed("submit");
        }
      }
      if (!driver_->StepUntil(kDecoding * kWarmSteps)) return Failed("arrival");
      if (!Watch(first, first + kDecoding - 1, 0, kSteps, &silent)) return false;
      if (!driver_->Submit(driver_->Spec(tokens, 1, &next_slot))) return Failed("submit");
      if (!Watch(first, first + kDecoding - 1, driver_->last_id(), 0, &with)) return false;
      for (uint64_t id = first; id < first + kDecoding; ++id) {
        if (!driver_->engine().Cancel(SequenceId{id})) return Failed("cancel");
      }
      driver_->Drain();
      gaps.push_back(Quantile(with.gaps_ms, 0.99));
      gaps_alone.push_back(Quantile(silent.gaps_ms, 0.99));
      firsts.push_back(with.first_ms);
      firsts_alone.push_back(alone.first_ms);
    }
    Slowdown("engine.arrival_gap_p99_ms", "p99 from token to token", tokens, gaps, gaps_alone);
    Slowdown("engine.arrival_ttft_ms", "the prompt's time to first token", tokens, firsts,
             firsts_alone);
    return OpenEngine(0);
  }

  void Slowdown(const char* metric, const char* what, uint32_t tokens,
                const std::vector<double>& with, const std::vector<double>& alone) const {
    const double ratio = Median(with) / Median(alone);
    if (options_.json) {
      JsonLine(metric, Median(with), "ms")
          .Param("tokens", tokens)
          .Param("decoding", 8)
          .Peer("alone", Median(alone), 1.0 / ratio)
          .Print();
      return;
    }
    std::printf("%u tokens arrive beside 8 that decode: %s %.1f ms, alone %.1f ms: %.2f times\n",
                tokens, what, Median(with), Median(alone), ratio);
    std::fflush(stdout);
  }

  bool Failed(const char* what) const {
    std::fprintf(stderr, "kairos-bench engine: %s failed\n", what);
    return false;
  }

  void Report(JsonLine* line, const char* what, uint32_t tokens, uint32_t batch,
              const std::vector<double>& ours, const std::vector<double>& theirs) const {
    const double ratio = theirs.empty() ? 0.0 : Median(ours) / Median(theirs);
    if (options_.json) {
      if (!theirs.empty()) line->Peer("llama-cpp", Median(theirs), ratio);
      line->Print();
      return;
    }
    std::printf("%-8s %5u tokens, batch %2u: %8.1f tokens/s (spread %.1f %%)", what, tokens, batch,
                Median(ours), 100 * Spread(ours));
    if (!theirs.empty()) std::printf("   llama.cpp %8.1f, ratio %.2f", Median(theirs), ratio);
    std::printf("\n");
    std::fflush(stdout);
  }

  void Share(const char* metric, double share, const char* parameter, uint32_t value) const {
    if (options_.json) {
      JsonLine(metric, share, "share").Param(parameter, value).Print();
    } else {
      std::printf("%40.1f %% of the measured limit\n", 100 * share);
    }
  }

  void StepCostRatio(uint32_t batch, double ratio) const {
    if (options_.json) {
      JsonLine("engine.step_cost_ratio", ratio, "ratio").Param("batch", batch).Print();
    } else {
      std::printf("%38sR(%u) = %.2f steps of one sequence\n", "", batch, ratio);
    }
  }

  static void AddPoints(PlotPanel* panel, double x, const std::vector<double>& ours,
                        const std::vector<double>& theirs) {
    panel->lines[0].points.emplace_back(x, Median(ours));
    if (!theirs.empty()) panel->lines[1].points.emplace_back(x, Median(theirs));
  }

  bool WritePlot() const {
    if (options_.plot.empty()) return true;
    return WriteSvgPlot(options_.plot, {prefill_plot_, decode_plot_}) ||
           Failed("--plot: writing the file");
  }

  EngineBenchOptions options_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvArena> arena_;
  std::unique_ptr<EngineDriver> driver_;
  PeerProcess peer_;
  double read_limit_ = 0.0;
  double product_limit_ = 0.0;
  double one_ = 0.0;
  PlotPanel prefill_plot_{"Prefill", "tokens of the prompt", "tokens/s",
                          {{"KAIROS", {}}, {"llama.cpp", {}}}};
  PlotPanel decode_plot_{"Decode, one sequence", "tokens before (64 and fewer: 64)", "tokens/s",
                         {{"KAIROS", {}}, {"llama.cpp", {}}}};
};

}  // namespace

int RunEngineBench(const EngineBenchOptions& options) {
  const auto neighbour =
      options.stolen_core ? std::make_unique<BusyNeighbour>() : std::unique_ptr<BusyNeighbour>();
  std::string error;
  auto file = GgufFile::Open(ModelFile(options.model), &error);
  const KernelTable* kernels = ChooseKernels();
  if (kernels == nullptr) error = "KAIROS_KERNELS names a tier that this machine lacks";
  if (file.ok() && kernels != nullptr) {
    auto model = Model::Load(**file, *kernels, {}, &error);
    if (model.ok()) return EngineBench(options, model.Take()).Run(neighbour.get());
  }
  std::fprintf(stderr, "kairos-bench engine: --model: %s\n", error.c_str());
  return 1;
}

}  // namespace kairos
