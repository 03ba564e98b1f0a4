// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/stage_hook.h"

#ifdef KAIROS_TEST_HOOKS

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include <unistd.h>

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

#endif
