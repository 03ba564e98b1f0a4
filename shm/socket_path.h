// SPDX-License-Identifier: Apache-2.0
// Where the sidecar's bootstrap socket is, by one rule for daemon, library and tools.
#pragma once

#include <string>

#include "base/status.h"

namespace kairos {

// sun_path holds 107 bytes and a terminator.
inline constexpr size_t kSocketPathBytesMax = 107;

// $KAIROS_SOCKET, else $XDG_RUNTIME_DIR/kairos/kairos.sock, else /run/kairos/kairos.sock for root,
// else /tmp/kairos-<uid>/kairos.sock. Variables that are set but empty count as not set.
// kInvalidArgument where the result does not fit a socket address. Does not touch the file system.
[[nodiscard]] Result<std::string> DefaultSocketPath();

// Where the operators' socket is by default: control.sock in the folder of the clients' `socket`.
[[nodiscard]] std::string ControlSocketBeside(const std::string& socket);

// Of the folders above `path`, from the root, the first that this process may not pass through;
// empty where there is none.
[[nodiscard]] std::string FolderThatShutsOut(const std::string& path);

}  // namespace kairos
