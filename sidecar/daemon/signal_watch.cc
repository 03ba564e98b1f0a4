// SPDX-License-Identifier: Apache-2.0
#include "sidecar/daemon/signal_watch.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

namespace kairos {

SignalWatch::SignalWatch() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, number);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  // A segment or a catalog over RLIMIT_FSIZE is an error of that call, not the end.
  std::signal(SIGXFSZ, SIG_IGN);
  const int signals = signalfd(-1, &set, SFD_CLOEXEC);
  std::thread([this, signals] { Read(signals); }).detach();
}

void SignalWatch::Read(int signals) {
  signalfd_siginfo taken;
  while (read(signals, &taken, sizeof(taken)) == sizeof(taken)) {
    if (taken.ssi_signo == SIGHUP) {
      reload_.store(true);
      continue;
    }
    switch (stage_.exchange(Stage::kEnding)) {
      case Stage::kStarting:
        // Nobody is served yet and nothing waits to be written.
        std::fprintf(stderr, "\nkairosd: interrupted while starting\n");
        _exit(128 + static_cast<int>(taken.ssi_signo));
      case Stage::kServing: break;
      case Stage::kEnding: _exit(0);
    }
  }
}

void SignalWatch::EndStart() {
  Stage starting = Stage::kStarting;
  stage_.compare_exchange_strong(starting, Stage::kServing);
}

void SignalWatch::Serve(const std::function<bool()>& look) {
  while (stage_.load() == Stage::kServing && !look()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  stage_.store(Stage::kEnding);
}

}  // namespace kairos
