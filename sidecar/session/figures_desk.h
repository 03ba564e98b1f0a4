// SPDX-License-Identifier: Apache-2.0
// Where one thread beside the control socket asks the conductor for its figures and waits.
// Owner: shared by exactly two threads, the reader and the conductor, through bounded queues.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/spsc_queue.h"
#include "base/waker.h"
#include "sidecar/control/control_request.h"

namespace kairos {

class FiguresDesk {
 public:
  // Reader only. Blocks until the conductor has answered; nothing when it did not within limit_ms.
  std::optional<Figures> Read(Waker& conductor, uint64_t limit_ms) {
    uint64_t ticket = ++next_ticket_;
    if (!asked_.TryPush(std::move(ticket))) return std::nullopt;
    conductor.Wake();
    const uint64_t until_ns = MonotonicNs() + limit_ms * 1'000'000;
    for (;;) {
      while (std::optional<Answer> answer = answers_.TryPop()) {
        // An older ticket is that of a reading that was given up.
        if (answer->ticket == next_ticket_) return std::move(answer->figures);
      }
      const uint64_t now_ns = MonotonicNs();
      if (now_ns >= until_ns) return std::nullopt;
      waker_.Prepare();
      if (answers_.empty()) waker_.Sleep(static_cast<int>((until_ns - now_ns) / 1'000'000) + 1);
      waker_.Finish();
    }
  }

  // Conductor only: the ticket of the next question.
  std::optional<uint64_t> TakeQuestion() { return asked_.TryPop(); }
  // Conductor only. Dropped where a reader has left too many answers unread.
  void Reply(uint64_t ticket, Figures&& figures) {
    [[maybe_unused]] const bool sent = answers_.TryPush({ticket, std::move(figures)});
    waker_.Wake();
  }

 private:
  struct Answer {
    uint64_t ticket = 0;
    Figures figures;
  };
  SpscQueue<uint64_t> asked_{4};
  SpscQueue<Answer> answers_{4};
  Waker waker_;               // of the reader
  uint64_t next_ticket_ = 0;  // the reader's
};

}  // namespace kairos
