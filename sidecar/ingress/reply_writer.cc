// SPDX-License-Identifier: Apache-2.0
#include "sidecar/ingress/reply_writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace kairos {
namespace {

RecordType TypeOf(ReplyKind kind) {
  switch (kind) {
    case ReplyKind::kAccepted: return RecordType::kAccepted;
    case ReplyKind::kText:
    case ReplyKind::kReasoning: return RecordType::kText;
    case ReplyKind::kToolCall: return RecordType::kToolCall;
    case ReplyKind::kLogprobs: return RecordType::kLogprobs;
    case ReplyKind::kFinal: return RecordType::kFinal;
    case ReplyKind::kError: return RecordType::kError;
    case ReplyKind::kSession: return RecordType::kSession;
    case ReplyKind::kResult:
    case ReplyKind::kDetached: break;
  }
  return RecordType::kResult;
}

uint64_t SizeOf(const Reply& reply) {
  return sizeof(WireReply) + reply.text.size() + reply.tokens.size() * sizeof(TokenId) +
         reply.sessions.size() * sizeof(kairos_session_t) +
         (reply.kind == ReplyKind::kFinal ? sizeof(kairos_final_t) : 0);
}

}  // namespace

ReplyWriter::ReplyWriter(const RingView& view, uint64_t reply_bytes_max, const ReplyLimits& limits)
    : ring_(view, reply_bytes_max),
      reply_bytes_max_(reply_bytes_max),
      limits_(limits),
      states_(limits.states_max) {}

RecordType ReplyWriter::Encode(const Reply& reply, Payload* out) const {
  ReplyFields fields;
  fields.session_id = reply.session.value;
  fields.version = reply.version;
  fields.code = reply.kind == ReplyKind::kReasoning ? kReasoningText : reply.code;
  fields.detail = reply.not_changed ? kNotChanged : reply.detail;
  fields.text = reply.text;
  fields.tokens = reply.tokens;
  fields.sessions = reply.sessions;
  if (reply.kind == ReplyKind::kFinal) fields.final = &reply.final;
  if (EncodeReply(fields, out).ok() && out->size() <= reply_bytes_max_) return TypeOf(reply.kind);

  ReplyFields refusal;
  refusal.session_id = reply.session.value;
  refusal.code = KAIROS_RESOURCE_EXHAUSTED;
  refusal.detail = KAIROS_DETAIL_RECORD_TOO_LARGE;
  refusal.text = "the reply is larger than one reply may be";
  KAIROS_CHECK(EncodeReply(refusal, out).ok());
  return RecordType::kError;
}

PushResult ReplyWriter::PushSome(Waiting* one) {
  OutgoingMessage message{one->type, one->request_id, one->payload, one->sent};
  const PushResult pushed = ring_.Push(&message);
  progressed_ |= message.sent != one->sent;
  one->sent = message.sent;
  return pushed;
}

ReplyWriter::Outcome ReplyWriter::Keep(Waiting&& one) {
  if (waiting_bytes_ + one.bytes > limits_.bytes_max) return Outcome::kOverAll;
  waiting_bytes_ += one.bytes;
  waiting_.push_back(std::move(one));
  return Outcome::kTaken;
}

bool ReplyWriter::MergeText(Reply& reply) {
  const auto last = std::find_if(waiting_.rbegin(), waiting_.rend(), [&](const Waiting& one) {
    return one.request_id == reply.id.value;
  });
  if (last == waiting_.rend() || last->encoded || last->reply.kind != reply.kind) return false;
  // A broken call stays apart from the text around it.
  if (last->reply.detail != 0 || reply.detail != 0) return false;
  const uint64_t added = reply.text.size() + reply.tokens.size() * sizeof(TokenId);
  last->reply.text += reply.text;
  last->reply.tokens.insert(last->reply.tokens.end(), reply.tokens.begin(), reply.tokens.end());
  last->bytes += added;
  waiting_bytes_ += added;
  return true;
}

ReplyWriter::Outcome ReplyWriter::Write(Reply&& reply) {
  if (!waiting_.empty() && !Flush()) return Outcome::kBroken;
  if (waiting_.empty()) {
    Waiting one;
    one.encoded = true;
    one.request_id = reply.id.value;
    one.type = static_cast<uint16_t>(Encode(reply, &scratch_));
    one.payload = std::move(scratch_);
    one.bytes = one.payload.size();
    const PushResult pushed = PushSome(&one);
    if (pushed == PushResult::kBroken) return Outcome::kBroken;
    if (pushed == PushResult::kDone) {
      scratch_ = std::move(one.payload);
      return Outcome::kTaken;
    }
    return Keep(std::move(one));
  }
  if (IsStream(reply.kind) && waiting_bytes_ + SizeOf(reply) > limits_.text_bytes_max) {
    return Outcome::kOverText;
  }
  const bool may_merge = reply.kind == ReplyKind::kText || reply.kind == ReplyKind::kReasoning;
  if (may_merge && MergeText(reply)) return Outcome::kTaken;
  Waiting one;
  one.request_id = reply.id.value;
  one.bytes = SizeOf(reply);
  one.reply = std::move(reply);
  return Keep(std::move(one));
}

