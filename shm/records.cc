// SPDX-License-Identifier: Apache-2.0
#include "shm/records.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kairos {

static_assert(std::endian::native == std::endian::little, "records are little-endian in memory");

namespace {

std::string_view View(kairos_string_t string) {
  return {string.data, string.data == nullptr ? 0 : static_cast<size_t>(string.size)};
}

// Appends variable parts behind a fixed struct and hands out their spans.
class PayloadWriter {
 public:
  PayloadWriter(size_t fixed_size, size_t variable_size, Payload* out) : out_(out) {
    out_->clear();
    out_->reserve(fixed_size + variable_size);
    out_->resize(fixed_size);
  }

  // Space for `size` bytes, 8-aligned so that a reader with an aligned copy sees aligned arrays.
  WireSpan Reserve(size_t size) {
    if (size == 0) return {0, 0};
    const size_t offset = (out_->size() + 7) & ~size_t{7};
    out_->resize(offset + size);
    return {static_cast<uint32_t>(offset), static_cast<uint32_t>(size)};
  }

  WireSpan Append(const void* bytes, size_t size) {
    const WireSpan span = Reserve(size);
    Put(span.offset, bytes, size);
    return span;
  }

  WireSpan Append(std::string_view text) {
    if (text.empty()) return {0, 0};
    const size_t offset = out_->size();
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    out_->insert(out_->end(), bytes, bytes + text.size());
    return {static_cast<uint32_t>(offset), static_cast<uint32_t>(text.size())};
  }

  void Put(size_t offset, const void* bytes, size_t size) {
    if (size != 0) std::memcpy(out_->data() + offset, bytes, size);
  }

