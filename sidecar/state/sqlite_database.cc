// SPDX-License-Identifier: Apache-2.0
// SQLite behind Status. The connection is exclusive: the write-ahead index then lives in our memory
// instead of a mapped file, so a full disk cannot turn into SIGBUS, and a second daemon is refused.
#include "sidecar/state/sqlite_database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>

namespace kairos {

namespace {

constexpr const char kFullWords[] = "session catalog is full (disk or catalog.bytes_max)";

Status StatusOf(int code) {
  switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
      return {};
    case SQLITE_FULL:
      return {Code::kResourceExhausted, kFullWords, KAIROS_DETAIL_STORAGE};
    case SQLITE_NOMEM:
      return {Code::kResourceExhausted, "session catalog: out of memory", KAIROS_DETAIL_STORAGE};
    case SQLITE_TOOBIG:
      return {Code::kResourceExhausted, "session catalog: a value is too large to store",
              KAIROS_DETAIL_STORAGE};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
      return {Code::kDataLoss, "session catalog file is damaged", KAIROS_DETAIL_STORAGE};
    case SQLITE_IOERR:
      if (code == SQLITE_IOERR_NOMEM) {
        return {Code::kResourceExhausted, "session catalog: out of memory", KAIROS_DETAIL_STORAGE};
      }
      return {Code::kUnavailable, "session catalog: the disk refuses I/O", KAIROS_DETAIL_STORAGE};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {Code::kUnavailable, "session catalog is in use by another process",
              KAIROS_DETAIL_STORAGE};
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
      return {Code::kUnavailable, "session catalog cannot be opened for writing",
              KAIROS_DETAIL_STORAGE};
    case SQLITE_CONSTRAINT:
      return {Code::kAlreadyExists, "session catalog: such a row exists already"};
    default:
      return {Code::kInternal, "session catalog: unexpected database error",
              KAIROS_DETAIL_STORAGE};
  }
}

// The mode is set before SQLite sees the file: its journal files inherit it.
Status MakeFile(const std::string& path, std::string* error) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    const bool is_full = errno == ENOSPC || errno == EDQUOT;
    *error = path + ": " + std::strerror(errno);
    return {is_full ? Code::kResourceExhausted : Code::kUnavailable,
            "session catalog cannot be opened for writing", KAIROS_DETAIL_STORAGE};
  }
  struct stat file {};
  const bool regular = fstat(fd, &file) == 0 && S_ISREG(file.st_mode);
  const bool closed = regular && ((file.st_mode & 077) == 0 || fchmod(fd, 0600) == 0);
  close(fd);
  if (regular && closed) return {};
  *error = path + (regular ? ": others may read it and its mode cannot be changed"
                           : ": is not a regular file");
  return {Code::kUnavailable, "session catalog cannot be opened for writing",
          KAIROS_DETAIL_STORAGE};
}

// Whatever has a meaning in a URI is escaped; so is much that has none.
std::string UriOf(const std::string& path) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  std::string uri = "file:";
  for (const char letter : path) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0 || letter == '/' || letter == '.') {
      uri += letter;
    } else {
      uri += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return uri;
}

std::string_view ViewOf(const void* data, int size) {
  if (data == nullptr) return {};
  return {static_cast<const char*>(data), static_cast<size_t>(size)};
}

}  // namespace

SqliteStatement::~SqliteStatement() { sqlite3_finalize(statement_); }

SqliteStatement& SqliteStatement::operator=(SqliteStatement&& other) noexcept {
  std::swap(statement_, other.statement_);
  return *this;
}

SqliteQuery::~SqliteQuery() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void SqliteQuery::BindInteger(int index, int64_t value) {
  const int code = sqlite3_bind_int64(statement_, index, value);
  if (code != SQLITE_OK) bind_error_ = code;
}

void SqliteQuery::Bind(int index, std::string_view text) {
  // A null pointer would bind NULL.
  const char* data = text.data() == nullptr ? "" : text.data();
  const int code =
      sqlite3_bind_text64(statement_, index, data, text.size(), SQLITE_STATIC, SQLITE_UTF8);
  if (code != SQLITE_OK) bind_error_ = code;
}

