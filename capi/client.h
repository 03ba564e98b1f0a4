// SPDX-License-Identifier: Apache-2.0
// One attachment of this process to the sidecar, shared by the threads of the program.
//
// 1. Two locks, never held together: send_mutex_ for the request ring, mutex_ for everything else.
// 2. The reply ring has one reader at a time, the thread that holds `pumping_`. It works without a
//    lock and hands what it read to `queue_` and to the waiters; other threads wait on `changed_`
//    and one of them takes over when it leaves. There is no thread of our own.
// 3. A turn is in `turns_` from before its record is published until its last event was queued.
//    When the sidecar is lost each of them gets one error event, made when it is asked for, so that
//    memory running short cannot lose it.
// 4. Once kairos_client_fd() was called the client leaves the reply ring only empty and armed: the
//    sidecar rings for the next record, and the descriptor shows it.
// 5. Built with exceptions, because allocation can fail inside a foreign program; they end at the
//    entries of kairos.h.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/status.h"
#include "capi/event.h"
#include "capi/options.h"
#include "capi/text_cache.h"
#include "shm/attach.h"
#include "shm/descriptor.h"
#include "shm/records.h"
#include "shm/ring.h"

namespace kairos {

// A point of the monotonic clock.
struct Deadline {
  uint64_t at_ns = 0;  // UINT64_MAX: never
  static Deadline After(int32_t timeout_ms);  // negative: never
  static Deadline After(int32_t timeout_ms, uint64_t now_ns);
  bool never() const { return at_ns == UINT64_MAX; }
  bool passed() const;
  // Rounded up for poll(); -1 for never.
  int poll_ms() const;
};

class Client {
 public:
  // kUnavailable, kDeadlineExceeded or the sidecar's refusal, with words in *text.
  static Result<Client*> Open(const ClientOptions& options, std::string* text);
  // Of a client that no thread uses any more. In a forked child it frees nothing that the parent's
  // threads may have left locked.
  static void Destroy(Client* client) noexcept;
  // Ends every call that waits, and tells the sidecar.
  void BeginClose() noexcept;

  // kFailedPrecondition in a process forked after Open.
  [[nodiscard]] Status CheckProcess() const noexcept;

  // Publishes a turn; never blocks. kResourceExhausted with KAIROS_DETAIL_RING_FULL when the ring
  // has no room. A turn larger than the ring goes out in pieces as events are read.
  [[nodiscard]] Status SubmitTurn(Payload payload, uint64_t session_id, uint64_t* request_id);
  [[nodiscard]] Status CancelTurn(uint64_t request_id);
  // Sends one request and waits for its reply. A reply that says no comes back as an event with a
  // code, not as a Status.
  [[nodiscard]] Result<EventPtr> Call(RecordType type, Payload payload, Deadline deadline,
                                      bool spin = false);
  // Null on time-out.
  [[nodiscard]] Result<EventPtr> NextEvent(Deadline deadline);
  // The reply, as of Call. kUnimplemented where the sidecar cannot.
  [[nodiscard]] Result<EventPtr> Watch(uint32_t flags, Deadline deadline);
  // The next session event; null on time-out. kFailedPrecondition where nothing is watched.
  [[nodiscard]] Result<EventPtr> NextState(Deadline deadline);
  // What this client has read of sessions. Any thread.
  TextCache& texts() { return texts_; }
  [[nodiscard]] Result<int> ReadyDescriptor();

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Waiter {
    uint64_t request = 0;
    EventPtr reply;
    Waiter* next = nullptr;
  };
  struct OpenTurn {
    uint64_t session = 0;
    bool sent = false;
  };
  // What one visit to the reply ring brought.
  struct Harvest {
    EventQueue events;
    bool more = false;   // stopped before the ring was empty
    Status failure;      // the attachment is over
  };

  Client() = default;
  ~Client() = default;

  Status Prepare(const ClientOptions& options);
  // Request ring; under send_mutex_.
  Status Send(RecordType type, uint64_t request_id, Payload* payload);
  Status SendLocked(RecordType type, uint64_t request_id, Payload* payload);
  bool FlushOutgoingLocked();
  void FlushOutgoing();
  void RingIfNeeded(bool needed);

  // Reply ring; by the thread that holds pumping_, without a lock.
  void Visit(Deadline deadline, bool spin, Harvest* harvest);
  void Drain(Harvest* harvest);
  bool TakeMessage(Harvest* harvest);
  void AwaitReplies(Deadline deadline, bool spin, Harvest* harvest);
  void ReadDoorbells(Harvest* harvest);
  bool SpinForReplies(Deadline deadline, uint64_t spin_ns);

  // Under mutex_.
  template <typename Done>
  Status WaitUntil(Lock& lock, Deadline deadline, bool spin, Done done);
  void PumpOnce(Lock& lock, Deadline deadline, bool spin);
  void Distribute(Harvest* harvest);
  void Route(EventPtr event);
  void QueueState(EventPtr event);
  bool QueueIsFull() const;
  void ArmDescriptor(Lock& lock);
  void ShowReady();
  Result<EventPtr> NextLostTurn();
  // `lock` is held on entry and on return; Send() throwing leaves it open.
  Result<EventPtr> CallWithWaiter(Lock& lock, Waiter* waiter, RecordType type, Payload* payload,
                                  Deadline deadline, bool spin);
  void RemoveWaiter(Waiter* waiter);

  uint64_t life_ = 0;
  uint64_t spin_ns_ = 0;
  ClientAttachment attachment_;
  Descriptor wake_;                   // eventfd, made readable by BeginClose for ever
  std::atomic<uint64_t> next_request_{1};  // ids only need to differ
  std::atomic<bool> closing_seen_{false};  // lets a spinning reader see closing_ without the lock

  std::mutex send_mutex_;
  Payload outgoing_;                  // a message that is partly in the ring
  OutgoingMessage outgoing_state_;
  // Written under send_mutex_; the reader of replies looks without it whether a flush is due.
  std::atomic<bool> has_outgoing_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t sleepers_ = 0;             // threads waiting on changed_
  uint64_t visits_ = 0;               // ends of visits to the reply ring
  bool pumping_ = false;
  bool closing_ = false;
  bool lost_ = false;
  Status lost_status_;
  EventQueue queue_;
  bool watching_ = false;
  EventQueue states_;                 // session events, while watching_
  Waiter* waiters_ = nullptr;
  std::unordered_map<uint64_t, OpenTurn> turns_;
  Descriptor epoll_;                  // made by ReadyDescriptor
  Descriptor ready_;                  // eventfd inside epoll_, readable while queue_ has events
  bool ready_shown_ = false;

  TextCache texts_;

  // Of the thread that holds pumping_: a message that no memory could be had for.
  RingMessage held_;
  bool has_held_ = false;
};

}  // namespace kairos
