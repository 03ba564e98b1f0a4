// SPDX-License-Identifier: Apache-2.0
// kairos-bench: measurements of a whole sidecar, as ratios to a peer in the same run where one is.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <CLI/CLI.hpp>

#include "bench/turn_bench.h"

namespace {

// kairosd beside this program, unless told otherwise.
std::string DaemonBeside() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (size <= 0) return "kairosd";
  const std::string self(path, static_cast<size_t>(size));
  return self.substr(0, self.rfind('/') + 1) + "kairosd";
}

std::string FreshFolder() {
  char path[] = "/tmp/kairos-bench.XXXXXX";
  return mkdtemp(path) == nullptr ? "/tmp" : path;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measurements of KAIROS. --json prints one JSON object a line."};
  app.require_subcommand(1);

  kairos::TurnBenchOptions turns;
  CLI::App* turns_command = app.add_subcommand(
      "turns", "play a conversation in a session and statelessly, then kill -9 and resume");
  turns_command->add_option("--daemon", turns.daemon, "kairosd to start (default: beside this)");
  turns_command->add_option("--model", turns.model, "GGUF file or fetched name")->required();
  turns_command
      ->add_option("--conversation", turns.conversation, "FILE, or FILE:N for a line of a .jsonl")
      ->required();
  turns_command->add_option("--work", turns.work, "folder for sockets and state (default: fresh)");
  turns_command->add_option("--max-tokens", turns.max_tokens, "tokens per answer, default 48");
  turns_command->add_option("--sessions", turns.sustained_sessions,
                            "sessions of the sustained load, default 8; 0: skip it");
  turns_command->add_flag("--json", turns.json, "JSON lines on stdout");

  CLI11_PARSE(app, argc, argv);
  if (turns_command->parsed()) {
    if (turns.daemon.empty()) turns.daemon = DaemonBeside();
    if (turns.work.empty()) turns.work = FreshFolder();
    return kairos::RunTurnBench(turns);
  }
  return 2;
}
