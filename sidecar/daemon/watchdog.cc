// SPDX-License-Identifier: Apache-2.0
#include "sidecar/daemon/watchdog.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/log.h"

namespace kairos {
namespace {

bool ReadNumber(const char* name, uint64_t* value) {
  const char* text = std::getenv(name);
  if (text == nullptr) return false;
  const char* end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, *value);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

}  // namespace

uint64_t Watchdog::PeriodNsFromEnvironment() {
  constexpr uint64_t kMicrosecondsMax = 86'400'000'000;
  uint64_t microseconds = 0;
  uint64_t process = 0;
  if (!ReadNumber("WATCHDOG_USEC", &microseconds) || microseconds > kMicrosecondsMax) return 0;
  // A child of the watched process inherits the variables; they are not about it.
  if (ReadNumber("WATCHDOG_PID", &process) && process != static_cast<uint64_t>(getpid())) return 0;
  return microseconds * 1000;
}

void Watchdog::Look(uint64_t now_ns) {
  if (interval_ns_ == 0 || now_ns - looked_ns_ < interval_ns_) return;
  looked_ns_ = now_ns;
  bool all_round = true;
  for (Watched& watched : watched_) {
    const uint64_t rounds = watched.rounds->value();
    const bool late = rounds == watched.rounds_seen;
    if (late && !watched.late) LogError("daemon", "thread_hangs thread={}", watched.thread);
    watched.late = late;
    watched.rounds_seen = rounds;
    all_round &= !late;
    // One that sleeps has a round to make until the next look.
    watched.waker->Interrupt();
  }
  if (all_round) notify_("WATCHDOG=1");
}

}  // namespace kairos
