// SPDX-License-Identifier: Apache-2.0
// A Session as the conductor holds it: the catalog's record, the head version when it is loaded,
// and where its KV is. Owner: conductor.
//
// 1. At most one turn of a session is open; others wait in order.
// 2. `head` is empty or holds exactly the version that record.head names.
// 3. KV is a cache: dropping `tail`, or anything under `chain`, costs time and nothing else.
// 4. kv_host is host, but where a turn that would move the session to another model did not commit.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_set>
#include <vector>

#include "kairos/kairos.h"
#include "sidecar/session/kv_lease.h"
#include "sidecar/state/session_state.h"

namespace kairos {

// Time since an event, on the monotonic clock, so that setting the wall clock makes nothing old.
// What lay before this life of the sidecar is known from the wall clock alone, once.
class Elapsed {
 public:
  void Restart() { *this = Elapsed(); }
  void StartAt(uint64_t before_ms) { *this = Elapsed(), before_ms_ = before_ms; }
  // Starts to count at the first look after the event.
  uint64_t Ms(uint64_t now_ns) {
    if (since_ns_ == 0) since_ns_ = now_ns;
    return before_ms_ + (now_ns - since_ns_) / 1'000'000;
  }

 private:
  uint64_t before_ms_ = 0;
  uint64_t since_ns_ = 0;  // 0: not looked at yet
};

struct ModelHost;

// What makes a session look different to whoever watches it.
struct SessionSighting {
  uint64_t version = 0;
  int32_t phase = 0;
  friend bool operator==(const SessionSighting&, const SessionSighting&) = default;
};

struct Session {
  SessionRecord record;
  ModelHost* host = nullptr;          // of record.model; null: not in memory
  bool persisted = false;             // the catalog has it
  std::optional<StateVersion> head;
  ModelHost* kv_host = nullptr;       // in whose arena tail and chain are; null: in none
  OpenBlock tail;
  std::vector<BlockKey> chain;        // whole blocks of the log when it was last computed
  uint32_t computed_tokens = 0;       // of the head's log, with KV when it was last computed here
  bool computed_here = false;         // false after a restart, until the next turn
  bool truncated = false;             // rewound, or forked from a past version, since computed
  bool deleting = false;
  uint64_t open_turn = 0;             // 0: none
  std::deque<uint64_t> waiting;       // turns behind it
  std::unordered_set<uint32_t> holders;  // attachments that opened it
  uint64_t idle_since_ns = 0;
  // KAIROS_PHASE_*, as everybody is told it.
  int32_t phase() const { return open_turn != 0 ? KAIROS_PHASE_RUNNING : record.phase; }
  Elapsed unused;                     // since the last turn was committed
  Elapsed in_phase;                   // since record.phase was set
  std::optional<SessionSighting> seen;   // what watchers were last told; none: they know nothing
};

}  // namespace kairos
