// SPDX-License-Identifier: Apache-2.0
// The door of the sidecar: accepts client processes, reads their request rings, fills their reply
// rings, notices their death. Hostile bytes end here; behind it are only checked Requests.
// Owner: ingress thread, which runs `if (DoWork(now) == 0) now = Wait(now)`. Blocks only in Wait().
//
// 1. A full queue to the conductor stops the reading of rings; nothing is dropped.
// 2. An attachment that was looked at stays "hot" (polled in each round) until ingress goes to
//    sleep; then it is announced as asleep and comes back by doorbell. Idle clients cost nothing.
// 3. A sweep looks for records without doorbell: every sweep_ns while there was traffic lately,
//    else once a second. It is a net below the sleep protocol, and what it catches is counted.
// 4. Answers to pings come from here, without the conductor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <sys/epoll.h>
#include <sys/types.h>

#include "base/spsc_queue.h"
#include "base/waker.h"
#include "shm/acceptor.h"
#include "sidecar/ingress/attachment.h"
#include "sidecar/ingress/attachment_census.h"
#include "sidecar/ingress/reply.h"
#include "sidecar/ingress/request.h"

namespace kairos {

struct IngressOptions {
  std::string socket_path;
  mode_t socket_mode = 0600;            // or 0660
  std::vector<uint32_t> allowed_uids;   // empty: whoever may open the socket
  Incarnation incarnation{};            // zero: drawn at random
  uint64_t request_ring_bytes = kRingBytesDefault;
  uint64_t reply_ring_bytes = kRingBytesDefault;
  uint64_t ring_bytes_max = kRingBytesMax;
  uint64_t request_bytes_max = kRequestBytesMax;
  uint64_t reply_bytes_max = kReplyBytesMax;
  uint64_t start_position = 0;          // of rings; other than 0 only in tests
  uint32_t attachments_max = 256;
  uint32_t attachments_per_uid_max = 256;
  uint32_t attachments_per_process_max = 128;
  uint64_t ring_memory_max = 1u << 30;  // bytes of all clients' rings
  uint64_t buffered_bytes_max = 256u << 20;  // half-received requests of all clients
  uint32_t descriptors_reserved =
      64;  // refuse clients when fewer are left, or a fifth of the limit
  int32_t spin_us = -1;                 // before sleeping; -1: 20, or 0 with one CPU
  uint64_t sweep_ns = 20'000'000;
  uint64_t active_ns = 200'000'000;     // "lately" of rule 3
  // Long, because a loaded host may keep a client from its core between connect and hello.
  uint64_t hello_timeout_ns = 10'000'000'000;
  uint32_t doorbells_empty_max = 1000;  // per second and client, then timer polling
  uint64_t polled_ns = 1'000'000;       // period of timer polling
  uint64_t demotion_ns = 5'000'000'000; // how long a flooding client is polled by timer
  AttachmentLimits attachment;
};

// What may change while it serves; as in IngressOptions and AttachmentLimits.
struct IngressLimits {
  uint32_t attachments_max = 0;  // those that are there stay, as with the next
  uint32_t attachments_per_process_max = 0;
  uint64_t ring_memory_max = 0;
  uint32_t in_flight_max = 0;    // of one client
  int32_t spin_us = -1;
};

class RingIngress {
 public:
  // Listens on the socket path; the caller holds the daemon's lock. The queues and wakers outlive
  // the ingress; `own_waker` is woken by whoever pushes replies or wants the thread back.
  static Result<std::unique_ptr<RingIngress>> Create(const IngressOptions& options,
                                                     SpscQueue<Request>& requests,
                                                     Waker& conductor_waker,
                                                     SpscQueue<Reply>& replies, Waker& own_waker);
  ~RingIngress();
  RingIngress(const RingIngress&) = delete;
  RingIngress& operator=(const RingIngress&) = delete;

