// SPDX-License-Identifier: Apache-2.0
#include "bench/work_folder.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace kairos {

namespace {

constexpr int kSignalBase = 128;  // what shells add to the number of a signal that ended a program

// Passes the signals of `blocked` on until the child has ended; its exit status.
int Await(pid_t child, const sigset_t& blocked) {
  int status = 0;
  for (;;) {
    const int number = sigwaitinfo(&blocked, nullptr);
    if (waitpid(child, &status, WNOHANG) == child) break;
    if (number > 0 && number != SIGCHLD) kill(child, number);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalBase + WTERMSIG(status);
}

}  // namespace

int RunInWorkFolder(std::string* work, const std::function<int()>& bench) {
  if (!work->empty()) return bench();
  // Not below TMPDIR: paths of sockets are short.
  char path[] = "/tmp/kairos-bench.XXXXXX";
  if (mkdtemp(path) == nullptr) {
    std::fprintf(stderr, "kairos-bench: cannot make %s: %s; name a folder with --work\n", path,
                 std::strerror(errno));
    return 1;
  }
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&blocked, number);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    // A shell that starts the bench in the background has it ignore ^C; it must still end by it.
    std::signal(SIGINT, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    *work = path;
    return bench();
  }
  const int status = child < 0 ? 1 : Await(child, blocked);
  std::error_code fault;
  std::filesystem::remove_all(path, fault);
  if (fault) std::fprintf(stderr, "kairos-bench: %s stays: %s\n", path, fault.message().c_str());
  return status;
}

}  // namespace kairos
