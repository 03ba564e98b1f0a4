// SPDX-License-Identifier: Apache-2.0
// The catalog's tables and transactions. docs/STATE_FORMAT.md describes them.
//
// 1. A row of `record` is immutable apart from its reference count: one for each name (session,
//    version) and one for each record stored as a difference from it. At zero it goes, and its base
//    loses a reference.
// 2. A chain of differences has at most kChainMax links, so a load reads a bounded number of rows.
// 3. Tool lists are kept once per content, compared byte by byte, counted the same way.
#include "sidecar/state/catalog.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "base/hash.h"
#include "base/log.h"
#include "base/log_throttle.h"
#include "sidecar/state/catalog_format.h"
#include "sidecar/state/disk_reserve.h"
#include "sidecar/state/sqlite_database.h"
#include "sidecar/state/version_record.h"

namespace kairos {

namespace {

constexpr int64_t kChainMax = 32;
// Stored replies are pruned once in so many commits: counting them each time would cost more.
constexpr uint32_t kReplyPruneEvery = 64;
// Free pages are given back to the file system when there are this many and they are a quarter.
constexpr int64_t kFreePagesMin = 1024;

Status Damaged(const char* message) {
  return {Code::kDataLoss, message, KAIROS_DETAIL_STORAGE};
}

std::string ReservePath(const CatalogOptions& options) { return options.path + "-reserve"; }

struct SessionNumbers {
  uint64_t head = 0;
  uint64_t newest = 0;
  std::string model;
};

// Where a named version lies and what a later difference from it may keep.
struct RecordPlace {
  int64_t id = 0;
  int64_t base = 0;
  int64_t chain = 0;
  uint64_t kept_tokens = 0;
  uint64_t kept_messages = 0;
  uint64_t token_count = 0;
  uint64_t message_count = 0;
};

// What SQL statements the catalog keeps prepared.
struct Statements {
  SqliteStatement load_sessions, insert_session, select_session, update_session, move_head,
      delete_session;
  SqliteStatement insert_version, select_version, count_versions, oldest_version, select_oldest,
      delete_version, session_versions, delete_versions;
  SqliteStatement insert_record, select_place, select_record, add_reference, drop_reference,
      delete_record;
  SqliteStatement find_tools, insert_tools, add_tools_reference, drop_tools_reference, delete_tools,
      select_tools;
  SqliteStatement insert_reply, select_reply, delete_replies, prune_reply_age, reply_uids,
      prune_reply_count;
  SqliteStatement page_count, free_count;
};

Status PrepareAll(SqliteDatabase& database, Statements* s) {
  const struct {
    SqliteStatement* statement;
    const char* sql;
  } table[] = {
      {&s->load_sessions, "SELECT * FROM session ORDER BY created_unix_ms, id"},
      {&s->insert_session,
       "INSERT INTO session VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"},
      {&s->select_session, "SELECT head, newest, model FROM session WHERE id = ?"},
      {&s->update_session,
       "UPDATE session SET used_unix_ms = ?2, head = ?3, oldest = ?4, newest = ?3,"
       "token_count = ?5, message_count = ?6, phase = ?7, waiting_for = ?8, model = ?9,"
       "model_name = ?10"
       " WHERE id = ?1"},
      {&s->move_head,
       "UPDATE session SET head = ?2, token_count = r.token_count, message_count = r.message_count,"
       "phase = r.phase, waiting_for = r.waiting_for FROM record AS r WHERE session.id = ?1"
       " AND r.id = ?3 RETURNING token_count, message_count, phase, waiting_for"},
      {&s->delete_session, "DELETE FROM session WHERE id = ?"},
      {&s->insert_version, "INSERT INTO version VALUES(?,?,?,?)"},
      {&s->select_version, "SELECT record, parent FROM version WHERE session = ? AND version = ?"},
      {&s->count_versions, "SELECT count(*) FROM version WHERE session = ?"},
      {&s->oldest_version, "SELECT min(version) FROM version WHERE session = ?"},
      {&s->select_oldest,
       "SELECT version, record FROM version WHERE session = ? AND version <> ?"
       " ORDER BY version LIMIT 1"},
      {&s->delete_version, "DELETE FROM version WHERE session = ? AND version = ?"},
      {&s->session_versions, "SELECT record FROM version WHERE session = ?"},
      {&s->delete_versions, "DELETE FROM version WHERE session = ?"},
      {&s->insert_record,
       "INSERT INTO record(refs, chain, base, kept_tokens, kept_messages, token_count,"
       " message_count, phase, created_unix_ms, tools, tools_hash, checksum, waiting_for,"
       " context_json, messages, tokens) VALUES(1,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) RETURNING id"},
      {&s->select_place,
       "SELECT base, chain, kept_tokens, kept_messages, token_count, message_count FROM record"
       " WHERE id = ?"},
      {&s->select_record,
       "SELECT base, kept_tokens, kept_messages, token_count, message_count, phase,"
       " created_unix_ms, tools, tools_hash, checksum, waiting_for, context_json, messages, tokens"
       " FROM record WHERE id = ?"},
      {&s->add_reference, "UPDATE record SET refs = refs + 1 WHERE id = ?"},
      {&s->drop_reference,
       "UPDATE record SET refs = refs - 1 WHERE id = ? RETURNING refs, base, tools"},
      {&s->delete_record, "DELETE FROM record WHERE id = ?"},
      {&s->find_tools, "SELECT id, json FROM tools WHERE hash = ?"},
      {&s->insert_tools, "INSERT INTO tools(refs, hash, json) VALUES(1,?,?) RETURNING id"},
      {&s->add_tools_reference, "UPDATE tools SET refs = refs + 1 WHERE id = ?"},
      {&s->drop_tools_reference, "UPDATE tools SET refs = refs - 1 WHERE id = ? RETURNING refs"},
      {&s->delete_tools, "DELETE FROM tools WHERE id = ?"},
      {&s->select_tools, "SELECT json FROM tools WHERE id = ?"},
      {&s->insert_reply,
       "INSERT OR REPLACE INTO reply(uid, name_space, key, session, version, created_unix_ms, text,"
       " final) VALUES(?,?,?,?,?,?,?,?)"},
      {&s->select_reply,
       "SELECT session, version, text, final FROM reply"
       " WHERE uid = ? AND name_space = ? AND key = ? AND created_unix_ms > ?"},
      {&s->delete_replies, "DELETE FROM reply WHERE session = ?"},
      {&s->prune_reply_age, "DELETE FROM reply WHERE created_unix_ms <= ?"},
      {&s->reply_uids, "SELECT uid FROM reply GROUP BY uid HAVING count(*) > ?"},
      {&s->prune_reply_count,
       "DELETE FROM reply WHERE uid = ?1 AND sequence <= (SELECT sequence FROM reply WHERE uid = ?1"
       " ORDER BY sequence DESC LIMIT 1 OFFSET ?2)"},
      {&s->page_count, "PRAGMA page_count"},
      {&s->free_count, "PRAGMA freelist_count"},
  };
  for (const auto& row : table) {
    KAIROS_ASSIGN_OR_RETURN(*row.statement, database.Prepare(row.sql));
  }
  return {};
}

class SqliteCatalog final : public Catalog {
 public:
  SqliteCatalog(const CatalogOptions& options, std::unique_ptr<SqliteDatabase> database)
      : options_(options),
        disk_words_("session catalog: the disk of " + options.path +
                    " is full: free space on the disk, or delete sessions"),
        limit_words_("session catalog: " + options.path +
                     " has reached catalog.bytes_max: delete sessions, or raise it"),
        database_(std::move(database)),
        reserve_(ReservePath(options)) {}

