// SPDX-License-Identifier: Apache-2.0
#include "cli/drain.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <nlohmann/json.hpp>

#include "shm/descriptor.h"

namespace kairos {

namespace {

constexpr int kLookMs = 1000;

// Polls readable when the process that listens at `path` has ended. Not valid where it cannot be
// told: it is gone, or in a namespace that this process does not see.
Descriptor ProcessBehind(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return {};
  std::memcpy(address.sun_path, path.data(), path.size());
  const Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) {
    return {};
  }
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
}

std::string OpenWords(uint64_t turns) {
  if (turns == 0) return "no turn is open";
  return turns == 1 ? "1 turn is open" : std::to_string(turns) + " turns are open";
}

// Turns that are open, as the sidecar counts them; nothing once its control socket is closed.
std::optional<uint64_t> TurnsOpen(ControlClient& client) {
  ControlRequest request;
  request.verb = ControlVerb::kStats;
  ControlReply reply;
  Fault fault;
  if (Ask(client, request, &reply, &fault, kLookMs) != 0) return std::nullopt;
  for (const auto& [name, value] : reply.stats) {
    if (name == "turns_open") return static_cast<uint64_t>(value);
  }
  return std::nullopt;
}

void AwaitEnd(ControlClient& client, int process) {
  uint64_t told = 0;
  pollfd item{process, POLLIN, 0};
  do {
    const std::optional<uint64_t> open = TurnsOpen(client);
    if (open && *open != told) {
      std::fprintf(stderr, "%s\n", OpenWords(*open).c_str());
      told = *open;
    }
  } while (poll(&item, 1, kLookMs) <= 0);
}

}  // namespace

int Drain(const Target& target, const DrainOptions& options) {
  int status = 0;
  const std::unique_ptr<ControlClient> client = Connect(target, &status);
  if (client == nullptr) return status;
  const Descriptor process = ProcessBehind(ControlPath(target.control_socket));
  if (options.wait && !process.valid()) {
    Complain(target, {KAIROS_UNAVAILABLE, 0, "the sidecar's process cannot be watched from here",
                      "nothing was done; drain without --wait"});
    return kExitUnavailable;
  }
  ControlRequest request;
  request.verb = ControlVerb::kDrain;
  if (options.timeout_s) {
    request.drain_timeout_ms = static_cast<uint64_t>(std::llround(*options.timeout_s * 1000));
  }
  ControlReply reply;
  if (const int code = Call(target, request, &reply, client.get()); code != 0) return code;
  const nlohmann::json said = nlohmann::json::parse(reply.text, nullptr, false);
  const uint64_t open = said.is_object() ? said.value("turns_open", uint64_t{0}) : 0;
  const uint64_t timeout_ms = said.is_object() ? said.value("drain_timeout_ms", uint64_t{0}) : 0;
  if (!target.json) {
    const double timeout_s = static_cast<double>(timeout_ms) / 1000;
    std::printf("%s", OpenWords(open).c_str());
    if (open > 0) {
      std::printf("; after %g s (%s) what is open is cut", timeout_s,
                  options.timeout_s ? "--timeout" : "drain.timeout");
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  if (options.wait) AwaitEnd(*client, process.get());
  if (target.json) {
    std::printf("{\"ok\":true,\"turns_open\":%llu,\"drain_timeout_ms\":%llu,\"ended\":%s}\n",
                static_cast<unsigned long long>(open), static_cast<unsigned long long>(timeout_ms),
                options.wait ? "true" : "false");
  } else if (options.wait) {
    std::printf("the sidecar has ended\n");
  }
  return 0;
}

}  // namespace kairos