ReplyWriter::Outcome ReplyWriter::WritePong(uint64_t request_id, PayloadView payload) {
  if (!waiting_.empty() && !Flush()) return Outcome::kBroken;
  const auto type = static_cast<uint16_t>(RecordType::kPong);
  OutgoingMessage message{type, request_id, payload, 0};
  if (waiting_.empty()) {
    const PushResult pushed = ring_.Push(&message);
    if (pushed == PushResult::kBroken) return Outcome::kBroken;
    if (pushed == PushResult::kDone) return Outcome::kTaken;
  }
  Waiting one;
  one.encoded = true;
  one.type = type;
  one.request_id = request_id;
  one.payload.assign(payload.begin(), payload.end());
  one.sent = message.sent;
  one.bytes = payload.size();
  return Keep(std::move(one));
}

bool ReplyWriter::Flush() {
  ring_.FinishWait();
  while (!waiting_.empty()) {
    Waiting& first = waiting_.front();
    if (!first.encoded) {
      first.type = static_cast<uint16_t>(Encode(first.reply, &first.payload));
      first.reply = Reply{};
      first.encoded = true;
      waiting_bytes_ = waiting_bytes_ - first.bytes + first.payload.size();
      first.bytes = first.payload.size();
    }
    const PushResult pushed = PushSome(&first);
    if (pushed == PushResult::kBroken) return false;
    if (pushed == PushResult::kFull) {
      const uint64_t left = first.payload.size() - first.sent;
      const uint64_t piece = std::min<uint64_t>(left, ring_.frame_payload_max());
      // Where room appeared meanwhile, go round again.
      if (ring_.PrepareWait(piece + sizeof(FrameHeader) + kFrameAlign)) return true;
      if (ring_.broken()) return false;
      ring_.FinishWait();
      // Padding at the ring's end may still need more than that; wait for whatever comes then.
      if (PushSome(&first) == PushResult::kFull) {
        (void)ring_.PrepareWait(~uint64_t{0});
        return !ring_.broken();
      }
      continue;
    }
    waiting_bytes_ -= first.bytes;
    waiting_.pop_front();
  }
  return FlushStates();
}

ReplyWriter::Outcome ReplyWriter::WriteState(const Reply& reply) {
  const kairos_session_t state = reply.sessions.empty() ? kairos_session_t{} : reply.sessions[0];
  states_.Push(reply.session, state, reply.detail != 0);
  return Flush() ? Outcome::kTaken : Outcome::kBroken;
}

// Each is one frame, so there is nothing half-sent for a reply to wait for.
bool ReplyWriter::FlushStates() {
  while (!states_.empty()) {
    const auto& first = states_.front();
    ReplyFields fields;
    fields.session_id = first.key.value;
    fields.version = first.value.version;
    fields.detail = first.skipped ? KAIROS_DETAIL_SKIPPED : 0;
    if (first.key.value != 0) fields.sessions = {&first.value, 1};
    KAIROS_CHECK(EncodeReply(fields, &scratch_).ok());
    OutgoingMessage message{static_cast<uint16_t>(RecordType::kSession), 0, scratch_, 0};
    const PushResult pushed = ring_.Push(&message);
    if (pushed == PushResult::kBroken) return false;
    if (pushed == PushResult::kFull) {
      if (ring_.PrepareWait(ring_.MessageRoom(scratch_.size()))) return true;
      if (ring_.broken()) return false;
      ring_.FinishWait();
      continue;
    }
    states_.Pop();
  }
  return true;
}

void ReplyWriter::DropText(RequestId id) {
  std::erase_if(waiting_, [&](const Waiting& one) {
    const bool drop = !one.encoded && one.request_id == id.value && IsStream(one.reply.kind);
    if (drop) waiting_bytes_ -= one.bytes;
    return drop;
  });
}

void ReplyWriter::WriteLast(Reply&& reply) {
  if (!waiting_.empty() && waiting_.front().sent != 0) {
    const Waiting& first = waiting_.front();
    if (ring_.PushAbort(first.type, first.request_id) != PushResult::kDone) return;
  }
  waiting_.clear();
  waiting_bytes_ = 0;
  const RecordType type = Encode(reply, &scratch_);
  OutgoingMessage message{static_cast<uint16_t>(type), reply.id.value, scratch_, 0};
  (void)ring_.Push(&message);
}

void ReplyWriter::NoteTime(uint64_t now_ns) {
  if (waiting_.empty()) {
    stalled_since_ns_ = 0;
  } else if (progressed_ || stalled_since_ns_ == 0) {
    stalled_since_ns_ = now_ns;
  }
  progressed_ = false;
}

}  // namespace kairos
