// SPDX-License-Identifier: Apache-2.0
// kairos.h: everything that needs a client. Each entry checks its arguments, sends one request and
// gives back its reply; the waiting is in client.cc.
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "base/clock.h"
#include "capi/client.h"
#include "capi/error.h"
#include "capi/fence.h"
#include "capi/options.h"
#include "kairos/kairos.h"
#include "shm/records.h"

namespace kairos {
namespace {

// A blocking call's answer: null after recording the error in *result.
EventPtr Answer(Result<EventPtr> reply, int32_t* result) {
  if (!reply.ok()) {
    *result = Fail(reply.status());
    return nullptr;
  }
  EventPtr event = reply.Take();
  if (event->code == KAIROS_OK) {
    *result = 0;
    return event;
  }
  const std::string_view words(event->text, event->text_size);
  // A code outside the frozen ones would turn into success or into nonsense.
  const int32_t code = event->code > 0 && event->code < 256 ? event->code : KAIROS_INTERNAL;
  *result = Fail(code, event->detail, words.empty() ? kairos_strerror(code) : words);
  return nullptr;
}

EventPtr Ask(Client& client, RecordType type, Payload payload, int32_t timeout_ms,
             int32_t* result) {
  return Answer(client.Call(type, std::move(payload), Deadline::After(timeout_ms)), result);
}

EventPtr AskSession(Client& client, RecordType type, const WireSessionRequest& fields,
                    int32_t timeout_ms, int32_t* result) {
  Payload payload;
  EncodeSessionRequest(fields, &payload);
  return Ask(client, type, std::move(payload), timeout_ms, result);
}

WireSessionRequest SessionFields(uint64_t session_id, uint64_t version = 0) {
  WireSessionRequest fields{};
  fields.session_id = session_id;
  fields.version = version;
  return fields;
}

int32_t SessionCall(kairos_client_t* handle, RecordType type, uint64_t session_id, uint64_t version,
                    int32_t timeout_ms) {
  return WithClient(handle, [&](Client& client) {
    int32_t result = 0;
    AskSession(client, type, SessionFields(session_id, version), timeout_ms, &result);
    return result;
  });
}

int32_t SessionRecordCall(kairos_client_t* handle, RecordType type, uint64_t session_id,
                          kairos_session_t* out, int32_t timeout_ms) {
  if (out != nullptr) {
    const Status size =
        CheckOutSize(out->struct_size, "out.struct_size: set it to sizeof(kairos_session_t)");
    if (!size.ok()) return Fail(size);
  }
  return WithClient(handle, [&](Client& client) {
    int32_t result = 0;
    const EventPtr reply =
        AskSession(client, type, SessionFields(session_id), timeout_ms, &result);
    if (reply == nullptr || out == nullptr) return result;
    if (reply->session_count == 0) {
      return Fail(Status(Code::kInternal, "the sidecar's reply lacks the session"));
    }
    CopyOut(reply->sessions[0], out, out->struct_size);
    return result;
  });
}

int32_t TextCall(kairos_client_t* handle, RecordType type, uint64_t session_id, uint64_t version,
                 kairos_event_t** out, int32_t timeout_ms) {
  if (out == nullptr) return InvalidArgument("out: null pointer");
  *out = nullptr;
  return WithClient(handle, [&](Client& client) {
    EventPtr known = client.texts().Take(type, session_id);
    WireSessionRequest fields = SessionFields(session_id, version);
    const bool is_asked_for = known != nullptr && (version == 0 || version == known->version);
    if (is_asked_for) fields.known_version = known->version;
    int32_t result = 0;
    EventPtr reply = AskSession(client, type, fields, timeout_ms, &result);
    // A session that is gone, or hidden from now on, has no place in the cache.
    if (result == -KAIROS_NOT_FOUND) return result;
    if (reply != nullptr && reply->detail == kNotChanged) {
      if (!is_asked_for || reply->version != known->version) {
        return Fail(Status(Code::kInternal, "the sidecar's reply lacks the text"));
      }
      reply = CopyOf(*known);
      if (reply == nullptr) throw std::bad_alloc();
    } else if (reply != nullptr && version == 0) {
      // Without memory for a copy it is read again next time.
      if (reply->bytes <= TextCache::kTextBytesMax) known = CopyOf(*reply);
    }
    client.texts().Put(type, std::move(known));
    *out = reply.release();
    return result;
  });
}

// Fills `out`; the elements are out[0].struct_size apart.
int32_t CopySessions(const kairos_event& reply, kairos_session_t* out, uint32_t capacity) {
  const uint32_t stride = out->struct_size;
  uint32_t count = reply.session_count < capacity ? reply.session_count : capacity;
  count = count < kListMax ? count : kListMax;
  for (uint32_t i = 0; i < count; ++i) {
    CopyOut(reply.sessions[i], reinterpret_cast<char*>(out) + size_t{i} * stride, stride);
  }
  return static_cast<int32_t>(count);
}

int32_t TakeNext(kairos_client_t* handle, Result<EventPtr> (Client::*next)(Deadline),
                 int32_t timeout_ms, kairos_event_t** event) {
  if (event == nullptr) return InvalidArgument("event: null pointer");
  *event = nullptr;
  return WithClient(handle, [&](Client& client) {
    Result<EventPtr> result = (client.*next)(Deadline::After(timeout_ms));
    if (!result.ok()) return Fail(result.status());
    EventPtr taken = result.Take();
    if (taken == nullptr) return 0;
    *event = taken.release();
    return 1;
  });
}

int32_t OpenClient(const kairos_client_options_t* options, kairos_client_t** handle) {
  ClientOptions read;
  if (const Status status = ReadClientOptions(options, &read); !status.ok()) return Fail(status);
  std::string text;
  Result<Client*> client = Client::Open(read, &text);
  if (!client.ok()) {
    const Status& status = client.status();
    // Only the sidecar's own refusal carries a KAIROS_DETAIL_*; other details are errno.
    const bool refused = text != status.message();
    const bool keep = refused || status.code() == Code::kFailedPrecondition;
    if (status.code() == Code::kUnavailable && !refused) text += ": " + read.socket_path;
    return Fail(static_cast<int32_t>(status.code()),
                keep ? static_cast<int32_t>(status.detail()) : 0, text);
  }
  kairos_client_t* registered = RegisterClient(*client);
  if (registered == nullptr) {
    Client::Destroy(*client);
    return Fail(Status(Code::kResourceExhausted, "at most 1024 clients in one process",
                       KAIROS_DETAIL_QUOTA));
  }
  *handle = registered;
  return 0;
}

}  // namespace
}  // namespace kairos

