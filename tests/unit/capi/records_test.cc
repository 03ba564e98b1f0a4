// SPDX-License-Identifier: Apache-2.0
#include "shm/records.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>

namespace kairos {
namespace {

kairos_string_t Str(const std::string& text) { return {text.data(), text.size()}; }

// A turn with every variable part in use.
struct FullTurn {
  FullTurn() {
    kairos_message_t message{};
    message.struct_size = sizeof(message);
    message.role = Str(role);
    message.content = Str(content);
    messages[0] = message;
    message.role = Str(tool);
    message.name = Str(name);
    message.tool_call_id = Str(call_id);
    message.tool_calls_json = Str(calls);
    messages[1] = message;
    generation.struct_size = sizeof(generation);
    generation.temperature = 0.5f;
    generation.top_k = 40;
    generation.seed = 99;
    generation.stops = stops;
    generation.stop_count = 2;
    generation.biases = biases;
    generation.bias_count = 2;
    options.struct_size = sizeof(options);
    options.flags = KAIROS_TURN_WHOLE_HISTORY;
    options.session_id = 17;
    options.if_version = 4;
    options.messages = messages;
    options.message_count = 2;
    options.tokens = tokens;
    options.token_count = 3;
    options.tools_json = Str(tools);
    options.idempotency_key = Str(key);
    options.model = Str(model);
    options.deadline_ms = 250;
    options.priority = -7;
    options.generation = &generation;
  }
  FullTurn(const FullTurn&) = delete;
  FullTurn& operator=(const FullTurn&) = delete;

