// SPDX-License-Identifier: Apache-2.0
// What the payloads of ring messages mean: requests (client to sidecar) and replies.
//
// 1. A payload is one fixed little-endian struct (Wire*), then variable parts that the struct names
//    by WireSpan, an offset from the payload's start and a size. Ping and pong are plain bytes.
// 2. Every fixed struct starts with fixed_size, its size as the writer knows it. Structs only grow
//    at the end: a reader takes what it knows and reads fields it does not find as zero.
// 3. Decode functions expect a *private* copy, never the ring itself. They check every span, count
//    and size, so that a view they return can be read without further checks. They do not judge
//    values (ranges, UTF-8): that is the sidecar's ingress. The views live as long as the copy.
// 4. A Status names the field and the limit in a static sentence and carries a KAIROS_DETAIL_*.
// 5. Spans of one payload may overlap; totals are limited so that this gains an attacker nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kairos/kairos.h"
#include "shm/ring.h"

namespace kairos {

static_assert(sizeof(void*) == 8, "KAIROS segments are 64-bit only");

// ---- Limits, of one request ---------------------------------------------------------------------
inline constexpr uint32_t kMessagesMax = 4096;
inline constexpr uint32_t kStopsMax = 16;
inline constexpr uint32_t kStopBytesMax = 256;
inline constexpr uint32_t kBiasesMax = 1024;
inline constexpr uint32_t kTokensMax = 1u << 20;
inline constexpr uint32_t kToolsBytesMax = 1u << 20;
inline constexpr uint32_t kConstraintBytesMax = 256u << 10;
// Sum over all messages of content and tool calls; also the limit of a task context.
inline constexpr uint32_t kContentBytesMax = 16u << 20;
inline constexpr uint32_t kKeyBytesMax = 128;
inline constexpr uint32_t kLabelBytesMax = 128;
inline constexpr uint32_t kModelNameBytesMax = 63;    // and a zero after it in kairos_session_t
inline constexpr uint32_t kRoleBytesMax = 32;
inline constexpr uint32_t kToolNameBytesMax = 128;    // message name
inline constexpr uint32_t kToolCallIdBytesMax = 128;
inline constexpr uint32_t kPingBytesMax = 65536;
inline constexpr uint32_t kListMax = 4096;            // sessions of one list reply
inline constexpr uint32_t kLogprobsMax = 20;
inline constexpr int32_t kPriorityMax = 100;          // and -kPriorityMax
inline constexpr float kTemperatureMax = 2.0f;        // from 0; of settings too
// Whole messages after reassembly: message_bytes_max of both ends of the c2s and the s2c ring.
inline constexpr uint32_t kRequestBytesMax = 32u << 20;
inline constexpr uint32_t kReplyBytesMax = 64u << 20;

// ---- Types --------------------------------------------------------------------------------------
// The ring frame's `type`.
enum class RecordType : uint16_t {
  kPing = 1,
  kSessionCreate = 2,
  kSessionOpen = 3,
  kSessionFork = 4,
  kSessionRewind = 5,
  kSessionRelease = 6,
  kSessionDelete = 7,
  kSessionList = 8,
  kSessionStat = 9,
  kSessionMessages = 10,
  kContextRead = 11,
  kContextWrite = 12,
  kTurnSubmit = 13,
  kTurnCancel = 14,
  kWatch = 15,

