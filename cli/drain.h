// SPDX-License-Identifier: Apache-2.0
// `kairosctl drain`: has the sidecar end, and where asked waits until it has.
#pragma once

#include <optional>

#include "cli/control_call.h"

namespace kairos {

struct DrainOptions {
  bool wait = false;
  std::optional<double> timeout_s;  // that open turns have; none: the sidecar's drain.timeout
};

// Says how long open turns have. With `wait` it blocks until the process is gone, and says on
// stderr how many turns are open. Returns the exit status.
int Drain(const Target& target, const DrainOptions& options);

}  // namespace kairos
