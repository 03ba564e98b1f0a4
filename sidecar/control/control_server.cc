// SPDX-License-Identifier: Apache-2.0
#include "sidecar/control/control_server.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "base/log.h"

namespace kairos {

namespace {

constexpr uint64_t kReplyLimitNs = 1'000'000'000;
constexpr size_t kPendingMax = 256;
constexpr int kMessagesPerWork = 64;
// Waiting in libzmq for one peer, in each direction. Each may have kControlRequestBytesMax.
constexpr int kMessagesOfPeerMax = 4;
// Of a message, beside its body.
constexpr uint64_t kEnvelopeSlackBytes = 4096;

// One received frame.
class Frame {
 public:
  Frame() { zmq_msg_init(&message_); }
  ~Frame() { zmq_msg_close(&message_); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  bool Receive(void* socket) { return zmq_msg_recv(&message_, socket, ZMQ_DONTWAIT) >= 0; }
  bool more() const { return zmq_msg_more(&message_) != 0; }
  std::string_view bytes() {
    return {static_cast<const char*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
  }
  const char* peer_address() { return zmq_msg_gets(&message_, "Peer-Address"); }

 private:
  zmq_msg_t message_;
};

bool SetOption(void* socket, int option, int value) {
  return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0;
}

bool SetOptions(void* socket) {
  const int64_t message_bytes_max = kControlRequestBytesMax;
  return SetOption(socket, ZMQ_ROUTER_MANDATORY, 1) && SetOption(socket, ZMQ_ROUTER_HANDOVER, 0) &&
         SetOption(socket, ZMQ_SNDHWM, kMessagesOfPeerMax) &&
         SetOption(socket, ZMQ_RCVHWM, kMessagesOfPeerMax) &&
         // The door has looked at the peers; nobody else of this host comes in.
         SetOption(socket, ZMQ_IPC_FILTER_PID, static_cast<int>(getpid())) &&
         SetOption(socket, ZMQ_LINGER, 0) && SetOption(socket, ZMQ_HANDSHAKE_IVL, 1000) &&
         SetOption(socket, ZMQ_BACKLOG, 128) &&
         zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &message_bytes_max, sizeof(message_bytes_max)) == 0;
}

// A name for libzmq's endpoint that nobody else has; empty without random numbers.
std::string InnerName() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != static_cast<ssize_t>(sizeof(number))) return "";
  return fmt::format("kairos-control-{}-{:016x}", getpid(), number);
}

// The second look at a peer, behind the door's: where a build of libzmq ignores the filter.
bool Allowed(const char* peer_address) {
  uint32_t uid = 0;
  return peer_address != nullptr && ParsePeerUid(peer_address, &uid) &&
         (uid == geteuid() || uid == 0);
}

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::Create(const std::string& path,
                                                             SpscQueue<ControlRequest>& requests,
                                                             Waker& conductor,
                                                             SpscQueue<ControlReply>& replies,
                                                             Waker& own, std::string* error) {
  std::unique_ptr<ControlServer> server(new ControlServer(requests, conductor, replies, own));
  std::string words;
  const Status status = server->Bind(path, &words);
  if (status.ok()) return server;
  if (error != nullptr) *error = "cannot listen on " + path + ": " + words;
  return status;
}

Status ControlServer::Bind(const std::string& path, std::string* error) {
  context_ = zmq_ctx_new();
  if (context_ != nullptr) socket_ = zmq_socket(context_, ZMQ_ROUTER);
  const std::string inner = InnerName();
  if (socket_ == nullptr || inner.empty() || !SetOptions(socket_) ||
      zmq_bind(socket_, ("ipc://@" + inner).c_str()) != 0) {
    *error = zmq_strerror(zmq_errno());
    return {Code::kUnavailable, "control socket: cannot be made"};
  }
  const Status opened = door_.Open(path, inner, kControlRequestBytesMax + kEnvelopeSlackBytes);
  if (!opened.ok()) *error = opened.message();
  return opened;
}

ControlServer::~ControlServer() {
  if (socket_ != nullptr) zmq_close(socket_);
  if (context_ != nullptr) zmq_ctx_term(context_);
}

bool ControlServer::DoWork(int timeout_ms) {
  own_.Prepare();
  if (replies_.empty()) Sleep(SleepMs(timeout_ms));
  own_.Finish();
  bool did_work = door_.DoWork();
  did_work |= TakeReplies();
  did_work |= TakeMessages();
  did_work |= ExpirePending();
  return did_work;
}

void ControlServer::Sleep(int timeout_ms) {
  zmq_pollitem_t items[3] = {{socket_, 0, ZMQ_POLLIN, 0},
                             {nullptr, own_.fd(), ZMQ_POLLIN, 0},
                             {nullptr, door_.fd(), ZMQ_POLLIN, 0}};
  zmq_poll(items, 3, timeout_ms);
}

int ControlServer::SleepMs(int timeout_ms) const {
  if (pending_.empty()) return timeout_ms;
  uint64_t deadline_ns = UINT64_MAX;
  for (const auto& [ticket, pending] : pending_) {
    deadline_ns = std::min(deadline_ns, pending.deadline_ns);
  }
  const uint64_t now_ns = MonotonicNs();
  const int left_ms =
      deadline_ns <= now_ns ? 0 : static_cast<int>((deadline_ns - now_ns) / 1'000'000 + 1);
  return timeout_ms < 0 ? left_ms : std::min(timeout_ms, left_ms);
}

bool ControlServer::TakeMessages() {
  int taken = 0;
  for (; taken < kMessagesPerWork; ++taken) {
    Frame peer;
    if (!peer.Receive(socket_)) break;
    Frame envelope;
    Frame body;
    // Parts of one message arrive together or not at all.
    const bool has_envelope = peer.more() && envelope.Receive(socket_);
    const bool has_body = has_envelope && envelope.more() && body.Receive(socket_);
    const bool shaped = has_body && !body.more();
    for (bool more = has_body && body.more(); more;) {
      Frame surplus;
      more = surplus.Receive(socket_) && surplus.more();
    }
    if (!shaped || !Allowed(envelope.peer_address())) {
      ++refused_total_;
      continue;
    }
    OnMessage(std::string(peer.bytes()), envelope.bytes(), body.bytes());
  }
  return taken > 0;
}

void ControlServer::OnMessage(const std::string& peer, std::string_view envelope_bytes,
                              std::string_view body) {
  // Cleared: of an envelope that cannot be read, nothing counts.
  ControlEnvelope envelope{.magic = 0};
  Status status = DecodeEnvelope(envelope_bytes, body, &envelope);
  Pending pending{peer, envelope.request_id, envelope.verb, MonotonicNs() + kReplyLimitNs};
  if (!status.ok() && envelope.magic != kControlMagic) {
    ++refused_total_;
    return;
  }
  ControlRequest request;
  if (status.ok() && envelope.flags != 0) {
    status = {Code::kInvalidArgument, "control envelope: is not a request"};
  }
  const bool known = envelope.verb >= static_cast<uint16_t>(ControlVerb::kPing) &&
                     envelope.verb <= static_cast<uint16_t>(kControlVerbLast);
  if (status.ok() && !known) status = {Code::kUnimplemented, "control: unknown verb"};
  if (status.ok()) status = DecodeRequest(body, &request);
  if (!status.ok()) {
    ++refused_total_;
    return Refuse(pending, status);
  }
  if (pending_.size() >= kPendingMax) {
    return Refuse(pending, {Code::kResourceExhausted, "control: too many requests are open"});
  }
  request.verb = static_cast<ControlVerb>(envelope.verb);
  request.ticket = next_ticket_++;
  request.uid = geteuid();
  request.list_max = std::min(request.list_max, kControlSessionsMax);
  const uint64_t ticket = request.ticket;
  if (!requests_.TryPush(std::move(request))) {
    return Refuse(pending, {Code::kUnavailable, "control: the sidecar is busy"});
  }
  conductor_.Wake();
  pending_.emplace(ticket, std::move(pending));
}

bool ControlServer::TakeReplies() {
  bool any = false;
  while (std::optional<ControlReply> reply = replies_.TryPop()) {
    any = true;
    const auto found = pending_.find(reply->ticket);
    if (found == pending_.end()) continue;
    Send(found->second, *reply);
    pending_.erase(found);
  }
  return any;
}

bool ControlServer::ExpirePending() {
  const uint64_t now_ns = MonotonicNs();
  return std::erase_if(pending_, [&](const auto& entry) {
           if (entry.second.deadline_ns > now_ns) return false;
           Refuse(entry.second, {Code::kUnavailable, "control: no answer in time"});
           return true;
         }) > 0;
}

void ControlServer::Refuse(const Pending& to, const Status& status) {
  ControlReply reply;
  reply.code = static_cast<int32_t>(status.code());
  reply.text = status.message();
  Send(to, reply);
}

void ControlServer::Send(const Pending& to, const ControlReply& reply) {
  Result<std::string> body = EncodeReply(reply);
  if (!body.ok()) return Refuse(to, body.status());
  ControlEnvelope envelope;
  envelope.verb = to.verb;
  envelope.flags = kControlFlagReply;
  envelope.request_id = to.request_id;
  const std::string head = EncodeEnvelope(envelope, *body);
  // A peer that is gone or does not read loses its reply; nothing waits for it.
  const bool sent =
      zmq_send(socket_, to.peer.data(), to.peer.size(), ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 &&
      zmq_send(socket_, head.data(), head.size(), ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 &&
      zmq_send(socket_, body->data(), body->size(), ZMQ_DONTWAIT) >= 0;
  if (!sent) LogInfo("control", "reply_dropped verb={} errno={}", to.verb, zmq_errno());
}

}  // namespace kairos