  kPong = 32,
  kAccepted = 33,
  kText = 34,
  kToolCall = 35,
  kLogprobs = 36,
  kFinal = 37,
  kError = 38,
  kResult = 39,
  kSession = 40,
};
// What each ring may carry.
inline constexpr FrameTypes kRequestTypes{1, 15};
inline constexpr FrameTypes kReplyTypes{32, 40};

// ---- Wire structs -------------------------------------------------------------------------------
struct WireSpan {
  uint32_t offset;  // from the payload's start
  uint32_t size;    // bytes; 0: nothing, the offset is then ignored
};
static_assert(sizeof(WireSpan) == 8);

// Open, fork, rewind, release, delete, list, stat, messages, context read.
struct WireSessionRequest {
  uint32_t fixed_size;
  uint32_t list_max;    // list: most sessions wanted
  uint64_t session_id;
  uint64_t version;     // fork, rewind, messages, context read; 0: head
  uint64_t after_id;    // list
  uint64_t known_version;  // messages, context read: the client has this version's text; 0: none
};
static_assert(sizeof(WireSessionRequest) == 40 &&
              offsetof(WireSessionRequest, known_version) == 32);

struct WireSessionCreate {
  uint32_t fixed_size;
  uint32_t flags;
  int32_t fidelity;
  int32_t priority;
  uint64_t ttl_seconds;
  WireSpan label;
  WireSpan model;       // name
};
static_assert(sizeof(WireSessionCreate) == 40 && offsetof(WireSessionCreate, model) == 32);

struct WireContextWrite {
  uint32_t fixed_size;
  uint32_t flags;
  uint64_t session_id;
  int64_t if_version;
  WireSpan json;
};
static_assert(sizeof(WireContextWrite) == 32 && offsetof(WireContextWrite, json) == 24);

struct WireTurnCancel {
  uint32_t fixed_size;
  uint32_t reserved;
  uint64_t target;      // request id of the turn
};
static_assert(sizeof(WireTurnCancel) == 16);

struct WireWatch {
  uint32_t fixed_size;
  uint32_t flags;       // KAIROS_WATCH_*; 0: no more
};
static_assert(sizeof(WireWatch) == 8);

struct WireMessage {
  uint32_t flags;
  uint32_t reserved;
  WireSpan role;
  WireSpan content;
  WireSpan name;
  WireSpan tool_call_id;
  WireSpan tool_calls_json;
};
static_assert(sizeof(WireMessage) == 48 && offsetof(WireMessage, tool_calls_json) == 40);

struct WireBias {
  int32_t token;
  float bias;
};
static_assert(sizeof(WireBias) == 8);

inline constexpr uint32_t kTurnHasTools = 1;       // WireTurn.given: tools_json, possibly empty
inline constexpr uint32_t kTurnHasGeneration = 2;  // generation fields are the client's

struct WireTurn {
  uint32_t fixed_size;
  uint32_t flags;             // KAIROS_TURN_*
  uint64_t session_id;
  int64_t if_version;
  uint64_t seed;
  uint32_t deadline_ms;
  int32_t priority;
  int32_t on_cancel;
  uint32_t given;             // kTurnHas*
  uint32_t generation_flags;  // KAIROS_AUTO_*, KAIROS_IGNORE_EOS, KAIROS_LOGITS_HASH
  uint32_t max_tokens;
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
  float repetition_penalty;
  float presence_penalty;
  int32_t penalty_window;
  uint32_t logprobs;
  WireSpan messages;          // WireMessage array
  WireSpan tokens;            // int32_t array
  WireSpan stops;             // WireSpan array, each naming text of this payload
  WireSpan biases;            // WireBias array
  WireSpan tools_json;
  WireSpan idempotency_key;
  int32_t tool_choice;        // KAIROS_TOOL_CHOICE_*
  int32_t constraint_kind;    // KAIROS_CONSTRAINT_*
  WireSpan tool_name;
  WireSpan constraint;
  WireSpan model;             // name
};
static_assert(sizeof(WireTurn) == 168 && offsetof(WireTurn, deadline_ms) == 32 &&
              offsetof(WireTurn, max_tokens) == 52 && offsetof(WireTurn, messages) == 88 &&
              offsetof(WireTurn, idempotency_key) == 128 && offsetof(WireTurn, constraint) == 152);

// Every reply but pong.
struct WireReply {
  uint32_t fixed_size;
  int32_t code;               // kError, kResult: positive KAIROS_*; kText: 0 or kReasoningText
  int32_t detail;             // kError, kResult, kText
  uint32_t session_bytes;     // size of one kairos_session_t in `sessions`
  uint64_t session_id;
  uint64_t version;
  WireSpan text;
  WireSpan tokens;            // int32_t array
  WireSpan sessions;          // kairos_session_t array
  WireSpan final;             // kairos_final_t
};
static_assert(sizeof(WireReply) == 64 && offsetof(WireReply, session_id) == 16 &&
              offsetof(WireReply, text) == 32 && offsetof(WireReply, final) == 56);

// `code` of a text record whose text is reasoning. It has no record type of its own: a library that
// does not know it takes the text for what it always was, text.
inline constexpr int32_t kReasoningText = 1;

// `detail` of a result without text: what was asked for is the version that the client has.
inline constexpr int32_t kNotChanged = 1;

// Carried inside replies, so frozen here too.
static_assert(sizeof(kairos_session_t) == 360 && offsetof(kairos_session_t, label) == 96);
static_assert(sizeof(kairos_final_t) == 408 && offsetof(kairos_final_t, rule) == 352);

using Payload = std::vector<std::byte>;
using PayloadView = std::span<const std::byte>;

// ---- Requests, client side ----------------------------------------------------------------------
// Each replaces *out. The options structs must be normalised: struct_size and the stride of arrays
// are those of this build (capi/options.h does it). kInvalidArgument names the field that is too
// large.

void EncodeSessionRequest(const WireSessionRequest& fields, Payload* out);  // sets fixed_size
[[nodiscard]] Status EncodeSessionCreate(const kairos_session_options_t& options, Payload* out);
[[nodiscard]] Status EncodeContextWrite(uint64_t session_id, int64_t if_version,
                                        std::string_view json, Payload* out);
[[nodiscard]] Status EncodeTurn(const kairos_turn_options_t& options, Payload* out);
void EncodeTurnCancel(uint64_t target, Payload* out);
void EncodeWatch(uint32_t flags, Payload* out);

// ---- Requests, sidecar side ---------------------------------------------------------------------

struct SessionCreateView {
  WireSessionCreate fixed;
  std::string_view label;
  std::string_view model;
};

struct ContextWriteView {
  WireContextWrite fixed;
  std::string_view json;
};

struct MessageView {
  uint32_t flags;
  std::string_view role, content, name, tool_call_id, tool_calls_json;
};

class TurnView {
 public:
  const WireTurn& fixed() const { return fixed_; }
  uint32_t message_count() const { return fixed_.messages.size / sizeof(WireMessage); }
  uint32_t token_count() const { return fixed_.tokens.size / sizeof(int32_t); }
  uint32_t stop_count() const { return fixed_.stops.size / sizeof(WireSpan); }
  uint32_t bias_count() const { return fixed_.biases.size / sizeof(WireBias); }
  // Indices below the counts. Values are read from the copy, which need not be aligned.
  MessageView message(uint32_t index) const;
  std::string_view stop(uint32_t index) const;
  WireBias bias(uint32_t index) const;
  void CopyTokens(std::vector<int32_t>* out) const;
  std::string_view tools_json() const { return Text(fixed_.tools_json); }
  bool has_tools() const { return (fixed_.given & kTurnHasTools) != 0; }
  bool has_generation() const { return (fixed_.given & kTurnHasGeneration) != 0; }
  std::string_view idempotency_key() const { return Text(fixed_.idempotency_key); }
  std::string_view tool_name() const { return Text(fixed_.tool_name); }
  std::string_view constraint() const { return Text(fixed_.constraint); }
  std::string_view model() const { return Text(fixed_.model); }