  const std::string role = "user", tool = "tool", content = "What is the weather?",
                    name = "weather", call_id = "call_1", calls = "[]",
                    tools = R"([{"type":"function"}])", key = "once", stop0 = "\n\n", stop1 = "END",
                    model = "small";
  kairos_message_t messages[2] = {};
  int32_t tokens[3] = {1, -2, 3};
  kairos_string_t stops[2] = {Str(stop0), Str(stop1)};
  kairos_logit_bias_t biases[2] = {{5, 1.5f}, {6, -2.0f}};
  kairos_generation_t generation{};
  kairos_turn_options_t options{};
};

Payload EncodedTurn() {
  FullTurn turn;
  Payload payload;
  EXPECT_TRUE(EncodeTurn(turn.options, &payload).ok());
  return payload;
}

TEST(Records, TurnComesBackAsItWasGiven) {
  const Payload payload = EncodedTurn();

  const Result<TurnView> turn = DecodeTurn(payload);

  ASSERT_TRUE(turn.ok()) << turn.status().message();
  EXPECT_EQ(turn->fixed().flags, KAIROS_TURN_WHOLE_HISTORY);
  EXPECT_EQ(turn->fixed().session_id, 17u);
  EXPECT_EQ(turn->fixed().if_version, 4);
  EXPECT_EQ(turn->fixed().deadline_ms, 250u);
  EXPECT_EQ(turn->fixed().priority, -7);
  EXPECT_EQ(turn->fixed().temperature, 0.5f);
  EXPECT_EQ(turn->fixed().seed, 99u);
  EXPECT_TRUE(turn->has_tools());
  EXPECT_TRUE(turn->has_generation());
  EXPECT_EQ(turn->tools_json(), R"([{"type":"function"}])");
  EXPECT_EQ(turn->idempotency_key(), "once");
  EXPECT_EQ(turn->model(), "small");
  ASSERT_EQ(turn->message_count(), 2u);
  EXPECT_EQ(turn->message(0).role, "user");
  EXPECT_EQ(turn->message(0).content, "What is the weather?");
  EXPECT_EQ(turn->message(0).name, "");
  EXPECT_EQ(turn->message(1).name, "weather");
  EXPECT_EQ(turn->message(1).tool_call_id, "call_1");
  EXPECT_EQ(turn->message(1).tool_calls_json, "[]");
  ASSERT_EQ(turn->stop_count(), 2u);
  EXPECT_EQ(turn->stop(1), "END");
  ASSERT_EQ(turn->bias_count(), 2u);
  EXPECT_EQ(turn->bias(1).token, 6);
  EXPECT_EQ(turn->bias(1).bias, -2.0f);
  std::vector<int32_t> tokens;
  turn->CopyTokens(&tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{1, -2, 3}));
}

// The fixed part as an older library sends it, and nothing behind it.
template <typename Fixed>
Payload OlderRecord(Fixed fixed, uint32_t fixed_size) {
  fixed.fixed_size = fixed_size;
  Payload payload(fixed_size);
  std::memcpy(payload.data(), &fixed, fixed_size);
  return payload;
}

TEST(Records, RequestsOfOlderLibrariesLackWhatCameLater) {
  WireTurn turn{};
  turn.session_id = 17;
  turn.tool_choice = 7;
  turn.model = {1, 1};
  for (const uint32_t size : {136u, 160u}) {
    const Payload payload = OlderRecord(turn, size);
    const Result<TurnView> view = DecodeTurn(payload);
    ASSERT_TRUE(view.ok()) << view.status().message();
    EXPECT_EQ(view->fixed().session_id, 17u);
    EXPECT_EQ(view->fixed().tool_choice, size == 136 ? 0 : 7);
    EXPECT_EQ(view->model(), "");
  }
  WireSessionCreate create{};
  create.ttl_seconds = 60;
  const Payload payload = OlderRecord(create, 32);
  const Result<SessionCreateView> view = DecodeSessionCreate(payload);
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ(view->fixed.ttl_seconds, 60u);
  EXPECT_EQ(view->model, "");
}

TEST(Records, EmptyToolsDifferFromNoTools) {
  kairos_turn_options_t options{};
  Payload payload;
  ASSERT_TRUE(EncodeTurn(options, &payload).ok());
  EXPECT_FALSE(DecodeTurn(payload)->has_tools());
  EXPECT_FALSE(DecodeTurn(payload)->has_generation());

  options.tools_json = {"", 0};
  ASSERT_TRUE(EncodeTurn(options, &payload).ok());

  EXPECT_TRUE(DecodeTurn(payload)->has_tools());
}

TEST(Records, EveryTruncationOfATurnIsRefused) {
  const Payload payload = EncodedTurn();

  for (size_t size = 0; size < payload.size(); ++size) {
    EXPECT_FALSE(DecodeTurn(PayloadView(payload).first(size)).ok()) << size;
  }
}

struct Corruption {
  const char* name;
  std::function<void(WireTurn*)> change;
  const char* message;
};

TEST(Records, WrongSpansOfATurnAreNamed) {
  const Corruption corruptions[] = {
      {"offset past the end", [](auto* t) { t->tools_json.offset = 0xffffffff; },
       "tools_json: span leaves the record"},
      {"size past the end", [](auto* t) { t->tools_json.size = 1 << 19; },
       "tools_json: span leaves the record"},
      {"sum wraps", [](auto* t) { t->messages = {0xffffffe0, 0x30}; },
       "messages: span leaves the record"},
      {"span inside the fixed part", [](auto* t) { t->idempotency_key.offset = 0; },
       "idempotency_key: span leaves the record"},
      {"array cut in an element", [](auto* t) { t->messages.size -= 1; },
       "messages: span leaves the record"},
      {"tokens cut", [](auto* t) { t->tokens.size = 7; }, "tokens: span leaves the record"},
      {"too many messages", [](auto* t) { t->messages.size = 4097 * sizeof(WireMessage); },
       "messages: at most 4096"},
      {"too many stops", [](auto* t) { t->stops.size = 17 * sizeof(WireSpan); },
       "generation stops: at most 16"},
      {"too many biases", [](auto* t) { t->biases.size = 1025 * sizeof(WireBias); },
       "generation biases: at most 1024"},
      {"too many tokens", [](auto* t) { t->tokens.size = (kTokensMax + 1) * 4; },
       "tokens: at most 1048576"},
      {"tools too large", [](auto* t) { t->tools_json.size = kToolsBytesMax + 1; },
       "tools_json: at most 1 MiB"},
      {"key too long", [](auto* t) { t->idempotency_key.size = 129; },
       "idempotency_key: at most 128 bytes"},
      {"model too long", [](auto* t) { t->model.size = 64; }, "model: at most 63 bytes"},
      {"fixed size too small", [](auto* t) { t->fixed_size = 135; },
       "turn: fixed part is cut short"},
      {"fixed size too large", [](auto* t) { t->fixed_size = 1 << 20; },
       "turn: fixed part is cut short"},
      {"stops that are not spans", [](auto* t) { t->stops = {t->messages.offset + 1, 8}; },
       "generation stop: at most 256 bytes"},
  };
  for (const Corruption& corruption : corruptions) {
    Payload payload = EncodedTurn();
    WireTurn fixed;
    std::memcpy(&fixed, payload.data(), sizeof(fixed));
    corruption.change(&fixed);
    std::memcpy(payload.data(), &fixed, sizeof(fixed));

    const Result<TurnView> turn = DecodeTurn(payload);

    ASSERT_FALSE(turn.ok()) << corruption.name;
    EXPECT_EQ(turn.status().code(), Code::kInvalidArgument);
    EXPECT_STREQ(turn.status().message(), corruption.message) << corruption.name;
  }
}

TEST(Records, MessagesThatShareOneTextCannotExceedTheTotal) {
  // 4096 messages naming the same 64 KiB would otherwise be 256 MiB when read.
  const std::string text(64u << 10, 'x');
  Payload payload(sizeof(WireTurn) + 4096 * sizeof(WireMessage) + text.size());
  WireTurn turn{};
  turn.fixed_size = sizeof(turn);
  turn.messages = {sizeof(WireTurn), 4096 * sizeof(WireMessage)};
  std::memcpy(payload.data(), &turn, sizeof(turn));
  WireMessage message{};
  message.content = {turn.messages.offset + turn.messages.size, static_cast<uint32_t>(text.size())};
  for (size_t i = 0; i < 4096; ++i) {
    std::memcpy(payload.data() + turn.messages.offset + i * sizeof(message), &message,
                sizeof(message));
  }

  const Result<TurnView> view = DecodeTurn(payload);

  ASSERT_FALSE(view.ok());
  EXPECT_STREQ(view.status().message(), "messages: at most 16 MiB of content");
}

TEST(Records, EncodingRefusesWhatDecodingWould) {
  const std::string long_key(129, 'k'), long_content(kContentBytesMax + 1, 'c');
  FullTurn key, content, role;
  key.options.idempotency_key = Str(long_key);
  content.messages[0].content = Str(long_content);
  role.messages[0].role = Str(long_key);
  Payload payload;

  EXPECT_STREQ(EncodeTurn(key.options, &payload).message(), "idempotency_key: at most 128 bytes");
  EXPECT_STREQ(EncodeTurn(content.options, &payload).message(),
               "messages: at most 16 MiB of content");
  EXPECT_STREQ(EncodeTurn(role.options, &payload).message(), "message role: at most 32 bytes");
  content.messages[0].content.size = UINT64_MAX;
  content.messages[1].content.size = UINT64_MAX;
  EXPECT_STREQ(EncodeTurn(content.options, &payload).message(),
               "messages: at most 16 MiB of content");
}

TEST(Records, RandomBytesNeverReadOutsideThePayload) {
  // Under the address sanitizer a wrong check reads outside the vector.
  const uint32_t seed = 20240611;
  std::mt19937 random(seed);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    Payload payload = EncodedTurn();
    payload.shrink_to_fit();
    for (int i = 0; i < 3; ++i) {
      const size_t at = random() % payload.size();
      payload[at] = static_cast<std::byte>(random());
    }
    const Result<TurnView> turn = DecodeTurn(payload);
    if (!turn.ok()) continue;
    ++accepted;
    size_t bytes = turn->tools_json().size();
    for (uint32_t i = 0; i < turn->message_count(); ++i) {
      for (char c : turn->message(i).content) bytes += static_cast<unsigned char>(c);
    }
    std::vector<int32_t> tokens;
    turn->CopyTokens(&tokens);
    for (uint32_t i = 0; i < turn->stop_count(); ++i) bytes += turn->stop(i).size();
    ASSERT_LT(bytes, size_t{1} << 40) << "seed " << seed;
  }
  EXPECT_GT(accepted, 0) << "seed " << seed;
  EXPECT_LT(accepted, 20000) << "seed " << seed;
}

