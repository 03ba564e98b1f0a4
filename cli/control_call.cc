// SPDX-License-Identifier: Apache-2.0
#include "cli/control_call.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>

#include "shm/socket_path.h"
#include "usage/program.h"

namespace kairos {

std::string ControlPath(const std::string& given, const std::string& client_socket) {
  if (!given.empty()) return given;
  if (!client_socket.empty()) return ControlSocketBeside(client_socket);
  const Result<std::string> socket = DefaultSocketPath();
  return socket.ok() ? ControlSocketBeside(*socket) : "";
}

uint64_t NowUnixMs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
}

void Complain(const Target& target, const Fault& fault, const std::string& what) {
  std::fprintf(stderr, "kairosctl: %s%s\n", what.c_str(), FaultText(fault).c_str());
  if (target.json) std::printf("%s\n", FaultJson(fault).c_str());
}

std::string AdviceForDenied(const std::string& path) {
  if (faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0 || errno != EACCES) return "";
  struct stat status {};
  if (const std::string folder = FolderThatShutsOut(path);
      !folder.empty() && stat(folder.c_str(), &status) == 0) {
    char mode[8];
    std::snprintf(mode, sizeof(mode), "%04o", status.st_mode & 07777u);
    return "permission denied to uid " + std::to_string(geteuid()) + " by the folder " + folder +
           " (uid " + std::to_string(status.st_uid) + ", gid " + std::to_string(status.st_gid) +
           ", mode " + mode + "): clients of other users need socket_mode = \"0660\", its group, "
           "and folders that let the group through (chmod g+x)";
  }
  return "permission denied to uid " + std::to_string(geteuid()) +
         ": only the user that kairosd runs as and root may open the control socket; others may "
         "open that of clients, with socket_mode = \"0660\" and its group";
}

bool ReadSession(const Target& target, SessionId* session) {
  if (target.session.empty() || ParseSessionText(target.session, &session->value)) return true;
  std::fprintf(stderr, "kairosctl: session: not an id of up to 16 hex digits\n");
  return false;
}

std::unique_ptr<ControlClient> Connect(const Target& target, int* status) {
  // What is wrong with the command line is not told only where a sidecar runs.
  if (SessionId ignored; !ReadSession(target, &ignored)) {
    *status = kExitUsage;
    return nullptr;
  }
  std::string error;
  const std::string path = ControlPath(target.control_socket);
  if (const Result<std::string> socket = DefaultSocketPath(); path.empty() && !socket.ok()) {
    Complain(target, {KAIROS_INVALID_ARGUMENT, 0, socket.status().message(),
                      "KAIROS_SOCKET, or XDG_RUNTIME_DIR, is too long: name a shorter path"},
             "no socket: ");
    *status = kExitUsage;
    return nullptr;
  }
  auto client = ControlClient::Open(path, &error);
  if (client.ok()) return client.Take();
  const std::string denied = AdviceForDenied(path);
  Complain(target, {KAIROS_UNAVAILABLE, 0, error, denied},
           denied.empty() ? "no sidecar: " : "no access: ");
  *status = kExitUnavailable;
  return nullptr;
}

int Ask(ControlClient& client, const ControlRequest& request, ControlReply* reply, Fault* fault,
        int limit_ms) {
  const Status status = client.Call(request, limit_ms, reply);
  if (status.ok() && reply->code == 0) return 0;
  const int32_t code = status.ok() ? reply->code : static_cast<int32_t>(status.code());
  *fault = status.ok() ? Fault{code, reply->detail, reply->text}
                       : Fault{code, 0, status.message()};
  return code == KAIROS_UNAVAILABLE ? kExitUnavailable : kExitFailed;
}

int Call(const Target& target, ControlRequest request, ControlReply* reply,
         ControlClient* client) {
  if (!ReadSession(target, &request.session)) return kExitUsage;
  if (request.version == 0) request.version = target.version;
  std::unique_ptr<ControlClient> opened;
  if (client == nullptr) {
    int status = 0;
    opened = Connect(target, &status);
    if (opened == nullptr) return status;
    client = opened.get();
  }
  Fault fault;
  const int status = Ask(*client, request, reply, &fault);
  if (status != 0) Complain(target, fault);
  return status;
}

}  // namespace kairos
