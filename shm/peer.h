// SPDX-License-Identifier: Apache-2.0
// Who is at the other end of a Unix socket, and a descriptor that tells when it is dead.
// The socket's end-of-file is the first death notice; the pidfd is the second, for a client whose
// forked child still holds the socket. Nothing here blocks.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace kairos {

struct PeerCredentials {
  int32_t pid = 0;  // 0: in another pid namespace
  uint32_t uid = 0;
  uint32_t gid = 0;
};

// As the kernel noted them when the peer connected.
Result<PeerCredentials> ReadPeer(int socket);

// A pidfd of the peer, owned by the caller; readable when the peer is dead. kNotFound where there
// is none to have (another pid namespace, old kernel): then the socket alone tells.
Result<int> OpenPeerPidfd(int socket, const PeerCredentials& peer);

// True when the peer closed its end or died, without consuming anything.
bool HungUp(int socket);

}  // namespace kairos
