// SPDX-License-Identifier: Apache-2.0
#include "shm/acceptor.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/socket.h>

namespace kairos {

Status Acceptor::Open() {
  Restore();
  if (spare_.valid()) return Status();
  return Status(Code::kResourceExhausted, "no descriptor to hold in reserve", errno);
}

void Acceptor::Restore() { spare_ = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

Acceptor::Outcome Acceptor::Accept(int listener, Descriptor* socket) {
  constexpr int kFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;
  *socket = Descriptor(accept4(listener, nullptr, nullptr, kFlags));
  if (socket->valid()) return Outcome::kAccepted;
  if ((errno != EMFILE && errno != ENFILE) || !spare_.valid()) return Outcome::kNone;
  spare_.Close();
  *socket = Descriptor(accept4(listener, nullptr, nullptr, kFlags));
  if (socket->valid()) return Outcome::kWithoutRoom;
  Restore();
  return Outcome::kNone;
}

bool IsShortOfDescriptors(int socket, uint64_t room, uint64_t limit) {
  return static_cast<uint64_t>(socket) + std::min(room, limit / 2) > limit;
}

}  // namespace kairos
