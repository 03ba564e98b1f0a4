// SPDX-License-Identifier: Apache-2.0
#include "sidecar/state/catalog_format.h"

#include <sys/stat.h>

namespace kairos {

namespace {

constexpr int64_t kFormat = 2;
constexpr int64_t kApplicationId = 0x4b414952;  // "KAIR"

constexpr const char* kSchema = R"(
  PRAGMA application_id = 1262569810;
  PRAGMA user_version = 2;
  CREATE TABLE session(
    id INTEGER PRIMARY KEY, uid INTEGER NOT NULL, name_space TEXT NOT NULL, label TEXT NOT NULL,
    fidelity INTEGER NOT NULL, priority INTEGER NOT NULL, ttl_seconds INTEGER NOT NULL,
    created_unix_ms INTEGER NOT NULL, used_unix_ms INTEGER NOT NULL, parent INTEGER NOT NULL,
    model TEXT NOT NULL, head INTEGER NOT NULL, oldest INTEGER NOT NULL, newest INTEGER NOT NULL,
    token_count INTEGER NOT NULL, message_count INTEGER NOT NULL, phase INTEGER NOT NULL,
    waiting_for TEXT NOT NULL, flags INTEGER NOT NULL DEFAULT 0,
    model_name TEXT NOT NULL DEFAULT '') STRICT;
  CREATE TABLE version(
    session INTEGER NOT NULL, version INTEGER NOT NULL, parent INTEGER NOT NULL,
    record INTEGER NOT NULL, PRIMARY KEY(session, version)) STRICT, WITHOUT ROWID;
  CREATE TABLE record(
    id INTEGER PRIMARY KEY, refs INTEGER NOT NULL, base INTEGER NOT NULL, chain INTEGER NOT NULL,
    kept_tokens INTEGER NOT NULL, kept_messages INTEGER NOT NULL, token_count INTEGER NOT NULL,
    message_count INTEGER NOT NULL, phase INTEGER NOT NULL, created_unix_ms INTEGER NOT NULL,
    tools INTEGER NOT NULL, tools_hash INTEGER NOT NULL, checksum INTEGER NOT NULL,
    waiting_for TEXT NOT NULL, context_json TEXT NOT NULL, messages BLOB NOT NULL,
    tokens BLOB NOT NULL) STRICT;
  CREATE TABLE tools(
    id INTEGER PRIMARY KEY, refs INTEGER NOT NULL, hash INTEGER NOT NULL,
    json TEXT NOT NULL) STRICT;
  CREATE INDEX tools_by_hash ON tools(hash);
  CREATE TABLE reply(
    sequence INTEGER PRIMARY KEY, uid INTEGER NOT NULL, name_space TEXT NOT NULL, key TEXT NOT NULL,
    session INTEGER NOT NULL, version INTEGER NOT NULL, created_unix_ms INTEGER NOT NULL,
    text TEXT NOT NULL, final BLOB NOT NULL, UNIQUE(uid, name_space, key)) STRICT;
  CREATE INDEX reply_by_session ON reply(session);
  CREATE INDEX reply_by_uid ON reply(uid, sequence);
  CREATE INDEX reply_by_age ON reply(created_unix_ms);
)";

// What format 1 lacks.
constexpr const char* kFromFormat1 = R"(
  ALTER TABLE session ADD COLUMN flags INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE session ADD COLUMN model_name TEXT NOT NULL DEFAULT '';
  PRAGMA user_version = 2;
)";

// The format of the tables, or 0 for a file without any.
Result<int64_t> ReadFormat(SqliteDatabase& database, std::string* error) {
  const auto number = [&](const char* sql) {
    Result<int64_t> read = database.Number(sql);
    if (!read.ok()) *error = database.LastError();
    return read;
  };
  KAIROS_ASSIGN_OR_RETURN(const int64_t application, number("PRAGMA application_id"));
  KAIROS_ASSIGN_OR_RETURN(const int64_t format, number("PRAGMA user_version"));
  KAIROS_ASSIGN_OR_RETURN(const int64_t tables, number("SELECT count(*) FROM sqlite_schema"));
  if (application == 0 && format == 0 && tables == 0) return int64_t{0};
  if (application != kApplicationId) {
    *error = "is a database of another program";
    return Status(Code::kFailedPrecondition, "session catalog file belongs to another program");
  }
  if (format > kFormat) {
    *error = "has format " + std::to_string(format) + ", this program knows up to " +
             std::to_string(kFormat);
    return Status(Code::kFailedPrecondition, "session catalog has a newer format", format);
  }
  if (format >= 1) return format;
  *error = "has format " + std::to_string(format) + ", which never was";
  return Status(Code::kDataLoss, "session catalog file is damaged", KAIROS_DETAIL_STORAGE);
}

}  // namespace

Status OpenCatalogFormat(SqliteDatabase& database, std::string* error) {
  KAIROS_ASSIGN_OR_RETURN(const int64_t format, ReadFormat(database, error));
  if (format == kFormat) return {};
  SqliteTransaction transaction(database);
  KAIROS_RETURN_IF_ERROR(transaction.begun());
  KAIROS_RETURN_IF_ERROR(database.Execute(format == 0 ? kSchema : kFromFormat1));
  return transaction.Commit();
}

Status CheckCatalogFormat(const std::string& path, std::string* error) {
  KAIROS_ASSIGN_OR_RETURN(const std::unique_ptr<SqliteDatabase> database,
                          SqliteDatabase::OpenUnchanging(path, error));
  const Status status = ReadFormat(*database, error).status();
  // The log holds newer copies of pages, the first one perhaps among them.
  struct stat log {};
  const bool has_log = stat((path + "-wal").c_str(), &log) == 0 && log.st_size > 0;
  return has_log && status.code() == Code::kDataLoss ? Status() : status;
}

}  // namespace kairos
