// SPDX-License-Identifier: Apache-2.0
// Thousands of random operations against a model that simply keeps every version whole, with the
// file closed and opened again in between.
#include <random>

#include "tests/unit/state/catalog_fixture.h"

namespace kairos {
namespace {

struct ModelSession {
  uint64_t newest = 0;
  uint64_t head = 0;
  std::map<uint64_t, StateVersion> versions;
};

class CatalogModelTest : public CatalogFixture, public testing::WithParamInterface<uint32_t> {
 protected:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

  template <typename Map>
  uint64_t AnyKey(const Map& map) {
    return std::next(map.begin(), Below(static_cast<uint32_t>(map.size())))->first;
  }

  uint64_t AnySession() { return AnyKey(model_); }

  uint64_t AnyVersion(const ModelSession& session) {
    return AnyKey(session.versions);
  }

  void CommitOne(uint64_t id, bool create) {
    ModelSession& session = model_[id];
    StateVersion parent;
    if (session.head != 0) {
      parent = session.versions.at(Below(8) == 0 ? AnyVersion(session) : session.head);
    }
    VersionDelta delta = Delta(session.newest + 1, parent, Below(20));
    if (Below(6) == 0 && !parent.tokens.empty()) {
      delta.kept_tokens = Below(static_cast<uint32_t>(parent.tokens.size()) + 1);
      delta.kept_messages = Below(static_cast<uint32_t>(parent.messages.size()) + 1);
      delta.token_count = delta.kept_tokens + delta.tokens.size();
      delta.message_count = delta.kept_messages + delta.messages.size();
    }
    if (Below(10) == 0) delta.tools_json = "[\"" + std::to_string(Below(3)) + "\"]";
    if (Below(20) == 0) delta.tools_json.clear();
    delta.phase = static_cast<int32_t>(Below(4));
    Version oldest;
    const Status status = catalog_->Commit(Session(id), create, delta, "", nullptr, &oldest);
    ASSERT_TRUE(status.ok()) << status.message();
    session.newest += 1;
    session.head = session.newest;
    session.versions[session.head] = Apply(parent, delta);
    while (session.versions.size() > options_.versions_max) {
      session.versions.erase(session.versions.begin());
    }
    EXPECT_EQ(oldest.value, session.versions.begin()->first);
  }

  void ForkOne() {
    const uint64_t source = AnySession();
    const uint64_t version = AnyVersion(model_[source]);
    const uint64_t id = ++next_id_;
    ASSERT_TRUE(catalog_->Fork(Session(id), SessionId{source}, Version{version}).ok());
    StateVersion first = model_[source].versions.at(version);
    first.version = Version{1};
    first.parent = Version{0};
    model_[id] = ModelSession{1, 1, {{1, first}}};
  }

  void RewindOne() {
    const uint64_t id = AnySession();
    ModelSession& session = model_[id];
    session.head = AnyVersion(session);
    ASSERT_TRUE(catalog_->SetHead(SessionId{id}, Version{session.head}).ok());
  }

  void CheckAll() {
    auto sessions = catalog_->LoadSessions();
    ASSERT_TRUE(sessions.ok());
    ASSERT_EQ(sessions->size(), model_.size());
    for (const SessionRecord& record : *sessions) {
      ASSERT_EQ(model_.count(record.id.value), 1u);
      const ModelSession& session = model_.at(record.id.value);
      EXPECT_EQ(record.head.value, session.head);
      EXPECT_EQ(record.newest.value, session.newest);
      EXPECT_EQ(record.oldest.value, session.versions.begin()->first);
      EXPECT_EQ(record.token_count, session.versions.at(session.head).tokens.size());
      EXPECT_EQ(record.message_count, session.versions.at(session.head).messages.size());
      EXPECT_EQ(record.phase, session.versions.at(session.head).phase);
      for (const auto& [number, want] : session.versions) {
        auto got = catalog_->LoadVersion(record.id, Version{number});
        ASSERT_TRUE(got.ok()) << got.status().message();
        ExpectEqual(*got, want);
      }
    }
  }

  std::mt19937_64 random_;
  std::map<uint64_t, ModelSession> model_;
  uint64_t next_id_ = 0;
};

TEST_P(CatalogModelTest, MatchesNaiveModel) {
  random_.seed(GetParam());
  options_.versions_max = 3 + GetParam() % 60;
  Open();

  for (int step = 0; step < 2000 && !HasFailure(); ++step) {
    SCOPED_TRACE("seed " + std::to_string(GetParam()) + " step " + std::to_string(step));
    const uint32_t what = Below(100);
    if (model_.empty() || (what < 3 && model_.size() < 12)) {
      CommitOne(++next_id_, true);
    } else if (what < 7 && model_.size() < 12) {
      ForkOne();
    } else if (what < 12) {
      RewindOne();
    } else if (what < 15) {
      const uint64_t id = AnySession();
      ASSERT_TRUE(catalog_->Delete(SessionId{id}).ok());
      model_.erase(id);
    } else {
      CommitOne(AnySession(), false);
    }
    if (step % 500 == 499) {
      Open();
      CheckAll();
    }
  }

  while (!model_.empty() && !HasFailure()) {
    ASSERT_TRUE(catalog_->Delete(SessionId{model_.begin()->first}).ok());
    model_.erase(model_.begin());
    if (model_.size() % 4 == 0) CheckAll();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CatalogModelTest, testing::Values(1u, 2u, 3u, 4u));

}  // namespace
}  // namespace kairos