void SqliteQuery::Bind(int index, const SqliteBlob& blob) {
  const char* data = blob.bytes.data() == nullptr ? "" : blob.bytes.data();
  const int code = sqlite3_bind_blob64(statement_, index, data, blob.bytes.size(), SQLITE_STATIC);
  if (code != SQLITE_OK) bind_error_ = code;
}

Result<bool> SqliteQuery::Step() {
  if (bind_error_ != SQLITE_OK) return StatusOf(bind_error_);
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return StatusOf(code);
}

Status SqliteQuery::Run() {
  for (;;) {
    KAIROS_ASSIGN_OR_RETURN(const bool row, Step());
    if (!row) return {};
  }
}

int64_t SqliteQuery::Integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::string_view SqliteQuery::Text(int column) const {
  // The bytes are counted after the conversion to text, which may change them.
  const void* data = sqlite3_column_text(statement_, column);
  return ViewOf(data, sqlite3_column_bytes(statement_, column));
}

std::string_view SqliteQuery::Blob(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  return ViewOf(data, sqlite3_column_bytes(statement_, column));
}

Result<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path,
                                                             std::string* error) {
  KAIROS_RETURN_IF_ERROR(MakeFile(path, error));
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &handle,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(handle));
  Status status = StatusOf(code);
  if (status.ok()) {
    sqlite3_extended_result_codes(handle, 1);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    // The first pragmas do not touch the file; journal_mode does, and takes the lock for good.
    status = database->Execute(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0;"
        "PRAGMA temp_store = MEMORY; PRAGMA secure_delete = ON; PRAGMA auto_vacuum = INCREMENTAL;"
        "PRAGMA journal_size_limit = 16777216; PRAGMA journal_mode = WAL;"
        "BEGIN IMMEDIATE; COMMIT");
  }
  if (status.ok()) return database;
  *error = path + ": " + database->LastError();
  return status;
}

Result<std::unique_ptr<SqliteDatabase>> SqliteDatabase::OpenUnchanging(const std::string& path,
                                                                       std::string* error) {
  sqlite3* handle = nullptr;
  constexpr int kFlags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI;
  // Without "immutable" it would make files beside it to share its log with others.
  const Status status = StatusOf(
      sqlite3_open_v2((UriOf(path) + "?immutable=1").c_str(), &handle, kFlags, nullptr));
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(handle));
  if (status.ok()) return database;
  *error = database->LastError();
  return status;
}

SqliteDatabase::~SqliteDatabase() { sqlite3_close_v2(database_); }

Status SqliteDatabase::Execute(const char* sql) {
  return StatusOf(sqlite3_exec(database_, sql, nullptr, nullptr, nullptr));
}

Result<int64_t> SqliteDatabase::Number(const char* sql) {
  KAIROS_ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  SqliteQuery query(statement);
  KAIROS_ASSIGN_OR_RETURN(const bool row, query.Step());
  return row ? query.Integer(0) : 0;
}

Result<SqliteStatement> SqliteDatabase::Prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v3(database_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code == SQLITE_OK) return SqliteStatement(statement);
  // SQLITE_ERROR here means that a table or column of our own schema is not there.
  if (code == SQLITE_ERROR) {
    return Status(Code::kDataLoss, "session catalog lacks a table or column of its format",
                  KAIROS_DETAIL_STORAGE);
  }
  return StatusOf(code);
}

bool SqliteDatabase::IsFull(const Status& status) { return status.message() == kFullWords; }

std::string SqliteDatabase::LastError() const {
  if (database_ == nullptr) return "out of memory";
  if (sqlite3_errcode(database_) == SQLITE_BUSY) return "is in use by another process";
  return sqlite3_errmsg(database_);
}

bool SqliteDatabase::in_transaction() const { return sqlite3_get_autocommit(database_) == 0; }

SqliteTransaction::SqliteTransaction(SqliteDatabase& database)
    : database_(database), begun_(database.Execute("BEGIN IMMEDIATE")) {}

SqliteTransaction::~SqliteTransaction() {
  // A failed commit may have rolled back by itself.
  if (begun_.ok() && database_.in_transaction()) {
    const Status rolled_back = database_.Execute("ROLLBACK");
    static_cast<void>(rolled_back);
  }
}

Status SqliteTransaction::Commit() { return database_.Execute("COMMIT"); }

}  // namespace kairos
