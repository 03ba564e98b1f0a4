// SPDX-License-Identifier: Apache-2.0
// Completion of a program's command line in a shell. Commands, flags and fixed words come from the
// tree; a value called PATH completes to files, and ID to what the shell command `ids` prints, one
// a line. Pure.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace kairos {

enum class Shell { kBash, kZsh, kFish };

// A script for the shell to load. Flags of the whole program count with every command.
std::string CompletionScript(Shell shell, const CLI::App& app, const std::string& ids);

}  // namespace kairos