  // A bounded round over everything there is to do. Never blocks. Returns how much was done; 0
  // means that Wait() is in order.
  int DoWork(uint64_t now_ns);
  // Spins a little, then sleeps until a client, a reply, a timer or a Wake(); at most max_ms (-1:
  // no limit). `now_ns` is that of the last round. Returns the time for the next one: a spin looks
  // at the clock only now and then, so that a record it found need not wait for another look.
  uint64_t Wait(uint64_t now_ns, int max_ms = -1);

  // Any thread.
  const IngressCounters& counters() const { return counters_; }
  // Any thread: on refuses new clients with KAIROS_DETAIL_DRAINING; old ones go on.
  void SetDraining(bool on) { draining_.Set(on); }
  // Main thread only: holds from ingress's next look on, for the clients that are there as well.
  // HasRoom: the next change can be handed over.
  bool HasRoomForLimits() { return limits_asked_.HasRoom(); }
  void ChangeLimits(IngressLimits limits);
  const Incarnation& incarnation() const { return offer_.incarnation; }
  const std::string& socket_path() const { return options_.socket_path; }

 private:
  RingIngress(const IngressOptions& options, SpscQueue<Request>& requests, Waker& conductor_waker,
              SpscQueue<Reply>& replies, Waker& own_waker);
  Status Open();

  int PollEvents(int timeout_ms);
  void OnEvent(const epoll_event& event, uint64_t now_ns);
  void AcceptClients(uint64_t now_ns);
  void AcceptOne(Descriptor socket, uint64_t now_ns);
  bool RefuseClient(int socket, const PeerCredentials& peer, bool short_of_descriptors);
  void TakeHello(Attachment& attachment, uint64_t now_ns);
  void OnDoorbells(Attachment& attachment, uint64_t now_ns);
  void CountDoorbells(Attachment& attachment, uint32_t empty, uint64_t now_ns);
  void Demote(Attachment& attachment, uint64_t now_ns);
  void Promote(Attachment& attachment);

  int DrainHot(uint64_t now_ns);
  void Visit(Attachment& attachment, uint64_t now_ns);
  void BoundBuffers(Attachment& attachment, uint64_t now_ns);
  int TakeReplies(uint64_t now_ns);
  int SettleBlocked(uint64_t now_ns);
  void TakeLimits();
  void RunTimers(uint64_t now_ns);
  void Sweep(uint64_t now_ns);
  void PollDemoted(uint64_t now_ns);
  void Heat(Attachment& attachment);
  void Reap();
  void FinishRound();

  uint64_t SpinForWork(uint64_t now_ns);
  bool PrepareSleep();
  int SleepMs(uint64_t now_ns) const;
  Attachment* Find(uint32_t id);

  IngressOptions options_;
  SpscQueue<Reply>& replies_;
  Waker& conductor_waker_;
  Waker& own_waker_;
  IngressCounters counters_;
  IngressPorts ports_;
  AttachOffer offer_;
  Flag draining_;
  SpscQueue<IngressLimits> limits_asked_{4};
  Descriptor listener_;
  Descriptor epoll_;
  Acceptor acceptor_;
  uint64_t descriptor_limit_ = 0;
  uint32_t next_id_ = 1;
  std::unordered_map<uint32_t, std::unique_ptr<Attachment>> attachments_;
  AttachmentCensus census_;
  std::vector<Attachment*> hot_;
  std::vector<Attachment*> touched_;  // scratch of TakeReplies
  uint32_t demoted_ = 0;
  uint32_t hellos_ = 0;
  bool blocked_ = false;       // someone waits for the conductor's queue
  bool stalled_ = false;       // someone's replies wait; their timer runs in RunTimers
  bool may_reap_ = false;
  uint64_t buffered_bytes_ = 0;
  uint64_t last_active_ns_ = 0;
  uint64_t next_poll_ns_ = 0;
  uint64_t next_sweep_ns_ = 0;
  uint64_t next_demoted_ns_ = 0;
  uint64_t spin_ns_max_ = 0;
  uint64_t spin_ns_ = 0;
};

}  // namespace kairos
