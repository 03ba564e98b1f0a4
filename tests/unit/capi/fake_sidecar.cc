// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/capi/fake_sidecar.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "shm/doorbell.h"

namespace kairos {

FakeSidecar::FakeSidecar(std::string path, uint64_t features)
    : path_(std::move(path)), features_(features) {
  if (path_.empty()) {
    char folder[] = "/tmp/kairos-fake-XXXXXX";
    KAIROS_CHECK(mkdtemp(folder) != nullptr);
    folder_ = folder;
    path_ = folder_ + "/kairos.sock";
  }
  Result<Descriptor> listener = ListenForClients(path_, 0600);
  KAIROS_CHECK(listener.ok());
  listener_ = listener.Take();
  wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  thread_ = std::thread([this] { Run(); });
}

FakeSidecar::~FakeSidecar() {
  Order(kStop);
  thread_.join();
  unlink(path_.c_str());
  if (!folder_.empty()) rmdir(folder_.c_str());
}

// Returns when the thread has done it.
void FakeSidecar::Order(uint32_t order) {
  const uint32_t before = obeyed_.load(std::memory_order_acquire);
  orders_.fetch_or(order, std::memory_order_acq_rel);
  eventfd_write(wake_.get(), 1);
  obeyed_.wait(before, std::memory_order_acquire);
}

void FakeSidecar::Run() {
  bool stopping = false;
  while (!stopping) {
    bool sleepy = true;
    std::vector<pollfd> entries = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    for (auto& connection : connections_) {
      if (connection->attached && !paused_ && !connection->requests.PrepareSleep()) sleepy = false;
      entries.push_back({connection->socket.get(), POLLIN, 0});
    }
    poll(entries.data(), entries.size(), sleepy ? -1 : 0);
    for (auto& connection : connections_) {
      if (connection->attached) connection->requests.FinishSleep();
    }
    stopping = (ObeyOrders() & kStop) != 0;
    Accept();
    for (auto& connection : connections_) {
      if (!Serve(*connection)) connection->dead = true;
    }
    const size_t before = connections_.size();
    std::erase_if(connections_, [](const auto& connection) { return connection->dead; });
    departures_.fetch_add(static_cast<uint32_t>(before - connections_.size()),
                          std::memory_order_acq_rel);
  }
}

uint32_t FakeSidecar::ObeyOrders() {
  eventfd_t ignored;
  eventfd_read(wake_.get(), &ignored);
  const uint32_t orders = orders_.exchange(0, std::memory_order_acq_rel);
  if (orders == 0) return 0;
  if ((orders & kDrop) != 0) {
    departures_.fetch_add(static_cast<uint32_t>(connections_.size()), std::memory_order_acq_rel);
    connections_.clear();
  }
  if ((orders & kPause) != 0) paused_ = true;
  if ((orders & kResume) != 0) paused_ = false;
  obeyed_.fetch_add(1, std::memory_order_acq_rel);
  obeyed_.notify_all();
  return orders;
}

void FakeSidecar::Accept() {
  for (;;) {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    connections_.push_back(std::make_unique<Connection>());
    connections_.back()->socket = std::move(socket);
  }
}

void FakeSidecar::Attach(Connection& connection) {
  const Result<AttachHello> hello = ReceiveHello(connection.socket.get());
  if (!hello.ok()) {
    connection.dead = hello.status().detail() != EAGAIN;
    return;
  }
  AttachOffer offer;
  offer.features = features_;
  offer.request_bytes_max = kRequestBytesMax;
  offer.reply_bytes_max = kReplyBytesMax;
  const Result<AttachAnswer> answer = Negotiate(*hello, offer, 1);
  if (!answer.ok()) {
    const Status& why = answer.status();
    static_cast<void>(SendRefusal(connection.socket.get(), why.code(),
                                  static_cast<int32_t>(why.detail()), why.message()));
    connection.dead = true;
    return;
  }
  Result<SegmentPair> pair = CreateSegments(*answer);
  KAIROS_CHECK(pair.ok());
  connection.segments = pair.Take();
  connection.requests =
      RingConsumer(SidecarRequestView(connection.segments, answer->request_ring_bytes, 0),
                   kRequestTypes, answer->request_bytes_max);
  connection.replies =
      RingProducer(SidecarReplyView(connection.segments, answer->reply_ring_bytes, 0),
                   answer->reply_bytes_max);
  connection.dead =
      !SendWelcome(connection.socket.get(), *answer, connection.segments).ok();
  connection.attached = !connection.dead;
}

bool FakeSidecar::Serve(Connection& connection) {
  if (!connection.attached) {
    Attach(connection);
    return !connection.dead;
  }
  if (DrainDoorbells(connection.socket.get(), 1024).closed) return false;
  while (!paused_ && !connection.dead) {
    RingMessage message;
    uint32_t frames_left = 64;
    const PollResult polled = connection.requests.Poll(&frames_left, &message);
    if (connection.requests.Release()) RingDoorbell(connection.socket.get());
    if (polled == PollResult::kBroken || polled == PollResult::kOversize) return false;
    if (polled == PollResult::kEmpty) break;
    if (polled == PollResult::kMessage) {
      requests_.fetch_add(1, std::memory_order_acq_rel);
      Handle(connection, message);
    }
  }
  if (!connection.dead) Flush(connection);
  return !connection.dead;
}

// As much as fits; the client rings when there is room again.
void FakeSidecar::Flush(Connection& connection) {
  RingProducer& ring = connection.replies;
  ring.FinishWait();
  while (!connection.queue.empty()) {
    Outgoing& front = connection.queue.front();
    OutgoingMessage message{static_cast<uint16_t>(front.type), front.request, front.payload,
                            front.sent};
    const PushResult pushed = ring.Push(&message);
    front.sent = message.sent;
    if (pushed == PushResult::kFull) {
      if (ring.Publish()) RingDoorbell(connection.socket.get());
      if (ring.PrepareWait(ring.frame_payload_max())) return;
      ring.FinishWait();
      continue;
    }
    KAIROS_CHECK(pushed == PushResult::kDone || pushed == PushResult::kBroken);
    connection.queue.pop_front();
  }
  if (ring.Publish()) RingDoorbell(connection.socket.get());
}

void FakeSidecar::Reply(Connection& connection, RecordType type, uint64_t id,
                        const ReplyFields& fields) {
  Payload payload;
  KAIROS_CHECK(EncodeReply(fields, &payload).ok());
  connection.queue.push_back({type, id, std::move(payload)});
}

void FakeSidecar::Refuse(Connection& connection, uint64_t id, int32_t code, int32_t detail,
                         const char* text) {
  ReplyFields fields;
  fields.code = code;
  fields.detail = detail;
  fields.text = text;
  Reply(connection, RecordType::kError, id, fields);
}

void FakeSidecar::Handle(Connection& connection, const RingMessage& message) {
  const auto type = static_cast<RecordType>(message.type);
  const uint64_t id = message.request_id;
  switch (type) {
    case RecordType::kPing:
      connection.queue.push_back(
          {RecordType::kPong, id, Payload(message.payload.begin(), message.payload.end())});
      return;
    case RecordType::kSessionCreate: return HandleCreate(connection, id, message.payload);
    case RecordType::kContextWrite: return HandleContextWrite(connection, id, message.payload);
    case RecordType::kTurnSubmit: return HandleTurn(connection, id, message.payload);
    case RecordType::kTurnCancel: return HandleCancel(connection, id, message.payload);
    case RecordType::kWatch: return Reply(connection, RecordType::kResult, id, {});
    default: return HandleSession(connection, type, id, message.payload);
  }
}

kairos_session_t FakeSidecar::Describe(uint64_t id, const Session& session) const {
  kairos_session_t out{};
  out.struct_size = sizeof(out);
  out.id = id;
  out.version = session.version;
  out.parent_id = session.parent;
  out.message_count = session.version;
  out.flags = session.flags;
  out.label_size = static_cast<uint32_t>(session.label.size());
  std::memcpy(out.label, session.label.data(), session.label.size());
  return out;
}

void FakeSidecar::HandleCreate(Connection& connection, uint64_t id, PayloadView payload) {
  const Result<SessionCreateView> create = DecodeSessionCreate(payload);
  if (!create.ok()) {
    return Refuse(connection, id, KAIROS_INVALID_ARGUMENT, 0, create.status().message());
  }
  ReplyFields fields;
  fields.session_id = next_session_++;
  sessions_[fields.session_id].label = create->label;
  sessions_[fields.session_id].flags = create->fixed.flags;
  Reply(connection, RecordType::kResult, id, fields);
}

void FakeSidecar::HandleContextWrite(Connection& connection, uint64_t id, PayloadView payload) {
  const Result<ContextWriteView> write = DecodeContextWrite(payload);
  const auto found = write.ok() ? sessions_.find(write->fixed.session_id) : sessions_.end();
  if (found == sessions_.end()) return Refuse(connection, id, KAIROS_NOT_FOUND, 0, "no session");
  Session& session = found->second;
  if (write->fixed.if_version >= 0 &&
      static_cast<uint64_t>(write->fixed.if_version) != session.version) {
    return Refuse(connection, id, KAIROS_FAILED_PRECONDITION, KAIROS_DETAIL_STALE_VERSION,
                  "if_version is not the head");
  }
  session.context = write->json;
  ++session.version;
  ReplyFields fields;
  fields.session_id = found->first;
  fields.version = session.version;
  Reply(connection, RecordType::kResult, id, fields);
}

void FakeSidecar::HandleSession(Connection& connection, RecordType type, uint64_t id,
                                PayloadView payload) {
  const Result<WireSessionRequest> request = DecodeSessionRequest(payload);
  if (!request.ok()) return Refuse(connection, id, KAIROS_INVALID_ARGUMENT, 0, "malformed");
  ReplyFields fields;
  fields.session_id = request->session_id;
  std::vector<kairos_session_t> records;
  if (type == RecordType::kSessionList) {
    for (auto at = sessions_.upper_bound(request->after_id);
         at != sessions_.end() && records.size() < request->list_max; ++at) {
      records.push_back(Describe(at->first, at->second));
    }
    fields.sessions = records;
    return Reply(connection, RecordType::kResult, id, fields);
  }
  const auto found = sessions_.find(request->session_id);
  if (found == sessions_.end()) return Refuse(connection, id, KAIROS_NOT_FOUND, 0, "no session");
  Session& session = found->second;
  const uint64_t session_version = fields.version = session.version;
  std::string text;
  switch (type) {
    case RecordType::kSessionFork: {
      fields.session_id = next_session_++;
      Session& fork = sessions_[fields.session_id] = session;
      fork.parent = request->session_id;
      if (request->version != 0) fork.version = request->version;
      break;
    }
    case RecordType::kSessionRewind: session.version = request->version; break;
    case RecordType::kSessionDelete: sessions_.erase(found); break;
    case RecordType::kSessionMessages:
      text = session.messages[request->version == 0 ? session.version : request->version];
      break;
    case RecordType::kContextRead: text = session.context; break;
    case RecordType::kSessionOpen:
    case RecordType::kSessionStat: records.push_back(Describe(found->first, session)); break;
    default: break;
  }
  if (request->known_version != 0 && request->known_version == session_version &&
      (request->version == 0 || request->version == session_version)) {
    text.clear();
    fields.detail = kNotChanged;
    not_changed_.fetch_add(1, std::memory_order_acq_rel);
  }
  fields.text = text;
  fields.sessions = records;
  Reply(connection, RecordType::kResult, id, fields);
}

void FakeSidecar::HandleTurn(Connection& connection, uint64_t id, PayloadView payload) {
  const Result<TurnView> turn = DecodeTurn(payload);
  if (!turn.ok()) {
    return Refuse(connection, id, KAIROS_INVALID_ARGUMENT, 0, turn.status().message());
  }
  uint64_t session_id = turn->fixed().session_id;
  if (session_id == 0) sessions_[session_id = next_session_++];
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end()) return Refuse(connection, id, KAIROS_NOT_FOUND, 0, "no session");
  const int64_t if_version = turn->fixed().if_version;
  if (if_version >= 0 && static_cast<uint64_t>(if_version) != found->second.version) {
    return Refuse(connection, id, KAIROS_FAILED_PRECONDITION, KAIROS_DETAIL_STALE_VERSION,
                  "if_version is not the head");
  }
  ReplyFields accepted;
  accepted.session_id = session_id;
  accepted.version = found->second.version;
  Reply(connection, RecordType::kAccepted, id, accepted);
  const std::string text =
      turn->message_count() == 0
          ? "tokens " + std::to_string(turn->token_count())
          : std::string(turn->message(turn->message_count() - 1).content);
  AnswerTurn(connection, id, session_id, text);
}

