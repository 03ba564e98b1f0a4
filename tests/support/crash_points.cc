// SPDX-License-Identifier: Apache-2.0
// Crash points: with $KAIROS_KILL_AT = "stage" or "stage:N" the process kills itself with SIGKILL
// when a turn passes that stage for the Nth time. For kairosd_for_tests alone, which is not
// installed.
#include <csignal>
#include <cstdlib>
#include <string>

#include <unistd.h>

#include "sidecar/session/stage_hook.h"

namespace kairos {

void StageHook(const char* stage) {
  // Conductor only, so plain statics serve.
  static const std::string wanted = [] {
    const char* value = std::getenv("KAIROS_KILL_AT");
    return std::string(value == nullptr ? "" : value);
  }();
  if (wanted.empty()) return;
  static const size_t colon = wanted.find(':');
  static long left = colon == std::string::npos ? 1 : std::atol(wanted.c_str() + colon + 1);
  if (wanted.compare(0, colon, stage) != 0) return;
  if (--left == 0) kill(getpid(), SIGKILL);
}

}  // namespace kairos
