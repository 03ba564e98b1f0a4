// SPDX-License-Identifier: Apache-2.0
// What SIGTERM and SIGINT mean: during the start they end the process at once with 128 + their
// number, while it serves they ask for a drain, and during the drain they end it with 0.
// Owner: the main thread; a thread of its own reads the signals until the process ends.
#pragma once

#include <atomic>
#include <functional>

namespace kairos {

class SignalWatch {
 public:
  // Blocks the signals for the calling thread and those made after it. Never destroyed before the
  // process ends.
  SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // The start is over. Blocks until a signal came or `stop()` says yes; looks every 50 ms.
  void Serve(const std::function<bool()>& stop);

 private:
  enum class Stage { kStarting, kServing, kEnding };
  void Read(int signals);

  // Sequentially consistent, the default: it changes twice in the life of the process.
  std::atomic<Stage> stage_{Stage::kStarting};
};

}  // namespace kairos
