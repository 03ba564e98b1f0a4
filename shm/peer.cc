// SPDX-License-Identifier: Apache-2.0
#include "shm/peer.h"

#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace kairos {

Result<PeerCredentials> ReadPeer(int socket) {
  struct ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return Status(Code::kUnavailable, "peer credentials cannot be read", errno);
  }
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

bool HungUp(int socket) {
  pollfd entry{socket, POLLRDHUP, 0};
  return poll(&entry, 1, 0) < 0 || (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

Result<int> OpenPeerPidfd(int socket, const PeerCredentials& peer) {
  int pidfd = -1;
  socklen_t size = sizeof(pidfd);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0 && pidfd >= 0) {
    fcntl(pidfd, F_SETFD, FD_CLOEXEC);
    return pidfd;
  }
  if (peer.pid <= 0) return Status(Code::kNotFound, "peer is in another pid namespace");
  pidfd = static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
  if (pidfd < 0) return Status(Code::kNotFound, "peer has no pidfd", errno);
  // Before the look at the socket the pid may have been reused by another process; a peer whose
  // socket still stands was alive when the pidfd was made.
  if (HungUp(socket)) {
    close(pidfd);
    return Status(Code::kNotFound, "peer is gone");
  }
  return pidfd;
}

}  // namespace kairos
