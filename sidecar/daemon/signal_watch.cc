// SPDX-License-Identifier: Apache-2.0
#include "sidecar/daemon/signal_watch.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <span>
#include <thread>

#include "base/clock.h"
#include "base/start_thread.h"
#include "sidecar/preflight/host_checks.h"

namespace kairos {

namespace {

// Of one request to end that comes twice.
constexpr uint64_t kEchoNs = 100'000'000;

}  // namespace

SignalWatch::SignalWatch() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, number);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  // A segment or a catalog over RLIMIT_FSIZE is an error of that call, not the end.
  std::signal(SIGXFSZ, SIG_IGN);
  const int signals = signalfd(-1, &set, SFD_CLOEXEC);
  std::thread reader;
  const Status started = StartThread([this, signals] { Read(signals); }, &reader);
  if (!started.ok()) {
    fault_ = WordsForRefusedThread(started);
    return;
  }
  reader.detach();
}

void SignalWatch::Read(int signals) {
  signalfd_siginfo taken[8];  // what waited together came together
  for (;;) {
    const ssize_t size = read(signals, taken, sizeof(taken));
    if (size <= 0) return;
    const uint64_t now_ns = MonotonicNs();
    for (const signalfd_siginfo& one :
         std::span(taken, static_cast<size_t>(size) / sizeof(taken[0]))) {
      Take(static_cast<int>(one.ssi_signo), now_ns);
    }
  }
}

void SignalWatch::Take(int number, uint64_t now_ns) {
  if (number == SIGHUP) return reload_.store(true);
  switch (stage_.exchange(Stage::kEnding)) {
    case Stage::kStarting:
      // Nobody is served yet and nothing waits to be written.
      std::fprintf(stderr, "\nkairosd: interrupted while starting\n");
      _exit(128 + number);
    case Stage::kServing: ending_since_ns_ = now_ns; break;
    case Stage::kEnding:
      if (now_ns - ending_since_ns_ < kEchoNs) break;
      _exit(0);
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
