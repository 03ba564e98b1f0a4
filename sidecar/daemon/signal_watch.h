// SPDX-License-Identifier: Apache-2.0
// What SIGTERM and SIGINT mean: during the start they end the process at once with 128 + their
// number, while it serves they ask for a drain, and during the drain they end it with 0. What comes
// within 100 ms of the signal that asked for the drain is taken for the same request: shells and
// `timeout` signal a process and its group. SIGHUP asks for the settings to be read again; one that
// comes during the start waits until it serves.
// Owner: the main thread; a thread of its own reads the signals until the process ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace kairos {

class SignalWatch {
 public:
  // Blocks the signals for the calling thread and those made after it. Never destroyed before the
  // process ends.
  SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Empty, or why nobody reads the signals, in words for people: the system refused the thread.
  const std::string& fault() const { return fault_; }
  // The start is over: from now on a signal asks for a drain. To be called before anybody hears
  // that the sidecar serves, who may want it to end at once.
  void EndStart();
  // Calls `look` every 50 ms until it says yes or a signal to end came.
  void Serve(const std::function<bool()>& look);
  // Whether SIGHUP came since the last call.
  bool TakeReload() { return reload_.exchange(false); }

 private:
  enum class Stage { kStarting, kServing, kEnding };
  void Read(int signals);
  void Take(int number, uint64_t now_ns);

  // Sequentially consistent, the default: it changes twice in the life of the process.
  std::atomic<Stage> stage_{Stage::kStarting};
  // As above: what it asks for is read from files, and publishes nothing.
  std::atomic<bool> reload_{false};
  // Of the thread that reads: when a signal asked for the drain; 0 where none did.
  uint64_t ending_since_ns_ = 0;
  std::string fault_;
};

}  // namespace kairos
