// SPDX-License-Identifier: Apache-2.0
// kairosd: reads the settings, starts the daemon, waits for a signal, drains.
//
// SIGTERM and SIGINT drain: no new turns, open ones end or are cancelled at drain.timeout, exit 0;
// a second signal skips the waiting, unless it comes together with the first (signal_watch.h), and
// one during the start ends it with 128 + its number. SIGHUP and `kairosctl reload` read the
// settings again: all of it holds, or nothing does.
#include <unistd.h>

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/log.h"
#include "base/printable_text.h"
#include "sidecar/daemon/config.h"
#include "sidecar/daemon/daemon.h"
#include "sidecar/daemon/service_notify.h"
#include "sidecar/daemon/signal_watch.h"

namespace kairos {
namespace {

DaemonOptions OptionsOf(const Config& config) {
  DaemonOptions options;
  for (const ConfigModel& model : config.Models()) {
    options.models.push_back({model.name, model.path, model.kv_memory, model.draft_model,
                              model.draft_kv_memory});
  }
  options.control_endpoint = config.control_socket;
  options.metrics_listen = config.metrics_listen;
  options.drain_timeout_ms = config.drain_timeout_ms;
  options.ingress.socket_path = config.socket;
  options.ingress.socket_mode = config.SocketMode();
  options.ingress.attachments_max = static_cast<uint32_t>(config.limits_attachments);
  options.ingress.attachments_per_uid_max = options.ingress.attachments_max;
  options.ingress.attachments_per_process_max = config.AttachmentsPerProcess();
  options.ingress.ring_memory_max = config.limits_ring_memory;
  options.ingress.spin_us = config.SpinUs();
  options.ingress.attachment.in_flight_max =
      static_cast<uint32_t>(config.limits_in_flight_per_client);
  options.ingress.attachment.slow_consumer_ns = config.limits_unread_replies_ms * 1'000'000;
#ifdef KAIROS_TEST_HOOKS
  // Where rings begin, so that a test can reach the wrap of positions.
  if (const char* start = std::getenv("KAIROS_RING_START"); start != nullptr) {
    options.ingress.start_position = std::strtoull(start, nullptr, 10) & ~(kFrameAlign - 1);
  }
#endif
  options.engine.threads = static_cast<uint32_t>(config.engine_threads);
  options.engine.sequences_max = static_cast<uint32_t>(config.engine_sequences_max);
  options.engine.chunk_tokens_max = static_cast<uint32_t>(config.engine_chunk_tokens_max);
  options.engine.step_budget_ns = config.engine_step_budget_ms * 1'000'000;
  options.engine.draft_tokens_max = static_cast<uint32_t>(config.engine_draft_tokens_max);
  options.catalog.path = config.catalog_path;
  options.catalog.fsync = config.catalog_durability == "fsync";
  options.catalog.bytes_max = config.catalog_bytes_max;
  options.catalog.versions_max = static_cast<uint32_t>(config.catalog_versions_max);
  options.turns.max_tokens_default = static_cast<uint32_t>(config.limits_max_tokens_default);
  options.turns.temperature_default = config.Temperature();
  options.turns.top_p_default = config.TopP();
  options.turns.top_k_default = static_cast<int32_t>(config.generation_top_k);
  options.router.sessions_per_uid = static_cast<uint32_t>(config.limits_sessions_per_uid);
  options.phases = {config.sessions_tool_timeout_ms, config.sessions_user_timeout_ms};
  for (const ConfigGrant& grant : config.grants) {
    options.grants.push_back({grant.uid, grant.name_space});
  }
  return options;
}

std::string ChangesJson(const std::vector<ConfigChange>& changes) {
  std::string json = "[";
  for (const ConfigChange& change : changes) {
    // Values are numbers, or strings quoted as JSON has them, too.
    json += fmt::format("{}{{\"key\":\"{}\",\"before\":{},\"after\":{}}}",
                        json.size() > 1 ? "," : "", change.key, change.before, change.after);
  }
  return json + "]";
}

// Reads the settings again and lets what changed hold, in *config as well; else says why not.
void Reload(const ConfigFlags& flags, Config* config, Daemon* daemon) {
  Config next;
  std::vector<ConfigChange> changes;
  std::string error;
  Status status;
  if (flags.file.empty()) {
    error = "no file was given with --config, so there is nothing to read again";
    status = {Code::kFailedPrecondition, "no settings file"};
  } else {
    status = LoadConfig(flags, environ, &next, &error);
    // To who asks, UNAVAILABLE would mean the sidecar.
    if (!status.ok()) status = {Code::kInvalidArgument, status.message()};
  }
  if (status.ok()) status = CompareForReload(*config, next, &changes, &error);
  if (!status.ok()) {
    LogWarn("daemon", "reload_refused reason={}", error);
    return daemon->FinishReload(nullptr, status, std::move(error));
  }
  *config = next;
  LogLevel level = LogLevel::kInfo;
  if (ParseLogLevel(config->log_level, &level)) SetLogLevel(level);
  const DaemonOptions options = OptionsOf(*config);
  daemon->FinishReload(&options, status, ChangesJson(changes));
  LogInfo("daemon", "reloaded changes={}", ChangesJson(changes));
}

void Complain(const std::string& error) {
  std::fprintf(stderr, "kairosd: %s\n", PrintableLines(error, "").c_str());
}

int Run(int argc, char** argv) {
  ConfigFlags flags;
  int exit_code = 0;
  if (!ParseConfigFlags(argc, argv, &flags, &exit_code)) return exit_code;
  if (flags.print_default) {
    std::fputs(DefaultConfigText().c_str(), stdout);
    return 0;
  }
  Config config;
  std::string error;
  if (const Status status = LoadConfig(flags, environ, &config, &error); !status.ok()) {
    Complain(error);
    return kExitConfig;
  }
  LogLevel level = LogLevel::kInfo;
  if (ParseLogLevel(config.log_level, &level)) SetLogLevel(level);
  if (flags.check_config) {
    std::fputs(ConfigText(config).c_str(), stdout);
    const int code = JudgeStart(OptionsOf(config), &error);
    if (code != 0) Complain(error);
    return code;
  }
  // Before the first thread, which inherits the blocked signals; lives as long as the process.
  static SignalWatch watch;
  if (!watch.fault().empty()) {
    Complain(watch.fault());
    return kExitOsError;
  }
  Daemon daemon;
  if (const int code = daemon.Start(OptionsOf(config), &error); code != 0) {
    Complain(error);
    return code;
  }
  watch.EndStart();
  NotifyService("READY=1\nSTATUS=serving");
  LogInfo("daemon", "ready socket={}", config.socket);
  bool reload = false;
  watch.Serve([&] {
    daemon.LookAfterThreads();
    reload |= watch.TakeReload();
    reload |= daemon.reload_requested();
    if (reload && daemon.CanFinishReload()) {
      reload = false;
      Reload(flags, &config, &daemon);
    }
    return daemon.drain_requested();
  });
  LogInfo("daemon", "draining");
  daemon.Stop(false);
  LogInfo("daemon", "stopped");
  return 0;
}

}  // namespace
}  // namespace kairos

int main(int argc, char** argv) { return kairos::Run(argc, argv); }
