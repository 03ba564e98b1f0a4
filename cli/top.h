// SPDX-License-Identifier: Apache-2.0
// `kairosctl top`: a sidecar's sessions, rates and memory, refreshed at the terminal. Blocks.
#pragma once

#include "cli/control_call.h"

namespace kairos {

struct TopOptions {
  double interval_s = 1.0;
  bool once = false;
};

// Refreshes until q or ^C; prints once with `once`, with JSON, and where stdout is no terminal.
// Returns the exit status: 0, or 69 when the sidecar went away. The terminal is as it was before,
// also after a signal.
int RunTop(const Target& target, const TopOptions& options);

}  // namespace kairos
