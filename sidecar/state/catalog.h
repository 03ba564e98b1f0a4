// SPDX-License-Identifier: Apache-2.0
// The session catalog: SQLite in WAL mode, one file. Every call is one transaction and durable against
// kill -9 on return (durability "fsync": against power loss too).
// Owner: journal thread. Every call may block on disk. Fences sqlite3.h (catalog.cc only).
//
// A version is stored as its difference from its parent, with a whole copy now and then, so that a
// commit costs what the turn added. Deleting or pruning keeps rows that forks or later versions still
// need, unreachable by name, and frees them with the last user.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "sidecar/state/session_state.h"

namespace kairos {

struct CatalogOptions {
  std::string path;               // created with mode 0600
  bool fsync = false;
  uint64_t bytes_max = 1ull << 30;   // RESOURCE_EXHAUSTED, KAIROS_DETAIL_STORAGE beyond
  uint32_t versions_max = 64;     // per session; older ones are pruned at commit
};

class Catalog {
 public:
  // Creates or opens; refuses a newer format (FAILED_PRECONDITION) and a damaged file (DATA_LOSS).
  static Result<std::unique_ptr<Catalog>> Open(const CatalogOptions& options, std::string* error);
  virtual ~Catalog() = default;

  virtual Result<std::vector<SessionRecord>> LoadSessions() = 0;
  virtual Status CreateSession(const SessionRecord& record) = 0;
  // Writes the version, moves head to it, updates the record's summary, stores `reply` under
  // (uid, name_space, key) when key is not empty, prunes. All or nothing. Fills *oldest.
  // With `create`, the session's record is inserted in the same transaction.
  virtual Status Commit(const SessionRecord& session, bool create, const VersionDelta& delta,
                        const std::string& key, const StoredReply* reply, Version* oldest) = 0;
  virtual Status SetHead(SessionId session, Version head) = 0;
  // `record` is the new session; it starts with version 1 = `source_version` of `source`.
  virtual Status Fork(const SessionRecord& record, SessionId source, Version source_version) = 0;
  virtual Status Delete(SessionId session) = 0;
  virtual Result<StateVersion> LoadVersion(SessionId session, Version version) = 0;
  virtual Result<std::optional<StoredReply>> FindReply(uint32_t uid, const std::string& name_space,
                                                       const std::string& key) = 0;
  virtual uint64_t bytes_used() const = 0;
};

}  // namespace kairos
