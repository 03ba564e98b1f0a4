// SPDX-License-Identifier: Apache-2.0
#include "sidecar/state/version_record.h"

#include <gtest/gtest.h>

namespace kairos {
namespace {

std::vector<MessageRecord> TwoMessages() {
  std::vector<MessageRecord> messages(2);
  messages[0].message = {"user", "hello", "", "", ""};
  messages[0].token_end = 7;
  messages[1].message = {"assistant", "", "n", "id", "[]"};
  messages[1].token_end = 9;
  messages[1].cancelled = true;
  return messages;
}

TEST(VersionRecord, RefusesMessagesCutAnywhereOrContinued) {
  const std::string bytes = EncodeMessages(TwoMessages());
  std::vector<MessageRecord> decoded;

  ASSERT_TRUE(DecodeMessages(bytes, &decoded));
  EXPECT_EQ(EncodeMessages(decoded), bytes);
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::vector<MessageRecord> cut;
    EXPECT_FALSE(DecodeMessages(std::string_view(bytes).substr(0, size), &cut)) << size;
  }
  std::vector<MessageRecord> longer;
  EXPECT_FALSE(DecodeMessages(bytes + "x", &longer));
}

TEST(VersionRecord, RefusesMessageCountThatBytesCannotHold) {
  std::string bytes = EncodeMessages(TwoMessages());
  bytes[3] = '\x7f';
  std::vector<MessageRecord> decoded;

  EXPECT_FALSE(DecodeMessages(bytes, &decoded));

  EXPECT_LT(decoded.capacity(), 100u);
}

TEST(VersionRecord, ChecksumCoversEveryField) {
  VersionRecord record;
  record.tokens = EncodeTokens(std::vector<TokenId>{1, 2});
  record.messages = EncodeMessages(TwoMessages());
  record.context_json = "{}";
  const uint64_t checksum = RecordChecksum(record);
  std::vector<VersionRecord> changed(12, record);
  changed[0].base = 1;
  changed[1].kept_tokens = 1;
  changed[2].kept_messages = 1;
  changed[3].token_count = 1;
  changed[4].message_count = 1;
  changed[5].tokens[0] = 9;
  changed[6].messages[5] = 9;
  changed[7].context_json = "{ }";
  changed[8].phase = 1;
  changed[9].waiting_for = "f";
  changed[10].created_unix_ms = 1;
  changed[11].tools_hash = 1;

  for (size_t i = 0; i < changed.size(); ++i) EXPECT_NE(RecordChecksum(changed[i]), checksum) << i;
}

TEST(VersionRecord, RefusesRecordThatKeepsMoreThanItsBase) {
  VersionRecord record;
  record.kept_tokens = 3;
  record.token_count = 3;
  record.messages = EncodeMessages({});
  StateVersion base;
  base.tokens = {1, 2};

  EXPECT_FALSE(ApplyRecord(record, &base));
}

}  // namespace
}  // namespace kairos
