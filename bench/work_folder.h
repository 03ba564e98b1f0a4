// SPDX-License-Identifier: Apache-2.0
// The folder of a bench's sockets and state. One that the bench made itself goes with it, also when
// the bench is interrupted or crashes.
#pragma once

#include <functional>
#include <string>

namespace kairos {

// Runs `bench` and returns its exit status. With an empty *work, it runs in a child process and in
// a fresh folder, named in *work there, that is removed afterwards; SIGINT, SIGTERM and SIGHUP are
// passed on to the child. Blocks. Call while the process has one thread.
int RunInWorkFolder(std::string* work, const std::function<int()>& bench);

}  // namespace kairos
