// SPDX-License-Identifier: Apache-2.0
// kairosctl: talks to a running sidecar. `run` is a client like any other; the rest are requests of
// an operator over the control socket. Built with exceptions, because CLI11 throws.
#include <cstdio>
#include <functional>
#include <limits>
#include <string>

#include "base/printable_text.h"
#include "cli/chat.h"
#include "cli/doctor.h"
#include "cli/drain.h"
#include "cli/json_text.h"
#include "cli/listing.h"
#include "cli/session_commands.h"
#include "cli/top.h"
#include "shm/records.h"
#include "sidecar/control/control_messages.h"
#include "sidecar/daemon/config_flags.h"
#include "usage/completion.h"
#include "usage/program.h"

namespace kairos {

namespace {

int ShowStats(const Target& target) {
  ControlRequest request;
  request.verb = ControlVerb::kStats;
  ControlReply reply;
  if (const int code = Call(target, request, &reply); code != 0) return code;
  std::string json;
  for (const auto& [name, value] : reply.stats) {
    if (target.json) {
      char number[64];
      std::snprintf(number, sizeof(number), "%.17g", value);
      json += (json.empty() ? "" : ",") + JsonString(name) + ":" + number;
    } else {
      std::printf("%s\n", StatLine(name, value).c_str());
    }
  }
  if (target.json) std::printf("{%s}\n", json.c_str());
  return 0;
}

int ShowModel(const Target& target) {
  ControlRequest request;
  request.verb = ControlVerb::kModelShow;
  ControlReply reply;
  if (const int code = Call(target, request, &reply); code != 0) return code;
  std::fputs(target.json ? (reply.text + "\n").c_str() : ModelFigures(reply.text).c_str(), stdout);
  return 0;
}

int Reload(const Target& target) {
  ControlRequest request;
  request.verb = ControlVerb::kReload;
  ControlReply reply;
  if (const int code = Call(target, request, &reply); code != 0) return code;
  if (target.json) {
    std::printf("{\"ok\":true,\"changed\":%s}\n", reply.text.c_str());
  } else {
    std::fputs(ReloadLines(reply.text).c_str(), stdout);
  }
  return 0;
}

// What the command line asks for; returns the exit status.
using Action = std::function<int()>;

struct SweepWords {
  double hours = 0;
  bool yes = false;
};

void AddSessionCommands(CLI::App* app, Target* target, SweepWords* words, Action* action) {
  CLI::App* session = app->add_subcommand("session", "list, show and change sessions");
  session->require_subcommand(1);
  session->add_subcommand("ls", "list all sessions")->callback([=] {
    *action = [=] { return ListSessions(*target); };
  });
  enum class VersionWord { kNone, kOptional, kRequired };
  const auto add = [&](const char* name, const char* help, const Action& act,
                       VersionWord version) {
    CLI::App* command = session->add_subcommand(name, help);
    command->add_option("id", target->session, "session, in hex")->required()->type_name("ID");
    if (version != VersionWord::kNone) {
      const bool required = version == VersionWord::kRequired;
      auto* option = command->add_option("version", target->version,
                                         required ? "version, at least 1" : "version; 0: the head");
      option->type_name("N")->required(required)->check(
          WholeNumber(required ? 1 : 0, std::numeric_limits<uint64_t>::max()));
    }
    command->callback([=] { *action = act; });
  };
  add(
      "show", "figures, task context and messages", [=] { return ShowSession(*target); },
      VersionWord::kOptional);
  add(
      "why", "what its recent turns reused and recomputed, and why",
      [=] { return ExplainSession(*target); }, VersionWord::kNone);
  add(
      "export", "the whole session as Markdown, or as JSON with --json",
      [=] { return ExportSession(*target); }, VersionWord::kOptional);
  add(
      "fork", "a new session that starts as this one",
      [=] { return Act(*target, ControlVerb::kSessionFork); }, VersionWord::kOptional);
  add(
      "rewind", "make an earlier version the head",
      [=] { return Act(*target, ControlVerb::kSessionRewind); }, VersionWord::kRequired);
  add(
      "delete", "free it everywhere, now",
      [=] { return Act(*target, ControlVerb::kSessionDelete); }, VersionWord::kNone);
  CLI::App* sweep = session->add_subcommand("sweep", "delete all that were not used for long");
  sweep->add_flag("--yes", words->yes, "do not ask, also below one hour");
  sweep->add_option("--unused", words->hours, "hours without a turn, at least")
      ->required()
      ->type_name("HOURS")
      ->check(NumberBetween(0, 1e6));
  sweep->callback([=] {
    *action = [=] { return SweepSessions(*target, words->hours, words->yes); };
  });
}

void AddSidecarCommands(CLI::App* app, Target* target, Action* action) {
  const auto add = [&](const char* name, const char* help, const Action& act) {
    app->add_subcommand(name, help)->callback([=] { *action = act; });
  };
  CLI::App* model = app->add_subcommand("model", "the model that is served");
  model->require_subcommand(1);
  model->add_subcommand("show", "its architecture, weights, tokenizer, fingerprint and memory")
      ->callback([=] { *action = [=] { return ShowModel(*target); }; });
  add("stats", "figures since the start", [=] { return ShowStats(*target); });
  add("ping", "ask whether a sidecar answers", [=] { return Act(*target, ControlVerb::kPing); });
  add("reload", "read the settings file again; all of it holds, or nothing does",
      [=] { return Reload(*target); });
}

void AddDrain(CLI::App* app, const Target* target, DrainOptions* options, Action* action) {
  CLI::App* drain = app->add_subcommand(
      "drain", "refuse new turns, cut open ones after drain.timeout, then end the sidecar");
  drain->add_flag("--wait", options->wait, "until it has ended; shows how many turns are open");
  drain->add_option("--timeout", options->timeout_s,
                    "seconds that open turns have, 0 to 3600; not given: drain.timeout")
      ->check(NumberBetween(0, static_cast<double>(kDrainTimeoutMsMax) / 1000))
      ->type_name("SECONDS");
  drain->callback([=] { *action = [=] { return Drain(*target, *options); }; });
}

void AddTop(CLI::App* app, const Target* target, TopOptions* options, Action* action) {
  CLI::App* top = app->add_subcommand("top", "sessions, rates and memory, refreshed; q ends it");
  top->add_flag("--once", options->once, "print once; so does --json, or a pipe");
  top->add_option("--interval", options->interval_s,
                  "seconds between two looks, 0.1 to 3600; rates are those between them [1]")
      ->check(NumberBetween(0.1, 3600))
      ->type_name("SECONDS");
  top->callback([=] { *action = [=] { return RunTop(*target, *options); }; });
}

void AddChat(CLI::App* app, const Target* target, ChatOptions* chat, Action* action) {
  CLI::App* run = app->add_subcommand("run", "chat at this terminal");
  run->add_option("--socket", chat->socket, "client socket; default: $KAIROS_SOCKET or per user")
      ->type_name("PATH");
  CLI::Option* session =
      run->add_option("--session", chat->session, "go on with this session, in hex")
          ->type_name("ID");
  run->add_option("--system", chat->system, "system prompt of a new session")
      ->type_name("TEXT")
      ->excludes(session);
  run->add_option("--model", chat->model,
                  "resident model, as `model show` names it; not given: the session's own, or the "
                  "default for a new one")
      ->type_name("NAME");
  run->add_option("--max-tokens", chat->max_tokens,
                  "most tokens of a reply; 0 or not given: the sidecar's setting")
      ->check(WholeNumber(0, std::numeric_limits<uint32_t>::max()))
      ->type_name("N");
  run->add_option("--temperature", chat->temperature,
                  "0 (greedy) to 2; not given: the sidecar's setting")
      ->check(NumberBetween(0, static_cast<double>(kTemperatureMax)))
      ->type_name("NUMBER");
  run->callback([=] {
    *action = [=] {
      chat->json = target->json;
      chat->control_socket = target->control_socket;
      return RunChat(*chat);
    };
  });
}

int PrintCompletion(const CLI::App& app, const std::string& shell) {
  const Shell kind = shell == "bash" ? Shell::kBash : shell == "zsh" ? Shell::kZsh : Shell::kFish;
  // Ids of sessions; none where there is no sidecar.
  constexpr const char* kIds = "kairosctl session ls 2>/dev/null | tail -n +2 | cut -c1-16";
  std::fputs(CompletionScript(kind, app, kIds).c_str(), stdout);
  return 0;
}

Program Description() {
  Program program;
  program.name = "kairosctl";
  program.purpose = "chat with, watch and operate a KAIROS sidecar";
  program.description =
      "kairosctl talks to a running kairosd(1). `run` is a chat over the clients' socket; doctor "
      "and completion need no sidecar; all else goes to the control socket, which only the "
      "sidecar's user and root may open.";
  program.exit_statuses = {
      {"0", "done"}, {"1", "refused or failed"}, {"2", "usage"}, {"69", "no sidecar"}};
  program.variables = {{"KAIROS_SOCKET", "the clients' socket; control.sock beside it is the "
                                         "operators'"},
                       {"XDG_RUNTIME_DIR", "its kairos/kairos.sock is the default of both sides"}};
  program.files = {{"/run/kairos/kairos.sock", "the default for root"},
                   {"/tmp/kairos-UID/kairos.sock", "the default without XDG_RUNTIME_DIR"}};
  program.see_also = "kairosd(1), kairos-bench(1)";
  return program;
}

}  // namespace

int RunTool(int argc, char** argv) {
  const Program program = Description();
  CLI::App app("Talks to a running KAIROS sidecar.", program.name);
  app.require_subcommand(1);
  app.fallthrough();
  Target target;
  ChatOptions chat;
  TopOptions top;
  Action action;
  std::string shell;
  app.add_option("--control", target.control_socket,
                 "control socket; default: beside $KAIROS_SOCKET")
      ->type_name("PATH");
  app.add_flag("--json", target.json, "print JSON");
  AddChat(&app, &target, &chat, &action);
  SweepWords sweep;
  AddSessionCommands(&app, &target, &sweep, &action);
  AddSidecarCommands(&app, &target, &action);
  DrainOptions drain;
  AddDrain(&app, &target, &drain, &action);
  AddTop(&app, &target, &top, &action);
  CLI::App* doctor = app.add_subcommand(
      "doctor", "look at host, settings, model and sidecar, and say what to change");
  const ConfigOptions settings(doctor);
  doctor->callback([&] {
    action = [&] { return RunDoctor(settings.Given(), target.json); };
  });
  CLI::App* completion =
      app.add_subcommand("completion", "print what a shell loads to complete this program's words");
  completion->add_option("shell", shell, "the shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""))
      ->type_name("bash|zsh|fish");
  completion->callback([&] {
    action = [&] { return PrintCompletion(app, shell); };
  });
  DescribeProgram(program, &app);
  int exit_code = 0;
  return ParseCommandLine(&app, argc, argv, &exit_code) ? action() : exit_code;
}

}  // namespace kairos

int main(int argc, char** argv) {
  try {
    return kairos::RunTool(argc, argv);
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "kairosctl: %s\n", kairos::Printable(fault.what()).c_str());
    return 1;
  }
}
