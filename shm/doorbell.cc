// SPDX-License-Identifier: Apache-2.0
#include "shm/doorbell.h"

#include <cerrno>

#include <sys/socket.h>

namespace kairos {

RingResult RingDoorbell(int socket) {
  const char byte = 1;
  for (;;) {
    if (send(socket, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return RingResult::kRung;
    if (errno == EINTR) continue;
    const bool full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
    return full ? RingResult::kRung : RingResult::kGone;
  }
}

DrainedDoorbells DrainDoorbells(int socket, uint32_t max) {
  DrainedDoorbells drained;
  char bytes[16];
  while (drained.count < max) {
    const ssize_t got = recv(socket, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) {
      ++drained.count;
    } else if (got == 0) {
      drained.closed = true;
      break;
    } else if (errno != EINTR) {
      drained.closed = errno != EAGAIN && errno != EWOULDBLOCK;
      break;
    }
  }
  return drained;
}

}  // namespace kairos
