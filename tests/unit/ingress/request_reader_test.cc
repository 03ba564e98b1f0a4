// SPDX-License-Identifier: Apache-2.0
#include "sidecar/ingress/request_reader.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace kairos {
namespace {

kairos_string_t Str(const char* text) { return {text, std::char_traits<char>::length(text)}; }

// A turn with everything in it, for cases to spoil.
struct Draft {
  Draft() {
    kairos_message_t message{};
    message.struct_size = sizeof(message);
    message.role = Str("user");
    message.content = Str("hello");
    messages.push_back(message);
    message.role = Str("tool");
    message.content = Str("{\"ok\":true}");
    message.name = Str("search");
    message.tool_call_id = Str("call-1");
    messages.push_back(message);
    stops = {Str("STOP")};
    biases = {{5, 1.5f}, {6, -std::numeric_limits<float>::infinity()}};
    generation.struct_size = sizeof(generation);
    generation.temperature = 0.5f;
    generation.top_p = 1.0f;
    generation.repetition_penalty = 1.0f;
    generation.max_tokens = 17;
    generation.seed = 99;
    generation.logprobs = 3;
    turn.struct_size = sizeof(turn);
    turn.if_version = KAIROS_VERSION_ANY;
    turn.session_id = 12;
    turn.deadline_ms = 250;
    generation.constraint_kind = KAIROS_CONSTRAINT_REGEX;
    generation.constraint = Str("[0-9]+");
    turn.tool_choice = KAIROS_TOOL_CHOICE_NAMED;
    turn.tool_name = Str("search");
    turn.tools_json = Str("[]");
    turn.idempotency_key = Str("key-1");
  }
  Status Read(Request* request) {
    generation.stops = stops.data();
    generation.stop_count = static_cast<uint32_t>(stops.size());
    generation.biases = biases.data();
    generation.bias_count = static_cast<uint32_t>(biases.size());
    turn.messages = messages.data();
    turn.message_count = static_cast<uint32_t>(messages.size());
    turn.tokens = tokens.data();
    turn.token_count = static_cast<uint32_t>(tokens.size());
    turn.generation = &generation;
    Payload payload;
    const Status encoded = EncodeTurn(turn, &payload);
    if (!encoded.ok()) return encoded;
    request->received_ns = 1'000;
    return ReadRequest(RecordType::kTurnSubmit, payload, RequestLimits{}, request);
  }
  std::vector<kairos_message_t> messages;
  std::vector<int32_t> tokens;
  std::vector<kairos_string_t> stops;
  std::vector<kairos_logit_bias_t> biases;
  kairos_generation_t generation{};
  kairos_turn_options_t turn{};
};

TEST(Request, CarriesEveryFieldOfATurn) {
  Draft draft;
  Request request;

  const Status status = draft.Read(&request);

  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(request.turn.has_value());
  const TurnRequest& turn = *request.turn;
  EXPECT_EQ(request.kind, RequestKind::kTurnSubmit);
  EXPECT_EQ(request.session.value, 12u);
  EXPECT_EQ(request.if_version, KAIROS_VERSION_ANY);
  ASSERT_EQ(turn.messages.size(), 2u);
  EXPECT_EQ(turn.messages[1].role, "tool");
  EXPECT_EQ(turn.messages[1].name, "search");
  EXPECT_EQ(turn.messages[1].tool_call_id, "call-1");
  EXPECT_TRUE(turn.has_tools);
  EXPECT_EQ(turn.tools_json, "[]");
  EXPECT_EQ(turn.idempotency_key, "key-1");
  EXPECT_EQ(turn.deadline_ns, 1'000u + 250'000'000u);
  EXPECT_EQ(turn.max_tokens, 17u);
  EXPECT_TRUE(turn.temperature_given);
  EXPECT_TRUE(turn.top_p_given);
  EXPECT_TRUE(turn.top_k_given);
  EXPECT_FLOAT_EQ(turn.sampling.temperature, 0.5f);
  EXPECT_EQ(turn.sampling.penalty_window, 64);
  EXPECT_EQ(turn.sampling.seed, 99u);
  EXPECT_EQ(turn.sampling.logprobs, 3u);
  EXPECT_TRUE(turn.sampling.want_logprobs);
  EXPECT_EQ(turn.sampling.stops, std::vector<std::string>{"STOP"});
  ASSERT_EQ(turn.sampling.biases.size(), 2u);
  EXPECT_TRUE(std::isinf(turn.sampling.biases[1].second));
  EXPECT_EQ(turn.tool_choice, KAIROS_TOOL_CHOICE_NAMED);
  EXPECT_EQ(turn.tool_name, "search");
  EXPECT_EQ(turn.constraint_kind, KAIROS_CONSTRAINT_REGEX);
  EXPECT_EQ(turn.constraint, "[0-9]+");
}

TEST(Request, LeavesOnlyTheTemperatureOpenWhenTheFilterMayChooseIt) {
  Draft draft;
  draft.generation.flags |= KAIROS_AUTO_TEMPERATURE;
  Request request;

  const Status status = draft.Read(&request);

  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_FALSE(request.turn->temperature_given);
  EXPECT_TRUE(request.turn->top_p_given && request.turn->top_k_given);
}

TEST(Request, LeavesEachFieldToTheSettingsThatItsFlagNames) {
  for (const uint32_t flag :
       {KAIROS_DEFAULT_TEMPERATURE, KAIROS_DEFAULT_TOP_P, KAIROS_DEFAULT_TOP_K}) {
    Draft draft;
    draft.generation.flags |= flag;
    Request request;

    const Status status = draft.Read(&request);

    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(request.turn->temperature_given, flag != KAIROS_DEFAULT_TEMPERATURE);
    EXPECT_EQ(request.turn->top_p_given, flag != KAIROS_DEFAULT_TOP_P);
    EXPECT_EQ(request.turn->top_k_given, flag != KAIROS_DEFAULT_TOP_K);
  }
}

struct BadTurn {
  const char* name;
  const char* field;  // must occur in the refusal
  void (*spoil)(Draft* draft);
};

const float kNan = std::numeric_limits<float>::quiet_NaN();

const BadTurn kBadTurns[] = {
    {"role", "role", [](Draft* d) { d->messages[0].role = Str("root"); }},
    {"content", "content", [](Draft* d) { d->messages[0].content = Str("\xc0\xaf"); }},
    {"name", "name", [](Draft* d) { d->messages[1].name = Str("\xff"); }},
    {"call_id", "tool_call_id", [](Draft* d) { d->messages[1].tool_call_id = Str("\x80"); }},
    {"calls", "tool_calls_json",
     [](Draft* d) { d->messages[1].tool_calls_json = Str("\xe2\x82"); }},
    {"message_flags", "message flags", [](Draft* d) { d->messages[0].flags = 1; }},
    {"nothing", "messages or tokens", [](Draft* d) { d->messages.clear(); }},
    {"both", "messages or tokens", [](Draft* d) { d->tokens = {1}; }},
    {"token", "tokens",
     [](Draft* d) {
       d->messages.clear();
       d->tokens = {1, -1};
     }},
    {"tokens_as_history", "WHOLE_HISTORY",
     [](Draft* d) {
       d->messages.clear();
       d->tokens = {1};
       d->turn.flags = KAIROS_TURN_WHOLE_HISTORY;
     }},
    {"tokens_with_tools", "tools_json: needs messages",
     [](Draft* d) {
       d->messages.clear();
       d->tokens = {1};
     }},
    {"flags", "turn flags: a bit that is not known; this sidecar may be older than the client",
     [](Draft* d) { d->turn.flags = 1u << 20; }},
    {"move_without_model", "needs model",
     [](Draft* d) { d->turn.flags = KAIROS_TURN_MOVE_MODEL; }},
    {"model_utf8", "model: must be UTF-8", [](Draft* d) { d->turn.model = Str("\xff"); }},
    {"if_version", "if_version", [](Draft* d) { d->turn.if_version = -2; }},
    {"priority", "priority", [](Draft* d) { d->turn.priority = 101; }},
    {"on_cancel", "on_cancel", [](Draft* d) { d->turn.on_cancel = 2; }},
    {"tools", "tools_json", [](Draft* d) { d->turn.tools_json = Str("\xed\xa0\x80"); }},
    {"key", "idempotency_key", [](Draft* d) { d->turn.idempotency_key = Str("\xf5"); }},
    {"generation_flags",
     "generation flags: a bit that is not known; this sidecar may be older than the client",
     [](Draft* d) { d->generation.flags = 1u << 31; }},
    {"max_tokens", "max_tokens", [](Draft* d) { d->generation.max_tokens = 2'000'000; }},
    {"temperature_nan", "temperature", [](Draft* d) { d->generation.temperature = kNan; }},
    {"temperature_negative", "temperature", [](Draft* d) { d->generation.temperature = -0.1f; }},
    {"temperature_hot", "temperature: 0 to 2", [](Draft* d) { d->generation.temperature = 2.1f; }},
    {"top_k", "top_k", [](Draft* d) { d->generation.top_k = -1; }},
    {"top_p_zero", "top_p", [](Draft* d) { d->generation.top_p = 0.0f; }},
    {"top_p_above", "top_p", [](Draft* d) { d->generation.top_p = 1.01f; }},
    {"min_p", "min_p", [](Draft* d) { d->generation.min_p = INFINITY; }},
    {"repetition", "repetition_penalty", [](Draft* d) { d->generation.repetition_penalty = 0; }},
    {"presence", "presence_penalty", [](Draft* d) { d->generation.presence_penalty = kNan; }},
    {"window", "penalty_window", [](Draft* d) { d->generation.penalty_window = -2; }},
    {"logprobs", "logprobs", [](Draft* d) { d->generation.logprobs = 21; }},
    {"empty_stop", "stop",
     [](Draft* d) {
       d->stops[0] = {nullptr, 0};
     }},
    {"stop_text", "stop", [](Draft* d) { d->stops[0] = Str("\xfe"); }},
    {"many_stops", "stops", [](Draft* d) { d->stops.assign(17, Str("x")); }},
    {"bias_token", "bias token", [](Draft* d) { d->biases[0].token = -1; }},
    {"bias_nan", "bias", [](Draft* d) { d->biases[0].bias = kNan; }},
    {"bias_infinite", "bias", [](Draft* d) { d->biases[0].bias = INFINITY; }},
    {"tool_choice", "tool_choice", [](Draft* d) { d->turn.tool_choice = 5; }},
    {"no_tool_name", "tool_name", [](Draft* d) { d->turn.tool_name = {nullptr, 0}; }},
    {"tool_name_alone", "tool_name",
     [](Draft* d) { d->turn.tool_choice = KAIROS_TOOL_CHOICE_REQUIRED; }},
    {"tool_name_text", "tool_name", [](Draft* d) { d->turn.tool_name = Str("\xff"); }},
    {"constraint_kind", "constraint_kind", [](Draft* d) { d->generation.constraint_kind = 4; }},
    {"constraint_alone", "constraint",
     [](Draft* d) { d->generation.constraint_kind = KAIROS_CONSTRAINT_NONE; }},
    {"constraint_missing", "constraint",
     [](Draft* d) { d->generation.constraint = {nullptr, 0}; }},
    {"constraint_text", "constraint", [](Draft* d) { d->generation.constraint = Str("\xff"); }},
    {"constraint_nul", "constraint", [](Draft* d) { d->generation.constraint = {"a\0b", 3}; }},
    {"constraint_size", "constraint",
     [](Draft* d) {
       static const std::string text(kConstraintBytesMax + 1, 'x');
       d->generation.constraint = {text.data(), text.size()};
     }},
    {"constraint_without_end", "KAIROS_IGNORE_EOS",
     [](Draft* d) { d->generation.flags = KAIROS_IGNORE_EOS; }},
};

class BadTurnField : public testing::TestWithParam<BadTurn> {};

TEST_P(BadTurnField, IsRefusedByName) {
  Draft draft;
  Request request;
  GetParam().spoil(&draft);

  const Status status = draft.Read(&request);

  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find(GetParam().field), std::string::npos)
      << status.message();
  EXPECT_NE(status.detail(), KAIROS_DETAIL_PROTOCOL) << "the attachment must live on";
}

INSTANTIATE_TEST_SUITE_P(Fields, BadTurnField, testing::ValuesIn(kBadTurns),
                         [](const auto& test) { return test.param.name; });

TEST(Request, RejectsSpanPastTheRecordAsProtocolFault) {
  Draft draft;
  Payload payload;
  draft.turn.messages = draft.messages.data();
  draft.turn.message_count = 1;
  ASSERT_TRUE(EncodeTurn(draft.turn, &payload).ok());
  WireTurn fixed;
  std::memcpy(&fixed, payload.data(), sizeof(fixed));
  fixed.messages.offset = static_cast<uint32_t>(payload.size());
  std::memcpy(payload.data(), &fixed, sizeof(fixed));
  Request request;

  const Status status = ReadRequest(RecordType::kTurnSubmit, payload, RequestLimits{}, &request);

  EXPECT_EQ(status.detail(), KAIROS_DETAIL_PROTOCOL);
}

TEST(Request, ChecksSessionRequests) {
  WireSessionRequest fields{};
  Payload payload;
  Request request;

  EncodeSessionRequest(fields, &payload);
  EXPECT_FALSE(ReadRequest(RecordType::kSessionOpen, payload, {}, &request).ok()) << "session 0";
  EXPECT_FALSE(ReadRequest(RecordType::kSessionList, payload, {}, &request).ok()) << "list of 0";
  fields.session_id = 8;
  fields.version = 3;
  EncodeSessionRequest(fields, &payload);
  ASSERT_TRUE(ReadRequest(RecordType::kSessionFork, payload, {}, &request).ok());

  EXPECT_EQ(request.kind, RequestKind::kSessionFork);
  EXPECT_EQ(request.session.value, 8u);
  EXPECT_EQ(request.version, 3u);
}

TEST(Request, ChecksSessionOptions) {
  kairos_session_options_t options{};
  options.struct_size = sizeof(options);
  options.flags = KAIROS_SESSION_DROP_REASONING;
  options.fidelity = KAIROS_FIDELITY_EXACT;
  options.priority = -100;
  options.ttl_seconds = 60;
  options.label = Str("nightly build");
  Payload payload;
  Request request;
  ASSERT_TRUE(EncodeSessionCreate(options, &payload).ok());
  ASSERT_TRUE(ReadRequest(RecordType::kSessionCreate, payload, {}, &request).ok());
  EXPECT_EQ(request.label, "nightly build");
  EXPECT_EQ(request.fidelity, KAIROS_FIDELITY_EXACT);
  EXPECT_EQ(request.ttl_seconds, 60u);
  EXPECT_EQ(request.session_flags, KAIROS_SESSION_DROP_REASONING);

  options.flags = 2;
  ASSERT_TRUE(EncodeSessionCreate(options, &payload).ok());
  EXPECT_FALSE(ReadRequest(RecordType::kSessionCreate, payload, {}, &request).ok());
  options.flags = 0;
  options.fidelity = 2;
  ASSERT_TRUE(EncodeSessionCreate(options, &payload).ok());
  EXPECT_FALSE(ReadRequest(RecordType::kSessionCreate, payload, {}, &request).ok());
  options.fidelity = 0;
  options.label = Str("\xc3");
  ASSERT_TRUE(EncodeSessionCreate(options, &payload).ok());
  EXPECT_EQ(ReadRequest(RecordType::kSessionCreate, payload, {}, &request).detail(),
            KAIROS_DETAIL_BAD_UTF8);
}

TEST(Request, RefusesAWatchOfUnknownThingsWithoutCallingItAViolation) {
  Payload payload;
  Request request;
  EncodeWatch(KAIROS_WATCH_SESSIONS, &payload);
  ASSERT_TRUE(ReadRequest(RecordType::kWatch, payload, {}, &request).ok());
  EXPECT_EQ(request.kind, RequestKind::kWatch);
  EXPECT_EQ(request.watch_flags, KAIROS_WATCH_SESSIONS);

  EncodeWatch(KAIROS_WATCH_SESSIONS | 2, &payload);
  const Status refused = ReadRequest(RecordType::kWatch, payload, {}, &request);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_EQ(refused.detail(), 0);
}

TEST(Request, KnowsUtf8) {
  for (const char* good : {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                           "\xf4\x8f\xbf\xbf", "12345678\xc3\xa9 90", "\xed\x9f\xbf"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3",
                          "1234567\xe2\x82", "\xff", "12345678\xfe"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  }
}

}  // namespace
}  // namespace kairos