  Status Prepare();
  // Its pages go where they belong as far as there is room, and the log begins anew.
  void EmptyLog();
  // As much of it as there is; the log has a word of what is missing.
  void TakeReserve();

  Result<std::vector<SessionRecord>> LoadSessions() override;
  Status CreateSession(const SessionRecord& record) override;
  Status Commit(const SessionRecord& session, bool create, const VersionDelta& delta,
                const std::string& key, const StoredReply* reply, Version* oldest) override;
  Status SetHead(SessionId session, Version head) override;
  Result<HeadSummary> Fork(const SessionRecord& record, SessionId source,
                           Version source_version) override;
  Status Delete(SessionId session) override;
  Result<StateVersion> LoadVersion(SessionId session, Version version) override;
  Result<std::optional<StoredReply>> FindReply(uint32_t uid, const std::string& name_space,
                                               const std::string& key) override;
  Status SetLimits(const CatalogLimits& limits) override;
  Status Explain(const Status& status) const override;
  uint64_t bytes_used() const override { return bytes_used_; }

 private:
  Status InsertSession(const SessionRecord& record);
  Result<SessionNumbers> FindSession(SessionId session);
  // NOT_FOUND when the version has no name.
  Result<RecordPlace> FindVersion(SessionId session, Version version, Version* parent = nullptr);
  Result<RecordPlace> FindRecord(int64_t id);