TEST(Records, ReplyComesBackAsItWasGiven) {
  const int32_t tokens[] = {4, 5};
  kairos_session_t sessions[2] = {};
  sessions[1].id = 8;
  sessions[1].label_size = 4000;  // longer than the label: cut when read
  ReplyFields fields;
  fields.session_id = 3;
  fields.version = 9;
  fields.text = "héllo";
  fields.tokens = tokens;
  fields.sessions = sessions;
  Payload payload;
  ASSERT_TRUE(EncodeReply(fields, &payload).ok());

  const Result<ReplyView> reply = DecodeReply(RecordType::kResult, payload);

  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(reply->fixed().session_id, 3u);
  EXPECT_EQ(reply->fixed().version, 9u);
  EXPECT_EQ(reply->text(), "héllo");
  ASSERT_EQ(reply->token_count(), 2u);
  int32_t copied[2];
  reply->CopyTokens(copied);
  EXPECT_EQ(copied[1], 5);
  ASSERT_EQ(reply->session_count(), 2u);
  EXPECT_EQ(reply->session(1).id, 8u);
  EXPECT_EQ(reply->session(1).label_size, sizeof(sessions[1].label));
  EXPECT_FALSE(reply->has_final());
}

TEST(Records, LongerStructsOfANewerSidecarAreRead) {
  kairos_final_t final{};
  final.version = 12;
  ReplyFields fields;
  fields.final = &final;
  Payload payload;
  ASSERT_TRUE(EncodeReply(fields, &payload).ok());
  // The final numbers as a newer sidecar would send them: 16 bytes longer.
  payload.resize(payload.size() + 16);
  WireReply fixed;
  std::memcpy(&fixed, payload.data(), sizeof(fixed));
  fixed.final.size += 16;
  std::memcpy(payload.data(), &fixed, sizeof(fixed));

  const Result<ReplyView> reply = DecodeReply(RecordType::kFinal, payload);

  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(reply->final().version, 12u);
}

