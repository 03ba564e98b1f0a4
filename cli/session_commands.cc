// SPDX-License-Identifier: Apache-2.0
#include "cli/session_commands.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "cli/listing.h"
#include "cli/turn_listing.h"
#include "cli/words.h"
#include "usage/program.h"

namespace kairos {

namespace {

constexpr uint32_t kListMax = 256;  // rows of one call

// What show and export have in common.
struct StoredSession {
  kairos_session_t figures{};
  std::string messages;  // JSON
  std::string context;   // JSON
  std::string version;   // JSON: the version that messages and context are of
};

// Gives all sessions to `use`, a page at a time; 0, or the exit status that ended it.
template <typename Use>
int ForEachPage(const Target& target, ControlClient& client, Use&& use) {
  ControlRequest request;
  request.verb = ControlVerb::kSessionList;
  request.list_max = kListMax;
  for (;;) {
    ControlReply reply;
    if (const int code = Call(target, request, &reply, &client); code != 0) return code;
    if (const int code = use(reply.sessions); code != 0) return code;
    if (reply.sessions.size() < request.list_max) return 0;
    request.after = SessionId{reply.sessions.back().id};
  }
}

// Of a version that is not there: which ones are.
void AdviseVersions(ControlClient& client, ControlRequest request, Fault* fault) {
  if (fault->code != KAIROS_NOT_FOUND || request.version == 0) return;
  request.version = 0;
  ControlReply reply;
  Fault ignored;
  if (Ask(client, request, &reply, &ignored) != 0 || reply.sessions.empty()) return;
  const kairos_session_t& session = reply.sessions[0];
  if (session.version == 0) {
    fault->advice = "the session has no version yet";
    return;
  }
  fault->advice = "there are versions from " + std::to_string(session.oldest_version) +
                  " on; the head is " + std::to_string(session.version);
}

int Read(const Target& target, ControlClient& client, StoredSession* stored) {
  ControlRequest request;
  request.verb = ControlVerb::kSessionShow;
  request.version = target.version;
  ControlReply reply;
  if (!ReadSession(target, &request.session)) return kExitUsage;
  Fault fault;
  if (const int code = Ask(client, request, &reply, &fault); code != 0) {
    AdviseVersions(client, request, &fault);
    Complain(target, fault);
    return code;
  }
  if (!reply.sessions.empty()) stored->figures = reply.sessions[0];
  stored->messages = reply.text.empty() ? "[]" : reply.text;
  // Of the same version, also when a turn ends between the two calls.
  request.verb = ControlVerb::kSessionContext;
  request.version = reply.version;
  if (const int code = Call(target, request, &reply, &client); code != 0) return code;
  stored->context = reply.text;
  request.verb = ControlVerb::kSessionVersion;
  if (const int code = Call(target, request, &reply, &client); code != 0) return code;
  stored->version = reply.text;
  return 0;
}

// Summaries of all versions that can be named, as JSON objects. The newest number is not known
// after a rewind: behind the head, the first that is not found ends the list.
int ReadVersions(const Target& target, ControlClient& client, const kairos_session_t& figures,
                 std::vector<std::string>* versions) {
  ControlRequest request;
  request.verb = ControlVerb::kSessionVersion;
  request.session = SessionId{figures.id};
  for (uint64_t version = figures.oldest_version; version != 0; ++version) {
    request.version = version;
    ControlReply reply;
    Fault fault;
    const int status = Ask(client, request, &reply, &fault);
    if (status == 0) {
      versions->push_back(reply.text);
    } else if (reply.code == KAIROS_NOT_FOUND && version > figures.version) {
      return 0;
    } else {
      Complain(target, fault, "version " + std::to_string(version) + ": ");
      return status;
    }
  }
  return 0;
}

// Sessions of the last hour are likely in use: 0 where they are meant.
int AskToSweep(double unused_hours) {
  if (isatty(STDIN_FILENO) == 0) {
    std::fprintf(stderr,
                 "kairosctl: --unused %g would delete sessions of the last hour; if that is meant, "
                 "add --yes\n",
                 unused_hours);
    return kExitUsage;
  }
  std::fprintf(stderr, "Delete all sessions without a turn for %g hours, also those of the last "
                       "hour? [y/N] ", unused_hours);
  const int answer = std::getchar();
  if (answer == 'y' || answer == 'Y') return 0;
  std::fprintf(stderr, "kairosctl: nothing was deleted\n");
  return kExitFailed;
}

}  // namespace

int ListSessions(const Target& target) {
  int status = 0;
  const std::unique_ptr<ControlClient> client = Connect(target, &status);
  if (client == nullptr) return status;
  std::string json;
  bool first = true;
  const auto print = [&](const std::vector<kairos_session_t>& sessions) {
    if (std::exchange(first, false) && !target.json) std::printf("%s\n", SessionHeading().c_str());
    for (const kairos_session_t& session : sessions) {
      if (target.json) {
        json += (json.empty() ? "" : ",") + SessionJson(session);
      } else {
        std::printf("%s\n", SessionLine(session, NowUnixMs()).c_str());
      }
    }
    return 0;
  };
  if (const int code = ForEachPage(target, *client, print); code != 0) return code;
  if (target.json) std::printf("[%s]\n", json.c_str());
  return 0;
}

int ShowSession(const Target& target) {
  int status = 0;
  const std::unique_ptr<ControlClient> client = Connect(target, &status);
  if (client == nullptr) return status;
  StoredSession stored;
  if (const int code = Read(target, *client, &stored); code != 0) return code;
  if (target.json) {
    std::printf("{\"session\":%s,\"shown\":%s,\"context\":%s,\"messages\":%s}\n",
                SessionJson(stored.figures).c_str(), stored.version.c_str(), stored.context.c_str(),
                stored.messages.c_str());
    return 0;
  }
  std::printf("%s%s\n", SessionFigures(stored.figures, NowUnixMs()).c_str(),
              ShownVersion(stored.figures, stored.version).c_str());
  if (const std::string context = ContextParagraph(stored.context); !context.empty()) {
    std::printf("%s\n", context.c_str());
  }
  std::fputs(MessageParagraphs(stored.messages).c_str(), stdout);
  return 0;
}

int ExplainSession(const Target& target) {
  ControlRequest request;
  request.verb = ControlVerb::kSessionWhy;
  ControlReply reply;
  if (const int code = Call(target, request, &reply); code != 0) return code;
  if (target.json) {
    std::printf("%s\n", TurnsJson(reply.text).c_str());
  } else {
    std::fputs(TurnParagraphs(reply.text, NowUnixMs()).c_str(), stdout);
  }
  return 0;
}

int ExportSession(const Target& target) {
  int status = 0;
  const std::unique_ptr<ControlClient> client = Connect(target, &status);
  if (client == nullptr) return status;
  StoredSession stored;
  if (const int code = Read(target, *client, &stored); code != 0) return code;
  std::vector<std::string> versions;
  if (const int code = ReadVersions(target, *client, stored.figures, &versions); code != 0) {
    return code;
  }
  if (!target.json) {
    std::fputs(SessionMarkdown(stored.figures, ShownVersion(stored.figures, stored.version),
                               stored.context, versions, stored.messages)
                   .c_str(),
               stdout);
    return 0;
  }
  std::string rows;
  for (const std::string& version : versions) rows += (rows.empty() ? "" : ",") + version;
  std::printf("{\"session\":%s,\"shown\":%s,\"context\":%s,\"versions\":[%s],\"messages\":%s}\n",
              SessionJson(stored.figures).c_str(), stored.version.c_str(), stored.context.c_str(),
              rows.c_str(), stored.messages.c_str());
  return 0;
}

int SweepSessions(const Target& target, double unused_hours, bool yes) {
  if (unused_hours < 1 && !yes) {
    if (const int code = AskToSweep(unused_hours); code != 0) return code;
  }
  int status = 0;
  const std::unique_ptr<ControlClient> client = Connect(target, &status);
  if (client == nullptr) return status;
  const double unused_ms = unused_hours * 3.6e6;
  uint64_t deleted = 0, kept = 0;
  const auto sweep = [&](const std::vector<kairos_session_t>& sessions) {
    for (const kairos_session_t& session : sessions) {
      const uint64_t now = NowUnixMs();
      const uint64_t used = std::min(std::max(session.used_unix_ms, session.created_unix_ms), now);
      if (session.phase == KAIROS_PHASE_RUNNING || static_cast<double>(now - used) < unused_ms) {
        ++kept;
        continue;
      }
      ControlRequest request;
      request.verb = ControlVerb::kSessionDelete;
      request.session = SessionId{session.id};
      ControlReply answer;
      Fault fault;
      const int code = Ask(*client, request, &answer, &fault);
      if (code == 0) {
        ++deleted;
      } else if (answer.code != KAIROS_NOT_FOUND) {  // gone meanwhile: that was the wish
        Complain(target, fault, "session " + SessionText(session.id) + ": ");
        return code;
      }
    }
    return 0;
  };
  if (const int code = ForEachPage(target, *client, sweep); code != 0) return code;
  const auto count = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  if (target.json) {
    std::printf("{\"deleted\":%llu,\"kept\":%llu}\n", count(deleted), count(kept));
  } else {
    std::printf("%llu sessions deleted, %llu kept\n", count(deleted), count(kept));
  }
  return 0;
}

int Act(const Target& target, ControlVerb verb) {
  ControlRequest request;
  request.verb = verb;
  ControlReply reply;
  if (const int code = Call(target, request, &reply); code != 0) return code;
  if (target.json && verb == ControlVerb::kPing) {
    std::printf("{\"ok\":true}\n");
  } else if (target.json) {
    std::printf("{\"ok\":true,\"session\":\"%s\",\"version\":%llu}\n",
                SessionText(reply.session.value).c_str(),
                static_cast<unsigned long long>(reply.version));
  } else if (verb == ControlVerb::kSessionFork) {
    std::printf("%s\n", SessionText(reply.session.value).c_str());
  } else {
    std::printf("ok\n");
  }
  return 0;
}

}  // namespace kairos
