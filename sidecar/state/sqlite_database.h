// SPDX-License-Identifier: Apache-2.0
// SQLite as Status and values: a connection, prepared statements, transactions. Nothing here knows
// what is stored. Owner: the thread that opened the database. Any call may block on disk.
// Fences sqlite3.h (sqlite_database.cc only).
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace kairos {

struct SqliteBlob {
  std::string_view bytes;
};

// A prepared statement; move-only. Lives no longer than its database.
class SqliteStatement {
 public:
  SqliteStatement() = default;
  explicit SqliteStatement(sqlite3_stmt* statement) : statement_(statement) {}
  ~SqliteStatement();
  SqliteStatement(SqliteStatement&& other) noexcept : statement_(other.statement_) {
    other.statement_ = nullptr;
  }
  SqliteStatement& operator=(SqliteStatement&& other) noexcept;

 private:
  friend class SqliteQuery;
  sqlite3_stmt* statement_ = nullptr;
};

// One run of a prepared statement with its arguments, in order. Text and blobs are not copied and
// must outlive the query. Ends by resetting the statement, so no read lock outlives a call.
class SqliteQuery {
 public:
  template <typename... Args>
  explicit SqliteQuery(SqliteStatement& statement, const Args&... args)
      : statement_(statement.statement_) {
    int index = 0;
    (Bind(++index, args), ...);
  }
  ~SqliteQuery();
  SqliteQuery(const SqliteQuery&) = delete;
  SqliteQuery& operator=(const SqliteQuery&) = delete;

  // True: a row is there. The first binding error comes out here.
  Result<bool> Step();
  // To the end; rows are ignored.
  Status Run();
  // Of the current row. 64-bit unsigned values are stored by their bits.
  int64_t Integer(int column) const;
  uint64_t Unsigned(int column) const { return static_cast<uint64_t>(Integer(column)); }
  // Valid until the next Step.
  std::string_view Text(int column) const;
  std::string_view Blob(int column) const;

 private:
  template <std::integral Number>
  void Bind(int index, Number value) {
    BindInteger(index, static_cast<int64_t>(value));
  }
  void Bind(int index, std::string_view text);
  void Bind(int index, const SqliteBlob& blob);
  void BindInteger(int index, int64_t value);

  sqlite3_stmt* statement_;
  int bind_error_ = 0;
};

class SqliteDatabase {
 public:
  // Opens or creates `path` with mode 0600 for this process alone. UNAVAILABLE when another process
  // holds it; DATA_LOSS when it is not a database.
  static Result<std::unique_ptr<SqliteDatabase>> Open(const std::string& path, std::string* error);
  // Opens the file at `path` to be read, without a lock and without what is in its log; nobody may
  // write it meanwhile. What it holds is looked at by the first statement only.
  static Result<std::unique_ptr<SqliteDatabase>> OpenUnchanging(const std::string& path,
                                                                std::string* error);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  // Runs statements without arguments, separated by semicolons.
  Status Execute(const char* sql);
  // First column of the first row; for pragmas.
  Result<int64_t> Number(const char* sql);
  Result<SqliteStatement> Prepare(const char* sql);
  // Whether the status says that the disk or the limit of pages left no room.
  static bool IsFull(const Status& status);
  // Words of the last failure, for an operator.
  std::string LastError() const;
  bool in_transaction() const;

 private:
  explicit SqliteDatabase(sqlite3* database) : database_(database) {}
  sqlite3* database_;
};

// Rolls back unless committed.
class SqliteTransaction {
 public:
  explicit SqliteTransaction(SqliteDatabase& database);
  ~SqliteTransaction();
  SqliteTransaction(const SqliteTransaction&) = delete;
  SqliteTransaction& operator=(const SqliteTransaction&) = delete;

  const Status& begun() const { return begun_; }
  Status Commit();

 private:
  SqliteDatabase& database_;
  Status begun_;
};

}  // namespace kairos
