// SPDX-License-Identifier: Apache-2.0
#include "bench/stolen_core_bench.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/engine_driver.h"
#include "bench/json_line.h"
#include "bench/quantiles.h"

namespace kairos {
namespace {

// What the neighbour needs to be seen by the scheduler, and the engine to answer.
constexpr useconds_t kSettleUs = 200'000;
constexpr uint32_t kContext = 16;

void PinToLastCore() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (int core = CPU_SETSIZE - 1; core >= 0; --core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

struct Case {
  const char* name;
  uint32_t threads;
  bool disturbed;
  std::vector<double> prefill;  // tokens per second, of each repetition
  std::vector<double> decode;
};

double Rate(uint32_t tokens, uint64_t begin_ns) {
  return tokens / (static_cast<double>(MonotonicNs() - begin_ns) * 1e-9);
}

// Prefill and decode once. The first piece of each is not timed: it warms up.
bool Measure(const StolenCoreOptions& options, EngineDriver& driver, Case* out) {
  uint32_t next_slot = 0;
  if (!driver.Submit(driver.Spec(kContext, 1 + options.steps * 5 / 4, &next_slot)) ||
      !driver.StepUntil(1 + options.steps / 4)) {
    return false;
  }
  uint64_t begin_ns = MonotonicNs();
  if (!driver.StepUntil(options.steps)) return false;
  out->decode.push_back(Rate(options.steps, begin_ns));
  driver.Drain();
  next_slot = 0;
  SequenceSpec spec = driver.Spec(options.prompt, 1, &next_slot);
  begin_ns = MonotonicNs();
  if (!driver.Submit(std::move(spec)) || !driver.StepUntil(1)) return false;
  out->prefill.push_back(Rate(options.prompt, begin_ns));
  driver.Drain();
  return true;
}

void Report(const StolenCoreOptions& options, const char* phase, const std::vector<double>& alone,
            const std::vector<double>& all, const std::vector<double>& stolen) {
  const double share = Median(stolen) / Median(alone);
  if (!options.json) {
    std::printf("%-8s 1 thread %8.1f tokens/s, %u threads %8.1f, with a busy neighbour %8.1f "
                "(spread %.1f %%): %.0f %% of 1 thread alone\n",
                phase, Median(alone), options.threads, Median(all), Median(stolen),
                100 * Spread(stolen), 100 * share);
    return;
  }
  const auto rate = [&](const std::vector<double>& rates, uint32_t threads, double neighbours) {
    JsonLine("engine.stolen_core_tokens_per_second", Median(rates), "1/s")
        .Param("phase", std::string(phase))
        .Param("threads", threads)
        .Param("busy_neighbours", neighbours)
        .Param("spread", Spread(rates))
        .Print();
  };
  rate(alone, 1, 0);
  rate(all, options.threads, 0);
  rate(stolen, options.threads, 1);
  JsonLine("engine.stolen_core_share", share, "share")
      .Param("phase", std::string(phase))
      .Param("threads", options.threads)
      .Print();
}

}  // namespace

BusyNeighbour::BusyNeighbour() {
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    PinToLastCore();
    raise(SIGSTOP);
    for (;;) asm volatile("");
  }
  if (pid_ > 0) waitpid(pid_, nullptr, WUNTRACED);
}

BusyNeighbour::~BusyNeighbour() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void BusyNeighbour::Spin() {
  kill(pid_, SIGCONT);
  usleep(kSettleUs);
}

void BusyNeighbour::Stop() {
  kill(pid_, SIGSTOP);
  waitpid(pid_, nullptr, WUNTRACED);
  usleep(kSettleUs);
}

int RunStolenCoreBench(const StolenCoreOptions& options, const Model& model, KvArena& arena,
                       BusyNeighbour& neighbour) {
  if (!neighbour.valid()) {
    std::fprintf(stderr, "kairos-bench engine: --stolen-core: cannot start a process\n");
    return 1;
  }
  Case cases[] = {{"alone, 1 thread", 1, false, {}, {}},
                  {"alone", options.threads, false, {}, {}},
                  {"beside a busy process", options.threads, true, {}, {}}};
  EngineDriver one(model, arena);
  EngineDriver all(model, arena);
  if (!one.Open(1, 0) || !all.Open(options.threads, 0)) return 1;
  for (uint32_t i = 0; i < options.repetitions; ++i) {
    for (Case& at : cases) {
      if (at.disturbed) neighbour.Spin();
      const bool measured = Measure(options, at.threads == 1 ? one : all, &at);
      if (at.disturbed) neighbour.Stop();
      if (measured) continue;
      std::fprintf(stderr, "kairos-bench engine: --stolen-core: %s: failed\n", at.name);
      return 1;
    }
  }
  Report(options, "decode", cases[0].decode, cases[1].decode, cases[2].decode);
  Report(options, "prefill", cases[0].prefill, cases[1].prefill, cases[2].prefill);
  return 0;
}

}  // namespace kairos
