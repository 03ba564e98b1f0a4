// SPDX-License-Identifier: Apache-2.0
// The command line of kairosd. Built with exceptions: CLI11 throws, and nothing leaves this file.
#include <CLI/CLI.hpp>

#include "sidecar/daemon/config.h"

namespace kairos {

namespace {

std::string FlagName(const char* key) {
  std::string name = "--";
  for (; *key != '\0'; ++key) name.push_back(*key == '.' || *key == '_' ? '-' : *key);
  return name;
}

}  // namespace

bool ParseConfigFlags(int argc, const char* const* argv, ConfigFlags* flags, int* exit_code) {
  CLI::App app("kairosd: serves language-model sessions to the programs of this host", "kairosd");
  app.add_option("-c,--config", flags->file, "settings in TOML");
  app.add_flag("--check-config", flags->check_config,
               "check the settings, print them and exit with 0 or 78");
  app.add_flag("--print-default-config", flags->print_default,
               "print a settings file with every key, its meaning and default");
  app.add_flag("--version", flags->show_version, "print the version");
  const std::vector<ConfigKeyText>& keys = ConfigKeys();
  std::vector<std::string> values(keys.size());
  std::vector<CLI::Option*> options;
  for (size_t i = 0; i < keys.size(); ++i) {
    std::string help = keys[i].help;
    if (*keys[i].default_value != '\0') help += std::string(" [") + keys[i].default_value + "]";
    options.push_back(app.add_option(FlagName(keys[i].name), values[i], help)->group("Settings"));
  }
  app.footer(
      "Flags override KAIROS_* variables (KAIROS_CATALOG_PATH), which override the file.\n"
      "Exit codes: 0 ended, 1 failure, 2 usage, 66 no model, 71 system, 73 cannot create,\n"
      "75 already running, 78 settings.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& fault) {
    // CLI11 has codes of its own; ours are 0 for help and 2 for usage.
    *exit_code = app.exit(fault) == 0 ? 0 : 2;
    return false;
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "kairosd: %s\n", fault.what());
    *exit_code = 2;
    return false;
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    if (options[i]->count() > 0) flags->keys.emplace_back(keys[i].name, values[i]);
  }
  return true;
}

}  // namespace kairos
