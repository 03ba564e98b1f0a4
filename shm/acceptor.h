// SPDX-License-Identifier: Apache-2.0
// Accepts local connections also where the process has no descriptor left: one is held in reserve,
// so that a connection that cannot be served is refused instead of waiting for ever, and so that a
// listening socket with a waiting connection does not keep its poller awake. One thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "shm/descriptor.h"

namespace kairos {

class Acceptor {
 public:
  // kResourceExhausted where there is no descriptor for the reserve.
  [[nodiscard]] Status Open();

  enum class Outcome { kNone, kAccepted, kWithoutRoom };
  // The next waiting connection of `listener`, non-blocking and closed on exec. kWithoutRoom: it
  // stands on the reserve; say what there is to say, close it, and call Restore().
  Outcome Accept(int listener, Descriptor* socket);
  void Restore();

 private:
  Descriptor spare_;
};

// Whether fewer than `room` descriptors are free beyond `socket`, of `limit` (at most half of which
// are asked for). Descriptors are given out lowest first, so the newest one's number tells how many
// are in use.
bool IsShortOfDescriptors(int socket, uint64_t room, uint64_t limit);

}  // namespace kairos