 private:
  Payload* out_;
};

// Sizes of structs in version one, where they have grown since.
constexpr uint32_t kSessionRequestV1Bytes = 32;
constexpr uint32_t kSessionCreateV1Bytes = 32;
constexpr uint32_t kTurnV1Bytes = 136;

// The part of a fixed struct that the writer sent; the rest stays zero. One that is shorter than
// version one of the struct is an error.
template <typename Fixed>
bool ReadFixed(PayloadView payload, Fixed* out, uint32_t v1_bytes = sizeof(Fixed)) {
  uint32_t fixed_size = 0;
  if (payload.size() < sizeof(fixed_size)) return false;
  std::memcpy(&fixed_size, payload.data(), sizeof(fixed_size));
  if (fixed_size < v1_bytes || fixed_size > payload.size()) return false;
  std::memcpy(out, payload.data(), std::min<size_t>(fixed_size, sizeof(Fixed)));
  return true;
}

bool Inside(WireSpan span, PayloadView payload, size_t fixed_size) {
  if (span.size == 0) return true;
  return span.offset >= fixed_size && span.offset <= payload.size() &&
         span.size <= payload.size() - span.offset;
}

std::string_view TextOf(PayloadView payload, WireSpan span) {
  if (span.size == 0) return {};
  return {reinterpret_cast<const char*>(payload.data()) + span.offset, span.size};
}

template <typename Element>
Element ElementOf(PayloadView payload, WireSpan array, uint32_t index) {
  Element element;
  std::memcpy(&element, payload.data() + array.offset + size_t{index} * sizeof(Element),
              sizeof(Element));
  return element;
}

Status TooLarge(const char* message) {
  return Status(Code::kInvalidArgument, message, KAIROS_DETAIL_RECORD_TOO_LARGE);
}

Status Malformed(const char* message) {
  return Status(Code::kInvalidArgument, message, KAIROS_DETAIL_PROTOCOL);
}

// Sizes of a turn's texts, found before anything is copied.
Status MeasureMessages(const kairos_turn_options_t& options, uint64_t* bytes) {
  uint64_t content = 0;
  for (uint32_t i = 0; i < options.message_count; ++i) {
    const kairos_message_t& message = options.messages[i];
    if (message.role.size > kRoleBytesMax) return TooLarge("message role: at most 32 bytes");
    if (message.name.size > kToolNameBytesMax) return TooLarge("message name: at most 128 bytes");
    if (message.tool_call_id.size > kToolCallIdBytesMax) {
      return TooLarge("message tool_call_id: at most 128 bytes");
    }
    // Compared one at a time, so that the sum cannot wrap.
    if (message.content.size > kContentBytesMax ||
        message.tool_calls_json.size > kContentBytesMax) {
      return TooLarge("messages: at most 16 MiB of content");
    }
    content += message.content.size + message.tool_calls_json.size;
    if (content > kContentBytesMax) return TooLarge("messages: at most 16 MiB of content");
    *bytes += sizeof(WireMessage) + message.role.size + message.name.size +
              message.tool_call_id.size;
  }
  *bytes += content;
  return Status();
}

Status MeasureTurn(const kairos_turn_options_t& options, uint64_t* bytes) {
  if (options.message_count > kMessagesMax) return TooLarge("messages: at most 4096");
  if (options.token_count > kTokensMax) return TooLarge("tokens: at most 1048576");
  if (options.tools_json.size > kToolsBytesMax) return TooLarge("tools_json: at most 1 MiB");
  if (options.idempotency_key.size > kKeyBytesMax) {
    return TooLarge("idempotency_key: at most 128 bytes");
  }
  if (options.tool_name.size > kToolNameBytesMax) return TooLarge("tool_name: at most 128 bytes");
  if (options.model.size > kModelNameBytesMax) return TooLarge("model: at most 63 bytes");
  KAIROS_RETURN_IF_ERROR(MeasureMessages(options, bytes));
  *bytes += uint64_t{options.token_count} * sizeof(int32_t) + options.tools_json.size +
            options.idempotency_key.size + options.tool_name.size + options.model.size;
  if (const kairos_generation_t* generation = options.generation; generation != nullptr) {
    if (generation->stop_count > kStopsMax) return TooLarge("generation stops: at most 16");
    if (generation->bias_count > kBiasesMax) return TooLarge("generation biases: at most 1024");
    for (uint32_t i = 0; i < generation->stop_count; ++i) {
      if (generation->stops[i].size > kStopBytesMax) {
        return TooLarge("generation stop: at most 256 bytes");
      }
      *bytes += sizeof(WireSpan) + generation->stops[i].size;
    }
    if (generation->constraint.size > kConstraintBytesMax) {
      return TooLarge("generation constraint: at most 256 KiB");
    }
    *bytes += uint64_t{generation->bias_count} * sizeof(WireBias) + generation->constraint.size;
  }
  *bytes += 64;  // alignment of the arrays
  return Status();
}

void FillGeneration(const kairos_generation_t& generation, PayloadWriter* writer, WireTurn* turn) {
  turn->given |= kTurnHasGeneration;
  turn->seed = generation.seed;
  turn->generation_flags = generation.flags;
  turn->max_tokens = generation.max_tokens;
  turn->temperature = generation.temperature;
  turn->top_k = generation.top_k;
  turn->top_p = generation.top_p;
  turn->min_p = generation.min_p;
  turn->repetition_penalty = generation.repetition_penalty;
  turn->presence_penalty = generation.presence_penalty;
  turn->penalty_window = generation.penalty_window;
  turn->logprobs = generation.logprobs;
  static_assert(sizeof(WireBias) == sizeof(kairos_logit_bias_t) &&
                offsetof(WireBias, bias) == offsetof(kairos_logit_bias_t, bias));
  turn->constraint_kind = generation.constraint_kind;
  turn->constraint = writer->Append(View(generation.constraint));
  turn->biases = writer->Append(generation.biases, generation.bias_count * sizeof(WireBias));
  turn->stops = writer->Reserve(generation.stop_count * sizeof(WireSpan));
  for (uint32_t i = 0; i < generation.stop_count; ++i) {
    const WireSpan stop = writer->Append(View(generation.stops[i]));
    writer->Put(turn->stops.offset + i * sizeof(WireSpan), &stop, sizeof(stop));
  }
}

}  // namespace

