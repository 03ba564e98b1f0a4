// SPDX-License-Identifier: Apache-2.0
// kairos-bench: measurements of a whole sidecar, as ratios to a peer in the same run where one is.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/engine_bench.h"
#include "bench/grammar_bench.h"
#include "bench/kernel_bench.h"
#include "bench/neighbours_bench.h"
#include "bench/peer_process.h"
#include "bench/ring_bench.h"
#include "bench/speculation_bench.h"
#include "bench/turn_bench.h"
#include "bench/work_folder.h"
#include "usage/program.h"

namespace {

// kairosd beside this program, unless told otherwise.
std::string DaemonBeside() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (size <= 0) return "kairosd";
  const std::string self(path, static_cast<size_t>(size));
  return self.substr(0, self.rfind('/') + 1) + "kairosd";
}

// What CTest counts as skipped.
constexpr int kSkipped = 77;

// For --quick, which runs as a test: the model of $KAIROS_TEST_MODEL, and no failure without one.
bool MayRun(bool quick, std::string* model) {
  if (!quick) return true;
  const char* named = std::getenv("KAIROS_TEST_MODEL");
  if (named != nullptr && *named != '\0') *model = named;
  if (access(kairos::ModelFile(*model).c_str(), R_OK) == 0) return true;
  std::fprintf(stderr, "SKIPPED: no model %s\n", kairos::ModelFile(*model).c_str());
  return false;
}

void AddPeer(CLI::App* command, kairos::PeerOptions* peer) {
  command->add_option("--peer", peer->name, "llama-cpp: measured in the same run");
  command->add_option("--peer-python", peer->python,
                      "its Python (default: the environment of tools/peers)");
  command->add_option("--peer-script", peer->script, "default: tools/peer_llama_cpp.py");
}

CLI::App* AddRing(CLI::App* app, kairos::RingBenchOptions* ring) {
  CLI::App* command = app->add_subcommand(
      "ring", "round trips, throughput, attach, idle and reaping over libkairos");
  command->add_option("--daemon", ring->daemon, "kairosd to start (default: beside this)");
  command->add_option("--model", ring->model, "GGUF file or fetched name")
      ->default_val("smollm2-135m");
  command->add_option("--work", ring->work, "folder for sockets and state (default: fresh)");
  command->add_flag("--json", ring->json, "JSON lines on stdout");
  command->add_flag("--quick", ring->quick, "few rounds, as a test of the bench itself");
  return command;
}