  Result<int64_t> InsertRecord(const RecordPlace& parent, const VersionDelta& delta);
  Result<StateVersion> LoadChain(int64_t record);
  Result<VersionRecord> LoadRecord(int64_t id, int64_t* tools);
  Status DropReference(int64_t record);

  Result<int64_t> KeepTools(const std::string& json, uint64_t hash);
  Status DropTools(int64_t tools);
  Result<std::string> LoadTools(int64_t tools, uint64_t hash);

  // Takes the names of all but the newest `keep` versions; the head keeps its own.
  Status PruneVersions(SessionId session, Version head, int64_t keep, uint64_t* oldest);
  Status StoreReply(const SessionRecord& session, const std::string& key, const StoredReply& reply);
  Status PruneReplies();
  Status CommitAndCount(SqliteTransaction& transaction);
  Status GiveBackPages();
  Status LimitBytes(uint64_t bytes_max);
  Status DeleteRows(SessionId session);

  CatalogOptions options_;
  const std::string disk_words_;
  const std::string limit_words_;
  std::unique_ptr<SqliteDatabase> database_;
  DiskReserve reserve_;
  Statements sql_;
  int64_t page_bytes_ = 0;
  int64_t free_pages_ = 0;
  uint64_t bytes_used_ = 0;
  uint32_t replies_since_prune_ = 0;
  LogThrottle faults_;
};

Status SqliteCatalog::Prepare() {
  KAIROS_RETURN_IF_ERROR(PrepareAll(*database_, &sql_));
  KAIROS_ASSIGN_OR_RETURN(page_bytes_, database_->Number("PRAGMA page_size"));
  if (page_bytes_ <= 0) return Damaged("session catalog file is damaged");
  KAIROS_RETURN_IF_ERROR(SetLimits({options_.bytes_max, options_.versions_max}));
  SqliteTransaction transaction(*database_);
  KAIROS_RETURN_IF_ERROR(transaction.begun());
  KAIROS_RETURN_IF_ERROR(PruneReplies());
  return CommitAndCount(transaction);
}

void SqliteCatalog::EmptyLog() {
  std::ignore = database_->Execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

void SqliteCatalog::TakeReserve() {
  const uint64_t kept = reserve_.Take();
  uint64_t left_out = 0;
  if (kept >= kDiskReserveBytes || !faults_.Admit(MonotonicNs(), &left_out)) return;
  LogWarn("state", "catalog_reserve_missing bytes={} kept={} left_out={}", kDiskReserveBytes, kept,
          left_out);
}

Status SqliteCatalog::Explain(const Status& status) const {
  if (!SqliteDatabase::IsFull(status)) return status;
  return {status.code(), (IsDiskFull(options_.path) ? disk_words_ : limit_words_).c_str(),
          status.detail()};
}

Status SqliteCatalog::SetLimits(const CatalogLimits& limits) {
  options_.bytes_max = limits.bytes_max;
  options_.versions_max = limits.versions_max;
  return LimitBytes(options_.bytes_max);
}

Status SqliteCatalog::LimitBytes(uint64_t bytes_max) {
  char pragma[96];
  const uint64_t pages = std::max<uint64_t>(1, bytes_max / static_cast<uint64_t>(page_bytes_));
  std::snprintf(pragma, sizeof(pragma), "PRAGMA max_page_count = %lld",
                static_cast<long long>(std::min<uint64_t>(pages, 0xfffffffe)));
  return database_->Execute(pragma);
}

Result<std::vector<SessionRecord>> SqliteCatalog::LoadSessions() {
  std::vector<SessionRecord> sessions;
  SqliteQuery query(sql_.load_sessions);
  for (;;) {
    KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return sessions;
    SessionRecord& record = sessions.emplace_back();
    record.id = SessionId{query.Unsigned(0)};
    record.uid = static_cast<uint32_t>(query.Unsigned(1));
    record.name_space = query.Text(2);
    record.label = query.Text(3);
    record.fidelity = static_cast<int32_t>(query.Integer(4));
    record.priority = static_cast<int32_t>(query.Integer(5));
    record.ttl_seconds = query.Unsigned(6);
    record.created_unix_ms = query.Unsigned(7);
    record.used_unix_ms = query.Unsigned(8);
    record.parent = SessionId{query.Unsigned(9)};
    record.model = query.Text(10);
    record.head = Version{query.Unsigned(11)};
    record.oldest = Version{query.Unsigned(12)};
    record.newest = Version{query.Unsigned(13)};
    record.token_count = query.Unsigned(14);
    record.message_count = query.Unsigned(15);
    record.phase = static_cast<int32_t>(query.Integer(16));
    record.waiting_for = query.Text(17);
    record.flags = static_cast<uint32_t>(query.Unsigned(18));
    record.model_name = query.Text(19);
  }
}

Status SqliteCatalog::InsertSession(const SessionRecord& r) {
  const Status status =
      SqliteQuery(sql_.insert_session, r.id.value, r.uid, std::string_view(r.name_space),
                  std::string_view(r.label), r.fidelity, r.priority, r.ttl_seconds,
                  r.created_unix_ms, r.used_unix_ms, r.parent.value, std::string_view(r.model), 0,
                  0, 0, 0, 0, r.phase, std::string_view(r.waiting_for), r.flags,
                  std::string_view(r.model_name))
          .Run();
  if (status.code() == Code::kAlreadyExists) {
    return {Code::kAlreadyExists, "session id is taken"};
  }
  return status;
}

Status SqliteCatalog::CreateSession(const SessionRecord& record) {
  SqliteTransaction transaction(*database_);
  KAIROS_RETURN_IF_ERROR(transaction.begun());
  KAIROS_RETURN_IF_ERROR(InsertSession(record));
  return CommitAndCount(transaction);
}

Result<SessionNumbers> SqliteCatalog::FindSession(SessionId session) {
  SqliteQuery query(sql_.select_session, session.value);
  KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return Status(Code::kNotFound, "no such session");
  return SessionNumbers{query.Unsigned(0), query.Unsigned(1), std::string(query.Text(2))};
}

Result<RecordPlace> SqliteCatalog::FindVersion(SessionId session, Version version,
                                               Version* parent) {
  int64_t record = 0;
  {
    SqliteQuery query(sql_.select_version, session.value, version.value);
    KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) {
      return Status(Code::kNotFound, "the session has no such version");
    }
    record = query.Integer(0);
    if (parent != nullptr) *parent = Version{query.Unsigned(1)};
  }
  return FindRecord(record);
}

Result<RecordPlace> SqliteCatalog::FindRecord(int64_t id) {
  SqliteQuery query(sql_.select_place, id);
  KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return Damaged("session catalog: a version's record is missing");
  return RecordPlace{id,
                     query.Integer(0),
                     query.Integer(1),
                     query.Unsigned(2),
                     query.Unsigned(3),
                     query.Unsigned(4),
                     query.Unsigned(5)};
}

Status SqliteCatalog::Commit(const SessionRecord& session, bool create, const VersionDelta& delta,
                             const std::string& key, const StoredReply* reply, Version* oldest) {
  SqliteTransaction transaction(*database_);
  KAIROS_RETURN_IF_ERROR(transaction.begun());
  if (create) KAIROS_RETURN_IF_ERROR(InsertSession(session));
  KAIROS_ASSIGN_OR_RETURN(const SessionNumbers numbers, FindSession(session.id));
  if (delta.version.value != numbers.newest + 1) {
    return {Code::kFailedPrecondition, "version is not the session's next number"};
  }
  RecordPlace parent;
  if (delta.parent.value != 0) {
    KAIROS_ASSIGN_OR_RETURN(parent, FindVersion(session.id, delta.parent));
  }
  if (delta.kept_tokens > parent.token_count || delta.kept_messages > parent.message_count) {
    return {Code::kInvalidArgument, "version keeps more than its parent has"};
  }
  if (delta.token_count != delta.kept_tokens + delta.tokens.size() ||
      delta.message_count != delta.kept_messages + delta.messages.size()) {
    return {Code::kInvalidArgument, "totals of the version do not add up"};
  }
  KAIROS_ASSIGN_OR_RETURN(const int64_t record, InsertRecord(parent, delta));
  KAIROS_RETURN_IF_ERROR(SqliteQuery(sql_.insert_version, session.id.value, delta.version.value,
                                     delta.parent.value, record)
                             .Run());
  uint64_t oldest_version = 0;
  // The tokens of earlier versions are those of the model that the session had.
  const int64_t keep = numbers.model == session.model ? options_.versions_max : 1;
  KAIROS_RETURN_IF_ERROR(PruneVersions(session.id, delta.version, keep, &oldest_version));
  KAIROS_RETURN_IF_ERROR(SqliteQuery(sql_.update_session, session.id.value, session.used_unix_ms,
                                     delta.version.value, oldest_version, delta.token_count,
                                     delta.message_count, delta.phase,
                                     std::string_view(delta.waiting_for),
                                     std::string_view(session.model),
                                     std::string_view(session.model_name))
                             .Run());
  if (!key.empty() && reply != nullptr) {
    KAIROS_RETURN_IF_ERROR(StoreReply(session, key, *reply));
  }
  KAIROS_RETURN_IF_ERROR(CommitAndCount(transaction));
  if (oldest != nullptr) *oldest = Version{oldest_version};
  return {};
}

Result<int64_t> SqliteCatalog::InsertRecord(const RecordPlace& parent, const VersionDelta& delta) {
  RecordPlace base = parent;
  // What the version keeps may lie wholly in an ancestor: then what was dropped between is not
  // held.
  while (base.base != 0 && delta.kept_tokens <= base.kept_tokens &&
         delta.kept_messages <= base.kept_messages) {
    KAIROS_ASSIGN_OR_RETURN(base, FindRecord(base.base));
  }
  if (delta.kept_tokens == 0 && delta.kept_messages == 0) base = RecordPlace{};
  VersionRecord record;
  int64_t chain = 0;
  if (base.id != 0 && base.chain + 1 >= kChainMax) {
    KAIROS_ASSIGN_OR_RETURN(StateVersion whole, LoadChain(base.id));
    whole.tokens.resize(delta.kept_tokens);
    whole.messages.resize(delta.kept_messages);
    record.tokens = EncodeTokens(whole.tokens) + EncodeTokens(delta.tokens);
    whole.messages.insert(whole.messages.end(), delta.messages.begin(), delta.messages.end());
    record.messages = EncodeMessages(whole.messages);
  } else {
    record.base = base.id;
    record.kept_tokens = delta.kept_tokens;
    record.kept_messages = delta.kept_messages;
    record.tokens = EncodeTokens(delta.tokens);
    record.messages = EncodeMessages(delta.messages);
    chain = base.id == 0 ? 0 : base.chain + 1;
  }
  record.token_count = delta.token_count;
  record.message_count = delta.message_count;
  record.context_json = delta.context_json;
  record.phase = delta.phase;
  record.waiting_for = delta.waiting_for;
  record.created_unix_ms = delta.created_unix_ms;
  record.tools_hash = HashBytes(delta.tools_json.data(), delta.tools_json.size());
  KAIROS_ASSIGN_OR_RETURN(const int64_t tools, KeepTools(delta.tools_json, record.tools_hash));
  if (record.base != 0) {
    KAIROS_RETURN_IF_ERROR(SqliteQuery(sql_.add_reference, record.base).Run());
  }
  SqliteQuery query(sql_.insert_record, chain, record.base, record.kept_tokens,
                    record.kept_messages, record.token_count, record.message_count, record.phase,
                    record.created_unix_ms, tools, record.tools_hash, RecordChecksum(record),
                    std::string_view(record.waiting_for), std::string_view(record.context_json),
                    SqliteBlob{record.messages}, SqliteBlob{record.tokens});
  KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return Damaged("session catalog: a version's record is missing");
  return query.Integer(0);
}

Result<VersionRecord> SqliteCatalog::LoadRecord(int64_t id, int64_t* tools) {
  SqliteQuery query(sql_.select_record, id);
  KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return Damaged("session catalog: a version's record is missing");
  VersionRecord record;
  record.base = query.Integer(0);
  record.kept_tokens = static_cast<uint32_t>(query.Unsigned(1));
  record.kept_messages = static_cast<uint32_t>(query.Unsigned(2));
  record.token_count = query.Unsigned(3);
  record.message_count = query.Unsigned(4);
  record.phase = static_cast<int32_t>(query.Integer(5));
  record.created_unix_ms = query.Unsigned(6);
  *tools = query.Integer(7);
  record.tools_hash = query.Unsigned(8);
  record.waiting_for = query.Text(10);
  record.context_json = query.Text(11);
  record.messages = query.Blob(12);
  record.tokens = query.Blob(13);
  if (RecordChecksum(record) != query.Unsigned(9)) {
    return Damaged("session catalog: a version fails its checksum");
  }
  return record;
}

Result<StateVersion> SqliteCatalog::LoadChain(int64_t record) {
  std::vector<VersionRecord> chain;
  int64_t tools = 0;
  for (int64_t id = record; id != 0; id = chain.back().base) {
    if (chain.size() > kChainMax) return Damaged("session catalog: a version's chain has no end");
    int64_t record_tools = 0;
    KAIROS_ASSIGN_OR_RETURN(VersionRecord loaded, LoadRecord(id, &record_tools));
    if (chain.empty()) tools = record_tools;
    chain.push_back(std::move(loaded));
  }
  StateVersion version;
  for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
    if (!ApplyRecord(*link, &version)) {
      return Damaged("session catalog: a version does not fit its base");
    }
  }
  KAIROS_ASSIGN_OR_RETURN(version.tools_json, LoadTools(tools, chain.front().tools_hash));
  return version;
}

Status SqliteCatalog::DropReference(int64_t record) {
  // Bounded by the chain: each record dropped leads to its base.
  while (record != 0) {
    int64_t base = 0;
    int64_t tools = 0;
    {
      SqliteQuery query(sql_.drop_reference, record);
      KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) return Damaged("session catalog: a version's record is missing");
      if (query.Integer(0) > 0) return {};
      base = query.Integer(1);
      tools = query.Integer(2);
    }
    KAIROS_RETURN_IF_ERROR(SqliteQuery(sql_.delete_record, record).Run());
    KAIROS_RETURN_IF_ERROR(DropTools(tools));
    record = base;
  }
  return {};
}

