// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/worker_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <ctime>
#include <vector>

#include "base/clock.h"
#include "sidecar/engine/step_budget.h"

namespace kairos {
namespace {

uint64_t ProcessCpuNs() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

TEST(WorkerPool, RunsEveryItemOnceForAnyThreadCount) {
  for (const uint32_t threads : {1u, 2u, 5u}) {
    WorkerPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (uint32_t items : {0u, 1u, 2u, 63u, 1000u, 70000u}) {
      std::vector<uint32_t> runs(items);
      std::vector<uint64_t> by_worker(threads * 16);
      pool.Run(items, [&](uint32_t item, uint32_t worker) {
        ++runs[item];
        ++by_worker[worker * 16];
      });
      EXPECT_EQ(runs, std::vector<uint32_t>(items, 1));
      uint64_t total = 0;
      for (const uint64_t count : by_worker) total += count;
      EXPECT_EQ(total, items);
    }
  }
}

TEST(WorkerPool, ShowsTheCallerWhatWorkersWroteOverManyShortJobs) {
  WorkerPool pool(3);
  std::vector<uint64_t> cells(7);
  for (uint64_t round = 1; round <= 20000; ++round) {
    pool.Run(7, [&](uint32_t item, uint32_t) { cells[item] += round; });
  }
  for (const uint64_t cell : cells) EXPECT_EQ(cell, 20000ull * 20001 / 2);
}

TEST(WorkerPool, RunsEveryItemOnceWhileWorkersGoToRestAndComeBack) {
  WorkerPool pool(4);
  std::vector<uint64_t> cells(50);
  for (uint64_t round = 1; round <= 4000; ++round) {
    pool.SetActive(1 + static_cast<uint32_t>(round / 3 % 4));
    std::atomic<uint32_t> by_resting{0};
    pool.Run(50, [&](uint32_t item, uint32_t worker) {
      ++cells[item];
      if (worker >= pool.active()) by_resting.fetch_add(1);
    });
    ASSERT_EQ(by_resting.load(), 0u) << round;
  }
  EXPECT_EQ(cells, std::vector<uint64_t>(50, 4000));
}

TEST(WorkerPool, HasAsManyWorkersAtItAsAreActive) {
  constexpr uint64_t kWatchdogNs = 60'000'000'000;
  WorkerPool pool(4);
  for (const uint32_t workers : {4u, 2u, 3u, 4u}) {
    pool.SetActive(1);
    pool.Run(8, [](uint32_t, uint32_t) {});
    pool.SetActive(workers);
    // No item ends before each worker has one.
    std::atomic<uint32_t> begun{0};
    const uint64_t begin_ns = MonotonicNs();
    pool.Run(workers, [&](uint32_t, uint32_t) {
      begun.fetch_add(1);
      while (begun.load() < workers && MonotonicNs() - begin_ns < kWatchdogNs) sched_yield();
    });
    ASSERT_LT(MonotonicNs() - begin_ns, kWatchdogNs) << workers;
  }
}

TEST(WorkerPool, SpendsNoProcessorTimeWhileWorkersRest) {
  WorkerPool pool(4);
  pool.SetActive(2);
  pool.Run(64, [](uint32_t, uint32_t) {});
  timespec pause{0, 300'000'000};
  nanosleep(&pause, nullptr);
  const uint64_t before = ProcessCpuNs();
  nanosleep(&pause, nullptr);
  EXPECT_LT(ProcessCpuNs() - before, 30'000'000u);
}

TEST(WorkerPool, SpendsNoProcessorTimeWhileIdle) {
  WorkerPool pool(4);
  pool.Run(64, [](uint32_t, uint32_t) {});
  timespec pause{0, 300'000'000};
  nanosleep(&pause, nullptr);
  const uint64_t before = ProcessCpuNs();
  nanosleep(&pause, nullptr);
  EXPECT_LT(ProcessCpuNs() - before, 30'000'000u);
}

TEST(WorkerPool, TellsExactlyOneCallerThatAllPartsAreDone) {
  WorkerPool pool(3);
  for (int round = 0; round < 2000; ++round) {
    PartCountdown countdown;
    countdown.Reset(9);
    std::vector<uint32_t> last(9);
    pool.Run(9, [&](uint32_t item, uint32_t) { last[item] = countdown.FinishOne() ? 1 : 0; });
    uint32_t total = 0;
    for (const uint32_t one : last) total += one;
    ASSERT_EQ(total, 1u);
  }
}

TEST(StepBudget, FitsPrefillIntoWhatDecodeLeaves) {
  StepBudget budget(50'000'000, 512);
  EXPECT_EQ(budget.PrefillTokens(0), 64u);
  budget.Observe(0, 64, 6'400'000);  // 0.1 ms a token
  EXPECT_EQ(budget.PrefillTokens(0), 496u);
  budget.Observe(8, 0, 30'000'000);
  EXPECT_EQ(budget.PrefillTokens(8), 200u);
  budget.Observe(8, 0, 900'000'000);
  EXPECT_EQ(budget.PrefillTokens(8), 16u);
  for (int i = 0; i < 40; ++i) budget.Observe(0, 64, 640'000'000);
  EXPECT_EQ(budget.PrefillTokens(0), 16u);
  EXPECT_EQ(StepBudget(0, 100).PrefillTokens(5), 100u);
  EXPECT_EQ(StepBudget(50'000'000, 8).PrefillTokens(5), 8u);
}

// Steps that are far below the budget must not become far longer for those that decode.
TEST(StepBudget, StretchesAStepTwoAndAHalfTimesAtMost) {
  StepBudget budget(50'000'000, 512);
  budget.Observe(0, 64, 6'400'000);
  budget.Observe(1, 0, 4'000'000);
  EXPECT_EQ(budget.PrefillTokens(1), 56u);  // 60 fit into 6 ms
  EXPECT_EQ(budget.PrefillTokens(0), 496u) << "nobody waits";
}

}  // namespace
}  // namespace kairos
