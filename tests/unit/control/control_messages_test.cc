// SPDX-License-Identifier: Apache-2.0
#include "sidecar/control/control_messages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>
#include <utility>

namespace kairos {
namespace {

ControlReply FullReply() {
  ControlReply reply;
  reply.code = 5;
  reply.detail = 7;
  reply.text = "words";
  reply.session = SessionId{0xfedcba9876543210u};
  reply.version = 3;
  kairos_session_t session{};
  session.struct_size = sizeof(session);
  session.id = 0x8000000000000001u;
  session.phase = KAIROS_PHASE_WAITING_TOOL;
  session.version = 9;
  session.oldest_version = 2;
  session.token_count = 100;
  session.resident_tokens = 64;
  session.message_count = 5;
  session.kv_bytes = 1234;
  session.created_unix_ms = 11;
  session.used_unix_ms = 12;
  session.parent_id = 13;
  session.fidelity = 1;
  session.flags = 0xffffffffu;
  session.label_size = 128;
  std::memset(session.label, 'l', sizeof(session.label));
  std::memset(session.waiting_for, 'w', sizeof(session.waiting_for));
  std::memset(session.model, 'm', sizeof(session.model));
  reply.sessions = {session, kairos_session_t{}};
  reply.sessions[1].struct_size = sizeof(session);
  reply.sessions[1].flags = KAIROS_SESSION_DROP_REASONING;
  reply.stats = {{"turns_total", 1.5}, {"", -2.0}};
  return reply;
}

TEST(ControlMessages, DrainTimeoutComesBackAndIsLimited) {
  for (const auto& [timeout_ms, ok] : {std::pair<std::optional<uint64_t>, bool>{std::nullopt, true},
                                       {0, true},
                                       {kDrainTimeoutMsMax, true},
                                       {kDrainTimeoutMsMax + 1, false}}) {
    ControlRequest want;
    want.drain_timeout_ms = timeout_ms;
    ControlRequest got;
    EXPECT_EQ(DecodeRequest(EncodeRequest(want), &got).ok(), ok);
    if (ok) {
      EXPECT_EQ(got.drain_timeout_ms, timeout_ms);
    }
  }
}

TEST(ControlMessages, ReplyComesBackWithEveryField) {
  const ControlReply want = FullReply();
  auto bytes = EncodeReply(want);
  ASSERT_TRUE(bytes.ok());
  ControlReply got;

  ASSERT_TRUE(DecodeReply(*bytes, &got).ok());

  EXPECT_EQ(got.code, want.code);
  EXPECT_EQ(got.detail, want.detail);
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(got.session, want.session);
  EXPECT_EQ(got.version, want.version);
  ASSERT_EQ(got.sessions.size(), 2u);
  EXPECT_EQ(std::memcmp(&got.sessions[0], &want.sessions[0], sizeof(kairos_session_t)), 0);
  EXPECT_EQ(std::memcmp(&got.sessions[1], &want.sessions[1], sizeof(kairos_session_t)), 0);
  EXPECT_EQ(got.stats, want.stats);
}

// The bytes of version 1, which every later program must still read.
TEST(ControlMessages, RequestOfVersionOneKeepsItsBytes) {
  ControlRequest request;
  request.session = SessionId{1};
  request.version = 2;
  request.after = SessionId{3};
  request.list_max = 4;

  const std::string bytes = EncodeRequest(request);

  std::string want;
  want += std::string("\x01", 1) + std::string("\x01\0\0\0", 4);
  want += std::string("\x01\0\0\0\0\0\0\0", 8) + std::string("\x02\0\0\0\0\0\0\0", 8);
  want += std::string("\x03\0\0\0\0\0\0\0", 8) + std::string("\x04\0\0\0", 4);
  want += std::string(8, '\0');
  EXPECT_EQ(bytes, want);
  ControlRequest got;
  ASSERT_TRUE(DecodeRequest(bytes, &got).ok());
  EXPECT_EQ(got.session, SessionId{1});
  EXPECT_EQ(got.version, 2u);
  EXPECT_EQ(got.after, SessionId{3});
  EXPECT_EQ(got.list_max, 4u);
}

TEST(ControlMessages, RefusesBodiesCutAnywhereOrContinued) {
  const std::string request = EncodeRequest(ControlRequest{});
  const std::string reply = *EncodeReply(FullReply());
  ControlRequest got_request;
  ControlReply got_reply;

  for (size_t size = 0; size < request.size(); ++size) {
    EXPECT_FALSE(DecodeRequest(request.substr(0, size), &got_request).ok()) << size;
  }
  for (size_t size = 0; size < reply.size(); ++size) {
    EXPECT_FALSE(DecodeReply(reply.substr(0, size), &got_reply).ok()) << size;
  }
  EXPECT_FALSE(DecodeRequest(request + "x", &got_request).ok());
  EXPECT_FALSE(DecodeReply(reply + "x", &got_reply).ok());
}

TEST(ControlMessages, RefusesSizesThatBytesCannotHold) {
  std::string request = EncodeRequest(ControlRequest{});
  const size_t extension_at = request.size() - 8;
  for (const uint64_t size : {uint64_t{1}, uint64_t{1} << 31, ~uint64_t{0}, uint64_t{1} << 63}) {
    std::memcpy(request.data() + extension_at, &size, 8);
    ControlRequest got;
    EXPECT_EQ(DecodeRequest(request, &got).code(), Code::kInvalidArgument) << size;
  }
  ControlReply empty;
  std::string reply = *EncodeReply(empty);
  // Byte order, struct version, code, detail, text size, session, version, then the rows.
  const size_t rows_at = 1 + 4 + 4 + 4 + 8 + 8 + 8;
  for (const uint32_t count : {1u, 4096u, 0xffffffffu}) {
    std::memcpy(reply.data() + rows_at, &count, 4);
    ControlReply got;
    EXPECT_EQ(DecodeReply(reply, &got).code(), Code::kInvalidArgument) << count;
  }
}

TEST(ControlMessages, TellsNewerStructFromMalformedOne) {
  std::string request = EncodeRequest(ControlRequest{});
  request[1] = 2;
  ControlRequest got;

  EXPECT_EQ(DecodeRequest(request, &got).code(), Code::kUnimplemented);
}

TEST(ControlMessages, SurvivesAnyChangedBytes) {
  const std::string whole = *EncodeReply(FullReply());
  const uint32_t seed = 7;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int accepted = 0;

  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = whole;
    for (uint32_t n = 1 + random() % 4; n > 0; --n) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    ControlReply got;
    if (!DecodeReply(bytes, &got).ok()) continue;
    ++accepted;
    EXPECT_LE(got.sessions.size(), kControlSessionsMax);
    for (const kairos_session_t& session : got.sessions) {
      EXPECT_LE(session.label_size, sizeof(session.label));
    }
  }

  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 20'000);
}

TEST(ControlMessages, RefusesEnvelopesThatDoNotFit) {
  const std::string body = "body";
  const std::string good = EncodeEnvelope(ControlEnvelope{}, body);
  ControlEnvelope got;
  ASSERT_TRUE(DecodeEnvelope(good, body, &got).ok());

  EXPECT_FALSE(DecodeEnvelope(good.substr(1), body, &got).ok());
  EXPECT_FALSE(DecodeEnvelope(good + "x", body, &got).ok());
  EXPECT_FALSE(DecodeEnvelope(good, "bodx", &got).ok());
  EXPECT_FALSE(DecodeEnvelope(good, "bod", &got).ok());
  for (size_t i = 0; i < 4; ++i) {
    std::string bad = good;
    bad[i] = 'x';
    EXPECT_EQ(DecodeEnvelope(bad, body, &got).code(), Code::kInvalidArgument);
  }
  std::string newer = good;
  newer[4] = 2;
  EXPECT_EQ(DecodeEnvelope(newer, body, &got).code(), Code::kUnimplemented);
}

TEST(ControlMessages, TrustsOnlyPeerAddressOfTheExactForm) {
  uint32_t uid = 99;
  EXPECT_TRUE(ParsePeerUid("localhost:1000:100:4242", &uid));
  EXPECT_EQ(uid, 1000u);
  for (const char* text :
       {"", "localhost", "localhost:", "localhost:1000", "localhost:1000:100", "localhost:1:2:3:4",
        "localhost:1:2:", "localhost::2:3", "localhost:-1:2:3", "localhost:+0:2:3",
        "localhost: 0:2:3", "localhost:0x0:2:3", "localhost:4294967296:2:3", "127.0.0.1:0:0:0",
        "xlocalhost:0:0:0", "localhost:0:0:0 ", "localhost:0;0:0"}) {
    EXPECT_FALSE(ParsePeerUid(text, &uid)) << text;
  }
}

}  // namespace
}  // namespace kairos
