// SPDX-License-Identifier: Apache-2.0
#include "sidecar/engine/thread_choice.h"

#include <gtest/gtest.h>

#include <vector>

#include "sidecar/engine/forward.h"
#include "tests/support/tiny_model.h"

namespace kairos {
namespace {

using Counts = std::vector<uint32_t>;

TEST(ThreadChoice, MeasuresEachSmallCountAndFewerLargeOnes) {
  EXPECT_EQ(ThreadCounts(1), Counts({1}));
  EXPECT_EQ(ThreadCounts(2), Counts({1, 2}));
  EXPECT_EQ(ThreadCounts(8), Counts({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(ThreadCounts(24), Counts({1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 24}));
}

TEST(ThreadChoice, TakesTheFastestDecodeAndBelowNoiseTheFastestPrefill) {
  struct Case {
    const char* what;
    std::vector<ThreadTiming> timings;
    uint32_t chosen;
  };
  const Case cases[] = {
      {"one core", {{1, 0, 0}}, 1},
      {"more are faster", {{1, 400, 4000}, {2, 230, 2000}}, 2},
      {"memory is busy with three",
       {{1, 400, 4000}, {2, 210, 2000}, {3, 180, 1500}, {4, 190, 1200}},
       3},
      {"equal within noise, prefill decides",
       {{1, 400, 4000}, {2, 200, 2000}, {4, 205, 1000}, {8, 206, 900}},
       8},
      {"above noise, prefill does not", {{2, 200, 2000}, {4, 207, 1000}}, 2},
      {"two are slower", {{1, 300, 3000}, {2, 350, 1700}}, 1},
      {"the last was disturbed", {{1, 400, 4000}, {2, 0, 0}}, 2},
      {"another was disturbed", {{1, 400, 4000}, {2, 0, 0}, {3, 200, 0}}, 3},
      {"prefills were disturbed", {{1, 199, 4000}, {2, 200, 0}}, 1},
  };
  for (const Case& one : cases) EXPECT_EQ(ChooseThreads(one.timings), one.chosen) << one.what;
}

// Logits of eight tokens in the arena's first slots.
std::vector<float> Logits(const Model& model, KvArena& arena) {
  WorkerPool pool(1);
  Forward forward(model, arena, pool);
  const std::vector<TokenId> tokens = {5, 6, 7, 8, 9, 10, 11, 12};
  const SlotId slots[] = {SlotId{0}, SlotId{1}};
  Segment segment;
  segment.tokens = tokens.data();
  segment.count = 8;
  segment.logit_rows = 8;
  segment.slots = slots;
  const SlotId open[2] = {SlotId{2}, SlotId{3}};
  segment.open = open;
  forward.Run({&segment, 1});
  return {forward.logits(0), forward.logits(7) + model.parameters().vocabulary};
}

TEST(ThreadChoice, TimesEachCountAndLeavesNothingThatChangesWhatIsComputed) {
  const auto model = LoadTinyModel({});
  const auto fresh = KvArena::Create(model->kv_geometry(), 8);
  const auto used = KvArena::Create(model->kv_geometry(), 8);
  Counts counts;
  for (const ThreadTiming& timing : MeasureThreads(*model, **used, 3)) {
    counts.push_back(timing.threads);
  }
  EXPECT_EQ(counts, Counts({1, 2, 3}));
  bool is_touched = false;
  for (uint64_t i = 0; i < (*used)->slot_bytes(); ++i) {
    is_touched |= (*used)->slot(SlotId{0})[i] != (*fresh)->slot(SlotId{0})[i];
  }
  EXPECT_TRUE(is_touched) << "no block was computed";
  EXPECT_EQ(Logits(*model, **used), Logits(*model, **fresh));
}

}  // namespace
}  // namespace kairos