// ---- Requests, client side ----------------------------------------------------------------------

void EncodeSessionRequest(const WireSessionRequest& fields, Payload* out) {
  WireSessionRequest fixed = fields;
  fixed.fixed_size = sizeof(fixed);
  PayloadWriter writer(sizeof(fixed), 0, out);
  writer.Put(0, &fixed, sizeof(fixed));
}

Status EncodeSessionCreate(const kairos_session_options_t& options, Payload* out) {
  if (options.label.size > kLabelBytesMax) return TooLarge("label: at most 128 bytes");
  if (options.model.size > kModelNameBytesMax) return TooLarge("model: at most 63 bytes");
  PayloadWriter writer(sizeof(WireSessionCreate), options.label.size + options.model.size, out);
  WireSessionCreate fixed{};
  fixed.fixed_size = sizeof(fixed);
  fixed.flags = options.flags;
  fixed.fidelity = options.fidelity;
  fixed.priority = options.priority;
  fixed.ttl_seconds = options.ttl_seconds;
  fixed.label = writer.Append(View(options.label));
  fixed.model = writer.Append(View(options.model));
  writer.Put(0, &fixed, sizeof(fixed));
  return Status();
}

Status EncodeContextWrite(uint64_t session_id, int64_t if_version, std::string_view json,
                          Payload* out) {
  if (json.size() > kContentBytesMax) return TooLarge("context json: at most 16 MiB");
  PayloadWriter writer(sizeof(WireContextWrite), json.size(), out);
  WireContextWrite fixed{};
  fixed.fixed_size = sizeof(fixed);
  fixed.session_id = session_id;
  fixed.if_version = if_version;
  fixed.json = writer.Append(json);
  writer.Put(0, &fixed, sizeof(fixed));
  return Status();
}

Status EncodeTurn(const kairos_turn_options_t& options, Payload* out) {
  uint64_t bytes = 0;
  KAIROS_RETURN_IF_ERROR(MeasureTurn(options, &bytes));
  PayloadWriter writer(sizeof(WireTurn), bytes, out);
  WireTurn turn{};
  turn.fixed_size = sizeof(turn);
  turn.flags = options.flags;
  turn.session_id = options.session_id;
  turn.if_version = options.if_version;
  turn.deadline_ms = options.deadline_ms;
  turn.priority = options.priority;
  turn.on_cancel = options.on_cancel;
  turn.tool_choice = options.tool_choice;
  if (options.tools_json.data != nullptr) turn.given |= kTurnHasTools;
  // The values that kairos_generation_init() gives, for readers that look at them anyway.
  turn.top_p = 1.0f;
  turn.repetition_penalty = 1.0f;

  turn.messages = writer.Reserve(options.message_count * sizeof(WireMessage));
  turn.tokens = writer.Append(options.tokens, options.token_count * sizeof(int32_t));
  if (options.generation != nullptr) FillGeneration(*options.generation, &writer, &turn);
  for (uint32_t i = 0; i < options.message_count; ++i) {
    const kairos_message_t& from = options.messages[i];
    WireMessage message{};
    message.flags = from.flags;
    message.role = writer.Append(View(from.role));
    message.content = writer.Append(View(from.content));
    message.name = writer.Append(View(from.name));
    message.tool_call_id = writer.Append(View(from.tool_call_id));
    message.tool_calls_json = writer.Append(View(from.tool_calls_json));
    writer.Put(turn.messages.offset + i * sizeof(message), &message, sizeof(message));
  }
  turn.tools_json = writer.Append(View(options.tools_json));
  turn.idempotency_key = writer.Append(View(options.idempotency_key));
  turn.tool_name = writer.Append(View(options.tool_name));
  turn.model = writer.Append(View(options.model));
  writer.Put(0, &turn, sizeof(turn));
  return Status();
}

