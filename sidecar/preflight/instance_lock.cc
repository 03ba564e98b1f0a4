// SPDX-License-Identifier: Apache-2.0
#include "sidecar/preflight/instance_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace kairos {

namespace {

std::string ReadPid(int descriptor) {
  char pid[32] = "";
  const ssize_t size = pread(descriptor, pid, sizeof(pid) - 1, 0);
  return size > 0 ? std::string(pid, std::strcspn(pid, "\n")) : "";
}

}  // namespace

bool InstanceLock::IsHeld(const std::string& path, std::string* pid) {
  pid->clear();
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return false;
  // A shared lock, and only for this moment: Take() tries for longer than that.
  const bool held = flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (held) *pid = ReadPid(descriptor);
  close(descriptor);
  return held;
}

std::string InstanceLock::SecondInstanceRemedy() {
  return "end it (kairosctl drain), or give this one its own --socket, --control-socket and "
         "--catalog-path";
}

InstanceLock::~InstanceLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

InstanceLock::Outcome InstanceLock::Take(const std::string& path, mode_t folder_mode,
                                         std::string* error) {
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash > 0) {
    const std::string folder = path.substr(0, slash);
    const bool made = mkdir(folder.c_str(), 0700) == 0;
    // Whatever the umask is.
    if (made ? chmod(folder.c_str(), folder_mode) != 0 : errno != EEXIST) {
      *error = "cannot create " + folder + ": " + std::strerror(errno);
      return Outcome::kFailed;
    }
  }
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor_ < 0) {
    *error = "cannot open " + path + ": " + std::strerror(errno);
    return Outcome::kFailed;
  }
  // A process killed a moment ago may still be giving its descriptors back.
  const uint64_t give_up_ns = MonotonicNs() + 500'000'000;
  while (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      *error = "cannot lock " + path + ": " + std::strerror(errno);
      return Outcome::kFailed;
    }
    if (MonotonicNs() > give_up_ns) {
      const std::string pid = ReadPid(descriptor_);
      *error = "another kairosd runs on this socket";
      if (!pid.empty()) *error += " (pid " + pid + ")";
      *error += "\n  " + SecondInstanceRemedy();
      return Outcome::kHeldByOther;
    }
    usleep(10'000);
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(descriptor_, 0) != 0 ||
      pwrite(descriptor_, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    *error = "cannot write " + path + ": " + std::strerror(errno);
    return Outcome::kFailed;
  }
  return Outcome::kTaken;
}

}  // namespace kairos