TEST(Records, FinalNumbersBelongToFinalReplies) {
  kairos_final_t final{};
  ReplyFields fields;
  Payload without, with;
  ASSERT_TRUE(EncodeReply(fields, &without).ok());
  fields.final = &final;
  ASSERT_TRUE(EncodeReply(fields, &with).ok());

  EXPECT_FALSE(DecodeReply(RecordType::kFinal, without).ok());
  EXPECT_FALSE(DecodeReply(RecordType::kText, with).ok());
  EXPECT_TRUE(DecodeReply(RecordType::kFinal, with).ok());
}

TEST(Records, EveryTruncationOfAReplyIsRefused) {
  kairos_final_t final{};
  const int32_t tokens[] = {1, 2, 3};
  ReplyFields fields;
  fields.text = "text";
  fields.tokens = tokens;
  fields.final = &final;
  Payload payload;
  ASSERT_TRUE(EncodeReply(fields, &payload).ok());

  for (size_t size = 0; size < payload.size(); ++size) {
    EXPECT_FALSE(DecodeReply(RecordType::kFinal, PayloadView(payload).first(size)).ok()) << size;
  }
}

TEST(Records, ReplyOverTheLimitIsRefused) {
  const std::string text(kReplyBytesMax, 'x');
  ReplyFields fields;
  fields.text = text;
  Payload payload;

  EXPECT_EQ(EncodeReply(fields, &payload).code(), Code::kResourceExhausted);
}

TEST(Records, SessionsOfAnOlderSidecarHaveNoFlags) {
  kairos_session_t session{};
  session.id = 7;
  session.flags = KAIROS_SESSION_DROP_REASONING;
  ReplyFields fields;
  fields.sessions = {&session, 1};
  Payload payload;
  ASSERT_TRUE(EncodeReply(fields, &payload).ok());
  ASSERT_EQ(DecodeReply(RecordType::kResult, payload)->session(0).flags, session.flags);
  WireReply fixed;
  std::memcpy(&fixed, payload.data(), sizeof(fixed));
  for (const uint32_t bytes : {351u, 352u}) {
    fixed.session_bytes = fixed.sessions.size = bytes;
    std::memcpy(payload.data(), &fixed, sizeof(fixed));
    const Result<ReplyView> older = DecodeReply(RecordType::kResult, payload);
    ASSERT_EQ(older.ok(), bytes == 352);
    if (!older.ok()) continue;
    EXPECT_EQ(older->session(0).id, 7u);
    EXPECT_EQ(older->session(0).flags, 0u);
  }
}