void EncodeTurnCancel(uint64_t target, Payload* out) {
  WireTurnCancel fixed{sizeof(WireTurnCancel), 0, target};
  PayloadWriter writer(sizeof(fixed), 0, out);
  writer.Put(0, &fixed, sizeof(fixed));
}

void EncodeWatch(uint32_t flags, Payload* out) {
  WireWatch fixed{sizeof(WireWatch), flags};
  PayloadWriter writer(sizeof(fixed), 0, out);
  writer.Put(0, &fixed, sizeof(fixed));
}

// ---- Requests, sidecar side ---------------------------------------------------------------------

Result<WireSessionRequest> DecodeSessionRequest(PayloadView payload) {
  WireSessionRequest fixed{};
  if (!ReadFixed(payload, &fixed, kSessionRequestV1Bytes)) {
    return Malformed("session request: fixed part is cut short");
  }
  if (fixed.list_max > kListMax) fixed.list_max = kListMax;
  return fixed;
}

Result<SessionCreateView> DecodeSessionCreate(PayloadView payload) {
  SessionCreateView view{};
  if (!ReadFixed(payload, &view.fixed, kSessionCreateV1Bytes)) {
    return Malformed("session create: fixed part is cut short");
  }
  if (view.fixed.label.size > kLabelBytesMax) return TooLarge("label: at most 128 bytes");
  if (view.fixed.model.size > kModelNameBytesMax) return TooLarge("model: at most 63 bytes");
  if (!Inside(view.fixed.label, payload, view.fixed.fixed_size)) {
    return Malformed("label: span leaves the record");
  }
  if (!Inside(view.fixed.model, payload, view.fixed.fixed_size)) {
    return Malformed("model: span leaves the record");
  }
  view.label = TextOf(payload, view.fixed.label);
  view.model = TextOf(payload, view.fixed.model);
  return view;
}

Result<ContextWriteView> DecodeContextWrite(PayloadView payload) {
  ContextWriteView view{};
  if (!ReadFixed(payload, &view.fixed)) {
    return Malformed("context write: fixed part is cut short");
  }
  if (view.fixed.json.size > kContentBytesMax) return TooLarge("context json: at most 16 MiB");
  if (!Inside(view.fixed.json, payload, view.fixed.fixed_size)) {
    return Malformed("context json: span leaves the record");
  }
  view.json = TextOf(payload, view.fixed.json);
  return view;
}

Result<WireTurnCancel> DecodeTurnCancel(PayloadView payload) {
  WireTurnCancel fixed{};
  if (!ReadFixed(payload, &fixed)) return Malformed("turn cancel: fixed part is cut short");
  return fixed;
}

Result<WireWatch> DecodeWatch(PayloadView payload) {
  WireWatch fixed{};
  if (!ReadFixed(payload, &fixed)) return Malformed("watch: fixed part is cut short");
  return fixed;
}

Result<TurnView> DecodeTurn(PayloadView payload) {
  TurnView view;
  view.payload_ = payload;
  if (!ReadFixed(payload, &view.fixed_, kTurnV1Bytes)) {
    return Malformed("turn: fixed part is cut short");
  }
  KAIROS_RETURN_IF_ERROR(view.Check());
  KAIROS_RETURN_IF_ERROR(view.CheckMessages());
  KAIROS_RETURN_IF_ERROR(view.CheckStops());
  return view;
}

