// SPDX-License-Identifier: Apache-2.0
#include "sidecar/state/journal.h"

#include "tests/unit/state/catalog_fixture.h"

namespace kairos {
namespace {

class JournalTest : public CatalogFixture {
 protected:
  void SetUp() override {
    CatalogFixture::SetUp();
    Open();
    journal_ = std::make_unique<Journal>(std::move(catalog_));
  }

  JournalCommand Commit(uint64_t ticket, uint64_t version, const StateVersion& parent) {
    JournalCommand command;
    command.verb = JournalVerb::kCommit;
    command.ticket = ticket;
    command.record = Session(1);
    command.create = version == 1;
    command.delta = Delta(version, parent, 2);
    return command;
  }

  std::unique_ptr<Journal> journal_;
};

TEST_F(JournalTest, AnswersInOrderWithTicketAndCarriesEachVerb) {
  JournalCommand create;
  create.ticket = 1;
  create.record = Session(2);
  JournalCommand commit = Commit(2, 1, StateVersion{});
  commit.key = "key";
  commit.reply = StoredReply{SessionId{1}, Version{1}, "text", "f"};
  JournalCommand find;
  find.verb = JournalVerb::kFindReply;
  find.ticket = 3;
  find.record.uid = 1000;
  find.record.name_space = "default";
  find.key = "key";
  JournalCommand load;
  load.verb = JournalVerb::kLoadVersion;
  load.ticket = 4;
  load.session = SessionId{1};
  load.version = Version{1};
  JournalCommand fork;
  fork.verb = JournalVerb::kFork;
  fork.ticket = 5;
  fork.record = Session(3);
  fork.session = SessionId{1};
  fork.version = Version{1};
  JournalCommand head;
  head.verb = JournalVerb::kSetHead;
  head.ticket = 6;
  head.session = SessionId{1};
  head.version = Version{5};
  JournalCommand remove;
  remove.verb = JournalVerb::kDelete;
  remove.ticket = 7;
  remove.session = SessionId{2};
  for (JournalCommand* command : {&create, &commit, &find, &load, &fork, &head, &remove}) {
    ASSERT_TRUE(journal_->Submit(std::move(*command)));
  }

  EXPECT_TRUE(journal_->DoWork());
  EXPECT_FALSE(journal_->DoWork());

  std::vector<JournalResult> results;
  while (auto result = journal_->Poll()) results.push_back(std::move(*result));
  ASSERT_EQ(results.size(), 7u);
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].ticket, i + 1);
  EXPECT_EQ(results[1].oldest, Version{1});
  ASSERT_TRUE(results[2].reply.has_value());
  EXPECT_EQ(results[2].reply->text, "text");
  ASSERT_TRUE(results[3].version.has_value());
  EXPECT_EQ(results[3].version->tokens.size(), 2u);
  EXPECT_TRUE(results[4].status.ok());
  EXPECT_EQ(results[5].status.code(), Code::kNotFound);
  EXPECT_TRUE(results[6].status.ok());
  EXPECT_GT(journal_->bytes_used(), 0u);
}

TEST_F(JournalTest, NamesTheCatalogAndTheLimitThatItHasReached) {
  journal_.reset();
  options_.bytes_max = 200 * 1024;
  Open();
  journal_ = std::make_unique<Journal>(std::move(catalog_));
  JournalCommand commit = Commit(1, 1, StateVersion{});
  commit.delta.messages[0].message.content.assign(options_.bytes_max, 'x');
  ASSERT_TRUE(journal_->Submit(std::move(commit)));

  journal_->DoWork();

  const std::optional<JournalResult> result = journal_->Poll();
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->status.detail(), KAIROS_DETAIL_STORAGE);
  EXPECT_EQ(std::string(result->status.message()),
            "session catalog: " + options_.path +
                " has reached catalog.bytes_max: delete sessions, or raise it");
}

TEST_F(JournalTest, RefusesCommandWhenFullAndLosesNoResultWhenNobodyReads) {
  const auto fill = [this](uint64_t* ticket) {
    for (;;) {
      JournalCommand find;
      find.verb = JournalVerb::kFindReply;
      find.ticket = *ticket;
      if (!journal_->Submit(std::move(find))) return;
      ++*ticket;
    }
  };
  uint64_t submitted = 0;

  for (int i = 0; i < 6; ++i) {
    fill(&submitted);
    journal_->DoWork();
  }

  EXPECT_GT(submitted, 5000u);
  uint64_t received = 0;
  for (;;) {
    bool any = journal_->DoWork();
    while (auto result = journal_->Poll()) {
      ASSERT_EQ(result->ticket, received);
      ++received;
      any = true;
    }
    if (!any) break;
  }
  EXPECT_EQ(received, submitted);
}

}  // namespace
}  // namespace kairos
