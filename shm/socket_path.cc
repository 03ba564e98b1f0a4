// SPDX-License-Identifier: Apache-2.0
#include "shm/socket_path.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace kairos {
namespace {

// secure_getenv: a set-uid host must not be steered to another socket by its caller.
const char* Variable(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

}  // namespace

Result<std::string> DefaultSocketPath() {
  std::string path;
  if (const char* socket = Variable("KAIROS_SOCKET")) {
    path = socket;
  } else if (const char* runtime = Variable("XDG_RUNTIME_DIR")) {
    path = std::string(runtime) + "/kairos/kairos.sock";
  } else if (const uid_t uid = geteuid(); uid == 0) {
    path = "/run/kairos/kairos.sock";
  } else {
    path = "/tmp/kairos-" + std::to_string(uid) + "/kairos.sock";
  }
  if (path.size() > kSocketPathBytesMax) {
    return Status(Code::kInvalidArgument, "socket path: at most 107 bytes");
  }
  return path;
}

std::string FolderThatShutsOut(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    std::string folder = path.substr(0, at);
    const bool may_pass = faccessat(AT_FDCWD, folder.c_str(), X_OK, AT_EACCESS) == 0;
    if (!may_pass && errno == EACCES) return folder;
  }
  return "";
}

std::string ControlSocketBeside(const std::string& socket) {
  // Without a slash it is the working folder.
  return socket.substr(0, socket.rfind('/') + 1) + "control.sock";
}

}  // namespace kairos
