// SPDX-License-Identifier: Apache-2.0
// kairosctl: talks to a running sidecar. `run` is a client like any other; the rest are requests of
// an operator over the control socket. Built with exceptions: CLI11 throws, and main() catches.
// Exit codes: 0 done, 1 refused or failed, 2 usage, 69 no sidecar.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <ctime>
#include <functional>
#include <string>

#include "cli/chat.h"
#include "cli/json_text.h"
#include "cli/listing.h"
#include "cli/words.h"
#include "shm/socket_path.h"
#include "sidecar/control/control_client.h"

namespace kairos {

namespace {

constexpr int kExitUnavailable = 69;
constexpr int kCallMs = 5000;

struct Target {
  std::string control_socket;
  bool json = false;
  std::string session;
  uint64_t version = 0;
};

std::string ControlPath(const std::string& given) {
  if (!given.empty()) return given;
  const Result<std::string> socket = DefaultSocketPath();
  if (!socket.ok()) return "";
  const size_t slash = socket->rfind('/');
  return (slash == std::string::npos ? "" : socket->substr(0, slash + 1)) + "control.sock";
}

uint64_t NowUnixMs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
}

// One call; 0 with *reply, or the exit code after the reason was printed.
int Call(const Target& target, ControlRequest request, ControlReply* reply) {
  if (!target.session.empty() && !ParseSessionText(target.session, &request.session.value)) {
    std::fprintf(stderr, "kairosctl: session: not an id of up to 16 hex digits\n");
    return 2;
  }
  request.version = target.version;
  std::string error;
  auto client = ControlClient::Open(ControlPath(target.control_socket), &error);
  if (!client.ok()) {
    std::fprintf(stderr, "kairosctl: no sidecar: %s\n",
                 FaultText(KAIROS_UNAVAILABLE, 0, error).c_str());
    return kExitUnavailable;
  }
  const Status status = (*client)->Call(request, kCallMs, reply);
  if (!status.ok()) {
    std::fprintf(stderr, "kairosctl: %s\n",
                 FaultText(static_cast<int32_t>(status.code()), 0, status.message()).c_str());
    return status.code() == Code::kUnavailable ? kExitUnavailable : 1;
  }
  if (reply->code == 0) return 0;
  std::fprintf(stderr, "kairosctl: %s\n",
               FaultText(reply->code, reply->detail, reply->text).c_str());
  return reply->code == KAIROS_UNAVAILABLE ? kExitUnavailable : 1;
}

int ListSessions(const Target& target) {
  std::string json;
  ControlRequest request;
  request.verb = ControlVerb::kSessionList;
  request.list_max = 256;
  for (bool first = true;; first = false) {
    ControlReply reply;
    if (const int code = Call(target, request, &reply); code != 0) return code;
    if (first && !target.json) std::printf("%s\n", SessionHeading().c_str());
    for (const kairos_session_t& session : reply.sessions) {
      if (target.json) {
        json += (json.empty() ? "" : ",") + SessionJson(session);
      } else {
        std::printf("%s\n", SessionLine(session, NowUnixMs()).c_str());
      }
    }
    if (reply.sessions.size() < request.list_max) break;
    request.after = SessionId{reply.sessions.back().id};
  }
  if (target.json) std::printf("[%s]\n", json.c_str());
  return 0;
}

int ShowSession(const Target& target) {
  ControlRequest request;
  request.verb = ControlVerb::kSessionShow;
  ControlReply reply;
  if (const int code = Call(target, request, &reply); code != 0) return code;
  const std::string session = reply.sessions.empty() ? "null" : SessionJson(reply.sessions[0]);
  if (target.json) {
    std::printf("{\"session\":%s,\"messages\":%s}\n", session.c_str(),
                reply.text.empty() ? "[]" : reply.text.c_str());
    return 0;
  }
  for (const kairos_session_t& row : reply.sessions) {
    std::printf("%s\n", SessionFigures(row, NowUnixMs()).c_str());
  }
  std::fputs(MessageParagraphs(reply.text).c_str(), stdout);
  return 0;
}

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

int Act(const Target& target, ControlVerb verb) {
  ControlRequest request;
  request.verb = verb;
  ControlReply reply;
  if (const int code = Call(target, request, &reply); code != 0) return code;
  if (target.json) {
    std::printf("{\"ok\":true,\"session\":\"%016llx\",\"version\":%llu}\n",
                static_cast<unsigned long long>(reply.session.value),
                static_cast<unsigned long long>(reply.version));
  } else if (verb == ControlVerb::kSessionFork) {
    std::printf("%016llx\n", static_cast<unsigned long long>(reply.session.value));
  } else {
    std::printf("ok\n");
  }
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

void AddSessionCommands(CLI::App* app, Target* target, int* code) {
  CLI::App* session = app->add_subcommand("session", "list, show and change sessions");
  session->require_subcommand(1);
  session->add_subcommand("ls", "list all sessions")->callback([=] {
    *code = ListSessions(*target);
  });
  const auto add = [&](const char* name, const char* help, std::function<int()> act, int version) {
    CLI::App* command = session->add_subcommand(name, help);
    command->add_option("id", target->session, "session, in hex")->required();
    if (version != 0) {
      auto* option = command->add_option("version", target->version, "version; 0: the newest");
      if (version == 2) option->required();
    }
    command->callback([=] { *code = act(); });
  };
  add(
      "show", "figures and messages", [=] { return ShowSession(*target); }, 1);
  add(
      "fork", "a new session that starts as this one",
      [=] { return Act(*target, ControlVerb::kSessionFork); }, 1);
  add(
      "rewind", "make an earlier version the head",
      [=] { return Act(*target, ControlVerb::kSessionRewind); }, 2);
  add(
      "delete", "free it everywhere, now",
      [=] { return Act(*target, ControlVerb::kSessionDelete); }, 0);
}

}  // namespace

int RunTool(int argc, char** argv) {
  CLI::App app("kairosctl: talks to a running KAIROS sidecar", "kairosctl");
  app.require_subcommand(1);
  Target target;
  ChatOptions chat;
  int code = 0;
  app.add_option("--control", target.control_socket,
                 "control socket; default: beside $KAIROS_SOCKET");
  app.add_flag("--json", target.json, "print JSON");
  app.footer("Exit codes: 0 done, 1 refused or failed, 2 usage, 69 no sidecar.");
  app.fallthrough();
  AddSessionCommands(&app, &target, &code);
  app.add_subcommand("stats", "figures since the start")->callback([&] {
    code = ShowStats(target);
  });
  app.add_subcommand("ping", "is it there?")->callback([&] {
    code = Act(target, ControlVerb::kPing);
  });
  app.add_subcommand("drain", "refuse new turns, let open ones end")->callback([&] {
    code = Act(target, ControlVerb::kDrain);
  });
  app.add_subcommand("reload", "read the settings file again; all of it holds, or nothing does")
      ->callback([&] { code = Reload(target); });
  CLI::App* run = app.add_subcommand("run", "chat at this terminal");
  run->add_option("--socket", chat.socket, "client socket; default: $KAIROS_SOCKET or per user");
  CLI::Option* session =
      run->add_option("--session", chat.session, "go on with this session, in hex");
  run->add_option("--system", chat.system, "system prompt of a new session")->excludes(session);
  run->add_option("--max-tokens", chat.max_tokens, "limit of a reply; 0: the sidecar's");
  run->add_option("--temperature", chat.temperature, "0: greedy")->check(CLI::Range(0.0, 100.0));
  run->callback([&] {
    chat.json = target.json;
    code = RunChat(chat);
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& fault) {
    return app.exit(fault) == 0 ? 0 : 2;
  }
  return code;
}

}  // namespace kairos

int main(int argc, char** argv) {
  try {
    return kairos::RunTool(argc, argv);
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "kairosctl: %s\n", fault.what());
    return 1;
  }
}