Status TurnView::Check() const {
  struct SpanRule {
    WireSpan span;
    uint32_t element_bytes;
    uint32_t bytes_max;
    const char* too_large;
    const char* malformed;
  };
  const SpanRule rules[] = {
      {fixed_.messages, sizeof(WireMessage), kMessagesMax * sizeof(WireMessage),
       "messages: at most 4096", "messages: span leaves the record"},
      {fixed_.tokens, sizeof(int32_t), kTokensMax * sizeof(int32_t), "tokens: at most 1048576",
       "tokens: span leaves the record"},
      {fixed_.stops, sizeof(WireSpan), kStopsMax * sizeof(WireSpan),
       "generation stops: at most 16", "generation stops: span leaves the record"},
      {fixed_.biases, sizeof(WireBias), kBiasesMax * sizeof(WireBias),
       "generation biases: at most 1024", "generation biases: span leaves the record"},
      {fixed_.tools_json, 1, kToolsBytesMax, "tools_json: at most 1 MiB",
       "tools_json: span leaves the record"},
      {fixed_.idempotency_key, 1, kKeyBytesMax, "idempotency_key: at most 128 bytes",
       "idempotency_key: span leaves the record"},
      {fixed_.tool_name, 1, kToolNameBytesMax, "tool_name: at most 128 bytes",
       "tool_name: span leaves the record"},
      {fixed_.constraint, 1, kConstraintBytesMax, "generation constraint: at most 256 KiB",
       "generation constraint: span leaves the record"},
      {fixed_.model, 1, kModelNameBytesMax, "model: at most 63 bytes",
       "model: span leaves the record"},
  };
  for (const SpanRule& rule : rules) {
    if (rule.span.size > rule.bytes_max) return TooLarge(rule.too_large);
    if (rule.span.size % rule.element_bytes != 0 ||
        !Inside(rule.span, payload_, fixed_.fixed_size)) {
      return Malformed(rule.malformed);
    }
  }
  return Status();
}

Status TurnView::CheckMessages() const {
  uint64_t content = 0;
  for (uint32_t i = 0; i < message_count(); ++i) {
    const auto message = ElementOf<WireMessage>(payload_, fixed_.messages, i);
    if (message.role.size > kRoleBytesMax) return TooLarge("message role: at most 32 bytes");
    if (message.name.size > kToolNameBytesMax) return TooLarge("message name: at most 128 bytes");
    if (message.tool_call_id.size > kToolCallIdBytesMax) {
      return TooLarge("message tool_call_id: at most 128 bytes");
    }
    content += uint64_t{message.content.size} + message.tool_calls_json.size;
    if (content > kContentBytesMax) return TooLarge("messages: at most 16 MiB of content");
    const std::pair<WireSpan, const char*> parts[] = {
        {message.role, "message role: span leaves the record"},
        {message.content, "message content: span leaves the record"},
        {message.name, "message name: span leaves the record"},
        {message.tool_call_id, "message tool_call_id: span leaves the record"},
        {message.tool_calls_json, "message tool_calls_json: span leaves the record"},
    };
    for (const auto& [span, malformed] : parts) {
      if (!Inside(span, payload_, fixed_.fixed_size)) return Malformed(malformed);
    }
  }
  return Status();
}

Status TurnView::CheckStops() const {
  for (uint32_t i = 0; i < stop_count(); ++i) {
    const auto span = ElementOf<WireSpan>(payload_, fixed_.stops, i);
    if (span.size > kStopBytesMax) return TooLarge("generation stop: at most 256 bytes");
    if (!Inside(span, payload_, fixed_.fixed_size)) {
      return Malformed("generation stop: span leaves the record");
    }
  }
  return Status();
}

std::string_view TurnView::Text(WireSpan span) const { return TextOf(payload_, span); }

MessageView TurnView::message(uint32_t index) const {
  const auto message = ElementOf<WireMessage>(payload_, fixed_.messages, index);
  return {message.flags,      Text(message.role),         Text(message.content),
          Text(message.name), Text(message.tool_call_id), Text(message.tool_calls_json)};
}

std::string_view TurnView::stop(uint32_t index) const {
  return Text(ElementOf<WireSpan>(payload_, fixed_.stops, index));
}

WireBias TurnView::bias(uint32_t index) const {
  return ElementOf<WireBias>(payload_, fixed_.biases, index);
}