Result<int64_t> SqliteCatalog::KeepTools(const std::string& json, uint64_t hash) {
  if (json.empty()) return int64_t{0};
  int64_t found = 0;
  {
    SqliteQuery query(sql_.find_tools, hash);
    while (found == 0) {
      KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      if (query.Text(1) == json) found = query.Integer(0);
    }
  }
  if (found != 0) {
    KAIROS_RETURN_IF_ERROR(SqliteQuery(sql_.add_tools_reference, found).Run());
    return found;
  }
  SqliteQuery query(sql_.insert_tools, hash, std::string_view(json));
  KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return Damaged("session catalog: a tool list is missing");
  return query.Integer(0);
}

Status SqliteCatalog::DropTools(int64_t tools) {
  if (tools == 0) return {};
  {
    SqliteQuery query(sql_.drop_tools_reference, tools);
    KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return Damaged("session catalog: a tool list is missing");
    if (query.Integer(0) > 0) return {};
  }
  return SqliteQuery(sql_.delete_tools, tools).Run();
}

Result<std::string> SqliteCatalog::LoadTools(int64_t tools, uint64_t hash) {
  std::string json;
  if (tools != 0) {
    SqliteQuery query(sql_.select_tools, tools);
    KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return Damaged("session catalog: a tool list is missing");
    json = query.Text(0);
  }
  if (HashBytes(json.data(), json.size()) != hash) {
    return Damaged("session catalog: a tool list fails its checksum");
  }
  return json;
}

