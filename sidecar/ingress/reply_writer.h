// SPDX-License-Identifier: Apache-2.0
// The way of replies into one client's s2c ring. A full ring never blocks ingress: what does not
// fit waits here, within a limit, and text of the same turn is merged while it waits.
// Owner: ingress thread.
//
// 1. Messages leave in the order they came, except that waiting text of a turn joins earlier
//    waiting text of the same turn when nothing else of that turn was queued in between.
// 2. Text over `text_bytes_max` is refused with kOverText: the caller ends that turn. Everything
//    else is accepted up to `bytes_max`, beyond which kOverAll means that the attachment must go.
// 3. States of sessions that the client watches go last and are in nobody's way: of each session
//    the latest waits, of states_max sessions, and they count for none of these limits.
#pragma once

#include <cstdint>
#include <deque>

#include "base/latest_queue.h"
#include "shm/records.h"
#include "shm/ring.h"
#include "sidecar/ingress/reply.h"

namespace kairos {

struct ReplyLimits {
  uint64_t text_bytes_max = 1u << 20;               // waiting, of one attachment
  uint64_t bytes_max = uint64_t{kReplyBytesMax} + (8u << 20);
  uint32_t states_max = 256;
};

class ReplyWriter {
 public:
  enum class Outcome { kTaken, kOverText, kOverAll, kBroken };

  ReplyWriter() = default;
  ReplyWriter(const RingView& view, uint64_t reply_bytes_max, const ReplyLimits& limits);

  // Puts the reply into the ring or keeps it. kDetached is not for clients.
  Outcome Write(Reply&& reply);
  // Plain bytes that answer a ping.
  Outcome WritePong(uint64_t request_id, PayloadView payload);
  // A reply of kind kSession: sent when nothing else waits.
  Outcome WriteState(const Reply& reply);
  // Sends what waits as far as it fits; false when the ring is broken.
  bool Flush();
  // Drops the waiting text of one turn.
  void DropText(RequestId id);
  // A last message before the attachment is closed: skips what waits, best effort.
  void WriteLast(Reply&& reply);

  // Makes everything visible. True: ring the client's doorbell.
  bool Publish() { return ring_.Publish(); }
  bool empty() const { return waiting_.empty() && states_.empty(); }
  uint64_t waiting_bytes() const { return waiting_bytes_; }
  size_t waiting_count() const { return waiting_.size(); }
  // Since when the first waiting message has not moved, or 0.
  uint64_t stalled_since_ns() const { return stalled_since_ns_; }
  // Notes progress or the lack of it since the last call.
  void NoteTime(uint64_t now_ns);
  // Calls `visit(RequestId)` for every turn that has text waiting.
  template <typename Visit>
  void VisitWaitingTurns(Visit visit) const {
    for (const Waiting& one : waiting_) {
      if (!one.encoded && one.reply.kind == ReplyKind::kText) visit(one.reply.id);
    }
  }

 private:
  struct Waiting {
    Reply reply;  // until it is encoded
    bool encoded = false;
    uint16_t type = 0;
    uint64_t request_id = 0;
    Payload payload;  // once encoded
    uint64_t sent = 0;
    uint64_t bytes = 0;  // counted in waiting_bytes_
  };

  // Encodes into `out` and gives the record type; a reply over the limit becomes an error record.
  RecordType Encode(const Reply& reply, Payload* out) const;
  Outcome Keep(Waiting&& one);
  bool MergeText(Reply& reply);
  PushResult PushSome(Waiting* one);
  bool FlushStates();

  RingProducer ring_;
  uint64_t reply_bytes_max_ = kReplyBytesMax;
  ReplyLimits limits_;
  std::deque<Waiting> waiting_;
  LatestQueue<SessionId, kairos_session_t> states_{0};
  uint64_t waiting_bytes_ = 0;
  uint64_t stalled_since_ns_ = 0;
  bool progressed_ = false;
  Payload scratch_;
};

}  // namespace kairos
