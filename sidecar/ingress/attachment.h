// SPDX-License-Identifier: Apache-2.0
// One client process as ingress knows it: its socket, its two rings, what it has in flight.
// Owner: ingress thread. All client-writable memory is read here and nowhere else.
//
//   kHello --hello ok--> kLive --end of file, death, violation--> kLeaving --kDetached--> gone
//      |                                                            (conductor answered)
//      +--refused, late, gone--> gone
//
// 1. A request id is in flight from its record until the reply that ends it; meeting it again is a
//    violation. Cancels are not in flight.
// 2. What the conductor's queue has no room for waits here, and the ring is not read meanwhile.
// 3. After a violation the ring is never read again.
// 4. While any client's turn runs, each has a WorkAllowance; one that used it up is not read for a
//    while.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>

#include "base/log_throttle.h"
#include "base/spsc_queue.h"
#include "shm/attach.h"
#include "shm/counters.h"
#include "shm/peer.h"
#include "sidecar/ingress/reply_writer.h"
#include "sidecar/ingress/request.h"
#include "sidecar/ingress/request_reader.h"
#include "sidecar/ingress/work_allowance.h"

namespace kairos {

struct AttachmentLimits {
  uint32_t in_flight_max = 256;                // requests of one client
  uint64_t in_flight_bytes_max = 64u << 20;    // their records
  uint32_t frames_per_visit = 64;
  uint64_t slow_consumer_ns = 30'000'000'000;  // replies not moving for this long
  RequestLimits request;
  ReplyLimits reply;
};

// Written by ingress, read by anyone.
struct IngressCounters {
  Counter attachments;            // now, leaving ones included
  Counter ring_bytes;             // now, of all rings
  Counter attached;               // all counters from here on only grow
  Counter attach_refused;
  Counter attach_timeouts;
  Counter detached;
  Counter records;
  Counter record_bytes;
  Counter pings;
  Counter requests;               // handed to the conductor
  Counter refusals;               // error records for single requests
  Counter replies;
  Counter replies_dropped;        // their client or request is gone
  Counter slow_consumers;         // turns cancelled
  Counter queue_full;             // times a ring had to wait for the conductor's queue
  Counter lost_wakes;             // must stay 0
  Counter sweeps;
  Counter wakeups;                // returns from sleep
  Counter doorbells;
  Counter doorbells_empty;
  Counter demotions;              // attachments moved to timer polling
  Counter pauses;                 // times a client had used up its WorkAllowance
  Counter over_memory;            // attachments closed for their buffered bytes
  Counter poisoned[static_cast<size_t>(Violation::kCount)];
};

// What attachments share of their ingress.
struct IngressPorts {
  SpscQueue<Request>* requests = nullptr;
  IngressCounters* counters = nullptr;
  bool pushed = false;  // the conductor has to be woken
  uint64_t turns_in_flight = 0;  // of all clients
  uint64_t ring_bytes = 0;       // of all rings
  uint64_t ring_bytes_max = 0;
  LogThrottle violations;
};

class Attachment {
 public:
  enum class Phase { kHello, kLive, kLeaving };

  Attachment(AttachmentId id, Descriptor socket, const PeerCredentials& peer,
             const AttachmentLimits& limits, IngressPorts* ports, uint64_t now_ns);
  ~Attachment();
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  // Reads the hello and answers it. True: live now. False with `*again`: nothing there yet;
  // otherwise refused or gone.
  bool Welcome(const AttachOffer& offer, uint64_t now_ns, bool* again);

  // Takes requests from the ring, at most frames_per_visit frames. Returns how many messages.
  uint32_t Drain(uint64_t now_ns);
  // One reply of the conductor for this client.
  void Deliver(Reply&& reply, uint64_t now_ns);
  // Moves what waits (requests and replies) and makes everything visible; returns whether anything
  // moved. The end of each visit.
  bool Settle(uint64_t now_ns);
  // Cancels the turns of a client that does not read.
  void CheckSlow(uint64_t now_ns);
  // Ends the life of the rings; the conductor is told, once.
  void Leave(uint64_t now_ns);
  // Leave, with one error record to the client first.
  void Expel(Violation violation, int32_t code, int32_t detail, const char* text, uint64_t now_ns);

  AttachmentId id() const { return id_; }
  Phase phase() const { return phase_; }
  const PeerCredentials& peer() const { return peer_; }
  int socket() const { return socket_.get(); }
  int pidfd() const { return pidfd_.get(); }
  uint64_t since_ns() const { return since_ns_; }
  uint64_t active_ns() const { return active_ns_; }
  RingConsumer& ring() { return requests_; }
  const ReplyWriter& replies() const { return replies_; }
  bool CanRead() const {
    return phase_ == Phase::kLive && pending_.empty() && paused_until_ns_ == 0 &&
           replies_.waiting_bytes() <= limits_.reply.text_bytes_max / 2;
  }
  bool waits_for_conductor() const { return !pending_.empty(); }
  // 0: not paused.
  uint64_t paused_until_ns() const { return paused_until_ns_; }
  void EndPause(uint64_t now_ns) {
    if (now_ns >= paused_until_ns_) paused_until_ns_ = 0;
  }
  size_t in_flight() const { return in_flight_.size(); }

  // Kept by RingIngress.
  bool is_hot = false;          // awake: drained in every round
  bool is_polled = false;       // rang too often: looked at by timer only
  uint64_t polled_until_ns = 0;
  uint64_t window_start_ns = 0;
  uint32_t window_doorbells = 0;
  bool is_failed = false;    // its hello did not work out
  bool was_suspect = false;     // the last sweep found an unannounced record
  uint64_t buffer_counted = 0;  // of ring().buffer_bytes()

 private:
  struct InFlight {
    RequestKind kind;
    uint64_t bytes;
    bool is_slow = false;
  };

  void CountRings(uint64_t bytes);
  void OnMessage(const RingMessage& message, uint64_t now_ns);
  void OnCancel(Request&& request);
  bool Admit(const Request& request, uint64_t bytes, uint64_t now_ns);
  void Refuse(RequestId id, Code code, int32_t detail, const char* text, uint64_t now_ns);
  void Send(Request&& request);
  void Charge(const RingMessage& message, uint64_t now_ns);
  void MarkSlow(RequestId id);
  void Take(ReplyWriter::Outcome outcome, RequestId id, uint64_t now_ns);
  Request Stamped(RequestKind kind, RequestId id, uint64_t now_ns) const;

  AttachmentId id_;
  Phase phase_ = Phase::kHello;
  Descriptor socket_;
  Descriptor pidfd_;
  PeerCredentials peer_;
  const AttachmentLimits& limits_;
  IngressPorts* ports_;
  uint64_t since_ns_;
  uint64_t active_ns_;
  std::string name_space_;
  uint64_t ring_bytes_ = 0;  // counted in ports_->ring_bytes
  SegmentPair segments_;
  RingConsumer requests_;
  ReplyWriter replies_;
  std::unordered_map<uint64_t, InFlight> in_flight_;
  uint64_t in_flight_bytes_ = 0;
  std::deque<Request> pending_;
  WorkAllowance allowance_;
  uint64_t paused_until_ns_ = 0;
};

}  // namespace kairos
