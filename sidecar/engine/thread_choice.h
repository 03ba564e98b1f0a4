// SPDX-License-Identifier: Apache-2.0
// How many compute threads serve a model best on this machine: measured when it was loaded.
// More are not always faster: a decode step reads all weights, and memory may be busy before all
// cores are; cores may share their units.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kairos {

class Model;
class KvArena;

// The shortest of several pieces of work with so many threads, in nanoseconds of a layer. 0:
// another process took a core during each of them, so that they say nothing.
struct ThreadTiming {
  uint32_t threads = 0;
  uint64_t decode_ns = 0;   // of one token
  uint64_t prefill_ns = 0;  // of a block of tokens
};

// The counts that are measured, ascending: all up to 8, fewer above, 1 and `threads_max` always.
std::vector<uint32_t> ThreadCounts(uint32_t threads_max);

// Times layers of `model` by each of ThreadCounts(threads_max). Blocks for about 100 ms; for models
// whose layers take long, for three of them by each count. Before the engine: uses the first slots
// of `arena` and leaves nothing of use there.
std::vector<ThreadTiming> MeasureThreads(const Model& model, KvArena& arena, uint32_t threads_max);

// The count with the fastest decode; among those as good within noise, with the fastest prefill.
// The last count where that one could not be measured: a neighbour at the start of a process does
// not limit it for life. Pure. `timings` are ascending, not empty.
uint32_t ChooseThreads(std::span<const ThreadTiming> timings);

}  // namespace kairos