void FakeSidecar::AnswerTurn(Connection& connection, uint64_t id, uint64_t session,
                             const std::string& text) {
  ReplyFields fields;
  fields.session_id = session;
  if (text == "hang") {
    connection.hanging[id] = session;
    return;
  }
  if (text == "fail") {
    return Refuse(connection, id, KAIROS_RESOURCE_EXHAUSTED, KAIROS_DETAIL_QUOTA, "quota: turns");
  }
  if (text == "die") {
    Flush(connection);
    connection.dead = true;
    return;
  }
  if (text.starts_with("states ")) {
    const uint64_t count = std::stoull(text.substr(7));
    for (uint64_t i = 1; i <= count; ++i) {
      kairos_session_t state{};
      state.struct_size = sizeof(state);
      state.id = (i - 1) % 3 + 1;
      state.version = i;
      ReplyFields record;
      record.session_id = state.id;
      record.version = i;
      record.sessions = {&state, 1};
      Reply(connection, RecordType::kSession, 0, record);
    }
  }
  if (text == "nonsense") {
    connection.queue.push_back({static_cast<RecordType>(50), id, Payload(8)});
    return;
  }
  if (text == "reasoning") {
    fields.text = "hm";
    fields.code = kReasoningText;
    Reply(connection, RecordType::kText, id, fields);
    fields.text = "<tool_call>{";
    fields.code = 0;
    fields.detail = KAIROS_DETAIL_CALL_UNFINISHED;
    Reply(connection, RecordType::kText, id, fields);
    return Finish(connection, id, session, KAIROS_FINISH_STOP);
  }
  if (text == "tool" || text == "logprobs") {
    const bool tool = text == "tool";
    fields.text = tool ? R"({"id":"call_1","name":"weather","arguments":{"city":"Oslo"}})"
                       : R"({"token":5,"logprob":-0.5,"top":[{"token":5,"logprob":-0.5},)"
                         R"({"token":6,"logprob":null}]})";
    Reply(connection, tool ? RecordType::kToolCall : RecordType::kLogprobs, id, fields);
    return Finish(connection, id, session, tool ? KAIROS_FINISH_TOOL_CALL : KAIROS_FINISH_STOP);
  }
  const uint32_t events =
      text.starts_with("burst ") ? static_cast<uint32_t>(std::atoi(text.c_str() + 6)) : 1;
  for (uint32_t i = 0; i < events; ++i) {
    const int32_t tokens[2] = {static_cast<int32_t>(i), 7};
    const std::string number = std::to_string(i) + " ";
    fields.text = text.starts_with("burst ") ? number : text;
    fields.tokens = tokens;
    Reply(connection, RecordType::kText, id, fields);
  }
  Finish(connection, id, session, KAIROS_FINISH_STOP);
}

void FakeSidecar::Finish(Connection& connection, uint64_t id, uint64_t session, int32_t finish) {
  Session& record = sessions_[session];
  ++record.version;
  record.messages[record.version] =
      R"([{"role":"user","content":"turn )" + std::to_string(record.version) + R"("}])";
  kairos_final_t final{};
  final.struct_size = sizeof(final);
  final.finish = finish;
  final.session_id = session;
  final.version = record.version;
  final.new_tokens = 3;
  final.reused_tokens = record.version;
  final.first_difference = -1;
  ReplyFields fields;
  fields.session_id = session;
  fields.version = record.version;
  fields.final = &final;
  Reply(connection, RecordType::kFinal, id, fields);
}

void FakeSidecar::HandleCancel(Connection& connection, uint64_t id, PayloadView payload) {
  const Result<WireTurnCancel> cancel = DecodeTurnCancel(payload);
  const auto hanging =
      cancel.ok() ? connection.hanging.find(cancel->target) : connection.hanging.end();
  if (hanging == connection.hanging.end()) return;
  Finish(connection, hanging->first, hanging->second, KAIROS_FINISH_CANCELLED);
  connection.hanging.erase(hanging);
}

}  // namespace kairos
