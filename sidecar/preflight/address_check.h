// SPDX-License-Identifier: Apache-2.0
// The TCP address that `metrics.listen` names. Any thread; does not block.
#pragma once

#include <string>

#include "sidecar/preflight/finding.h"

namespace kairos {

// Whether this process could listen at `address`, "127.0.0.1:9464" or "[::1]:9464" as the settings
// let it through. It listens for a moment and leaves nothing behind.
Finding CheckListenAddress(const std::string& address);

}  // namespace kairos
