// SPDX-License-Identifier: Apache-2.0
// What all programs' command lines have in common: the version, the exit statuses under the help,
// and complaints that begin with the program's name. The tree of commands and flags is CLI11's.
// Whoever includes this is built with exceptions, because CLI11 throws; nothing leaves
// ParseCommandLine(). Pure but for printing; the main thread. Fences CLI11.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace kairos {

inline constexpr int kExitUsage = 2;

// A row of a table in the help: a status, a variable or a file, and what it is.
struct NamedText {
  std::string name;
  std::string text;
};

struct Program {
  std::string name;
  std::string purpose;      // one line without a full stop
  std::string description;  // of the manual, whole sentences
  std::vector<NamedText> exit_statuses;
  std::vector<NamedText> variables;
  std::vector<NamedText> files;
  std::string see_also;
};

// The version that is built, "0.1.0".
const char* ProgramVersion();

// Adds --version, the exit statuses and a hidden --man, which prints the manual page, to an app
// that is otherwise complete. Both live until it has been parsed.
void DescribeProgram(const Program& program, CLI::App* app);

// A check of an option: a number from `min` to `max`. CLI11's own takes nan.
CLI::Validator NumberBetween(double min, double max);
// The same of whole numbers; CLI11's own conversion takes -1 for an unsigned option.
CLI::Validator WholeNumber(uint64_t min, uint64_t max);

// True to go on. False with the exit status in *exit_code, after the help or the version was
// printed (0), or a complaint, which names the program and the command (2).
bool ParseCommandLine(CLI::App* app, int argc, const char* const* argv, int* exit_code);

}  // namespace kairos