Status SqliteCatalog::PruneVersions(SessionId session, Version head, int64_t keep,
                                    uint64_t* oldest) {
  int64_t count = 0;
  {
    SqliteQuery query(sql_.count_versions, session.value);
    KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
    count = row ? query.Integer(0) : 0;
  }
  for (; count > std::max<int64_t>(1, keep); --count) {
    uint64_t version = 0;
    int64_t record = 0;
    {
      SqliteQuery query(sql_.select_oldest, session.value, head.value);
      KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      version = query.Unsigned(0);
      record = query.Integer(1);
    }
    KAIROS_RETURN_IF_ERROR(SqliteQuery(sql_.delete_version, session.value, version).Run());
    KAIROS_RETURN_IF_ERROR(DropReference(record));
  }
  SqliteQuery query(sql_.oldest_version, session.value);
  KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
  *oldest = row ? query.Unsigned(0) : 0;
  return {};
}

Status SqliteCatalog::StoreReply(const SessionRecord& session, const std::string& key,
                                 const StoredReply& reply) {
  KAIROS_RETURN_IF_ERROR(
      SqliteQuery(sql_.insert_reply, session.uid, std::string_view(session.name_space),
                  std::string_view(key), reply.session.value, reply.version.value,
                  options_.now_unix_ms(), std::string_view(reply.text),
                  SqliteBlob{reply.final_bytes})
          .Run());
  if (++replies_since_prune_ < kReplyPruneEvery) return {};
  return PruneReplies();
}

