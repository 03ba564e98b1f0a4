// SPDX-License-Identifier: Apache-2.0
// Tells the service supervisor ($NOTIFY_SOCKET, systemd's sd_notify protocol) how the daemon is.
#pragma once

#include <string_view>

namespace kairos {

// E.g. "READY=1" or "STATUS=loading model". Silent where there is no supervisor. Never blocks.
void NotifyService(std::string_view text);

}  // namespace kairos