void TurnView::CopyTokens(std::vector<int32_t>* out) const {
  out->resize(token_count());
  if (!out->empty()) {
    std::memcpy(out->data(), payload_.data() + fixed_.tokens.offset, fixed_.tokens.size);
  }
}

// ---- Replies ------------------------------------------------------------------------------------

Status EncodeReply(const ReplyFields& fields, Payload* out) {
  const uint64_t variable = uint64_t{fields.text.size()} + fields.tokens.size_bytes() +
                            fields.sessions.size_bytes() + sizeof(kairos_final_t) + 64;
  if (variable + sizeof(WireReply) > kReplyBytesMax) {
    return Status(Code::kResourceExhausted, "reply: at most 64 MiB",
                  KAIROS_DETAIL_RECORD_TOO_LARGE);
  }
  PayloadWriter writer(sizeof(WireReply), variable, out);
  WireReply fixed{};
  fixed.fixed_size = sizeof(fixed);
  fixed.code = fields.code;
  fixed.detail = fields.detail;
  fixed.session_id = fields.session_id;
  fixed.version = fields.version;
  fixed.tokens = writer.Append(fields.tokens.data(), fields.tokens.size_bytes());
  if (!fields.sessions.empty()) {
    fixed.session_bytes = sizeof(kairos_session_t);
    fixed.sessions = writer.Append(fields.sessions.data(), fields.sessions.size_bytes());
  }
  if (fields.final != nullptr) fixed.final = writer.Append(fields.final, sizeof(kairos_final_t));
  fixed.text = writer.Append(fields.text);
  writer.Put(0, &fixed, sizeof(fixed));
  return Status();
}

namespace {
constexpr uint32_t kFinalV1Bytes = 400;
constexpr uint32_t kSessionV1Bytes = 352;
}  // namespace

Result<ReplyView> DecodeReply(RecordType type, PayloadView payload) {
  ReplyView view;
  view.payload_ = payload;
  WireReply& fixed = view.fixed_;
  if (!ReadFixed(payload, &fixed)) return Malformed("reply: fixed part is cut short");
  for (WireSpan span : {fixed.text, fixed.tokens, fixed.sessions, fixed.final}) {
    if (!Inside(span, payload, fixed.fixed_size)) return Malformed("reply: span leaves the record");
  }
  if (fixed.tokens.size % sizeof(int32_t) != 0) return Malformed("reply: tokens are cut short");
  // A newer sidecar may send longer structs, an older one shorter ones, but none below version 1.
  if (fixed.sessions.size != 0 && (fixed.session_bytes < kSessionV1Bytes ||
                                   fixed.sessions.size % fixed.session_bytes != 0)) {
    return Malformed("reply: sessions have a wrong size");
  }
  if (fixed.final.size != 0 && fixed.final.size < kFinalV1Bytes) {
    return Malformed("reply: final numbers are cut short");
  }
  if ((type == RecordType::kFinal) != (fixed.final.size != 0)) {
    return Malformed("reply: final numbers belong to a final reply");
  }
  return view;
}

std::string_view ReplyView::text() const { return TextOf(payload_, fixed_.text); }

void ReplyView::CopyTokens(int32_t* out) const {
  if (fixed_.tokens.size != 0) {
    std::memcpy(out, payload_.data() + fixed_.tokens.offset, fixed_.tokens.size);
  }
}

kairos_session_t ReplyView::session(uint32_t index) const {
  kairos_session_t session{};
  std::memcpy(&session,
              payload_.data() + fixed_.sessions.offset + size_t{index} * fixed_.session_bytes,
              std::min<size_t>(fixed_.session_bytes, sizeof(session)));
  session.label_size = std::min<uint32_t>(session.label_size, sizeof(session.label));
  return session;
}

kairos_final_t ReplyView::final() const {
  kairos_final_t final{};
  if (has_final()) {
    std::memcpy(&final, payload_.data() + fixed_.final.offset,
                std::min<size_t>(fixed_.final.size, sizeof(final)));
  }
  return final;
}

}  // namespace kairos