Status SqliteCatalog::PruneReplies() {
  replies_since_prune_ = 0;
  const uint64_t now = options_.now_unix_ms();
  const uint64_t horizon = now > options_.reply_age_max_ms ? now - options_.reply_age_max_ms : 0;
  KAIROS_RETURN_IF_ERROR(SqliteQuery(sql_.prune_reply_age, horizon).Run());
  std::vector<int64_t> uids;
  {
    SqliteQuery query(sql_.reply_uids, options_.replies_max);
    for (;;) {
      KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      uids.push_back(query.Integer(0));
    }
  }
  for (const int64_t uid : uids) {
    KAIROS_RETURN_IF_ERROR(SqliteQuery(sql_.prune_reply_count, uid, options_.replies_max).Run());
  }
  return {};
}

Status SqliteCatalog::SetHead(SessionId session, Version head) {
  SqliteTransaction transaction(*database_);
  KAIROS_RETURN_IF_ERROR(transaction.begun());
  KAIROS_ASSIGN_OR_RETURN(const SessionNumbers numbers, FindSession(session));
  static_cast<void>(numbers);
  KAIROS_ASSIGN_OR_RETURN(const RecordPlace place, FindVersion(session, head));
  KAIROS_RETURN_IF_ERROR(SqliteQuery(sql_.move_head, session.value, head.value, place.id).Run());
  return CommitAndCount(transaction);
}

