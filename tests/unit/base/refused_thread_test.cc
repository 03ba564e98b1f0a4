// SPDX-License-Identifier: Apache-2.0
// Where the system refuses a thread. Not under a sanitizer, whose runtime needs address space too.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/start_thread.h"

namespace kairos {
namespace {

// Runs `act` in a process that gets no further address space, so no stacks but what is cached of
// ended threads. Its exit status is 0 where `act` says yes.
template <typename Act>
int StatusWithoutStacks(const Act& act) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{1, 1};
    setrlimit(RLIMIT_AS, &none);
    _exit(act() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(StartThread, SaysSoWhereTheSystemRefusesAThread) {
  EXPECT_EQ(StatusWithoutStacks([] {
              static std::thread threads[8];  // never joined: the process ends before
              for (std::thread& thread : threads) {
                const Status status = StartThread([] { pause(); }, &thread);
                if (status.ok()) continue;
                return status.code() == Code::kResourceExhausted && status.detail() != 0 &&
                       !thread.joinable();
              }
              return false;
            }),
            0);
}

TEST(TryThreads, SaysSoWhereOneOfThemIsRefusedAndEndsTheOthers) {
  EXPECT_EQ(StatusWithoutStacks([] { return TryThreads(8).code() == Code::kResourceExhausted; }),
            0);
}

}  // namespace
}  // namespace kairos
