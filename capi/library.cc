// SPDX-License-Identifier: Apache-2.0
// kairos.h: library, options and events. None of these needs a client.
#include <cstring>

#include "capi/error.h"
#include "capi/event.h"
#include "capi/options.h"
#include "kairos/kairos.h"
#include "shm/layout.h"

#ifndef KAIROS_VERSION_STRING
#error "the build gives KAIROS_VERSION_STRING"
#endif

namespace {

// Null is ignored: an initialiser has no way to say no.
template <typename T>
bool Clear(T* object) noexcept {
  if (object == nullptr) return false;
  std::memset(object, 0, sizeof(T));
  object->struct_size = sizeof(T);
  return true;
}

}  // namespace

extern "C" {

uint32_t kairos_abi_version(void) { return KAIROS_ABI_VERSION; }
uint64_t kairos_layout_hash(void) { return kairos::LayoutHash(); }
const char* kairos_version(void) { return KAIROS_VERSION_STRING; }

const char* kairos_strerror(int32_t code) {
  switch (code < 0 ? -static_cast<int64_t>(code) : code) {
    case KAIROS_OK: return "ok";
    case KAIROS_CANCELLED: return "cancelled";
    case KAIROS_INVALID_ARGUMENT: return "invalid argument";
    case KAIROS_DEADLINE_EXCEEDED: return "deadline exceeded";
    case KAIROS_NOT_FOUND: return "not found";
    case KAIROS_ALREADY_EXISTS: return "already exists";
    case KAIROS_RESOURCE_EXHAUSTED: return "resource exhausted";
    case KAIROS_FAILED_PRECONDITION: return "failed precondition";
    case KAIROS_ABORTED: return "aborted";
    case KAIROS_UNIMPLEMENTED: return "unimplemented";
    case KAIROS_INTERNAL: return "internal error";
    case KAIROS_UNAVAILABLE: return "unavailable";
    case KAIROS_DATA_LOSS: return "data loss";
    default: return "unknown code";
  }
}

int64_t kairos_last_error(char* buffer, size_t capacity) {
  return kairos::CopyLastError(buffer, capacity);
}
int32_t kairos_last_detail(void) { return kairos::LastDetail(); }

void kairos_client_options_init(kairos_client_options_t* options) {
  if (Clear(options)) options->spin_us = -1;
}

void kairos_session_options_init(kairos_session_options_t* options) { Clear(options); }

void kairos_message_init(kairos_message_t* message) { Clear(message); }

void kairos_generation_init(kairos_generation_t* generation) {
  if (!Clear(generation)) return;
  generation->top_p = 1.0f;
  generation->repetition_penalty = 1.0f;
}

void kairos_turn_options_init(kairos_turn_options_t* options) {
  if (Clear(options)) options->if_version = KAIROS_VERSION_ANY;
}

void kairos_event_release(kairos_event_t* event) { kairos::EventRelease()(event); }

int32_t kairos_event_type(const kairos_event_t* event) {
  return event == nullptr ? 0 : event->type;
}
uint64_t kairos_event_request(const kairos_event_t* event) {
  return event == nullptr ? 0 : event->request;
}
uint64_t kairos_event_session(const kairos_event_t* event) {
  return event == nullptr ? 0 : event->session;
}
uint64_t kairos_event_version(const kairos_event_t* event) {
  return event == nullptr ? 0 : event->version;
}
int32_t kairos_event_code(const kairos_event_t* event) {
  return event == nullptr ? 0 : event->code;
}
int32_t kairos_event_detail(const kairos_event_t* event) {
  return event == nullptr ? 0 : event->detail;
}

kairos_string_t kairos_event_text(const kairos_event_t* event) {
  if (event == nullptr) return {nullptr, 0};
  return {event->text, event->text_size};
}

const int32_t* kairos_event_tokens(const kairos_event_t* event, uint32_t* count) {
  const bool some = event != nullptr && event->token_count != 0;
  if (count != nullptr) *count = some ? event->token_count : 0;
  return some ? event->tokens : nullptr;
}

int32_t kairos_event_final(const kairos_event_t* event, kairos_final_t* out) {
  using kairos::Code;
  using kairos::Status;
  if (event == nullptr) return kairos::Fail(Status(Code::kInvalidArgument, "event: null pointer"));
  if (out == nullptr) return kairos::Fail(Status(Code::kInvalidArgument, "out: null pointer"));
  if (event->type != KAIROS_EVENT_FINAL) {
    return kairos::Fail(Status(Code::kFailedPrecondition, "event: not a final event"));
  }
  const uint32_t size = out->struct_size;
  const Status checked =
      kairos::CheckOutSize(size, "out.struct_size: set it to sizeof(kairos_final_t)");
  if (!checked.ok()) return kairos::Fail(checked);
  kairos::CopyOut(event->final, out, size);
  return 0;
}

int32_t kairos_event_summary(const kairos_event_t* event, kairos_session_t* out) {
  using kairos::Code;
  using kairos::Status;
  if (event == nullptr) return kairos::Fail(Status(Code::kInvalidArgument, "event: null pointer"));
  if (out == nullptr) return kairos::Fail(Status(Code::kInvalidArgument, "out: null pointer"));
  if (event->type != KAIROS_EVENT_SESSION || event->session_count == 0) {
    return kairos::Fail(Status(Code::kFailedPrecondition, "event: not of a session's state"));
  }
  const uint32_t size = out->struct_size;
  const Status checked =
      kairos::CheckOutSize(size, "out.struct_size: set it to sizeof(kairos_session_t)");
  if (!checked.ok()) return kairos::Fail(checked);
  kairos::CopyOut(event->sessions[0], out, size);
  return 0;
}

}  // extern "C"
