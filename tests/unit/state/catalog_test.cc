// SPDX-License-Identifier: Apache-2.0
#include "sidecar/state/catalog.h"

#include <csignal>
#include <fstream>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/unit/state/catalog_fixture.h"

namespace kairos {
namespace {

class CatalogTest : public CatalogFixture {
 protected:
  // Commits `count` versions of 4 tokens each to session 1 and returns the last.
  StateVersion CommitChain(uint64_t count) {
    StateVersion head;
    for (uint64_t i = 1; i <= count; ++i) {
      const VersionDelta delta = Delta(i, head, 4);
      const Status status = catalog_->Commit(Session(1), i == 1, delta, "", nullptr, nullptr);
      EXPECT_TRUE(status.ok()) << status.message();
      head = Apply(head, delta);
    }
    return head;
  }

  void RunSql(const char* sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(options_.path.c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
  }

  int64_t CountRows(const char* table) {
    sqlite3* database = nullptr;
    EXPECT_EQ(sqlite3_open(options_.path.c_str(), &database), SQLITE_OK);
    sqlite3_stmt* statement = nullptr;
    const std::string sql = std::string("SELECT count(*) FROM ") + table;
    EXPECT_EQ(sqlite3_prepare_v2(database, sql.c_str(), -1, &statement, nullptr), SQLITE_OK);
    EXPECT_EQ(sqlite3_step(statement), SQLITE_ROW);
    const int64_t rows = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(database);
    return rows;
  }
};

TEST_F(CatalogTest, ReturnsEveryFieldOfSessionAndVersionAfterReopen) {
  Open();
  SessionRecord session = Session(0xf000000000000001u);
  session.label = "two\nlines, \xe4\xb8\xad";
  session.fidelity = 1;
  session.priority = -7;
  session.ttl_seconds = 3600;
  session.parent = SessionId{9};
  VersionDelta delta = Delta(1, StateVersion{}, 3);
  delta.tools_json = "[{\"name\":\"f\"}]";
  delta.phase = KAIROS_PHASE_WAITING_TOOL;
  delta.waiting_for = "f";
  delta.messages[0].cancelled = true;
  delta.messages[0].message = {"tool", std::string("a\0b", 3), "f", "call-1", "[{}]"};
  Version oldest;

  ASSERT_TRUE(catalog_->Commit(session, true, delta, "", nullptr, &oldest).ok());
  Open();

  auto sessions = catalog_->LoadSessions();
  ASSERT_TRUE(sessions.ok());
  ASSERT_EQ(sessions->size(), 1u);
  const SessionRecord& got = sessions->front();
  EXPECT_EQ(got.id, session.id);
  EXPECT_EQ(got.uid, session.uid);
  EXPECT_EQ(got.name_space, session.name_space);
  EXPECT_EQ(got.label, session.label);
  EXPECT_EQ(got.fidelity, 1);
  EXPECT_EQ(got.priority, -7);
  EXPECT_EQ(got.ttl_seconds, 3600u);
  EXPECT_EQ(got.created_unix_ms, session.created_unix_ms);
  EXPECT_EQ(got.used_unix_ms, session.used_unix_ms);
  EXPECT_EQ(got.parent, SessionId{9});
  EXPECT_EQ(got.model, "00ff");
  EXPECT_EQ(got.head, Version{1});
  EXPECT_EQ(got.oldest, Version{1});
  EXPECT_EQ(oldest, Version{1});
  EXPECT_EQ(got.newest, Version{1});
  EXPECT_EQ(got.token_count, 3u);
  EXPECT_EQ(got.message_count, 1u);
  EXPECT_EQ(got.phase, KAIROS_PHASE_WAITING_TOOL);
  EXPECT_EQ(got.waiting_for, "f");
  auto version = catalog_->LoadVersion(session.id, Version{1});
  ASSERT_TRUE(version.ok());
  ExpectEqual(*version, Apply(StateVersion{}, delta));
}

TEST_F(CatalogTest, KeepsFilesPrivateToTheOwner) {
  std::ofstream(options_.path).close();
  chmod(options_.path.c_str(), 0644);

  Open();
  CommitChain(1);

  for (const char* suffix : {"", "-wal"}) {
    struct stat file {};
    ASSERT_EQ(stat((options_.path + suffix).c_str(), &file), 0) << suffix;
    EXPECT_EQ(file.st_mode & 0777, 0600u) << suffix;
  }
}

TEST_F(CatalogTest, RefusesSecondOpenerOfTheSameFile) {
  Open();

  std::string error;
  auto second = Catalog::Open(options_, &error);

  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_NE(error.find(options_.path), std::string::npos);
}

TEST_F(CatalogTest, RefusesCommitThatDoesNotFit) {
  Open();
  const StateVersion head = CommitChain(2);
  VersionDelta wrong_number = Delta(4, head, 1);
  VersionDelta no_parent = Delta(3, head, 1);
  no_parent.parent = Version{77};
  VersionDelta too_much = Delta(3, head, 1);
  too_much.kept_tokens = 1000;
  VersionDelta bad_total = Delta(3, head, 1);
  bad_total.token_count += 1;
  const struct {
    const char* name;
    SessionRecord session;
    bool create;
    VersionDelta delta;
    Code code;
  } table[] = {
      {"number", Session(1), false, wrong_number, Code::kFailedPrecondition},
      {"parent", Session(1), false, no_parent, Code::kNotFound},
      {"kept", Session(1), false, too_much, Code::kInvalidArgument},
      {"totals", Session(1), false, bad_total, Code::kInvalidArgument},
      {"session", Session(2), false, Delta(1, StateVersion{}, 1), Code::kNotFound},
      {"taken id", Session(1), true, Delta(3, head, 1), Code::kAlreadyExists},
  };

  for (const auto& row : table) {
    EXPECT_EQ(catalog_->Commit(row.session, row.create, row.delta, "", nullptr, nullptr).code(),
              row.code)
        << row.name;
  }
  auto sessions = catalog_->LoadSessions();
  ASSERT_TRUE(sessions.ok());
  ASSERT_EQ(sessions->size(), 1u);
  EXPECT_EQ(sessions->front().newest, Version{2});
}

TEST_F(CatalogTest, LeavesNothingBehindWhenForkSourceIsMissing) {
  Open();
  CommitChain(1);

  const auto code = [&](uint64_t id, uint64_t source, uint64_t version) {
    return catalog_->Fork(Session(id), SessionId{source}, Version{version}).status().code();
  };
  EXPECT_EQ(code(2, 1, 9), Code::kNotFound);
  EXPECT_EQ(code(2, 8, 1), Code::kNotFound);
  EXPECT_EQ(code(1, 1, 1), Code::kAlreadyExists);

  EXPECT_EQ(catalog_->LoadSessions()->size(), 1u);
}

TEST_F(CatalogTest, ForkOutlivesItsSource) {
  Open();
  StateVersion head = CommitChain(40);

  ASSERT_TRUE(catalog_->Fork(Session(2), SessionId{1}, Version{40}).ok());
  ASSERT_TRUE(catalog_->Delete(SessionId{1}).ok());

  auto loaded = catalog_->LoadVersion(SessionId{2}, Version{1});
  ASSERT_TRUE(loaded.ok());
  head.version = Version{1};
  head.parent = Version{0};
  ExpectEqual(*loaded, head);
  EXPECT_EQ(catalog_->LoadVersion(SessionId{1}, Version{40}).status().code(), Code::kNotFound);
}

TEST_F(CatalogTest, NamesNoClientDetailForAMissingVersion) {
  Open();
  CommitChain(1);

  const Status loaded =
      catalog_->LoadVersion(SessionId{1}, Version{KAIROS_DETAIL_CONTEXT_FULL}).status();
  const Status forked =
      catalog_->Fork(Session(2), SessionId{1}, Version{KAIROS_DETAIL_OTHER_MODEL}).status();

  // The status goes to a client, where a version number would read as a cause.
  EXPECT_EQ(loaded.detail(), 0);
  EXPECT_EQ(forked.detail(), 0);
}

TEST_F(CatalogTest, PrunesOldVersionsButNotTheHead) {
  options_.versions_max = 3;
  Open();
  StateVersion head = CommitChain(5);
  EXPECT_EQ(catalog_->LoadVersion(SessionId{1}, Version{2}).status().code(), Code::kNotFound);
  ASSERT_TRUE(catalog_->SetHead(SessionId{1}, Version{3}).ok());
  auto third = catalog_->LoadVersion(SessionId{1}, Version{3});
  ASSERT_TRUE(third.ok());
  Version oldest;

  const VersionDelta delta = Delta(6, *third, 2);
  ASSERT_TRUE(catalog_->Commit(Session(1), false, delta, "", nullptr, &oldest).ok());

  EXPECT_EQ(oldest, Version{4});
  ExpectEqual(*catalog_->LoadVersion(SessionId{1}, Version{6}), Apply(*third, delta));
}

TEST_F(CatalogTest, ACommitUnderAnotherModelTakesTheVersionsBeforeIt) {
  Open();
  const StateVersion head = CommitChain(3);
  VersionDelta delta = Delta(4, StateVersion(), 2);
  delta.parent = head.version;
  SessionRecord moved = Session(1);
  moved.model = "11ee";
  Version oldest;

  ASSERT_TRUE(catalog_->Commit(moved, false, delta, "", nullptr, &oldest).ok());

  EXPECT_EQ(oldest, Version{4});
  EXPECT_EQ(catalog_->LoadVersion(SessionId{1}, Version{3}).status().code(), Code::kNotFound);
  Open();
  const auto sessions = catalog_->LoadSessions();
  ASSERT_EQ(sessions->size(), 1u);
  EXPECT_EQ((*sessions)[0].model, "11ee");
  EXPECT_EQ((*sessions)[0].oldest, Version{4});
}

TEST_F(CatalogTest, FreesRowsOfDeletedSessionsDownToNone) {
  options_.versions_max = 5;
  Open();
  CommitChain(70);
  ASSERT_TRUE(catalog_->Fork(Session(2), SessionId{1}, Version{68}).ok());
  StoredReply reply{SessionId{2}, Version{2}, "text", "final"};
  const VersionDelta delta = Delta(2, *catalog_->LoadVersion(SessionId{2}, Version{1}), 1);
  ASSERT_TRUE(catalog_->Commit(Session(2), false, delta, "key", &reply, nullptr).ok());

  ASSERT_TRUE(catalog_->Delete(SessionId{1}).ok());
  ASSERT_TRUE(catalog_->Delete(SessionId{2}).ok());
  EXPECT_EQ(catalog_->Delete(SessionId{2}).code(), Code::kNotFound);
  catalog_.reset();

  for (const char* table : {"session", "version", "record", "tools", "reply"}) {
    EXPECT_EQ(CountRows(table), 0) << table;
  }
}

TEST_F(CatalogTest, ErasesTextOfDeletedSessionFromItsFiles) {
  Open();
  VersionDelta delta = Delta(1, StateVersion{}, 1);
  delta.messages[0].message.content = "a-secret-that-must-go";
  ASSERT_TRUE(catalog_->Commit(Session(1), true, delta, "", nullptr, nullptr).ok());

  ASSERT_TRUE(catalog_->Delete(SessionId{1}).ok());

  for (const char* suffix : {"", "-wal"}) {
    std::ifstream file(options_.path + suffix, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    EXPECT_EQ(bytes.find("a-secret-that-must-go"), std::string::npos) << suffix;
  }
}

TEST_F(CatalogTest, StoresToolListOncePerContent) {
  Open();
  StateVersion head;
  head.tools_json = "[" + std::string(50000, ' ') + "]";
  for (uint64_t i = 1; i <= 50; ++i) {
    const VersionDelta delta = Delta(i, head, 1);
    ASSERT_TRUE(catalog_->Commit(Session(1), i == 1, delta, "", nullptr, nullptr).ok());
    head = Apply(head, delta);
  }

  EXPECT_LT(catalog_->bytes_used(), 400'000u);
  EXPECT_EQ(catalog_->LoadVersion(SessionId{1}, Version{50})->tools_json, head.tools_json);
}

TEST_F(CatalogTest, CommitCostsWhatTheTurnAddedNotWhatTheSessionHolds) {
  options_.versions_max = 1000;
  Open();
  StateVersion head;
  VersionDelta first = Delta(1, head, 250'000);
  ASSERT_TRUE(catalog_->Commit(Session(1), true, first, "", nullptr, nullptr).ok());
  head = Apply(head, first);
  const uint64_t before = catalog_->bytes_used();

  for (uint64_t i = 2; i <= 30; ++i) {
    const VersionDelta delta = Delta(i, head, 10);
    ASSERT_TRUE(catalog_->Commit(Session(1), false, delta, "", nullptr, nullptr).ok());
    head = Apply(head, delta);
  }

  EXPECT_LT(catalog_->bytes_used() - before, 40'000u);
}

TEST_F(CatalogTest, FindsReplyOnlyOfSameOwnerAndKeyUntilItIsTooOld) {
  static uint64_t now = 0;
  now = 1'000'000;
  options_.now_unix_ms = [] { return now; };
  options_.reply_age_max_ms = 5000;
  Open();
  const StoredReply reply{SessionId{1}, Version{1}, "text", std::string("\0\1\2", 3)};
  const VersionDelta delta = Delta(1, StateVersion{}, 1);

  ASSERT_TRUE(catalog_->Commit(Session(1), true, delta, "key", &reply, nullptr).ok());

  auto found = catalog_->FindReply(1000, "default", "key");
  ASSERT_TRUE(found.ok());
  ASSERT_TRUE(found->has_value());
  EXPECT_EQ((*found)->text, "text");
  EXPECT_EQ((*found)->final_bytes, reply.final_bytes);
  EXPECT_EQ((*found)->session, SessionId{1});
  EXPECT_EQ((*found)->version, Version{1});
  EXPECT_FALSE(catalog_->FindReply(1001, "default", "key")->has_value());
  EXPECT_FALSE(catalog_->FindReply(1000, "other", "key")->has_value());
  EXPECT_FALSE(catalog_->FindReply(1000, "default", "kex")->has_value());
  now += 5000;
  EXPECT_FALSE(catalog_->FindReply(1000, "default", "key")->has_value());
}

TEST_F(CatalogTest, KeepsOnlyTheNewestRepliesOfEachUid) {
  options_.replies_max = 10;
  Open();
  StateVersion head;
  for (uint64_t i = 1; i <= 200; ++i) {
    const StoredReply reply{SessionId{1}, Version{i}, "text", ""};
    const VersionDelta delta = Delta(i, head, 1);
    const std::string key = "k" + std::to_string(i);
    ASSERT_TRUE(catalog_->Commit(Session(1), i == 1, delta, key, &reply, nullptr).ok());
    head = Apply(head, delta);
  }

  Open();

  EXPECT_FALSE(catalog_->FindReply(1000, "default", "k190")->has_value());
  EXPECT_TRUE(catalog_->FindReply(1000, "default", "k191")->has_value());
  EXPECT_TRUE(catalog_->FindReply(1000, "default", "k200")->has_value());
}

TEST_F(CatalogTest, RefusesGrowthBeyondByteLimitAndWorksAgainAfterDelete) {
  options_.bytes_max = 400 * 1024;
  Open();
  StateVersion head;
  Status status;
  uint64_t version = 0;
  while (status.ok() && version < 1000) {
    const VersionDelta delta = Delta(version + 1, head, 2000);
    status = catalog_->Commit(Session(1), version == 0, delta, "", nullptr, nullptr);
    if (!status.ok()) break;
    head = Apply(head, delta);
    ++version;
  }

  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.detail(), KAIROS_DETAIL_STORAGE);
  EXPECT_GT(version, 10u);
  EXPECT_LE(catalog_->bytes_used(), options_.bytes_max);
  ExpectEqual(*catalog_->LoadVersion(SessionId{1}, Version{version}), head);
  ASSERT_TRUE(catalog_->Delete(SessionId{1}).ok());
  const VersionDelta small = Delta(1, StateVersion{}, 2000);
  EXPECT_TRUE(catalog_->Commit(Session(2), true, small, "", nullptr, nullptr).ok());
}

TEST_F(CatalogTest, TakesALimitBelowItsSizeWhenDeletingHasShrunkIt) {
  constexpr uint64_t kLimit = 1u << 20;
  Open();
  StateVersion head;
  for (uint64_t version = 1; catalog_->bytes_used() < 8 * kLimit; ++version) {
    const VersionDelta delta = Delta(version, head, 200'000);
    ASSERT_TRUE(
        catalog_->Commit(Session(1), version == 1, delta, "", nullptr, nullptr).ok());
    head = Apply(head, delta);
  }

  ASSERT_TRUE(catalog_->SetLimits({kLimit, 64}).ok());

  const VersionDelta more = Delta(head.version.value + 1, head, 200'000);
  EXPECT_EQ(catalog_->Commit(Session(1), false, more, "", nullptr, nullptr).code(),
            Code::kResourceExhausted);
  ExpectEqual(*catalog_->LoadVersion(SessionId{1}, head.version), head);
  Status status = catalog_->Delete(SessionId{1});
  ASSERT_TRUE(status.ok()) << status.message();
  for (uint64_t id = 2; status.ok() && id < 1000; ++id) {
    status = catalog_->Commit(Session(id), true, Delta(1, StateVersion{}, 2000), "", nullptr,
                              nullptr);
    EXPECT_LE(catalog_->bytes_used(), kLimit);
  }
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
}

TEST_F(CatalogTest, PrunesToALimitThatWasLowered) {
  Open();
  CommitChain(6);
  ASSERT_TRUE(catalog_->SetLimits({1u << 30, 2}).ok());
  const StateVersion head = *catalog_->LoadVersion(SessionId{1}, Version{6});
  Version oldest;
  ASSERT_TRUE(
      catalog_->Commit(Session(1), false, Delta(7, head, 2), "", nullptr, &oldest).ok());
  EXPECT_EQ(oldest, Version{6});
}

TEST_F(CatalogTest, ReportsStorageWhenTheDiskRefusesAndRecoversWhenItDoesNot) {
  Open();
  const StateVersion head = CommitChain(3);
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const VersionDelta delta = Delta(4, head, 200'000);

  rlimit tight = before;
  tight.rlim_cur = 300 * 1024;
  setrlimit(RLIMIT_FSIZE, &tight);
  const Status refused = catalog_->Commit(Session(1), false, delta, "", nullptr, nullptr);
  const auto still_there = catalog_->LoadVersion(SessionId{1}, Version{3});
  setrlimit(RLIMIT_FSIZE, &before);
  const Status accepted = catalog_->Commit(Session(1), false, delta, "", nullptr, nullptr);

  EXPECT_TRUE(refused.code() == Code::kUnavailable || refused.code() == Code::kResourceExhausted)
      << refused.message();
  EXPECT_EQ(refused.detail(), KAIROS_DETAIL_STORAGE);
  ASSERT_TRUE(still_there.ok());
  ExpectEqual(*still_there, head);
  ASSERT_TRUE(accepted.ok()) << accepted.message();
  ExpectEqual(*catalog_->LoadVersion(SessionId{1}, Version{4}), Apply(head, delta));
}

TEST_F(CatalogTest, KeepsFlagsAndNamesOfModelsAndReadsAFileOfFormat1) {
  Open();
  SessionRecord flagged = Session(1);
  flagged.flags = KAIROS_SESSION_DROP_REASONING;
  flagged.model_name = "small";
  ASSERT_TRUE(catalog_->CreateSession(flagged).ok());
  catalog_.reset();
  Open();
  EXPECT_EQ(catalog_->LoadSessions()->front().flags, KAIROS_SESSION_DROP_REASONING);
  EXPECT_EQ(catalog_->LoadSessions()->front().model_name, "small");
  catalog_.reset();
  RunSql("ALTER TABLE session DROP COLUMN flags; ALTER TABLE session DROP COLUMN model_name;"
         "PRAGMA user_version = 1");
  Open();
  const auto sessions = catalog_->LoadSessions();
  ASSERT_EQ(sessions->size(), 1u);
  EXPECT_EQ(sessions->front().flags, 0u);
  EXPECT_EQ(sessions->front().model_name, "");
  EXPECT_TRUE(catalog_->CreateSession(Session(2)).ok());
}

TEST_F(CatalogTest, RefusesNewerFormatAndForeignDatabase) {
  const struct {
    const char* sql;
    const char* words;
  } table[] = {{"PRAGMA user_version = 3", "format 3"},
               {"PRAGMA application_id = 77", "another program"}};
  for (const auto& row : table) {
    Open();
    catalog_.reset();
    RunSql(row.sql);
    std::string error;

    auto opened = Catalog::Open(options_, &error);

    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.status().code(), Code::kFailedPrecondition);
    EXPECT_NE(error.find(row.words), std::string::npos) << error;
    std::filesystem::remove(options_.path);
  }
}

TEST_F(CatalogTest, ReportsDamageOfTheFileWithoutCrashing) {
  std::ofstream(options_.path) << std::string(8192, 'x');
  std::string error;
  EXPECT_EQ(Catalog::Open(options_, &error).status().code(), Code::kDataLoss);
  EXPECT_NE(error.find(options_.path), std::string::npos);
  std::filesystem::remove(options_.path);
  Open();
  catalog_.reset();
  RunSql("DROP TABLE record");
  EXPECT_EQ(Catalog::Open(options_, &error).status().code(), Code::kDataLoss);
}

TEST_F(CatalogTest, ReportsDamageOfOneVersionAndServesTheOthers) {
  Open();
  CommitChain(3);
  catalog_.reset();
  RunSql("UPDATE record SET tokens = x'0000000000000000000000000000000f' WHERE id = 3");

  Open();

  EXPECT_TRUE(catalog_->LoadVersion(SessionId{1}, Version{2}).ok());
  const Status damaged = catalog_->LoadVersion(SessionId{1}, Version{3}).status();
  EXPECT_EQ(damaged.code(), Code::kDataLoss);
  EXPECT_EQ(damaged.detail(), KAIROS_DETAIL_STORAGE);
}

TEST_F(CatalogTest, SurvivesAnyOverwrittenPageAsStatus) {
  Open();
  CommitChain(40);
  catalog_.reset();
  std::ifstream in(options_.path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  in.close();
  ASSERT_GT(whole.size(), 8u * 4096);
  int refused = 0;

  for (size_t page = 0; page * 4096 < whole.size(); ++page) {
    std::string bytes = whole;
    for (size_t i = 64; i < 1024; i += 3) bytes[page * 4096 + i] ^= static_cast<char>(0x5a + i);
    std::ofstream(options_.path, std::ios::binary | std::ios::trunc) << bytes;
    std::filesystem::remove(options_.path + "-wal");
    std::string error;
    auto opened = Catalog::Open(options_, &error);
    if (!opened.ok()) {
      ++refused;
      continue;
    }
    bool all = (*opened)->LoadSessions().ok();
    for (uint64_t v = 1; v <= 40; ++v) {
      all = (*opened)->LoadVersion(SessionId{1}, Version{v}).ok() && all;
    }
    const bool committed = (*opened)->Delete(SessionId{1}).ok();
    if (!all || !committed) ++refused;
  }

  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace kairos