TEST(Records, SmallRequestsComeBackAsTheyWereGiven) {
  Payload payload;
  kairos_session_options_t options{};
  options.fidelity = 1;
  options.ttl_seconds = 60;
  options.label = {"agent", 5};
  options.model = {"small", 5};
  ASSERT_TRUE(EncodeSessionCreate(options, &payload).ok());
  const Result<SessionCreateView> create = DecodeSessionCreate(payload);
  ASSERT_TRUE(create.ok());
  EXPECT_EQ(create->label, "agent");
  EXPECT_EQ(create->model, "small");
  EXPECT_EQ(create->fixed.ttl_seconds, 60u);
  payload.pop_back();
  EXPECT_FALSE(DecodeSessionCreate(payload).ok());

  ASSERT_TRUE(EncodeContextWrite(5, -1, "{\"a\":1}", &payload).ok());
  const Result<ContextWriteView> write = DecodeContextWrite(payload);
  ASSERT_TRUE(write.ok());
  EXPECT_EQ(write->json, "{\"a\":1}");
  payload.pop_back();
  EXPECT_FALSE(DecodeContextWrite(payload).ok());

  WireSessionRequest request{};
  request.session_id = 6;
  request.list_max = 1u << 30;
  EncodeSessionRequest(request, &payload);
  EXPECT_EQ(DecodeSessionRequest(payload)->session_id, 6u);
  EXPECT_EQ(DecodeSessionRequest(payload)->list_max, kListMax);
  payload.pop_back();
  EXPECT_FALSE(DecodeSessionRequest(payload).ok());

  EncodeWatch(1, &payload);
  EXPECT_EQ(DecodeWatch(payload)->flags, 1u);
  payload.pop_back();
  EXPECT_FALSE(DecodeWatch(payload).ok());

  EncodeTurnCancel(77, &payload);
  EXPECT_EQ(DecodeTurnCancel(payload)->target, 77u);
  payload.pop_back();
  EXPECT_FALSE(DecodeTurnCancel(payload).ok());
}

// What a library that was built before these fields sends.
void CutFixedPart(uint32_t bytes, Payload* payload) {
  payload->resize(bytes);
  std::memcpy(payload->data(), &bytes, sizeof(bytes));
}

TEST(Records, ReadsFixedPartsOfVersionOneAndLacksWhatCameLater) {
  WireSessionRequest request{};
  request.session_id = 6;
  request.known_version = 4;
  Payload payload;
  EncodeSessionRequest(request, &payload);
  EXPECT_EQ(DecodeSessionRequest(payload)->known_version, 4u);
  CutFixedPart(32, &payload);
  const Result<WireSessionRequest> read = DecodeSessionRequest(payload);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->session_id, 6u);
  EXPECT_EQ(read->known_version, 0u);
  CutFixedPart(31, &payload);
  EXPECT_FALSE(DecodeSessionRequest(payload).ok());

  kairos_turn_options_t turn{};
  turn.struct_size = sizeof(turn);
  turn.if_version = KAIROS_VERSION_ANY;
  turn.session_id = 6;
  turn.tool_choice = KAIROS_TOOL_CHOICE_REQUIRED;
  ASSERT_TRUE(EncodeTurn(turn, &payload).ok());
  CutFixedPart(136, &payload);
  const Result<TurnView> old = DecodeTurn(payload);
  ASSERT_TRUE(old.ok()) << old.status().message();
  EXPECT_EQ(old->fixed().session_id, 6u);
  EXPECT_EQ(old->fixed().tool_choice, 0);
  EXPECT_TRUE(old->constraint().empty());
  CutFixedPart(128, &payload);
  EXPECT_FALSE(DecodeTurn(payload).ok());
}

}  // namespace
}  // namespace kairos
