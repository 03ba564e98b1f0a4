// SPDX-License-Identifier: Apache-2.0
// What follows from several settings, or from the environment where a setting is left open.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "shm/records.h"
#include "shm/socket_path.h"
#include "sidecar/daemon/config.h"

namespace kairos {
namespace {

Status Refuse(std::string* error, std::string words) {
  *error = std::move(words);
  return {Code::kInvalidArgument, "configuration is not valid"};
}

std::string StateDirectory() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  // Set by the service manager for a unit with StateDirectory=; only the first counts.
  const std::string given = variable("STATE_DIRECTORY");
  if (!given.empty()) return given.substr(0, given.find(':'));
  const std::string state_home = variable("XDG_STATE_HOME");
  if (!state_home.empty()) return state_home + "/kairos";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.local/state/kairos";
}

}  // namespace

bool IsNameCharacter(char c) {
  return std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
             .find(c) != std::string_view::npos;
}

std::string ModelName(std::string_view path) {
  std::string name(path.substr(path.rfind('/') + 1));
  if (name.ends_with(".gguf")) name.resize(name.size() - std::strlen(".gguf"));
  for (char& c : name) {
    if (!IsNameCharacter(c)) c = '-';
  }
  return name.substr(0, kModelNameBytesMax);
}

std::vector<ConfigModel> Config::Models() const {
  std::vector<ConfigModel> models{
      {ModelName(model), model, kv_memory, engine_draft_model, engine_draft_kv_memory}};
  models.insert(models.end(), extra_models.begin(), extra_models.end());
  for (ConfigModel& served : models) {
    if (engine_draft_tokens_max == 0) served.draft_model.clear();
    served.draft_kv_memory = served.draft_model.empty() ? 0 : engine_draft_kv_memory;
  }
  return models;
}

uint32_t Config::AttachmentsPerProcess() const {
  // Rounded up, so that a limit of one attachment is still one.
  const uint64_t half = limits_attachments - limits_attachments / 2;
  return static_cast<uint32_t>(limits_attachments_per_process == 0
                                   ? half
                                   : limits_attachments_per_process);
}

Status ResolveConfig(Config* config, std::string* error) {
  if (config->socket.empty()) {
    Result<std::string> path = DefaultSocketPath();
    if (!path.ok()) return Refuse(error, std::string("socket: ") + path.status().message());
    config->socket = path.Take();
  }
  if (config->control_socket.empty()) {
    config->control_socket = ControlSocketBeside(config->socket);
  }
  if (config->socket.size() > kSocketPathBytesMax) {
    return Refuse(error, "socket: longer than 107 bytes");
  }
  if (config->control_socket.size() > kSocketPathBytesMax) {
    return Refuse(error, "control_socket: longer than 107 bytes");
  }
  if (config->control_socket == config->socket) {
    return Refuse(error, "control_socket: is the same path as socket");
  }
  std::vector<std::string> names;
  for (const ConfigModel& model : config->Models()) {
    if (std::find(names.begin(), names.end(), model.name) != names.end()) {
      return Refuse(error, "extra_model.name: \"" + model.name + "\" is the name of two models");
    }
    names.push_back(model.name);
  }
  if (config->catalog_path.empty()) {
    const std::string directory = StateDirectory();
    if (directory.empty()) {
      return Refuse(error, "catalog.path: not given, and no $STATE_DIRECTORY or $HOME for it");
    }
    config->catalog_path = directory + "/sessions.db";
  }
  return {};
}

}  // namespace kairos
