// SPDX-License-Identifier: Apache-2.0
// The command line of kairosd. Built with exceptions: CLI11 throws, and nothing leaves this file.
#include "sidecar/daemon/config_flags.h"

namespace kairos {

namespace {

constexpr const char* kGroup =
    "Settings: flags override KAIROS_* variables (KAIROS_CATALOG_PATH), which override the file";

std::string FlagName(const char* key) {
  std::string name = "--";
  for (; *key != '\0'; ++key) name.push_back(*key == '.' || *key == '_' ? '-' : *key);
  return name;
}

// "memory for KV blocks; 1MiB to 16TiB [1GiB]"
std::string FlagHelp(const ConfigKeyText& key) {
  std::string help = key.help;
  if (!key.allowed.empty()) help += "; " + key.allowed;
  if (*key.default_value != '\0') help += std::string(" [") + key.default_value + "]";
  return help;
}

Program Description() {
  Program program;
  program.name = "kairosd";
  program.purpose = "sidecar that serves language-model sessions";
  program.description =
      "kairosd owns a GGUF model and the memory of its KV cache, and keeps agents' sessions across "
      "turns, clients and its own restarts. Programs of this host attach by libkairos, operators "
      "by kairosctl(1). SIGTERM and SIGINT drain: no new turns, open ones end within "
      "drain.timeout.";
  program.exit_statuses = {{"0", "ended as asked"},
                           {"1", "another failure"},
                           {"2", "usage"},
                           {"66", "no model, or one that is not served"},
                           {"71", "the system refuses memory or threads"},
                           {"73", "a socket or the catalog cannot be made"},
                           {"75", "another kairosd has the socket"},
                           {"78", "a setting is wrong"}};
  program.variables = {
      {"KAIROS_SOCKET", "the clients' socket; each other setting has a variable too, such as "
                        "KAIROS_CATALOG_PATH for catalog.path"},
      {"KAIROS_KERNELS", "forces the arithmetic: scalar, avx2, avx_vnni or avx512_vnni"},
      {"XDG_RUNTIME_DIR", "its kairos/kairos.sock is the default of socket"},
      {"XDG_CACHE_HOME", "its kairos/models holds the models that are given by name"},
      {"STATE_DIRECTORY, XDG_STATE_HOME", "where the default of catalog.path is"},
      {"NOTIFY_SOCKET", "the service manager, which is told of readiness and of a drain"}};
  program.files = {{"~/.cache/kairos/models/NAME.gguf", "a fetched model"},
                   {"~/.local/state/kairos/sessions.db", "the default of catalog.path"}};
  program.see_also = "kairosctl(1), kairos-bench(1)";
  return program;
}

}  // namespace

ConfigOptions::ConfigOptions(CLI::App* app) : values_(ConfigKeys().size()) {
  app->add_option("-c,--config", file_, "settings in TOML")->type_name("PATH");
  for (size_t i = 0; i < values_.size(); ++i) {
    const ConfigKeyText& key = ConfigKeys()[i];
    options_.push_back(app->add_option(FlagName(key.name), values_[i], FlagHelp(key))
                           ->type_name(key.value)
                           ->group(kGroup));
  }
}

ConfigFlags ConfigOptions::Given() const {
  ConfigFlags flags;
  flags.file = file_;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (options_[i]->count() > 0) flags.keys.emplace_back(ConfigKeys()[i].name, values_[i]);
  }
  return flags;
}

bool ParseConfigFlags(int argc, const char* const* argv, ConfigFlags* flags, int* exit_code) {
  const Program program = Description();
  CLI::App app("Serves language-model sessions to the programs of this host.", program.name);
  bool check_config = false;
  bool print_default = false;
  app.add_flag("--check-config", check_config,
               "check the settings and the model files, print the settings and exit with 0, or "
               "as the start would");
  app.add_flag("--print-default-config", print_default,
               "print a settings file with every key, its meaning and default");
  const ConfigOptions settings(&app);
  DescribeProgram(program, &app);
  if (!ParseCommandLine(&app, argc, argv, exit_code)) return false;
  *flags = settings.Given();
  flags->check_config = check_config;
  flags->print_default = print_default;
  return true;
}

}  // namespace kairos
