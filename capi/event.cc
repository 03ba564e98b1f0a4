// SPDX-License-Identifier: Apache-2.0
#include "capi/event.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

namespace kairos {
namespace {

static_assert(std::is_trivially_destructible_v<kairos_event>);
static_assert(std::is_trivially_copyable_v<kairos_event>);
static_assert(sizeof(kairos_event) % 8 == 0, "sessions behind it are aligned");

// Order behind the event: sessions (8-aligned), tokens (4-aligned), text, terminator. `final`, most
// of its bytes, is the caller's to set.
EventPtr Allocate(uint32_t session_count, uint32_t token_count, uint64_t text_size) noexcept {
  const uint64_t bytes = sizeof(kairos_event) + uint64_t{session_count} * sizeof(kairos_session_t) +
                         uint64_t{token_count} * sizeof(int32_t) + text_size + 1;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) return nullptr;
  auto* event = new (memory) kairos_event;
  event->next = nullptr;
  event->code = KAIROS_OK;
  event->detail = 0;
  event->session = 0;
  event->version = 0;
  auto* behind = reinterpret_cast<char*>(event + 1);
  event->bytes = bytes;
  event->sessions = reinterpret_cast<kairos_session_t*>(behind);
  event->session_count = session_count;
  behind += uint64_t{session_count} * sizeof(kairos_session_t);
  event->tokens = reinterpret_cast<int32_t*>(behind);
  event->token_count = token_count;
  behind += uint64_t{token_count} * sizeof(int32_t);
  event->text = behind;
  event->text_size = text_size;
  behind[text_size] = '\0';
  return EventPtr(event);
}

int32_t EventType(RecordType type, int32_t code) {
  switch (type) {
    case RecordType::kAccepted: return KAIROS_EVENT_ACCEPTED;
    case RecordType::kText:
      return code == kReasoningText ? KAIROS_EVENT_REASONING : KAIROS_EVENT_TEXT;
    case RecordType::kToolCall: return KAIROS_EVENT_TOOL_CALL;
    case RecordType::kLogprobs: return KAIROS_EVENT_LOGPROBS;
    case RecordType::kFinal: return KAIROS_EVENT_FINAL;
    case RecordType::kError: return KAIROS_EVENT_ERROR;
    case RecordType::kSession: return KAIROS_EVENT_SESSION;
    default: return KAIROS_EVENT_REPLY;
  }
}

void PutText(kairos_event* event, std::string_view text) {
  if (!text.empty()) std::memcpy(const_cast<char*>(event->text), text.data(), text.size());
}

}  // namespace

void EventRelease::operator()(kairos_event* event) const noexcept { std::free(event); }

EventPtr MakeEvent(RecordType type, uint64_t request, const ReplyView& reply) noexcept {
  EventPtr event = Allocate(reply.session_count(), reply.token_count(), reply.text().size());
  if (event == nullptr) return nullptr;
  const WireReply& fixed = reply.fixed();
  event->type = EventType(type, fixed.code);
  event->record_type = static_cast<uint32_t>(type);
  event->request = request;
  event->session = fixed.session_id;
  event->version = fixed.version;
  event->code = type == RecordType::kText ? KAIROS_OK : fixed.code;
  event->detail = fixed.detail;
  for (uint32_t i = 0; i < reply.session_count(); ++i) {
    const_cast<kairos_session_t*>(event->sessions)[i] = reply.session(i);
  }
  reply.CopyTokens(const_cast<int32_t*>(event->tokens));
  PutText(event.get(), reply.text());
  event->final = reply.final();
  return event;
}

EventPtr MakePong(uint64_t request) noexcept {
  EventPtr event = Allocate(0, 0, 0);
  if (event == nullptr) return nullptr;
  event->type = KAIROS_EVENT_REPLY;
  event->record_type = static_cast<uint32_t>(RecordType::kPong);
  event->request = request;
  return event;
}

EventPtr CopyOf(const kairos_event& event) noexcept {
  EventPtr copy = Allocate(event.session_count, event.token_count, event.text_size);
  if (copy == nullptr) return nullptr;
  const kairos_event fresh = *copy;
  std::memcpy(copy.get(), &event, event.bytes);
  copy->next = nullptr;
  copy->sessions = fresh.sessions;
  copy->tokens = fresh.tokens;
  copy->text = fresh.text;
  return copy;
}

EventPtr MakeError(uint64_t request, uint64_t session, const Status& status) noexcept {
  const std::string_view text = status.message();
  EventPtr event = Allocate(0, 0, text.size());
  if (event == nullptr) return nullptr;
  event->type = KAIROS_EVENT_ERROR;
  event->record_type = static_cast<uint32_t>(RecordType::kError);
  event->request = request;
  event->session = session;
  event->code = static_cast<int32_t>(status.code());
  event->detail = static_cast<int32_t>(status.detail());
  event->final = {};
  PutText(event.get(), text);
  return event;
}

EventQueue::~EventQueue() {
  while (!empty()) Pop();
}

void EventQueue::Push(EventPtr event) noexcept {
  kairos_event* raw = event.release();
  raw->next = nullptr;
  (last_ == nullptr ? first_ : last_->next) = raw;
  last_ = raw;
  ++count_;
  bytes_ += raw->bytes;
}

void EventQueue::MergeState(const kairos_event& event) noexcept {
  kairos_event* same = nullptr;
  for (kairos_event* one = first_; one != nullptr; one = one->next) {
    if (one->session == event.session && one->session_count == event.session_count) same = one;
  }
  kairos_event* to = same != nullptr ? same : last_;
  to->detail = KAIROS_DETAIL_SKIPPED;
  if (same != nullptr && same->session_count != 0) {
    to->version = event.version;
    const_cast<kairos_session_t*>(to->sessions)[0] = event.sessions[0];
  } else {
    to->session = to->version = 0;
    to->session_count = 0;
  }
}

EventPtr EventQueue::Pop() noexcept {
  kairos_event* raw = first_;
  if (raw == nullptr) return nullptr;
  first_ = raw->next;
  if (first_ == nullptr) last_ = nullptr;
  --count_;
  bytes_ -= raw->bytes;
  raw->next = nullptr;
  return EventPtr(raw);
}

}  // namespace kairos
