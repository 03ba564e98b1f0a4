// SPDX-License-Identifier: Apache-2.0
// kairosd: reads the settings, starts the daemon, waits for a signal, drains.
//
// SIGTERM and SIGINT drain: no new turns, open ones end or are cancelled at drain.timeout, exit 0;
// a second signal skips the waiting, and one during the start ends it with 128 + its number.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/log.h"
#include "sidecar/daemon/config.h"
#include "sidecar/daemon/daemon.h"
#include "sidecar/daemon/signal_watch.h"

namespace kairos {
namespace {

DaemonOptions OptionsOf(const Config& config) {
  DaemonOptions options;
  options.model = config.model;
  options.control_endpoint = config.control_socket;
  options.kv_bytes = config.kv_memory;
  options.drain_timeout_ms = config.drain_timeout_ms;
  options.ingress.socket_path = config.socket;
  options.ingress.socket_mode = config.socket_mode == "0660" ? 0660 : 0600;
  options.ingress.attachments_max = static_cast<uint32_t>(config.limits_attachments);
  options.ingress.attachments_per_uid_max = options.ingress.attachments_max;
  options.ingress.spin_us = config.SpinUs();
  options.ingress.attachment.in_flight_max =
      static_cast<uint32_t>(config.limits_in_flight_per_client);
#ifdef KAIROS_TEST_HOOKS
  // Where rings begin, so that a test can reach the wrap of positions.
  if (const char* start = std::getenv("KAIROS_RING_START"); start != nullptr) {
    options.ingress.start_position = std::strtoull(start, nullptr, 10) & ~(kFrameAlign - 1);
  }
#endif
  const unsigned processors = std::thread::hardware_concurrency();
  options.engine.threads = config.engine_threads != 0
                               ? static_cast<uint32_t>(config.engine_threads)
                               : (processors == 0 ? 1 : processors);
  options.engine.sequences_max = static_cast<uint32_t>(config.engine_sequences_max);
  options.engine.chunk_tokens_max = static_cast<uint32_t>(config.engine_chunk_tokens_max);
  options.engine.step_budget_ns = config.engine_step_budget_ms * 1'000'000;
  options.catalog.path = config.catalog_path;
  options.catalog.fsync = config.catalog_durability == "fsync";
  options.catalog.bytes_max = config.catalog_bytes_max;
  options.catalog.versions_max = static_cast<uint32_t>(config.catalog_versions_max);
  options.turns.max_tokens_default = static_cast<uint32_t>(config.limits_max_tokens_default);
  options.turns.temperature_default = config.Temperature();
  options.turns.top_p_default = config.TopP();
  options.turns.top_k_default = static_cast<int32_t>(config.generation_top_k);
  options.router.sessions_per_uid = static_cast<uint32_t>(config.limits_sessions_per_uid);
  for (const ConfigGrant& grant : config.grants) {
    options.grants.push_back({grant.uid, grant.name_space});
  }
  return options;
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
    std::fprintf(stderr, "kairosd: %s\n", error.c_str());
    return kExitConfig;
  }
  if (flags.check_config) {
    std::fputs(ConfigText(config).c_str(), stdout);
    return 0;
  }
  LogLevel level = LogLevel::kInfo;
  if (ParseLogLevel(config.log_level, &level)) SetLogLevel(level);
  // Before the first thread, which inherits the blocked signals; lives as long as the process.
  static SignalWatch watch;
  Daemon daemon;
  if (const int code = daemon.Start(OptionsOf(config), &error); code != 0) {
    std::fprintf(stderr, "kairosd: %s\n", error.c_str());
    return code;
  }
  watch.Serve([&daemon] { return daemon.drain_requested(); });
  LogInfo("daemon", "draining");
  daemon.Stop(false);
  LogInfo("daemon", "stopped");
  return 0;
}

}  // namespace
}  // namespace kairos

int main(int argc, char** argv) { return kairos::Run(argc, argv); }