Result<HeadSummary> SqliteCatalog::Fork(const SessionRecord& record, SessionId source,
                                        Version source_version) {
  SqliteTransaction transaction(*database_);
  KAIROS_RETURN_IF_ERROR(transaction.begun());
  KAIROS_ASSIGN_OR_RETURN(const SessionNumbers numbers, FindSession(source));
  static_cast<void>(numbers);
  KAIROS_ASSIGN_OR_RETURN(const RecordPlace place, FindVersion(source, source_version));
  KAIROS_RETURN_IF_ERROR(InsertSession(record));
  KAIROS_RETURN_IF_ERROR(
      SqliteQuery(sql_.insert_version, record.id.value, 1, 0, place.id).Run());
  KAIROS_RETURN_IF_ERROR(SqliteQuery(sql_.add_reference, place.id).Run());
  KAIROS_RETURN_IF_ERROR(SqliteQuery(sql_.update_session, record.id.value, record.used_unix_ms, 1,
                                     1, 0, 0, 0, std::string_view(),
                                     std::string_view(record.model),
                                     std::string_view(record.model_name))
                             .Run());
  HeadSummary summary;
  {
    SqliteQuery query(sql_.move_head, record.id.value, 1, place.id);
    KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return Damaged("session catalog: a version's record is missing");
    summary.token_count = query.Unsigned(0);
    summary.message_count = query.Unsigned(1);
    summary.phase = static_cast<int32_t>(query.Integer(2));
    summary.waiting_for = query.Text(3);
  }
  KAIROS_RETURN_IF_ERROR(CommitAndCount(transaction));
  return summary;
}

Status SqliteCatalog::DeleteRows(SessionId session) {
  SqliteTransaction transaction(*database_);
  KAIROS_RETURN_IF_ERROR(transaction.begun());
  KAIROS_ASSIGN_OR_RETURN(const SessionNumbers numbers, FindSession(session));
  static_cast<void>(numbers);
  std::vector<int64_t> records;
  {
    SqliteQuery query(sql_.session_versions, session.value);
    for (;;) {
      KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      records.push_back(query.Integer(0));
    }
  }
  KAIROS_RETURN_IF_ERROR(SqliteQuery(sql_.delete_versions, session.value).Run());
  for (const int64_t record : records) KAIROS_RETURN_IF_ERROR(DropReference(record));
  KAIROS_RETURN_IF_ERROR(SqliteQuery(sql_.delete_replies, session.value).Run());
  KAIROS_RETURN_IF_ERROR(SqliteQuery(sql_.delete_session, session.value).Run());
  return CommitAndCount(transaction);
}

Status SqliteCatalog::Delete(SessionId session) {
  // A file at its limit may need a page more while rows are taken out of it; this is how room is
  // made, so it must not be refused for want of room.
  KAIROS_RETURN_IF_ERROR(LimitBytes(UINT64_MAX));
  Status deleted = DeleteRows(session);
  const bool was_full = SqliteDatabase::IsFull(deleted);
  if (was_full) {
    reserve_.Release();
    EmptyLog();
    deleted = DeleteRows(session);
  }
  const Status limited = LimitBytes(options_.bytes_max);
  if (!deleted.ok()) {
    if (was_full) TakeReserve();
    return deleted;
  }
  // The session is gone already; a failure here only leaves the old bytes around for longer.
  const Status given_back = limited.ok() ? GiveBackPages() : limited;
  if (uint64_t left_out = 0; !given_back.ok() && faults_.Admit(MonotonicNs(), &left_out)) {
    LogWarn("state", "catalog_not_shrunk left_out={} reason={}", left_out,
            given_back.message());
  }
  TakeReserve();
  return {};
}