 private:
  friend Result<TurnView> DecodeTurn(PayloadView payload);
  std::string_view Text(WireSpan span) const;
  Status Check() const;
  Status CheckMessages() const;
  Status CheckStops() const;

  PayloadView payload_;
  WireTurn fixed_{};
};

[[nodiscard]] Result<WireSessionRequest> DecodeSessionRequest(PayloadView payload);
[[nodiscard]] Result<SessionCreateView> DecodeSessionCreate(PayloadView payload);
[[nodiscard]] Result<ContextWriteView> DecodeContextWrite(PayloadView payload);
[[nodiscard]] Result<TurnView> DecodeTurn(PayloadView payload);
[[nodiscard]] Result<WireTurnCancel> DecodeTurnCancel(PayloadView payload);
[[nodiscard]] Result<WireWatch> DecodeWatch(PayloadView payload);

// ---- Replies ------------------------------------------------------------------------------------

// What a reply says; views of the caller's memory.
struct ReplyFields {
  uint64_t session_id = 0;
  uint64_t version = 0;
  int32_t code = 0;
  int32_t detail = 0;
  std::string_view text;
  std::span<const int32_t> tokens;
  std::span<const kairos_session_t> sessions;
  const kairos_final_t* final = nullptr;
};

// Sidecar side; replaces *out. kResourceExhausted when it would exceed kReplyBytesMax.
[[nodiscard]] Status EncodeReply(const ReplyFields& fields, Payload* out);

class ReplyView {
 public:
  const WireReply& fixed() const { return fixed_; }
  std::string_view text() const;
  uint32_t token_count() const { return fixed_.tokens.size / sizeof(int32_t); }
  void CopyTokens(int32_t* out) const;  // token_count() numbers
  uint32_t session_count() const {
    return fixed_.session_bytes == 0 ? 0 : fixed_.sessions.size / fixed_.session_bytes;
  }
  kairos_session_t session(uint32_t index) const;
  bool has_final() const { return fixed_.final.size != 0; }
  kairos_final_t final() const;  // zero where has_final() is false

 private:
  friend Result<ReplyView> DecodeReply(RecordType type, PayloadView payload);
  PayloadView payload_;
  WireReply fixed_{};
};

// Client side. `type` is any reply but kPong; a final reply without its numbers is refused.
[[nodiscard]] Result<ReplyView> DecodeReply(RecordType type, PayloadView payload);

}  // namespace kairos