using namespace kairos;

extern "C" {

// ---- Client -------------------------------------------------------------------------------------

int32_t kairos_client_open(const kairos_client_options_t* options, kairos_client_t** client) {
  if (client == nullptr) return InvalidArgument("client: null pointer");
  *client = nullptr;
  return Fenced([&] { return OpenClient(options, client); });
}

void kairos_client_close(kairos_client_t* client) {
  if (client == nullptr) return;
  if (!CloseHandle(client)) Fail(Status(Code::kInvalidArgument, "client: not an open client"));
}

int32_t kairos_client_fd(kairos_client_t* handle) {
  return WithClient(handle, [&](Client& client) {
    const Result<int> fd = client.ReadyDescriptor();
    return fd.ok() ? static_cast<int32_t>(*fd) : Fail(fd.status());
  });
}

int64_t kairos_client_ping(kairos_client_t* handle, uint32_t size, int32_t spin,
                           int32_t timeout_ms) {
  if (size > kPingBytesMax) return InvalidArgument("size: at most 65536 bytes");
  return WithClient(handle, [&](Client& client) -> int64_t {
    // A record has at least one byte of payload.
    Payload payload(size == 0 ? 1 : size, std::byte{0x2a});
    const uint64_t start = MonotonicNs();
    Result<EventPtr> reply =
        client.Call(RecordType::kPing, std::move(payload), Deadline::After(timeout_ms, start),
                    spin != 0);
    const uint64_t end = MonotonicNs();
    if (!reply.ok()) return Fail(reply.status());
    const EventPtr event = reply.Take();
    if (event->code != KAIROS_OK) {
      return Fail(event->code, event->detail, {event->text, event->text_size});
    }
    return static_cast<int64_t>(end - start);
  });
}

// ---- Sessions -----------------------------------------------------------------------------------

int32_t kairos_session_create(kairos_client_t* handle, const kairos_session_options_t* options,
                              uint64_t* session_id, int32_t timeout_ms) {
  if (session_id == nullptr) return InvalidArgument("session_id: null pointer");
  *session_id = 0;
  kairos_session_options_t read;
  if (const Status status = ReadSessionOptions(options, &read); !status.ok()) return Fail(status);
  return WithClient(handle, [&](Client& client) {
    Payload payload;
    const Status encoded = EncodeSessionCreate(read, &payload);
    if (!encoded.ok()) return Fail(encoded);
    int32_t result = 0;
    const EventPtr reply =
        Ask(client, RecordType::kSessionCreate, std::move(payload), timeout_ms, &result);
    if (reply != nullptr) *session_id = reply->session;
    return result;
  });
}

int32_t kairos_session_open(kairos_client_t* handle, uint64_t session_id, kairos_session_t* out,
                            int32_t timeout_ms) {
  return SessionRecordCall(handle, RecordType::kSessionOpen, session_id, out, timeout_ms);
}

int32_t kairos_session_stat(kairos_client_t* handle, uint64_t session_id, kairos_session_t* out,
                            int32_t timeout_ms) {
  if (out == nullptr) return InvalidArgument("out: null pointer");
  return SessionRecordCall(handle, RecordType::kSessionStat, session_id, out, timeout_ms);
}

int32_t kairos_session_fork(kairos_client_t* handle, uint64_t session_id, uint64_t version,
                            uint64_t* new_session_id, int32_t timeout_ms) {
  if (new_session_id == nullptr) return InvalidArgument("new_session_id: null pointer");
  *new_session_id = 0;
  return WithClient(handle, [&](Client& client) {
    int32_t result = 0;
    const EventPtr reply = AskSession(client, RecordType::kSessionFork,
                                      SessionFields(session_id, version), timeout_ms, &result);
    if (reply != nullptr) *new_session_id = reply->session;
    return result;
  });
}

int32_t kairos_session_rewind(kairos_client_t* handle, uint64_t session_id, uint64_t version,
                              int32_t timeout_ms) {
  return SessionCall(handle, RecordType::kSessionRewind, session_id, version, timeout_ms);
}

int32_t kairos_session_release(kairos_client_t* handle, uint64_t session_id, int32_t timeout_ms) {
  return SessionCall(handle, RecordType::kSessionRelease, session_id, 0, timeout_ms);
}

int32_t kairos_session_delete(kairos_client_t* handle, uint64_t session_id, int32_t timeout_ms) {
  return WithClient(handle, [&](Client& client) {
    client.texts().Forget(session_id);
    int32_t result = 0;
    AskSession(client, RecordType::kSessionDelete, SessionFields(session_id), timeout_ms, &result);
    return result;
  });
}

int32_t kairos_session_list(kairos_client_t* handle, uint64_t after_id, kairos_session_t* out,
                            uint32_t capacity, int32_t timeout_ms) {
  if (out == nullptr) return InvalidArgument("out: null pointer");
  if (capacity == 0) return InvalidArgument("capacity: at least 1");
  const Status size =
      CheckOutSize(out->struct_size, "out.struct_size: set it to sizeof(kairos_session_t)");
  if (!size.ok()) return Fail(size);
  return WithClient(handle, [&](Client& client) {
    WireSessionRequest fields{};
    fields.after_id = after_id;
    fields.list_max = capacity < kListMax ? capacity : kListMax;
    int32_t result = 0;
    const EventPtr reply =
        AskSession(client, RecordType::kSessionList, fields, timeout_ms, &result);
    return reply == nullptr ? result : CopySessions(*reply, out, capacity);
  });
}

int32_t kairos_session_messages(kairos_client_t* client, uint64_t session_id, uint64_t version,
                                kairos_event_t** out, int32_t timeout_ms) {
  return TextCall(client, RecordType::kSessionMessages, session_id, version, out, timeout_ms);
}

int32_t kairos_context_read(kairos_client_t* client, uint64_t session_id, uint64_t version,
                            kairos_event_t** out, int32_t timeout_ms) {
  return TextCall(client, RecordType::kContextRead, session_id, version, out, timeout_ms);
}

int32_t kairos_context_write(kairos_client_t* handle, uint64_t session_id, int64_t if_version,
                             kairos_string_t json, uint64_t* new_version, int32_t timeout_ms) {
  if (new_version != nullptr) *new_version = 0;
  if (const Status status = CheckString(json, "json: null pointer with a size"); !status.ok()) {
    return Fail(status);
  }
  return WithClient(handle, [&](Client& client) {
    Payload payload;
    const Status encoded = EncodeContextWrite(
        session_id, if_version, {json.data, static_cast<size_t>(json.size)}, &payload);
    if (!encoded.ok()) return Fail(encoded);
    int32_t result = 0;
    const EventPtr reply =
        Ask(client, RecordType::kContextWrite, std::move(payload), timeout_ms, &result);
    if (reply != nullptr && new_version != nullptr) *new_version = reply->version;
    return result;
  });
}

// ---- Turns --------------------------------------------------------------------------------------

int32_t kairos_turn_submit(kairos_client_t* handle, const kairos_turn_options_t* options,
                           uint64_t* request_id) {
  if (request_id == nullptr) return InvalidArgument("request_id: null pointer");
  *request_id = 0;
  return WithClient(handle, [&](Client& client) {
    TurnOptions read;
    if (const Status status = ReadTurnOptions(options, &read); !status.ok()) return Fail(status);
    Payload payload;
    if (const Status status = EncodeTurn(read.options, &payload); !status.ok()) return Fail(status);
    const Status sent = client.SubmitTurn(std::move(payload), read.options.session_id, request_id);
    return sent.ok() ? 0 : Fail(sent);
  });
}

int32_t kairos_turn_cancel(kairos_client_t* handle, uint64_t request_id) {
  return WithClient(handle, [&](Client& client) {
    const Status sent = client.CancelTurn(request_id);
    return sent.ok() ? 0 : Fail(sent);
  });
}

int32_t kairos_event_next(kairos_client_t* client, int32_t timeout_ms, kairos_event_t** event) {
  return TakeNext(client, &Client::NextEvent, timeout_ms, event);
}

// ---- Watching -----------------------------------------------------------------------------------

int32_t kairos_watch(kairos_client_t* handle, uint32_t flags, int32_t timeout_ms) {
  if ((flags & ~KAIROS_WATCH_SESSIONS) != 0) return InvalidArgument("flags: unknown bit");
  return WithClient(handle, [&](Client& client) {
    int32_t result = 0;
    Answer(client.Watch(flags, Deadline::After(timeout_ms)), &result);
    return result;
  });
}

int32_t kairos_watch_next(kairos_client_t* client, int32_t timeout_ms, kairos_event_t** event) {
  return TakeNext(client, &Client::NextState, timeout_ms, event);
}

}  // extern "C"
