// SPDX-License-Identifier: Apache-2.0
// `kairosctl doctor`: looks at host, settings, model and sidecar as kairosd would at its start, and
// says what to change. Needs no running sidecar. Blocks on disks and up to some seconds on sockets.
#pragma once

#include "sidecar/daemon/config.h"

namespace kairos {

// Prints one finding a line, or all as JSON. Returns 1 where one of them is a failure, else 0.
int RunDoctor(const ConfigFlags& flags, bool json);

}  // namespace kairos
