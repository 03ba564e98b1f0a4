// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/thread_choice.h"

#include <sys/resource.h>

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "sidecar/engine/forward.h"

namespace kairos {
namespace {

constexpr uint64_t kBudgetNs = 100'000'000;
constexpr uint32_t kRounds = 3;
constexpr double kNoise = 1.03;

// Times that another thread took the core of one of ours, since the process began.
uint64_t Preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_nivcsw);
}

// Layers of a model, one after the other, so that no cache holds what a piece reads.
class LayerTimer {
 public:
  LayerTimer(const Model& model, KvArena& arena, uint32_t threads_max)
      : layers_(model.parameters().layers),
        pool_(threads_max),
        forward_(model, arena, pool_),
        tokens_(kBlockTokens) {
    // Those of one block, and two for each of the open one.
    const uint32_t per_block = arena.geometry().slots_per_block();
    KAIROS_CHECK(arena.slots() >= 3 * per_block);
    for (uint32_t i = 0; i < 3 * per_block; ++i) slots_.push_back(SlotId{i});
    segment_.tokens = tokens_.data();
    segment_.slots = slots_.data();
    segment_.open = slots_.data() + per_block;
  }

  void SetThreads(uint32_t threads) {
    pool_.SetActive(threads);
    Time(1, 1);  // wakes those that rest
  }

  uint64_t Time(uint32_t rows, uint32_t layers) {
    segment_.count = rows;
    const uint64_t begin_ns = MonotonicNs();
    forward_.RunLayers({&segment_, 1}, next_layer_, layers);
    next_layer_ = (next_layer_ + layers) % layers_;
    return MonotonicNs() - begin_ns;
  }

  // As many layers as take about so long, by one that took `layer_ns`.
  uint32_t LayersIn(uint64_t ns, uint64_t layer_ns) const {
    return static_cast<uint32_t>(std::clamp<uint64_t>(ns / std::max<uint64_t>(layer_ns, 1), 1,
                                                      layers_));
  }

  // Keeps in *best the least time of a layer in pieces that nobody disturbed.
  void TimeUndisturbed(uint32_t rows, uint32_t layers, uint64_t* best) {
    const uint64_t before = Preemptions();
    const uint64_t layer_ns = Time(rows, layers) / layers;
    if (Preemptions() != before) return;
    if (*best == 0 || layer_ns < *best) *best = layer_ns;
  }

 private:
  const uint32_t layers_;
  WorkerPool pool_;
  Forward forward_;
  const std::vector<TokenId> tokens_;
  std::vector<SlotId> slots_;
  Segment segment_;
  uint32_t next_layer_ = 0;
};

}  // namespace

std::vector<uint32_t> ThreadCounts(uint32_t threads_max) {
  KAIROS_CHECK(threads_max >= 1);
  std::vector<uint32_t> counts;
  for (uint32_t count = 1; count < threads_max; count += std::max(1u, count / 4)) {
    counts.push_back(count);
  }
  counts.push_back(threads_max);
  return counts;
}

std::vector<ThreadTiming> MeasureThreads(const Model& model, KvArena& arena,
                                         uint32_t threads_max) {
  std::vector<ThreadTiming> timings;
  for (const uint32_t count : ThreadCounts(threads_max)) timings.push_back({count, 0, 0});
  if (timings.size() == 1) return timings;
  LayerTimer timer(model, arena, threads_max);
  timer.SetThreads(1);
  const uint64_t piece_ns = kBudgetNs / (2 * kRounds * timings.size());
  timer.Time(kBlockTokens, 1);  // takes memory and warms up
  const uint32_t decode_layers = timer.LayersIn(piece_ns, timer.Time(1, 1));
  const uint32_t prefill_layers = timer.LayersIn(piece_ns, timer.Time(kBlockTokens, 1));
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (ThreadTiming& timing : timings) {
      timer.SetThreads(timing.threads);
      timer.TimeUndisturbed(1, decode_layers, &timing.decode_ns);
      timer.TimeUndisturbed(kBlockTokens, prefill_layers, &timing.prefill_ns);
    }
  }
  return timings;
}

uint32_t ChooseThreads(std::span<const ThreadTiming> timings) {
  KAIROS_CHECK(!timings.empty());
  const ThreadTiming* best = &timings.back();
  if (best->decode_ns == 0) return best->threads;
  for (const ThreadTiming& timing : timings) {
    if (timing.decode_ns != 0 && timing.decode_ns < best->decode_ns) best = &timing;
  }
  const double limit_ns = kNoise * static_cast<double>(best->decode_ns);
  for (const ThreadTiming& timing : timings) {
    if (timing.decode_ns == 0 || static_cast<double>(timing.decode_ns) > limit_ns) continue;
    if (timing.prefill_ns != 0 && timing.prefill_ns < best->prefill_ns) best = &timing;
  }
  return best->threads;
}

}  // namespace kairos
