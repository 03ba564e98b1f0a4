// SPDX-License-Identifier: Apache-2.0
// Computes the masks of a step's constrained sequences while the layers run: a mask depends on the
// tokens before it and on nothing that the step computes.
// Belongs to the engine thread, which lends its constraints from Begin to Wait. The thread is there
// from the beginning, so that no turn meets a system that has none left.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/status.h"
#include "sidecar/engine/token_constraint.h"

namespace kairos {

struct MaskJob {
  TokenConstraint* constraint = nullptr;
  std::span<uint32_t> mask;
  uint32_t tokens_left = 0;
  bool done = false;  // set by Wait: false where the constraint cannot go on
};

class MaskThread {
 public:
  MaskThread();
  ~MaskThread();
  MaskThread(const MaskThread&) = delete;
  MaskThread& operator=(const MaskThread&) = delete;

  // RESOURCE_EXHAUSTED where the system refused the thread: then Begin must not be called.
  const Status& started() const { return started_; }
  // `jobs` stays where it is until Wait returns. Does not block.
  void Begin(std::span<MaskJob> jobs);
  // Until the jobs of the last Begin are done.
  void Wait();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable ended_;
  std::span<MaskJob> jobs_;  // guarded; not empty from Begin until the thread is through
  bool stopping_ = false;    // guarded
  std::thread thread_;
  Status started_;
};

}  // namespace kairos
