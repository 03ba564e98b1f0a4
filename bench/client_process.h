// SPDX-License-Identifier: Apache-2.0
// A client of a sidecar in a process of its own, forked from the bench: it can be killed like any
// other program, and what it does takes no time from the bench's thread.
#pragma once

#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

namespace kairos {

class ClientProcess {
 public:
  // `body(ready_fd)` runs in the child, writes one byte to ready_fd when it is where the bench
  // wants it, and returns an exit status. It opens clients of its own: the parent's are not usable.
  template <typename Body>
  explicit ClientProcess(Body&& body) {
    int ends[2];
    if (pipe(ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(ends[0]);
      _exit(body(ends[1]));
    }
    close(ends[1]);
    ready_fd_ = ends[0];
  }
  ~ClientProcess() {
    Kill();
    if (ready_fd_ >= 0) close(ready_fd_);
  }
  ClientProcess(const ClientProcess&) = delete;
  ClientProcess& operator=(const ClientProcess&) = delete;

  // Blocks until the child is ready; false when it ended before.
  bool AwaitReady() {
    char byte;
    return ready_fd_ >= 0 && read(ready_fd_, &byte, 1) == 1;
  }
  // SIGKILL without waiting for the end.
  void Signal() {
    if (pid_ > 0) kill(pid_, SIGKILL);
  }
  void Kill() {
    Signal();
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int ready_fd_ = -1;
};

}  // namespace kairos
