// SPDX-License-Identifier: Apache-2.0
// One daemon per socket: a lock file beside it, held by flock for the life of the process, so that
// a crash releases it and a second instance harms nothing.
// Owner: the main thread of the daemon; IsHeld() is anybody's.
#pragma once

#include <string>

namespace kairos {

class InstanceLock {
 public:
  InstanceLock() = default;
  ~InstanceLock();
  InstanceLock(const InstanceLock&) = delete;
  InstanceLock& operator=(const InstanceLock&) = delete;

  enum class Outcome { kTaken, kHeldByOther, kFailed };
  // Creates the folder (`folder_mode`) and the file (0600) where missing. Blocks for half a second
  // at most.
  Outcome Take(const std::string& path, mode_t folder_mode, std::string* error);
  // Whether a process holds the lock at `path` now; then *pid is its id, or empty where the file
  // cannot be read. Takes nothing, makes nothing, does not block.
  static bool IsHeld(const std::string& path, std::string* pid);
  // What an operator can do who wants another instance.
  static std::string SecondInstanceRemedy();

 private:
  int descriptor_ = -1;
};

}  // namespace kairos
