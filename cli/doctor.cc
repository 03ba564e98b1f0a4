// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/printable_text.h"
#include "cli/control_call.h"
#include "kairos/kairos.h"
#include "sidecar/preflight/address_check.h"
#include "sidecar/preflight/host_checks.h"
#include "sidecar/preflight/model_check.h"
#include "sidecar/preflight/place_checks.h"

namespace kairos {

namespace {

constexpr int kAttachMs = 3000;

const char* SeverityText(Severity severity) {
  switch (severity) {
    case Severity::kOk: return "OK";
    case Severity::kWarn: return "WARN";
    case Severity::kFail: break;
  }
  return "FAIL";
}

// Whether the process was halted by a signal (SIGSTOP, ^Z); false where procfs does not tell.
bool IsStopped(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  std::getline(file, line);
  // "PID (NAME) STATE ..."; the name may hold anything.
  const size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line.compare(name_end, 3, ") T") == 0;
}

// Attaches to the sidecar as any client does: this library and that kairosd must understand each
// other.
Finding CheckLibrary(const std::string& socket, const std::string& pid) {
  Finding found{"library", Severity::kOk,
                "libkairos " + std::string(kairos_version()) + ", ABI " +
                    std::to_string(kairos_abi_version()) + ", understands this kairosd",
                "", 0};
  kairos_client_options_t options;
  kairos_client_options_init(&options);
  options.socket_path = {socket.data(), socket.size()};
  options.connect_timeout_ms = kAttachMs;
  kairos_client_t* client = nullptr;
  if (kairos_client_open(&options, &client) >= 0) {
    kairos_client_close(client);
    return found;
  }
  char words[512];
  kairos_last_error(words, sizeof(words));
  found.severity = Severity::kFail;
  found.words = "libkairos cannot attach: " + std::string(words);
  if (kairos_last_detail() == KAIROS_DETAIL_PROTOCOL) {
    found.remedy = "install libkairos and kairosd of one version, then restart both sides";
  } else if (IsStopped(pid)) {
    found.remedy = "kairosd is stopped: kill -CONT " + pid;
  } else {
    found.remedy = "restart kairosd; sessions are kept";
  }
  return found;
}

std::vector<Finding> Look(const ConfigFlags& flags) {
  std::vector<Finding> findings;
  Config config;
  std::string error;
  const bool configured = LoadConfig(flags, environ, &config, &error).ok();
  if (configured) {
    findings.push_back({"settings", Severity::kOk,
                        flags.file.empty() ? "no file is named; defaults, variables and flags hold"
                                           : flags.file + " can be used",
                        "", 0});
  } else {
    findings.push_back({"settings", Severity::kFail, error,
                        "correct it; `kairosd --print-default-config` shows every key",
                        kExitConfig});
    config = DefaultConfig();
  }
  findings.push_back(CheckKernel());
  findings.push_back(CheckProcessor());
  findings.push_back(RaiseDescriptorLimit(config.limits_attachments, config.Models().size()));
  findings.push_back(CheckLockedMemory());
  findings.push_back(CheckIoUring());
  // What follows depends on the settings.
  if (!configured) return findings;
  findings.push_back(CheckSocketFolder(config.socket, config.SocketMode()));
  std::string pid;
  findings.push_back(CheckInstance(config.socket, &pid));
  if (pid.empty()) {
    findings.push_back(CheckEndpoint("socket", config.socket));
    findings.push_back(CheckEndpoint("control_socket", config.control_socket));
    if (!config.metrics_listen.empty()) {
      findings.push_back(CheckListenAddress(config.metrics_listen));
    }
  } else {
    findings.push_back(CheckLibrary(config.socket, pid));
  }
  const Finding held = CheckCatalogFree(config.catalog_path);
  // The kairosd that runs here has it open, as it should.
  const bool in_use = pid.empty() && held.severity == Severity::kFail;
  findings.push_back(in_use ? held : CheckCatalog(config.catalog_path, config.catalog_bytes_max));
  std::vector<ModelToServe> models;
  for (const ConfigModel& model : config.Models()) {
    models.push_back({model.name, model.path, model.kv_memory, model.draft_model,
                      model.draft_kv_memory});
  }
  const std::vector<CheckedModel> checked = CheckModels(models, &findings);
  for (size_t i = 0; i < checked.size(); ++i) {
    if (checked[i].file == nullptr) continue;
    findings.push_back(CheckChatTemplate(models[i], *checked[i].file));
  }
  return findings;
}

void PrintJson(const std::vector<Finding>& findings) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    std::string severity = SeverityText(finding.severity);
    std::transform(severity.begin(), severity.end(), severity.begin(), ::tolower);
    rows.push_back({{"check", finding.check},
                    {"severity", severity},
                    {"words", finding.words},
                    {"remedy", finding.remedy},
                    {"exit_status", finding.exit_status}});
  }
  std::printf("%s\n",
              rows.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

}  // namespace

int RunDoctor(const ConfigFlags& flags, bool json) {
  const std::vector<Finding> findings = Look(flags);
  if (json) {
    PrintJson(findings);
  } else {
    for (const Finding& finding : findings) {
      std::printf("%-4s  %-14s  %s\n", SeverityText(finding.severity), finding.check.c_str(),
                  Printable(finding.words).c_str());
      if (finding.remedy.empty()) continue;
      std::printf("%24s%s\n", "-> ", Printable(finding.remedy).c_str());
    }
  }
  const bool failed = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.severity == Severity::kFail;
  });
  return failed ? kExitFailed : 0;
}

}  // namespace kairos
