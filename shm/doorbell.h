// SPDX-License-Identifier: Apache-2.0
// Wakes the other process: one byte on the attachment's socket. A socket and not a shared eventfd,
// because a peer can make writes to a shared eventfd block; a send with MSG_DONTWAIT never does.
// Any thread may ring; one thread drains. Never blocks.
#pragma once

#include <cstdint>

namespace kairos {

enum class RingResult { kRung, kGone };

// A full socket buffer counts as rung: the sleeper has bytes to wake up for.
RingResult RingDoorbell(int socket);

struct DrainedDoorbells {
  uint32_t count = 0;
  bool closed = false;  // the peer closed its end or died
};

// Takes up to `max` waiting doorbells.
DrainedDoorbells DrainDoorbells(int socket, uint32_t max);

}  // namespace kairos
