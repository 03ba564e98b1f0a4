// SPDX-License-Identifier: Apache-2.0
// The commands, flags and operands of a program as plain values, read from its CLI11 tree: what the
// manual and the completions are made of, so that neither can differ from the program. Pure.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace kairos {

struct FlagText {
  std::vector<std::string> names;    // "--json", "-c"; the name of an operand
  std::string value;                 // "PATH"; empty where it takes none
  std::vector<std::string> choices;  // words of `value` that are typed as they are
  std::string help;
  std::string group;
  bool required = false;
};

struct CommandText {
  std::string path;  // "kairosctl session show"
  std::string name;  // "show"
  std::string help;
  std::vector<FlagText> flags;
  std::vector<FlagText> operands;
  std::vector<CommandText> commands;
};

// All but what is hidden.
CommandText ReadCommand(const CLI::App& app);

// "session show ID [N]", without the flags.
std::string CommandSynopsis(const CommandText& command);

}  // namespace kairos