Status SqliteCatalog::GiveBackPages() {
  if (free_pages_ >= kFreePagesMin &&
      free_pages_ * 4 * page_bytes_ >= static_cast<int64_t>(bytes_used_)) {
    KAIROS_RETURN_IF_ERROR(database_->Execute("PRAGMA incremental_vacuum"));
    free_pages_ = 0;
    // A limit below the size of the file became that size; now there may be room for the true one.
    KAIROS_RETURN_IF_ERROR(LimitBytes(options_.bytes_max));
  }
  // Deleted text is overwritten in the file (secure_delete) and must not stay in the log either.
  return database_->Execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

Result<StateVersion> SqliteCatalog::LoadVersion(SessionId session, Version version) {
  Version parent;
  KAIROS_ASSIGN_OR_RETURN(const RecordPlace place, FindVersion(session, version, &parent));
  KAIROS_ASSIGN_OR_RETURN(StateVersion loaded, LoadChain(place.id));
  loaded.version = version;
  loaded.parent = parent;
  return loaded;
}

Result<std::optional<StoredReply>> SqliteCatalog::FindReply(uint32_t uid,
                                                            const std::string& name_space,
                                                            const std::string& key) {
  const uint64_t now = options_.now_unix_ms();
  const uint64_t horizon = now > options_.reply_age_max_ms ? now - options_.reply_age_max_ms : 0;
  SqliteQuery query(sql_.select_reply, uid, std::string_view(name_space), std::string_view(key),
                    horizon);
  KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return std::optional<StoredReply>();
  StoredReply reply;
  reply.session = SessionId{query.Unsigned(0)};
  reply.version = Version{query.Unsigned(1)};
  reply.text = query.Text(2);
  reply.final_bytes = query.Blob(3);
  return std::optional<StoredReply>(std::move(reply));
}

Status SqliteCatalog::CommitAndCount(SqliteTransaction& transaction) {
  KAIROS_RETURN_IF_ERROR(transaction.Commit());
  // The commit stands whatever happens to the counting.
  SqliteQuery pages(sql_.page_count);
  SqliteQuery free_pages(sql_.free_count);
  const Result<bool> has_pages = pages.Step();
  const Result<bool> has_free = free_pages.Step();
  if (has_pages.ok() && *has_pages && has_free.ok() && *has_free) {
    free_pages_ = free_pages.Integer(0);
    bytes_used_ = static_cast<uint64_t>((pages.Integer(0) - free_pages_) * page_bytes_);
  }
  return {};
}

// Opens the database once, with the room that there is. Of a failure, *words are its path and why.
Result<std::unique_ptr<SqliteCatalog>> OpenOnce(const CatalogOptions& options,
                                                std::string* words) {
  KAIROS_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> database,
                          SqliteDatabase::Open(options.path, words));
  // Without fsync per commit, what the kernel has been given survives the death of this process.
  Status status = database->Execute(options.fsync ? "PRAGMA synchronous = FULL"
                                                  : "PRAGMA synchronous = NORMAL");
  std::string reason;
  if (status.ok()) status = OpenCatalogFormat(*database, &reason);
  auto catalog = std::make_unique<SqliteCatalog>(options, std::move(database));
  if (status.ok()) status = catalog->Prepare();
  if (status.ok()) return catalog;
  *words = options.path + ": " + (reason.empty() ? std::string(status.message()) : reason);
  return status;
}

}  // namespace

Result<std::unique_ptr<Catalog>> Catalog::Open(const CatalogOptions& options, std::string* error) {
  std::string words;
  Result<std::unique_ptr<SqliteCatalog>> catalog = OpenOnce(options, &words);
  if (!catalog.ok() && SqliteDatabase::IsFull(catalog.status())) {
    // What a killed process left in the log needs room to be carried over, and who is stuck with a
    // full disk needs a sidecar to delete sessions with.
    DiskReserve(ReservePath(options)).Release();
    catalog = OpenOnce(options, &words);
    if (catalog.ok()) (*catalog)->EmptyLog();
  }
  if (!catalog.ok()) {
    if (error != nullptr) *error = words;
    return catalog.status();
  }
  (*catalog)->TakeReserve();
  return std::unique_ptr<Catalog>(catalog.Take());
}

}  // namespace kairos
