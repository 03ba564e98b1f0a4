// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/worker_pool.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(budget.PrefillTokens(0), 480u);
  budget.Observe(8, 0, 20'000'000);
  EXPECT_EQ(budget.PrefillTokens(8), 288u);
  budget.Observe(8, 0, 900'000'000);
  EXPECT_EQ(budget.PrefillTokens(8), 32u);
  for (int i = 0; i < 40; ++i) budget.Observe(0, 64, 640'000'000);
  EXPECT_EQ(budget.PrefillTokens(0), 32u);
  EXPECT_EQ(StepBudget(0, 100).PrefillTokens(5), 100u);
  EXPECT_EQ(StepBudget(50'000'000, 8).PrefillTokens(5), 8u);
}

}  // namespace
}  // namespace kairos
