// SPDX-License-Identifier: Apache-2.0
#include "sidecar/ingress/request_reader.h"

#include <cmath>
#include <cstring>
#include <utility>

namespace kairos {
namespace {

// Flags are only ever added, so that one unknown here is most often a newer library's.
#define KAIROS_OLDER_SIDECAR "; this sidecar may be older than the client"

Status Bad(const char* message, int32_t detail = 0) {
  return Status(Code::kInvalidArgument, message, detail);
}
Status BadText(const char* message) { return Bad(message, KAIROS_DETAIL_BAD_UTF8); }

bool InRange(float value, float low, float high) {
  return std::isfinite(value) && value >= low && value <= high;
}

// Length of the multi-byte character at `at`, or 0 where there is none.
size_t CharacterBytes(const unsigned char* at, size_t left) {
  const unsigned char lead = at[0];
  size_t size;
  unsigned char low = 0x80, high = 0xbf;  // allowed range of the second byte
  if (lead >= 0xc2 && lead <= 0xdf) {
    size = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    size = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    size = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return 0;
  }
  if (left < size || at[1] < low || at[1] > high) return 0;
  for (size_t i = 2; i < size; ++i) {
    if ((at[i] & 0xc0) != 0x80) return 0;
  }
  return size;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  const auto* at = reinterpret_cast<const unsigned char*>(text.data());
  size_t left = text.size();
  while (left > 0) {
    uint64_t word = 0;
    if (left >= sizeof(word)) {
      std::memcpy(&word, at, sizeof(word));
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof(word);
        left -= sizeof(word);
        continue;
      }
    }
    const size_t size = at[0] < 0x80 ? 1 : CharacterBytes(at, left);
    if (size == 0) return false;
    at += size;
    left -= size;
  }
  return true;
}

namespace {

Status ReadCreate(PayloadView payload, const RequestLimits& limits, Request* request) {
  KAIROS_ASSIGN_OR_RETURN(const SessionCreateView view, DecodeSessionCreate(payload));
  if ((view.fixed.flags & ~KAIROS_SESSION_DROP_REASONING) != 0) {
    return Bad("session flags: a bit that is not known" KAIROS_OLDER_SIDECAR);
  }
  if (view.fixed.fidelity != KAIROS_FIDELITY_DEFAULT &&
      view.fixed.fidelity != KAIROS_FIDELITY_EXACT) {
    return Bad("fidelity: KAIROS_FIDELITY_DEFAULT or KAIROS_FIDELITY_EXACT");
  }
  if (view.fixed.priority < -kPriorityMax || view.fixed.priority > kPriorityMax) {
    return Bad("priority: -100 to 100");
  }
  if (view.fixed.ttl_seconds > limits.ttl_seconds_max) return Bad("ttl_seconds: at most 100 years");
  if (!IsUtf8(view.label)) return BadText("label: must be UTF-8");
  if (!IsUtf8(view.model)) return BadText("model: must be UTF-8");
  request->session_flags = view.fixed.flags;
  request->fidelity = view.fixed.fidelity;
  request->priority = view.fixed.priority;
  request->ttl_seconds = view.fixed.ttl_seconds;
  request->label = view.label;
  request->model = view.model;
  return Status();
}

Status ReadSession(PayloadView payload, Request* request) {
  KAIROS_ASSIGN_OR_RETURN(const WireSessionRequest fixed, DecodeSessionRequest(payload));
  if (request->kind == RequestKind::kSessionList) {
    if (fixed.list_max == 0) return Bad("capacity of a session list: at least 1");
  } else if (fixed.session_id == 0) {
    return Bad("session_id: must not be 0");
  }
  request->session = {fixed.session_id};
  request->version = fixed.version;
  request->after = {fixed.after_id};
  request->list_max = fixed.list_max;
  request->known_version = fixed.known_version;
  return Status();
}

Status ReadContextWrite(PayloadView payload, Request* request) {
  KAIROS_ASSIGN_OR_RETURN(const ContextWriteView view, DecodeContextWrite(payload));
  if (view.fixed.flags != 0) return Bad("context write flags: must be 0");
  if (view.fixed.session_id == 0) return Bad("session_id: must not be 0");
  if (view.fixed.if_version < KAIROS_VERSION_ANY) {
    return Bad("if_version: a version, or -1 for any");
  }
  if (view.json.empty()) return Bad("context json: must not be empty");
  if (!IsUtf8(view.json)) return BadText("context json: must be UTF-8");
  request->session = {view.fixed.session_id};
  request->if_version = view.fixed.if_version;
  request->json = view.json;
  return Status();
}

Status ReadCancel(PayloadView payload, Request* request) {
  KAIROS_ASSIGN_OR_RETURN(const WireTurnCancel fixed, DecodeTurnCancel(payload));
  request->target = {fixed.target};
  return Status();
}

Status ReadWatch(PayloadView payload, Request* request) {
  KAIROS_ASSIGN_OR_RETURN(const WireWatch fixed, DecodeWatch(payload));
  if ((fixed.flags & ~KAIROS_WATCH_SESSIONS) != 0) {
    return Bad("watch flags: a bit that is not known" KAIROS_OLDER_SIDECAR);
  }
  request->watch_flags = fixed.flags;
  return Status();
}

bool IsRole(std::string_view role) {
  return role == "system" || role == "user" || role == "assistant" || role == "tool";
}

Status ReadMessages(const TurnView& view, TurnRequest* turn) {
  turn->messages.reserve(view.message_count());
  for (uint32_t i = 0; i < view.message_count(); ++i) {
    const MessageView message = view.message(i);
    if (message.flags != 0) return Bad("message flags: must be 0");
    if (!IsRole(message.role)) return Bad("message role: system, user, assistant or tool");
    if (!IsUtf8(message.content)) return BadText("message content: must be UTF-8");
    if (!IsUtf8(message.name)) return BadText("message name: must be UTF-8");
    if (!IsUtf8(message.tool_call_id)) return BadText("message tool_call_id: must be UTF-8");
    if (!IsUtf8(message.tool_calls_json)) return BadText("message tool_calls_json: must be UTF-8");
    ChatMessage& to = turn->messages.emplace_back();
    to.role = message.role;
    to.content = message.content;
    to.name = message.name;
    to.tool_call_id = message.tool_call_id;
    to.tool_calls_json = message.tool_calls_json;
  }
  return Status();
}

Status CheckSampling(const WireTurn& fixed) {
  static_assert(kTemperatureMax == 2.0f, "the words below name it");
  if (!InRange(fixed.temperature, 0.0f, kTemperatureMax)) return Bad("temperature: 0 to 2");
  if (fixed.top_k < 0) return Bad("top_k: at least 0");
  if (!InRange(fixed.top_p, 0.0f, 1.0f) || fixed.top_p == 0.0f) {
    return Bad("top_p: above 0, at most 1");
  }
  if (!InRange(fixed.min_p, 0.0f, 1.0f)) return Bad("min_p: 0 to 1");
  if (!InRange(fixed.repetition_penalty, 0.0f, 100.0f) || fixed.repetition_penalty == 0.0f) {
    return Bad("repetition_penalty: above 0, at most 100");
  }
  if (!InRange(fixed.presence_penalty, -100.0f, 100.0f)) {
    return Bad("presence_penalty: -100 to 100");
  }
  if (fixed.penalty_window < -1) return Bad("penalty_window: -1 or more");
  if (fixed.logprobs > kLogprobsMax) return Bad("logprobs: at most 20");
  return Status();
}

Status ReadStopsAndBiases(const TurnView& view, SamplingParams* sampling) {
  for (uint32_t i = 0; i < view.stop_count(); ++i) {
    if (view.stop(i).empty()) return Bad("generation stop: must not be empty");
    if (!IsUtf8(view.stop(i))) return BadText("generation stop: must be UTF-8");
    sampling->stops.emplace_back(view.stop(i));
  }
  for (uint32_t i = 0; i < view.bias_count(); ++i) {
    const WireBias bias = view.bias(i);
    if (bias.token < 0) return Bad("generation bias token: at least 0");
    const bool ban = std::isinf(bias.bias) && bias.bias < 0;
    if (!ban && !InRange(bias.bias, -1e6f, 1e6f)) {
      return Bad("generation bias: -1e6 to 1e6, or minus infinity");
    }
    sampling->biases.emplace_back(bias.token, bias.bias);
  }
  return Status();
}

// Without a NUL, which ends the text for the library that reads it.
Status CheckConstraintText(std::string_view text) {
  if (!IsUtf8(text)) return BadText("generation constraint: must be UTF-8");
  if (text.find('\0') != std::string_view::npos) return Bad("generation constraint: holds a NUL");
  return Status();
}

Status ReadConstraint(const TurnView& view, TurnRequest* turn) {
  const int32_t kind = view.fixed().constraint_kind;
  if (kind < KAIROS_CONSTRAINT_NONE || kind > KAIROS_CONSTRAINT_LARK) {
    return Bad("generation constraint_kind: one of KAIROS_CONSTRAINT_*");
  }
  if ((kind == KAIROS_CONSTRAINT_NONE) != view.constraint().empty()) {
    return Bad("generation constraint: needs both its kind and its text");
  }
  KAIROS_RETURN_IF_ERROR(CheckConstraintText(view.constraint()));
  const bool ignore_eos = (view.fixed().generation_flags & KAIROS_IGNORE_EOS) != 0;
  const bool must_call = turn->tool_choice == KAIROS_TOOL_CHOICE_REQUIRED ||
                         turn->tool_choice == KAIROS_TOOL_CHOICE_NAMED;
  if (ignore_eos && (kind != KAIROS_CONSTRAINT_NONE || must_call)) {
    return Bad("KAIROS_IGNORE_EOS: cannot be given with what says where a reply ends");
  }
  turn->constraint_kind = kind;
  turn->constraint = view.constraint();
  return Status();
}

Status ReadToolChoice(const TurnView& view, TurnRequest* turn) {
  const int32_t choice = view.fixed().tool_choice;
  if (choice < KAIROS_TOOL_CHOICE_AUTO || choice > KAIROS_TOOL_CHOICE_FREE) {
    return Bad("tool_choice: one of KAIROS_TOOL_CHOICE_*");
  }
  if ((choice == KAIROS_TOOL_CHOICE_NAMED) == view.tool_name().empty()) {
    return Bad("tool_name: to be given with KAIROS_TOOL_CHOICE_NAMED alone");
  }
  if (!IsUtf8(view.tool_name())) return BadText("tool_name: must be UTF-8");
  turn->tool_choice = choice;
  turn->tool_name = view.tool_name();
  return Status();
}

constexpr uint32_t kGenerationFlags =
    KAIROS_AUTO_TEMPERATURE | KAIROS_AUTO_MAX_TOKENS | KAIROS_AUTO_CONTEXT | KAIROS_IGNORE_EOS |
    KAIROS_LOGITS_HASH | KAIROS_DEFAULT_TEMPERATURE | KAIROS_DEFAULT_TOP_P | KAIROS_DEFAULT_TOP_K;

Status ReadGeneration(const TurnView& view, const RequestLimits& limits, TurnRequest* turn) {
  const WireTurn& fixed = view.fixed();
  if (!view.has_generation()) return Status();
  if ((fixed.generation_flags & ~kGenerationFlags) != 0) {
    return Bad("generation flags: a bit that is not known" KAIROS_OLDER_SIDECAR);
  }
  if (fixed.max_tokens > limits.max_tokens_max) return Bad("max_tokens: at most 1048576");
  KAIROS_RETURN_IF_ERROR(CheckSampling(fixed));
  turn->generation_flags = fixed.generation_flags;
  turn->max_tokens = fixed.max_tokens;
  const auto is_clear = [&](uint32_t flags) { return (fixed.generation_flags & flags) == 0; };
  turn->temperature_given = is_clear(KAIROS_AUTO_TEMPERATURE | KAIROS_DEFAULT_TEMPERATURE);
  turn->top_p_given = is_clear(KAIROS_DEFAULT_TOP_P);
  turn->top_k_given = is_clear(KAIROS_DEFAULT_TOP_K);
  SamplingParams& sampling = turn->sampling;
  sampling.temperature = fixed.temperature;
  sampling.top_k = fixed.top_k;
  sampling.top_p = fixed.top_p;
  sampling.min_p = fixed.min_p;
  sampling.repetition_penalty = fixed.repetition_penalty;
  sampling.presence_penalty = fixed.presence_penalty;
  sampling.penalty_window = fixed.penalty_window == 0 ? 64 : fixed.penalty_window;
  sampling.seed = fixed.seed;
  sampling.logprobs = fixed.logprobs;
  sampling.want_logprobs = fixed.logprobs != 0;
  sampling.ignore_eos = (fixed.generation_flags & KAIROS_IGNORE_EOS) != 0;
  sampling.logits_hash = (fixed.generation_flags & KAIROS_LOGITS_HASH) != 0;
  KAIROS_RETURN_IF_ERROR(ReadConstraint(view, turn));
  return ReadStopsAndBiases(view, &sampling);
}

constexpr uint32_t kTurnFlags =
    KAIROS_TURN_WHOLE_HISTORY | KAIROS_TURN_NO_GENERATE | KAIROS_TURN_NO_REUSE |
    KAIROS_TURN_ONE_CALL | KAIROS_TURN_MOVE_MODEL;

Status CheckTurn(const TurnView& view) {
  const WireTurn& fixed = view.fixed();
  if ((fixed.flags & ~kTurnFlags) != 0) {
    return Bad("turn flags: a bit that is not known" KAIROS_OLDER_SIDECAR);
  }
  if ((fixed.given & ~(kTurnHasTools | kTurnHasGeneration)) != 0) {
    return Bad("turn: a part that is not known" KAIROS_OLDER_SIDECAR, KAIROS_DETAIL_PROTOCOL);
  }
  if (fixed.if_version < KAIROS_VERSION_ANY) return Bad("if_version: a version, or -1 for any");
  if (fixed.priority < -kPriorityMax || fixed.priority > kPriorityMax) {
    return Bad("priority: -100 to 100");
  }
  if (fixed.on_cancel != KAIROS_ON_CANCEL_COMMIT && fixed.on_cancel != KAIROS_ON_CANCEL_DISCARD) {
    return Bad("on_cancel: KAIROS_ON_CANCEL_COMMIT or KAIROS_ON_CANCEL_DISCARD");
  }
  if ((view.message_count() == 0) == (view.token_count() == 0)) {
    return Bad("turn: either messages or tokens must be given");
  }
  if (view.token_count() != 0 && (fixed.flags & KAIROS_TURN_WHOLE_HISTORY) != 0) {
    return Bad("KAIROS_TURN_WHOLE_HISTORY: needs messages, not tokens");
  }
  if (view.token_count() != 0 && view.has_tools()) {
    return Bad("tools_json: needs messages, not tokens");
  }
  if (!IsUtf8(view.tools_json())) return BadText("tools_json: must be UTF-8");
  if (!IsUtf8(view.idempotency_key())) return BadText("idempotency_key: must be UTF-8");
  if (!IsUtf8(view.model())) return BadText("model: must be UTF-8");
  if ((fixed.flags & KAIROS_TURN_MOVE_MODEL) != 0 && view.model().empty()) {
    return Bad("KAIROS_TURN_MOVE_MODEL: needs model");
  }
  return Status();
}

Status ReadTurn(PayloadView payload, const RequestLimits& limits, Request* request) {
  KAIROS_ASSIGN_OR_RETURN(const TurnView view, DecodeTurn(payload));
  KAIROS_RETURN_IF_ERROR(CheckTurn(view));
  const WireTurn& fixed = view.fixed();
  TurnRequest& turn = request->turn.emplace();
  turn.flags = fixed.flags;
  turn.priority = fixed.priority;
  turn.on_cancel = fixed.on_cancel;
  turn.has_tools = view.has_tools();
  if (turn.has_tools) turn.tools_json = view.tools_json();
  turn.idempotency_key = view.idempotency_key();
  turn.model = view.model();
  if (fixed.deadline_ms != 0) {
    turn.deadline_ns = request->received_ns + uint64_t{fixed.deadline_ms} * 1'000'000u;
  }
  view.CopyTokens(&turn.tokens);
  for (const TokenId token : turn.tokens) {
    if (token < 0) return Bad("tokens: at least 0");
  }
  KAIROS_RETURN_IF_ERROR(ReadMessages(view, &turn));
  KAIROS_RETURN_IF_ERROR(ReadToolChoice(view, &turn));
  KAIROS_RETURN_IF_ERROR(ReadGeneration(view, limits, &turn));
  request->session = {fixed.session_id};
  request->if_version = fixed.if_version;
  return Status();
}

RequestKind KindOf(RecordType type) {
  switch (type) {
    case RecordType::kSessionCreate: return RequestKind::kSessionCreate;
    case RecordType::kSessionOpen: return RequestKind::kSessionOpen;
    case RecordType::kSessionFork: return RequestKind::kSessionFork;
    case RecordType::kSessionRewind: return RequestKind::kSessionRewind;
    case RecordType::kSessionRelease: return RequestKind::kSessionRelease;
    case RecordType::kSessionDelete: return RequestKind::kSessionDelete;
    case RecordType::kSessionList: return RequestKind::kSessionList;
    case RecordType::kSessionStat: return RequestKind::kSessionStat;
    case RecordType::kSessionMessages: return RequestKind::kSessionMessages;
    case RecordType::kContextRead: return RequestKind::kContextRead;
    case RecordType::kContextWrite: return RequestKind::kContextWrite;
    case RecordType::kTurnSubmit: return RequestKind::kTurnSubmit;
    case RecordType::kTurnCancel: return RequestKind::kTurnCancel;
    case RecordType::kWatch: return RequestKind::kWatch;
    default: return RequestKind::kAttach;  // no record asks for it
  }
}

}  // namespace

Status ReadRequest(RecordType type, PayloadView payload, const RequestLimits& limits,
                   Request* request) {
  request->kind = KindOf(type);
  switch (request->kind) {
    case RequestKind::kAttach:
    case RequestKind::kDetach:
      return Bad("record: not a request", KAIROS_DETAIL_PROTOCOL);
    case RequestKind::kSessionCreate: return ReadCreate(payload, limits, request);
    case RequestKind::kContextWrite: return ReadContextWrite(payload, request);
    case RequestKind::kTurnSubmit: return ReadTurn(payload, limits, request);
    case RequestKind::kTurnCancel: return ReadCancel(payload, request);
    case RequestKind::kWatch: return ReadWatch(payload, request);
    default: return ReadSession(payload, request);
  }
}

}  // namespace kairos
