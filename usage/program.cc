// SPDX-License-Identifier: Apache-2.0
#include "usage/program.h"

#include <cstdio>

#include "base/printable_text.h"
#include "usage/manual.h"

namespace kairos {

namespace {

// "kairosctl session show": the program and the commands that were found before the fault.
std::string CommandPath(const CLI::App* app) {
  const std::vector<CLI::App*> chosen = app->get_subcommands();
  return app->get_name() + (chosen.empty() ? "" : " " + CommandPath(chosen.front()));
}

std::string Complaint(const CLI::App* app, const CLI::Error& fault) {
  const std::string path = CommandPath(app);
  return path + ": " + PrintableLines(fault.what(), "  ") + "\n  see " + path + " --help\n";
}

}  // namespace

const char* ProgramVersion() { return KAIROS_VERSION_TEXT; }

void DescribeProgram(const Program& program, CLI::App* app) {
  app->set_version_flag("--version", program.name + " " + ProgramVersion(), "print the version");
  std::string footer = "Exit statuses:";
  for (const NamedText& status : program.exit_statuses) {
    footer += "\n  " + std::string(status.name.size() < 2 ? 2 - status.name.size() : 0, ' ') +
              status.name + "  " + status.text;
  }
  app->footer(footer);
  const auto print = [&program, app] { throw CLI::CallForVersion(ManualPage(program, *app), 0); };
  app->add_flag_callback("--man", print)->group("");
  app->failure_message(Complaint);
}

bool ParseCommandLine(CLI::App* app, int argc, const char* const* argv, int* exit_code) {
  try {
    app->parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& fault) {
    // CLI11 has codes of its own; ours are 0 for help and 2 for usage.
    *exit_code = app->exit(fault) == 0 ? 0 : kExitUsage;
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "%s: %s\n", app->get_name().c_str(), fault.what());
    *exit_code = kExitUsage;
  }
  return false;
}

}  // namespace kairos