CLI::App* AddTurns(CLI::App* app, kairos::TurnBenchOptions* turns) {
  CLI::App* command = app->add_subcommand(
      "turns", "play a conversation in a session and statelessly, then kill -9 and resume");
  command->add_option("--daemon", turns->daemon, "kairosd to start (default: beside this)");
  command->add_option("--model", turns->model, "GGUF file or fetched name")->required();
  command
      ->add_option("--conversation", turns->conversation, "FILE, or FILE:N for a line of a .jsonl")
      ->required();
  command->add_option("--work", turns->work, "folder for sockets and state (default: fresh)");
  command->add_option("--max-tokens", turns->max_tokens, "tokens per answer, default 48");
  command->add_option("--sessions", turns->sustained_sessions,
                            "sessions of the sustained load, default 8; 0: skip it");
  command
      ->add_option("--silence", turns->silence_s,
                   "seconds without an event, after which the sidecar is asked whether it answers; "
                   "if so, the turn goes on; default 120")
      ->check(CLI::Range(0.01, 3600.0));
  command
      ->add_option("--limit", turns->limit_min,
                   "minutes for playing the turns, default 120; kill -9 and the rest follow then")
      ->check(CLI::Range(0.01, 10'000.0));
  command->add_flag("--json", turns->json, "JSON lines on stdout");
  command->add_flag("--quick", turns->quick, "two turns, as a test of the bench itself");
  AddPeer(command, &turns->peer);
  return command;
}

CLI::App* AddSpeculation(CLI::App* app, kairos::SpeculationBenchOptions* speculation) {
  CLI::App* command = app->add_subcommand(
      "speculation", "what guessing tokens gains on agents' conversations");
  command->add_option("--model", speculation->model, "GGUF file or fetched name")->required();
  command->add_option("--draft-model", speculation->draft_model,
                      "smaller model of the same vocabulary that guesses as well");
  command
      ->add_option("--conversations", speculation->conversations,
                   ".jsonl file of objects with \"messages\" and \"tools\"")
      ->required();
  command->add_option("--count", speculation->count, "of its conversations, default 6")
      ->check(CLI::Range(1, 100'000));
  command->add_option("--max-tokens", speculation->max_tokens, "of an answer, default 64")
      ->check(CLI::Range(2, 512));
  command->add_option("--threads", speculation->threads, "compute threads, default 2")
      ->check(CLI::Range(1, 64));
  command->add_flag("--json", speculation->json, "JSON lines on stdout");
  return command;
}

CLI::App* AddEngine(CLI::App* app, kairos::EngineBenchOptions* engine) {
  CLI::App* command = app->add_subcommand(
      "engine", "prefill and decode speed of the engine, and its share of limits");
  command->add_option("--model", engine->model, "GGUF file or fetched name")->required();
  command->add_option("--threads", engine->threads, "compute threads, default 2")
      ->check(CLI::Range(1, 64));
  command->add_option("--repetitions", engine->repetitions, "of each case, default 5")
      ->check(CLI::Range(1, 100));
  command
      ->add_option("--prompts", engine->prompts,
                   "tokens of prefills, default 128,512,2048,4096,8192 as the model allows")
      ->delimiter(',')
      ->check(CLI::Range(1, 16384));
  command
      ->add_option("--contexts", engine->contexts,
                   "tokens before a decode, default 0,1024,4096,8192 as the model allows")
      ->delimiter(',')
      ->check(CLI::Range(0, 16384));
  command->add_option("--batches", engine->batches, "default 2,4,8,16,32; at most 32")
      ->delimiter(',')
      ->check(CLI::Range(2, 32));
  command
      ->add_option("--shared", engine->shared,
                   "tokens of a prefix that 8 sequences share, default 4096; 0: skip")
      ->check(CLI::Range(0, 16384));
  command
      ->add_option("--arrival", engine->arrival,
                   "tokens of a prompt that arrives while 8 decode, default 6000; 0: skip")
      ->check(CLI::Range(0, 16384));
  command->add_flag("--stolen-core", engine->stolen_core,
                    "instead of all this: with one thread, with all, and with all while another "
                    "process spins on one core");
  command->add_option("--plot", engine->plot,
                      "SVG file of throughput by tokens, ours and the peer's");
  command->add_flag("--json", engine->json, "JSON lines on stdout");
  command->add_flag("--quick", engine->quick, "small inputs, as a test of the bench itself");
  AddPeer(command, &engine->peer);
  return command;
}

CLI::App* AddGrammar(CLI::App* app, kairos::GrammarBenchOptions* grammar) {
  CLI::App* command =
      app->add_subcommand("grammar", "masks, compiling, and what a constraint costs in decoding");
  command->add_option("--model", grammar->model, "GGUF file or fetched name")
      ->default_val("smollm2-135m");
  command->add_option("--schemas", grammar->schemas,
                      "FILE with a JSON schema, or a conversation with tools, on each line");
  command->add_option("--threads", grammar->threads, "compute threads, default 2")
      ->check(CLI::Range(1, 64));
  command->add_option("--walks", grammar->walks, "replies for each schema, default 4")
      ->check(CLI::Range(1, 1000));
  command->add_flag("--json", grammar->json, "JSON lines on stdout");
  command->add_flag("--quick", grammar->quick, "little, as a test of the bench itself");
  return command;
}

CLI::App* AddKernels(CLI::App* app, kairos::KernelBenchOptions* kernels) {
  CLI::App* command =
      app->add_subcommand("kernels", "speed of the arithmetic on one core, without a model");
  command->add_option("--cases", kernels->cases,
                      "regular expression of names, as matmul/qkv/4; default all");
  command->add_option("--repetitions", kernels->repetitions, "of each case, default 3")
      ->check(CLI::Range(1, 100));
  command->add_option("--seconds", kernels->seconds, "of a repetition, at least; default 0.2")
      ->check(CLI::Range(0.001, 60.0));
  command->add_flag("--json", kernels->json, "JSON lines on stdout");
  command->add_flag("--quick", kernels->quick, "hardly any time, as a test of the bench itself");
  return command;
}

CLI::App* AddNeighbours(CLI::App* app, kairos::NeighboursBenchOptions* neighbours) {
  CLI::App* command = app->add_subcommand(
      "neighbours", "time between tokens while a tenth of the clients misbehaves");
  command->add_option("--daemon", neighbours->daemon, "kairosd to start (default: beside this)");
  command->add_option("--model", neighbours->model, "GGUF file or fetched name")
      ->default_val("smollm2-135m");
  command->add_option("--work", neighbours->work, "folder for sockets and state (default: fresh)");
  command->add_option("--kind", neighbours->kind, "measure only this one; default all")
      ->check(CLI::IsMember({"slow", "stopped", "flooding", "dying"}));
  command->add_option("--clients", neighbours->clients, "all together, default 64")
      ->check(CLI::Range(2, 256));
  command->add_option("--tokens", neighbours->tokens, "of each measured turn, default 64")
      ->check(CLI::Range(2, 512));
  command->add_option("--repetitions", neighbours->repetitions, "of each kind, default 4")
      ->check(CLI::Range(1, 100));
  command->add_flag("--json", neighbours->json, "JSON lines on stdout");
  command->add_flag("--quick", neighbours->quick, "few clients, as a test of the bench itself");
  return command;
}

kairos::Program Description() {
  kairos::Program program;
  program.name = "kairos-bench";
  program.purpose = "measure a KAIROS sidecar";
  program.description =
      "kairos-bench starts a kairosd of its own and measures it, as ratios to a peer in the same "
      "run where one is named.";
  program.exit_statuses = {{"0", "done"},
                           {"1", "a measurement failed, or what must be equal was not"},
                           {"2", "usage"}};
  program.see_also = "kairosd(1), kairosctl(1)";
  return program;
}

}  // namespace

int main(int argc, char** argv) {
  const kairos::Program program = Description();
  CLI::App app{"Measurements of KAIROS. --json prints one JSON object a line.", program.name};
  app.require_subcommand(1);

  kairos::TurnBenchOptions turns;
  CLI::App* turns_command = AddTurns(&app, &turns);

  kairos::RingBenchOptions ring;
  CLI::App* ring_command = AddRing(&app, &ring);

  kairos::NeighboursBenchOptions neighbours;
  CLI::App* neighbours_command = AddNeighbours(&app, &neighbours);

  kairos::GrammarBenchOptions grammar;
  CLI::App* grammar_command = AddGrammar(&app, &grammar);

  kairos::EngineBenchOptions engine;
  CLI::App* engine_command = AddEngine(&app, &engine);

  kairos::KernelBenchOptions kernels;
  CLI::App* kernels_command = AddKernels(&app, &kernels);

  kairos::SpeculationBenchOptions speculation;
  CLI::App* speculation_command = AddSpeculation(&app, &speculation);

  kairos::DescribeProgram(program, &app);
  int exit_code = 0;
  if (!kairos::ParseCommandLine(&app, argc, argv, &exit_code)) return exit_code;
  if (turns_command->parsed()) {
    if (turns.daemon.empty()) turns.daemon = DaemonBeside();
    if (!MayRun(turns.quick, &turns.model)) return kSkipped;
    return kairos::RunInWorkFolder(&turns.work, [&] { return kairos::RunTurnBench(turns); });
  }
  if (ring_command->parsed()) {
    if (ring.daemon.empty()) ring.daemon = DaemonBeside();
    if (!MayRun(ring.quick, &ring.model)) return kSkipped;
    return kairos::RunInWorkFolder(&ring.work, [&] { return kairos::RunRingBench(ring); });
  }
  if (neighbours_command->parsed()) {
    if (neighbours.daemon.empty()) neighbours.daemon = DaemonBeside();
    if (!MayRun(neighbours.quick, &neighbours.model)) return kSkipped;
    return kairos::RunInWorkFolder(&neighbours.work,
                                   [&] { return kairos::RunNeighboursBench(neighbours); });
  }
  if (grammar_command->parsed()) {
    if (!MayRun(grammar.quick, &grammar.model)) return kSkipped;
    return kairos::RunGrammarBench(grammar);
  }
  if (kernels_command->parsed()) return kairos::RunKernelBench(kernels);
  if (speculation_command->parsed()) return kairos::RunSpeculationBench(speculation);
  if (engine_command->parsed()) {
    if (!MayRun(engine.quick, &engine.model)) return kSkipped;
    return kairos::RunEngineBench(engine);
  }
  return 2;
}
