// SPDX-License-Identifier: Apache-2.0
// An event as the library holds it: one allocation with its text and tokens behind it, linked
// through itself so that queueing one cannot fail.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "kairos/kairos.h"
#include "shm/records.h"

struct kairos_event {
  kairos_event* next;
  int32_t type;
  int32_t code;
  int32_t detail;
  uint32_t token_count;
  uint32_t session_count;
  uint32_t record_type;  // kairos::RecordType it came from
  uint64_t request;
  uint64_t session;
  uint64_t version;
  uint64_t text_size;
  uint64_t bytes;        // of the whole allocation
  const char* text;      // terminated
  const int32_t* tokens;
  const kairos_session_t* sessions;
  kairos_final_t final;  // zero but in a final event; not set in a pong, which no program sees
};

namespace kairos {

struct EventRelease {
  void operator()(kairos_event* event) const noexcept;
};
using EventPtr = std::unique_ptr<kairos_event, EventRelease>;

// Null when memory is short. `type` is any reply type but kPong.
EventPtr MakeEvent(RecordType type, uint64_t request, const ReplyView& reply) noexcept;
EventPtr MakePong(uint64_t request) noexcept;
EventPtr CopyOf(const kairos_event& event) noexcept;
EventPtr MakeError(uint64_t request, uint64_t session, const Status& status) noexcept;

// Events in order; owns them.
class EventQueue {
 public:
  EventQueue() = default;
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;
  ~EventQueue();

  void Push(EventPtr event) noexcept;
  EventPtr Pop() noexcept;           // null when empty
  // Of a queue of session events that is long enough, and not empty: the event goes in the place of
  // the last of its session. Where there is none the queue's last event becomes a notice, with
  // session 0, that states were left out.
  void MergeState(const kairos_event& event) noexcept;
  bool empty() const { return first_ == nullptr; }
  uint64_t count() const { return count_; }
  uint64_t bytes() const { return bytes_; }

 private:
  kairos_event* first_ = nullptr;
  kairos_event* last_ = nullptr;
  uint64_t count_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace kairos
