// SPDX-License-Identifier: Apache-2.0
#include "sidecar/ingress/attachment.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/log.h"
#include "shm/doorbell.h"

namespace kairos {

Attachment::Attachment(AttachmentId id, Descriptor socket, const PeerCredentials& peer,
                       const AttachmentLimits& limits, IngressPorts* ports, uint64_t now_ns)
    : id_(id),
      socket_(std::move(socket)),
      peer_(peer),
      limits_(limits),
      ports_(ports),
      since_ns_(now_ns),
      active_ns_(now_ns) {}

Attachment::~Attachment() { CountRings(0); }

void Attachment::CountRings(uint64_t bytes) {
  ports_->ring_bytes += bytes - ring_bytes_;
  ring_bytes_ = bytes;
  ports_->counters->ring_bytes.Set(ports_->ring_bytes);
}

bool Attachment::Welcome(const AttachOffer& offer, uint64_t now_ns, bool* again) {
  *again = false;
  auto hello = ReceiveHello(socket_.get());
  if (!hello.ok()) {
    *again = hello.status().detail() == EAGAIN || hello.status().detail() == EINTR;
    if (hello.status().code() == Code::kInvalidArgument) {
      (void)SendRefusal(socket_.get(), hello.status().code(), KAIROS_DETAIL_PROTOCOL,
                        hello.status().message());
    }
    return false;
  }
  const auto refuse = [&](const Status& status, int32_t detail) {
    (void)SendRefusal(socket_.get(), status.code(), detail, status.message());
    return false;
  };
  auto answer = Negotiate(*hello, offer, id_.value);
  if (!answer.ok()) {
    return refuse(answer.status(), static_cast<int32_t>(answer.status().detail()));
  }
  const uint64_t bytes = uint64_t{answer->request_ring_bytes} + answer->reply_ring_bytes;
  if (bytes > ports_->ring_bytes_max || ports_->ring_bytes > ports_->ring_bytes_max - bytes) {
    const std::string text =
        fmt::format("rings of {} KiB, besides {} KiB of other clients: at most {} KiB together "
                    "(limits.ring_memory)",
                    bytes / 1024, ports_->ring_bytes / 1024, ports_->ring_bytes_max / 1024);
    (void)SendRefusal(socket_.get(), Code::kResourceExhausted, KAIROS_DETAIL_QUOTA, text);
    return false;
  }
  auto pair = CreateSegments(*answer);
  if (!pair.ok()) return refuse(pair.status(), KAIROS_DETAIL_QUOTA);
  segments_ = pair.Take();
  CountRings(bytes);
  requests_ = RingConsumer(
      SidecarRequestView(segments_, answer->request_ring_bytes, answer->start_position),
      kRequestTypes, answer->request_bytes_max);
  replies_ = ReplyWriter(
      SidecarReplyView(segments_, answer->reply_ring_bytes, answer->start_position),
      answer->reply_bytes_max, limits_.reply);
  if (!SendWelcome(socket_.get(), *answer, segments_).ok()) return false;
  // The mappings are enough; each descriptor kept would count against the process's limit.
  segments_.c2s.CloseFd();
  segments_.s2c.CloseFd();
  if (auto pidfd = OpenPeerPidfd(socket_.get(), peer_); pidfd.ok()) pidfd_ = Descriptor(*pidfd);
  name_space_ = hello->name_space_size == 0
                    ? std::string("default")
                    : std::string(hello->name_space, hello->name_space_size);
  phase_ = Phase::kLive;
  active_ns_ = now_ns;
  Send(Stamped(RequestKind::kAttach, RequestId{}, now_ns));
  return true;
}

Request Attachment::Stamped(RequestKind kind, RequestId id, uint64_t now_ns) const {
  Request request;
  request.kind = kind;
  request.attachment = id_;
  request.id = id;
  request.received_ns = now_ns;
  request.uid = peer_.uid;
  request.name_space = name_space_;
  return request;
}

void Attachment::Send(Request&& request) {
  if (pending_.empty() && ports_->requests->TryPush(std::move(request))) {
    ports_->counters->requests.Add();
    ports_->pushed = true;
    return;
  }
  if (pending_.empty()) ports_->counters->queue_full.Add();
  pending_.push_back(std::move(request));
}

uint32_t Attachment::Drain(uint64_t now_ns) {
  uint32_t frames = limits_.frames_per_visit;
  uint32_t messages = 0;
  while (CanRead()) {
    RingMessage message;
    const PollResult polled = requests_.Poll(&frames, &message);
    if (polled == PollResult::kEmpty || polled == PollResult::kBudget) break;
    if (polled == PollResult::kBroken) {
      Expel(requests_.violation(), KAIROS_FAILED_PRECONDITION, KAIROS_DETAIL_PROTOCOL,
            "the client broke the ring protocol; the attachment is closed", now_ns);
      return messages + 1;
    }
    ++messages;
    active_ns_ = now_ns;
    ports_->counters->records.Add();
    Charge(message, now_ns);
    if (polled == PollResult::kOversize) {
      Refuse({message.request_id}, Code::kInvalidArgument, KAIROS_DETAIL_RECORD_TOO_LARGE,
             "record: larger than one request may be", now_ns);
    } else {
      ports_->counters->record_bytes.Add(message.payload.size());
      OnMessage(message, now_ns);
    }
  }
  return messages;
}

void Attachment::Charge(const RingMessage& message, uint64_t now_ns) {
  // With nothing to compute there is nobody to protect, and rings go as fast as they can.
  if (ports_->turns_in_flight == 0) return;
  const bool is_ping = static_cast<RecordType>(message.type) == RecordType::kPing;
  const uint64_t work_ns = (is_ping ? WorkAllowance::kPingNs : WorkAllowance::kRequestNs) +
                           WorkAllowance::WorkOfBytes(message.payload.size());
  paused_until_ns_ = allowance_.Spend(work_ns, now_ns);
  ports_->counters->pauses.Add(paused_until_ns_ != 0);
}

void Attachment::OnMessage(const RingMessage& message, uint64_t now_ns) {
  const RequestId id{message.request_id};
  const auto type = static_cast<RecordType>(message.type);
  if (type == RecordType::kPing) {
    ports_->counters->pings.Add();
    if (message.payload.size() > kPingBytesMax) {
      Refuse(id, Code::kInvalidArgument, KAIROS_DETAIL_RECORD_TOO_LARGE,
             "ping size: at most 65536 bytes", now_ns);
      return;
    }
    Take(replies_.WritePong(id.value, message.payload), id, now_ns);
    return;
  }
  Request request = Stamped(RequestKind::kAttach, id, now_ns);
  const Status status = ReadRequest(type, message.payload, limits_.request, &request);
  if (!status.ok()) {
    if (status.detail() == KAIROS_DETAIL_PROTOCOL) {
      Expel(Violation::kBadRecord, KAIROS_FAILED_PRECONDITION, KAIROS_DETAIL_PROTOCOL,
            status.message(), now_ns);
    } else if (in_flight_.contains(id.value)) {
      Expel(Violation::kDuplicateRequestId, KAIROS_FAILED_PRECONDITION, KAIROS_DETAIL_PROTOCOL,
            "request id: already in flight", now_ns);
    } else {
      Refuse(id, status.code(), static_cast<int32_t>(status.detail()), status.message(), now_ns);
    }
    return;
  }
  if (request.kind == RequestKind::kTurnCancel) {
    OnCancel(std::move(request));
  } else if (Admit(request, message.payload.size(), now_ns)) {
    Send(std::move(request));
  }
}

void Attachment::OnCancel(Request&& request) {
  // Cancelling a finished turn is no error and no work.
  const auto target = in_flight_.find(request.target.value);
  if (target == in_flight_.end() || target->second.kind != RequestKind::kTurnSubmit) return;
  Send(std::move(request));
}

bool Attachment::Admit(const Request& request, uint64_t bytes, uint64_t now_ns) {
  const RequestId id = request.id;
  if (in_flight_.contains(id.value)) {
    Expel(Violation::kDuplicateRequestId, KAIROS_FAILED_PRECONDITION, KAIROS_DETAIL_PROTOCOL,
          "request id: already in flight", now_ns);
    return false;
  }
  if (in_flight_.size() >= limits_.in_flight_max) {
    Refuse(id, Code::kResourceExhausted, KAIROS_DETAIL_QUOTA,
           fmt::format("requests in flight: at most {} (limits.in_flight_per_client)",
                       limits_.in_flight_max)
               .c_str(),
           now_ns);
    return false;
  }
  if (in_flight_bytes_ + bytes > limits_.in_flight_bytes_max) {
    Refuse(id, Code::kResourceExhausted, KAIROS_DETAIL_QUOTA,
           fmt::format("bytes in flight: at most {} of one client", limits_.in_flight_bytes_max)
               .c_str(),
           now_ns);
    return false;
  }
  in_flight_.emplace(id.value, InFlight{request.kind, bytes});
  in_flight_bytes_ += bytes;
  ports_->turns_in_flight += request.kind == RequestKind::kTurnSubmit;
  return true;
}

void Attachment::Refuse(RequestId id, Code code, int32_t detail, const char* text,
                        uint64_t now_ns) {
  ports_->counters->refusals.Add();
  Reply reply;
  reply.kind = ReplyKind::kError;
  reply.id = id;
  reply.code = static_cast<int32_t>(code);
  reply.detail = detail;
  reply.text = text;
  Take(replies_.Write(std::move(reply)), RequestId{}, now_ns);
}

void Attachment::Take(ReplyWriter::Outcome outcome, RequestId id, uint64_t now_ns) {
  switch (outcome) {
    case ReplyWriter::Outcome::kTaken: break;
    case ReplyWriter::Outcome::kOverText: MarkSlow(id); break;
    case ReplyWriter::Outcome::kOverAll:
      ports_->counters->over_memory.Add();
      Expel(Violation::kNone, KAIROS_RESOURCE_EXHAUSTED, KAIROS_DETAIL_SLOW_CONSUMER,
            "replies were not read; the attachment is closed", now_ns);
      break;
    case ReplyWriter::Outcome::kBroken:
      Expel(Violation::kHeadInvalid, KAIROS_FAILED_PRECONDITION, KAIROS_DETAIL_PROTOCOL,
            "the client broke the ring protocol; the attachment is closed", now_ns);
      break;
  }
}

void Attachment::Deliver(Reply&& reply, uint64_t now_ns) {
  if (phase_ == Phase::kLive && reply.kind == ReplyKind::kSession) {
    ports_->counters->replies.Add();
    return Take(replies_.WriteState(std::move(reply)), RequestId{}, now_ns);
  }
  const auto found = in_flight_.find(reply.id.value);
  if (phase_ != Phase::kLive || found == in_flight_.end()) {
    ports_->counters->replies_dropped.Add();
    return;
  }
  active_ns_ = now_ns;
  const bool is_stream = IsStream(reply.kind);
  if (found->second.is_slow) {
    if (is_stream) return;
    if (reply.kind == ReplyKind::kFinal) {
      reply.kind = ReplyKind::kError;
      reply.code = KAIROS_CANCELLED;
      reply.detail = KAIROS_DETAIL_SLOW_CONSUMER;
      reply.text = "events were not read in time; the turn was cancelled";
      reply.tokens.clear();
    }
  }
  const bool ends = reply.kind == ReplyKind::kFinal || reply.kind == ReplyKind::kError ||
                    reply.kind == ReplyKind::kResult;
  if (ends) {
    in_flight_bytes_ -= found->second.bytes;
    ports_->turns_in_flight -= found->second.kind == RequestKind::kTurnSubmit;
    in_flight_.erase(found);
  }
  ports_->counters->replies.Add();
  const RequestId id = reply.id;
  Take(replies_.Write(std::move(reply)), id, now_ns);
}

void Attachment::MarkSlow(RequestId id) {
  const auto found = in_flight_.find(id.value);
  if (found == in_flight_.end() || found->second.is_slow) return;
  found->second.is_slow = true;
  replies_.DropText(id);
  ports_->counters->slow_consumers.Add();
  Request cancel = Stamped(RequestKind::kTurnCancel, id, active_ns_);
  cancel.target = id;
  Send(std::move(cancel));
}

bool Attachment::Settle(uint64_t now_ns) {
  bool moved = false;
  while (!pending_.empty() && ports_->requests->TryPush(std::move(pending_.front()))) {
    ports_->counters->requests.Add();
    ports_->pushed = true;
    pending_.pop_front();
    moved = true;
  }
  if (phase_ != Phase::kLive) return moved;
  if (!replies_.empty()) {
    const uint64_t before = replies_.waiting_bytes();
    if (!replies_.Flush()) Take(ReplyWriter::Outcome::kBroken, RequestId{}, now_ns);
    moved |= replies_.waiting_bytes() != before;
  }
  replies_.NoteTime(now_ns);
  // Not short-circuited: each of the two publishes something.
  const bool reader_sleeps = replies_.Publish();
  const bool writer_waits = requests_.Release();
  if (phase_ == Phase::kLive && (reader_sleeps || writer_waits) &&
      RingDoorbell(socket_.get()) == RingResult::kGone) {
    Leave(now_ns);
  }
  return moved;
}

void Attachment::CheckSlow(uint64_t now_ns) {
  const uint64_t since = replies_.stalled_since_ns();
  if (phase_ != Phase::kLive || since == 0 || now_ns < since + limits_.slow_consumer_ns) {
    return;
  }
  std::vector<RequestId> slow;
  replies_.VisitWaitingTurns([&](RequestId id) { slow.push_back(id); });
  for (const RequestId id : slow) MarkSlow(id);
}

void Attachment::Leave(uint64_t now_ns) {
  if (phase_ != Phase::kLive) return;
  phase_ = Phase::kLeaving;
  ports_->counters->detached.Add();
  socket_.Close();
  pidfd_.Close();
  for (const auto& [id, one] : in_flight_) {
    ports_->turns_in_flight -= one.kind == RequestKind::kTurnSubmit;
  }
  in_flight_.clear();
  Send(Stamped(RequestKind::kDetach, RequestId{}, now_ns));
}

void Attachment::Expel(Violation violation, int32_t code, int32_t detail, const char* text,
                       uint64_t now_ns) {
  if (phase_ != Phase::kLive) return;
  ports_->counters->poisoned[static_cast<size_t>(violation)].Add(violation != Violation::kNone);
  uint64_t left_out = 0;
  if (violation != Violation::kNone && ports_->violations.Admit(now_ns, &left_out)) {
    LogWarn("ingress", "client_expelled uid={} pid={} violation={} left_out={}", peer_.uid,
            peer_.pid, ViolationName(violation), left_out);
  }
  Reply reply;
  reply.kind = ReplyKind::kError;
  reply.code = code;
  reply.detail = detail;
  reply.text = text;
  replies_.WriteLast(std::move(reply));
  if (replies_.Publish()) (void)RingDoorbell(socket_.get());
  Leave(now_ns);
}

}  // namespace kairos
