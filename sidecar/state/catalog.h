// SPDX-License-Identifier: Apache-2.0
// The session catalog: SQLite in WAL mode, one file. Every call is one transaction and durable
// against kill -9 on return (durability "fsync": against power loss too).
// Owner: journal thread. Every call may block on disk. sqlite3.h is fenced by sqlite_database.cc.
//
// A version is stored as its difference from its parent, with a whole copy now and then, so that a
// commit costs what the turn added. Deleting or pruning keeps rows that forks or later versions
// still need, unreachable by name, and frees them with the last user.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "sidecar/state/session_state.h"

namespace kairos {

struct CatalogOptions {
  std::string path;               // created with mode 0600
  bool fsync = false;
  uint64_t bytes_max = 1ull << 30;   // RESOURCE_EXHAUSTED, KAIROS_DETAIL_STORAGE beyond
  uint32_t versions_max = 64;     // per session; older ones are pruned at commit
  // Stored replies: the newest of each uid, for this long. Older ones are no longer found.
  uint32_t replies_max = 4096;
  uint64_t reply_age_max_ms = 24ull * 3600 * 1000;
  uint64_t (*now_unix_ms)() = &UnixMs;
};

// What may change while the catalog is open; as in CatalogOptions.
struct CatalogLimits {
  uint64_t bytes_max = 0;
  uint32_t versions_max = 0;
};

class Catalog {
 public:
  // Creates or opens; refuses a newer format (FAILED_PRECONDITION) and a damaged file (DATA_LOSS).
  // UNAVAILABLE when another process has it open or the path cannot be written. On a full disk the
  // reserve beside the file is used, and as much of it as is left is kept on.
  static Result<std::unique_ptr<Catalog>> Open(const CatalogOptions& options, std::string* error);
  virtual ~Catalog() = default;

  // Any call may also return, with KAIROS_DETAIL_STORAGE: RESOURCE_EXHAUSTED (disk or bytes_max is
  // full), UNAVAILABLE (the disk refuses) or DATA_LOSS (what is read is damaged). The catalog is
  // then as it was before the call and stays usable.
  virtual Result<std::vector<SessionRecord>> LoadSessions() = 0;
  // ALREADY_EXISTS when the id is taken. The record's versions are taken as none.
  virtual Status CreateSession(const SessionRecord& record) = 0;
  // Writes the version, moves head to it, updates the record's summary, stores `reply` under
  // (uid, name_space, key) when key is not empty, prunes. All or nothing. Fills *oldest.
  // With `create`, the session's record is inserted in the same transaction.
  // NOT_FOUND: no such session, or no such parent version. FAILED_PRECONDITION: delta.version is
  // not the next number. INVALID_ARGUMENT: kept counts or totals do not fit the parent.
  virtual Status Commit(const SessionRecord& session, bool create, const VersionDelta& delta,
                        const std::string& key, const StoredReply* reply, Version* oldest) = 0;
  // NOT_FOUND: no such session or version. The summary of the record follows.
  virtual Status SetHead(SessionId session, Version head) = 0;
  // `record` is the new session; it starts with version 1 = `source_version` of `source`, whose
  // summary it gets and this returns. ALREADY_EXISTS, NOT_FOUND.
  virtual Result<HeadSummary> Fork(const SessionRecord& record, SessionId source,
                                   Version source_version) = 0;
  // On a full disk, a reserve beside the file is used (disk_reserve.h).
  virtual Status Delete(SessionId session) = 0;
  virtual Result<StateVersion> LoadVersion(SessionId session, Version version) = 0;
  virtual Result<std::optional<StoredReply>> FindReply(uint32_t uid, const std::string& name_space,
                                                       const std::string& key) = 0;
  // Holds from the next call on. A file that is larger already grows no more, and gets the limit
  // when deleting has shrunk it.
  virtual Status SetLimits(const CatalogLimits& limits) = 0;
  // The status of a call on this catalog; of one that found no room, with words that name the file
  // and say whether its disk or bytes_max is at fault. They live as long as the catalog.
  virtual Status Explain(const Status& status) const = 0;
  // Of the file, without what deleted sessions left free.
  virtual uint64_t bytes_used() const = 0;
};

}  // namespace kairos
