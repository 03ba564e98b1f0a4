// SPDX-License-Identifier: Apache-2.0
// Runs the catalog on the journal thread, for the conductor. Commands and results are plain values
// in bounded queues; results come back in the order of the commands.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/spsc_queue.h"
#include "base/waker.h"
#include "sidecar/state/catalog.h"

namespace kairos {

enum class JournalVerb : int32_t {
  kCreate, kCommit, kSetHead, kFork, kDelete, kLoadVersion, kFindReply, kSetLimits,
};

struct JournalCommand {
  JournalVerb verb = JournalVerb::kCreate;
  uint64_t ticket = 0;           // the conductor's, comes back in the result
  SessionRecord record;          // create, commit, fork; find reply: uid and name_space
  bool create = false;           // commit
  VersionDelta delta;            // commit
  std::string key;               // commit, find reply
  std::optional<StoredReply> reply;
  SessionId session;             // set head, fork (source), delete, load
  Version version;               // set head, fork (source), load
  CatalogLimits limits;          // set limits
};

struct JournalResult {
  JournalVerb verb = JournalVerb::kCreate;
  uint64_t ticket = 0;
  Status status;
  Version oldest;                       // commit
  HeadSummary summary;                  // fork
  std::optional<StateVersion> version;  // load
  std::optional<StoredReply> reply;     // find reply
};

class Journal {
 public:
  explicit Journal(std::unique_ptr<Catalog> catalog);

  // Conductor only; false when full.
  [[nodiscard]] bool Submit(JournalCommand&& command);
  std::optional<JournalResult> Poll();
  void SetResultWaker(Waker* waker) { result_waker_ = waker; }

  // Journal thread only. Runs every queued command; false when there was nothing to do. Stops early
  // while the conductor leaves its results unread.
  bool DoWork();
  Waker& waker() { return waker_; }
  uint64_t bytes_used() const { return bytes_used_.load(std::memory_order_relaxed); }

 private:
  JournalResult Run(JournalCommand& command);

  std::unique_ptr<Catalog> catalog_;
  SpscQueue<JournalCommand> commands_{1024};
  SpscQueue<JournalResult> results_{4096};
  std::optional<JournalResult> held_result_;  // ran, but results_ was full
  Waker waker_;
  Waker* result_waker_ = nullptr;
  std::atomic<uint64_t> bytes_used_{0};
};

}  // namespace kairos
