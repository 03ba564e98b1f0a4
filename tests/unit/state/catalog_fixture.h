// SPDX-License-Identifier: Apache-2.0
// A catalog in a directory of its own, and a model of what it must hold: whole versions in maps.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "sidecar/state/catalog.h"

namespace kairos {

class CatalogFixture : public testing::Test {
 protected:
  void SetUp() override {
    const auto parent = std::filesystem::temp_directory_path();
    std::string pattern = (parent / "kairos-catalog-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    options_.path = directory_ + "/sessions.db";
  }
  void TearDown() override {
    catalog_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Open() {
    catalog_.reset();
    std::string error;
    auto opened = Catalog::Open(options_, &error);
    ASSERT_TRUE(opened.ok()) << opened.status().message() << " " << error;
    catalog_ = opened.Take();
  }

  static SessionRecord Session(uint64_t id) {
    SessionRecord record;
    record.id = SessionId{id};
    record.uid = 1000;
    record.name_space = "default";
    record.label = "label " + std::to_string(id);
    record.model = "00ff";
    record.created_unix_ms = 1000 + id;
    record.used_unix_ms = 2000 + id;
    return record;
  }

  // A version of `tokens` more tokens and one more message.
  static VersionDelta Delta(uint64_t version, const StateVersion& parent, uint32_t tokens) {
    VersionDelta delta;
    delta.version = Version{version};
    delta.parent = parent.version;
    delta.kept_tokens = static_cast<uint32_t>(parent.tokens.size());
    delta.kept_messages = static_cast<uint32_t>(parent.messages.size());
    for (uint32_t i = 0; i < tokens; ++i) {
      delta.tokens.push_back(static_cast<TokenId>(version * 1000 + i));
    }
    MessageRecord message;
    message.message.role = "user";
    message.message.content = "message of version " + std::to_string(version);
    message.token_end = delta.kept_tokens + tokens;
    delta.messages.push_back(message);
    delta.tools_json = parent.tools_json;
    delta.context_json = "{\"goal\":\"" + std::to_string(version) + "\"}";
    delta.created_unix_ms = 5000 + version;
    delta.token_count = delta.kept_tokens + delta.tokens.size();
    delta.message_count = delta.kept_messages + delta.messages.size();
    return delta;
  }

  static StateVersion Apply(const StateVersion& parent, const VersionDelta& delta) {
    StateVersion next;
    next.version = delta.version;
    next.parent = delta.parent;
    next.tokens = parent.tokens;
    next.tokens.resize(delta.kept_tokens);
    next.tokens.insert(next.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    next.messages = parent.messages;
    next.messages.resize(delta.kept_messages);
    next.messages.insert(next.messages.end(), delta.messages.begin(), delta.messages.end());
    next.tools_json = delta.tools_json;
    next.context_json = delta.context_json;
    next.phase = delta.phase;
    next.waiting_for = delta.waiting_for;
    next.created_unix_ms = delta.created_unix_ms;
    return next;
  }

  static void ExpectEqual(const StateVersion& got, const StateVersion& want) {
    EXPECT_EQ(got.version, want.version);
    EXPECT_EQ(got.parent, want.parent);
    EXPECT_EQ(got.tokens, want.tokens);
    ASSERT_EQ(got.messages.size(), want.messages.size());
    for (size_t i = 0; i < got.messages.size(); ++i) {
      EXPECT_EQ(got.messages[i].message, want.messages[i].message) << i;
      EXPECT_EQ(got.messages[i].token_end, want.messages[i].token_end) << i;
      EXPECT_EQ(got.messages[i].cancelled, want.messages[i].cancelled) << i;
    }
    EXPECT_EQ(got.tools_json, want.tools_json);
    EXPECT_EQ(got.context_json, want.context_json);
    EXPECT_EQ(got.phase, want.phase);
    EXPECT_EQ(got.waiting_for, want.waiting_for);
    EXPECT_EQ(got.created_unix_ms, want.created_unix_ms);
  }

  std::string directory_;
  CatalogOptions options_;
  std::unique_ptr<Catalog> catalog_;
};

}  // namespace kairos
