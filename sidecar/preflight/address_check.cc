// SPDX-License-Identifier: Apache-2.0
#include "sidecar/preflight/address_check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace kairos {

namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Address ReadAddress(const std::string& text) {
  Address address;
  const size_t colon = text.rfind(':');
  const in_port_t port =
      htons(static_cast<uint16_t>(std::strtoul(text.c_str() + colon + 1, nullptr, 10)));
  if (text.starts_with('[')) {
    auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
    six->sin6_family = AF_INET6;
    six->sin6_port = port;
    inet_pton(AF_INET6, text.substr(1, colon - 2).c_str(), &six->sin6_addr);
    address.size = sizeof(*six);
  } else {
    auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
    four->sin_family = AF_INET;
    four->sin_port = port;
    inet_pton(AF_INET, text.substr(0, colon).c_str(), &four->sin_addr);
    address.size = sizeof(*four);
  }
  return address;
}

// 0, or the errno of what went wrong.
int TryToListen(const Address& address) {
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  // As the server does: connections of a moment ago that linger are no obstacle.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool listens =
      bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0 &&
      listen(fd, 1) == 0;
  const int fault = listens ? 0 : errno;
  close(fd);
  return fault;
}

}  // namespace

Finding CheckListenAddress(const std::string& address) {
  Finding found{"metrics.listen", Severity::kOk, address + " is free", "", 0};
  const int fault = TryToListen(ReadAddress(address));
  if (fault == 0) return found;
  found.severity = Severity::kFail;
  found.exit_status = kExitCannotCreate;
  if (fault == EADDRINUSE) {
    found.words = "metrics.listen: " + address + " is in use by another program";
    found.remedy = "end that program (`ss -ltnp` names it), or give `metrics.listen` another port";
  } else {
    found.words = "metrics.listen: cannot listen on " + address + ": " + std::strerror(fault);
    found.remedy = "give `metrics.listen` an address of this host and a port that this user may "
                   "have, or leave it empty";
  }
  return found;
}

}  // namespace kairos
