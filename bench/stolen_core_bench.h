// SPDX-License-Identifier: Apache-2.0
// kairos-bench engine --stolen-core: what is left of the engine's speed while another process keeps
// one core busy, as a share of what one thread does undisturbed.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "sidecar/engine/engine.h"
#include "sidecar/engine/kv_arena.h"
#include "sidecar/engine/models/model.h"

namespace kairos {

// A process that spins on one core of those that this one may use, while told to. Made before the
// bench takes its memory, which the child would share. Owner: the bench's one thread.
class BusyNeighbour {
 public:
  // Stopped at first.
  BusyNeighbour();
  ~BusyNeighbour();
  BusyNeighbour(const BusyNeighbour&) = delete;
  BusyNeighbour& operator=(const BusyNeighbour&) = delete;

  bool valid() const { return pid_ > 0; }
  void Spin();
  void Stop();

 private:
  pid_t pid_ = -1;
};

struct StolenCoreOptions {
  uint32_t threads = 2;       // compared with 1
  uint32_t repetitions = 5;   // of each case, in turns
  uint32_t prompt = 512;      // tokens of a prefill
  uint32_t steps = 96;        // of a decode
  bool json = false;
};

// Exit status: 0 when everything could be measured. The arena has slots for two such sequences.
int RunStolenCoreBench(const StolenCoreOptions& options, const Model& model, KvArena& arena,
                       BusyNeighbour& neighbour);

}  // namespace kairos
