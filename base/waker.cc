// SPDX-License-Identifier: Apache-2.0
#include "base/waker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

namespace kairos {

Waker::Waker() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { KAIROS_CHECK(fd_ >= 0); }

Waker::~Waker() { close(fd_); }

void Waker::Wake() {
  // Read-modify-write on both sides orders the pusher's store before this look and the sleeper's
  // flag before its last look at the queue (the StoreLoad that plain release/acquire lacks). TSan
  // understands it, which it does not of a bare fence.
  if (asleep_.exchange(false, std::memory_order_seq_cst)) Interrupt();
}

void Waker::Interrupt() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
}

void Waker::Prepare() { asleep_.exchange(true, std::memory_order_seq_cst); }

void Waker::Sleep(int timeout_ms) {
  pollfd entry{fd_, POLLIN, 0};
  poll(&entry, 1, timeout_ms);
}

void Waker::Finish() {
  asleep_.exchange(false, std::memory_order_seq_cst);
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof(count));
}

}  // namespace kairos
