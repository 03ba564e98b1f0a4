// SPDX-License-Identifier: Apache-2.0
#include "capi/client.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

#include "base/clock.h"
#include "capi/fork_guard.h"
#include "shm/doorbell.h"

namespace kairos {
namespace {

constexpr uint64_t kSpinNsDefault = 20'000;
constexpr uint64_t kForeverNs = UINT64_MAX;

// With one processor the sidecar cannot run while this thread spins.
bool MaySpin() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return false;
  return CPU_COUNT(&set) > 1;
}

}  // namespace

Deadline Deadline::After(int32_t timeout_ms) {
  return After(timeout_ms, timeout_ms > 0 ? MonotonicNs() : 0);
}

Deadline Deadline::After(int32_t timeout_ms, uint64_t now_ns) {
  if (timeout_ms < 0) return {kForeverNs};
  if (timeout_ms == 0) return {0};
  return {now_ns + static_cast<uint64_t>(timeout_ms) * 1'000'000u};
}

bool Deadline::passed() const { return !never() && (at_ns == 0 || MonotonicNs() >= at_ns); }

int Deadline::poll_ms() const {
  if (never()) return -1;
  const uint64_t now = at_ns == 0 ? 0 : MonotonicNs();
  if (now >= at_ns) return 0;
  return static_cast<int>((at_ns - now + 999'999u) / 1'000'000u);
}

// ---- Life ---------------------------------------------------------------------------------------

Result<Client*> Client::Open(const ClientOptions& options, std::string* text) {
  std::unique_ptr<Client, void (*)(Client*)> client(new Client, &Client::Destroy);
  client->life_ = ProcessLife();
  const Status prepared = client->Prepare(options);
  if (!prepared.ok()) {
    *text = prepared.message();
    return prepared;
  }
  AttachOptions attach;
  attach.socket_path = options.socket_path;
  attach.name_space = options.name_space;
  attach.request_ring_bytes = options.request_ring_bytes;
  attach.reply_ring_bytes = options.reply_ring_bytes;
  attach.reply_types = kReplyTypes;
  attach.features = kFeatureWatch;
  attach.timeout_ms = options.connect_timeout_ms;
  Result<ClientAttachment> attachment = AttachToSidecar(attach, text);
  if (!attachment.ok()) return attachment.status();
  client->attachment_ = attachment.Take();
  return client.release();
}

Status Client::Prepare(const ClientOptions& options) {
  if (MaySpin()) {
    const auto asked_us = static_cast<uint64_t>(options.spin_us);
    spin_ns_ = options.spin_us < 0 ? kSpinNsDefault : asked_us * 1000u;
  }
  wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return Status(Code::kResourceExhausted, "no descriptor for the client");
  return Status();
}

void Client::Destroy(Client* client) noexcept {
  // A parent's thread may have held a lock when this process was forked. Its descriptors were
  // closed by BeginClose; the rest is left alone.
  if (client->life_ != ProcessLife()) return;
  delete client;
}

void Client::BeginClose() noexcept {
  if (life_ != ProcessLife()) {
    // Only this process's copies: closing the socket lets the sidecar see the parent's death.
    attachment_.socket.Close();
    wake_.Close();
    epoll_.Close();
    ready_.Close();
    return;
  }
  closing_seen_.store(true, std::memory_order_relaxed);
  {
    const Lock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  eventfd_write(wake_.get(), 1);
  shutdown(attachment_.socket.get(), SHUT_RDWR);
}

Status Client::CheckProcess() const noexcept {
  if (life_ == ProcessLife()) return Status();
  return Status(Code::kFailedPrecondition,
                "the client was opened before fork; open one in this process",
                KAIROS_DETAIL_FORKED);
}

// ---- Requests -----------------------------------------------------------------------------------

void Client::RingIfNeeded(bool needed) {
  // A peer that is gone is noticed by the reader of replies.
  if (needed) static_cast<void>(RingDoorbell(attachment_.socket.get()));
}

// Moves what is left of a large message into the ring; true when nothing is left.
bool Client::FlushOutgoingLocked() {
  if (!has_outgoing_.load(std::memory_order_relaxed)) return true;
  RingProducer& ring = attachment_.requests;
  ring.FinishWait();
  PushResult pushed;
  for (;;) {
    pushed = ring.Push(&outgoing_state_);
    RingIfNeeded(ring.Publish());
    if (pushed != PushResult::kFull) break;
    // The sidecar rings when it has made some room, and the reader of replies comes back here.
    if (ring.PrepareWait(ring.frame_payload_max())) return false;
    ring.FinishWait();
  }
  // A broken ring drops the message: the sidecar is about to be lost.
  Payload().swap(outgoing_);
  has_outgoing_.store(false, std::memory_order_relaxed);
  return true;
}

void Client::FlushOutgoing() {
  if (!has_outgoing_.load(std::memory_order_relaxed)) return;
  const Lock lock(send_mutex_);
  FlushOutgoingLocked();
}

Status Client::Send(RecordType type, uint64_t request_id, Payload* payload) {
  const Lock lock(send_mutex_);
  return SendLocked(type, request_id, payload);
}

Status Client::SendLocked(RecordType type, uint64_t request_id, Payload* payload) {
  const Status full(Code::kResourceExhausted, "the request ring is full; read events and try again",
                    KAIROS_DETAIL_RING_FULL);
  if (!FlushOutgoingLocked()) return full;
  RingProducer& ring = attachment_.requests;
  const uint64_t size = payload->size();
  const uint64_t room = ring.MessageRoom(size);
  // Of several frames all or none go out while that is possible, so that RING_FULL has no effect.
  const bool whole = size > ring.frame_payload_max() &&
                     room <= attachment_.answer.request_ring_bytes;
  OutgoingMessage message{static_cast<uint16_t>(type), request_id, *payload, 0};
  PushResult pushed = PushResult::kFull;
  for (;;) {
    ring.FinishWait();
    if (!whole || ring.Fits(size)) pushed = ring.Push(&message);
    RingIfNeeded(ring.Publish());
    if (pushed != PushResult::kFull || message.sent != 0) break;
    // Announced, so that the descriptor shows when it is worth trying again.
    if (ring.PrepareWait(whole ? room : ring.frame_payload_max())) return full;
    if (ring.broken()) pushed = PushResult::kBroken;
  }
  switch (pushed) {
    case PushResult::kDone:
      return Status();
    case PushResult::kFull:
      outgoing_ = std::move(*payload);
      message.payload = outgoing_;
      outgoing_state_ = message;
      has_outgoing_.store(true, std::memory_order_relaxed);
      static_cast<void>(FlushOutgoingLocked());
      return Status();
    case PushResult::kBroken:
      return Status(Code::kUnavailable, "the sidecar broke the ring protocol",
                    KAIROS_DETAIL_PROTOCOL);
    default:
      return Status(Code::kInvalidArgument, "the request is larger than the sidecar accepts",
                    KAIROS_DETAIL_RECORD_TOO_LARGE);
  }
}

Status Client::SubmitTurn(Payload payload, uint64_t session_id, uint64_t* request_id) {
  const uint64_t id = next_request_.fetch_add(1, std::memory_order_relaxed);
  {
    const Lock lock(mutex_);
    if (closing_) return Status(Code::kCancelled, "the client is closing");
    if (lost_) return lost_status_;
    turns_.emplace(id, OpenTurn{session_id, false});
  }
  const Status sent = Send(RecordType::kTurnSubmit, id, &payload);
  {
    const Lock lock(mutex_);
    if (!sent.ok()) {
      turns_.erase(id);
      return sent;
    }
    // Its last event may have been queued already.
    if (auto turn = turns_.find(id); turn != turns_.end()) turn->second.sent = true;
    if (lost_) ShowReady();
  }
  *request_id = id;
  return Status();
}

Status Client::CancelTurn(uint64_t request_id) {
  {
    const Lock lock(mutex_);
    if (closing_) return Status(Code::kCancelled, "the client is closing");
    if (lost_) return lost_status_;
    if (!turns_.contains(request_id)) return Status();
  }
  Payload payload;
  EncodeTurnCancel(request_id, &payload);
  const uint64_t id = next_request_.fetch_add(1, std::memory_order_relaxed);
  return Send(RecordType::kTurnCancel, id, &payload);
}

Result<EventPtr> Client::Call(RecordType type, Payload payload, Deadline deadline, bool spin) {
  Waiter waiter;
  waiter.request = next_request_.fetch_add(1, std::memory_order_relaxed);
  Lock lock(mutex_);
  waiter.next = waiters_;
  waiters_ = &waiter;
  // The waiter leaves the list however the call ends, an exception included.
  struct Leave {
    Client* client;
    Waiter* waiter;
    Lock* lock;
    ~Leave() {
      if (!lock->owns_lock()) lock->lock();
      client->RemoveWaiter(waiter);
    }
  } leave{this, &waiter, &lock};
  return CallWithWaiter(lock, &waiter, type, &payload, deadline, spin);
}

void Client::RemoveWaiter(Waiter* waiter) {
  for (Waiter** link = &waiters_; *link != nullptr; link = &(*link)->next) {
    if (*link != waiter) continue;
    *link = waiter->next;
    return;
  }
}

Result<EventPtr> Client::CallWithWaiter(Lock& lock, Waiter* waiter, RecordType type,
                                        Payload* payload, Deadline deadline, bool spin) {
  for (;;) {
    if (closing_) return Status(Code::kCancelled, "the client is closing");
    if (lost_) return lost_status_;
    const uint64_t visits = visits_;
    lock.unlock();
    const Status sent = Send(type, waiter->request, payload);
    lock.lock();
    if (sent.ok()) break;
    if (sent.detail() != KAIROS_DETAIL_RING_FULL || deadline.passed()) return sent;
    KAIROS_RETURN_IF_ERROR(
        WaitUntil(lock, deadline, spin, [&] { return visits_ != visits; }));
  }
  KAIROS_RETURN_IF_ERROR(
      WaitUntil(lock, deadline, spin, [&] { return waiter->reply != nullptr; }));
  return std::move(waiter->reply);
}

// ---- Replies ------------------------------------------------------------------------------------

Result<EventPtr> Client::NextEvent(Deadline deadline) {
  Lock lock(mutex_);
  const Status waited = WaitUntil(lock, deadline, false, [&] { return !queue_.empty(); });
  if (!queue_.empty() && !closing_) {
    EventPtr event = queue_.Pop();
    ShowReady();
    return event;
  }
  if (waited.code() == Code::kDeadlineExceeded) return EventPtr();
  if (lost_ && !closing_) return NextLostTurn();
  return waited;
}

Result<EventPtr> Client::Watch(uint32_t flags, Deadline deadline) {
  if ((attachment_.answer.features & kFeatureWatch) == 0) {
    return Status(Code::kUnimplemented, "the sidecar is older than kairos_watch");
  }
  {
    // Before it is asked for: the first event may overtake the reply on its way to this thread.
    const Lock lock(mutex_);
    watching_ = flags != 0;
    if (!watching_) {
      while (!states_.empty()) states_.Pop();
      ShowReady();
    }
  }
  Payload payload;
  EncodeWatch(flags, &payload);
  return Call(RecordType::kWatch, std::move(payload), deadline);
}

Result<EventPtr> Client::NextState(Deadline deadline) {
  Lock lock(mutex_);
  if (!watching_) {
    return Status(Code::kFailedPrecondition, "nothing is watched; call kairos_watch first");
  }
  const Status waited = WaitUntil(lock, deadline, false, [&] { return !states_.empty(); });
  if (!states_.empty() && !closing_) {
    EventPtr event = states_.Pop();
    ShowReady();
    return event;
  }
  if (waited.code() == Code::kDeadlineExceeded) return EventPtr();
  return waited;
}

Result<EventPtr> Client::NextLostTurn() {
  for (auto turn = turns_.begin(); turn != turns_.end(); ++turn) {
    if (!turn->second.sent) continue;
    EventPtr event = MakeError(turn->first, turn->second.session, lost_status_);
    if (event == nullptr) throw std::bad_alloc();
    turns_.erase(turn);
    return event;
  }
  return lost_status_;
}

Result<int> Client::ReadyDescriptor() {
  Lock lock(mutex_);
  if (closing_) return Status(Code::kCancelled, "the client is closing");
  if (epoll_.valid()) return epoll_.get();
  const Status short_of(Code::kResourceExhausted, "no descriptor for kairos_client_fd");
  Descriptor ready(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!ready.valid() || !epoll.valid()) return short_of;
  for (int fd : {attachment_.socket.get(), ready.get()}) {
    epoll_event interest{};
    interest.events = EPOLLIN;
    if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &interest) != 0) return short_of;
  }
  ready_ = std::move(ready);
  epoll_ = std::move(epoll);
  ShowReady();
  ArmDescriptor(lock);
  return epoll_.get();
}

// Keeps the eventfd readable exactly while there is something that needs no doorbell.
void Client::ShowReady() {
  if (!ready_.valid()) return;
  const bool show = !queue_.empty() || !states_.empty() || lost_;
  if (show == ready_shown_) return;
  ready_shown_ = show;
  eventfd_t value;
  if (show) {
    eventfd_write(ready_.get(), 1);
  } else {
    eventfd_read(ready_.get(), &value);
  }
}

template <typename Done>
Status Client::WaitUntil(Lock& lock, Deadline deadline, bool spin, Done done) {
  bool visited = false;
  for (;;) {
    Status end;
    if (closing_) {
      end = Status(Code::kCancelled, "the client was closed during the call");
    } else if (!done()) {
      if (lost_) {
        end = lost_status_;
      } else if (QueueIsFull()) {
        end = Status(Code::kResourceExhausted, "too many unread events; read them first",
                     KAIROS_DETAIL_SLOW_CONSUMER);
      } else if (!pumping_) {
        // Also with a deadline that has passed, once: "do not block" still looks.
        if (!visited || !deadline.passed()) {
          PumpOnce(lock, deadline, spin);
          visited = true;
          continue;
        }
        end = Status(Code::kDeadlineExceeded, "no reply in time");
      } else if (deadline.passed()) {
        end = Status(Code::kDeadlineExceeded, "no reply in time");
      } else {
        ++sleepers_;
        if (deadline.never()) {
          changed_.wait(lock);
        } else {
          changed_.wait_until(lock, std::chrono::steady_clock::time_point(
                                        std::chrono::nanoseconds(deadline.at_ns)));
        }
        --sleepers_;
        continue;
      }
    }
    ArmDescriptor(lock);
    return end;
  }
}

bool Client::QueueIsFull() const {
  constexpr uint64_t kEventsMax = 65536;
  constexpr uint64_t kEventBytesMax = 256u << 20;
  return queue_.count() >= kEventsMax || queue_.bytes() >= kEventBytesMax;
}

// One visit to the reply ring as its reader.
void Client::PumpOnce(Lock& lock, Deadline deadline, bool spin) {
  pumping_ = true;
  lock.unlock();
  Harvest harvest;
  bool out_of_memory = false;
  try {
    Visit(deadline, spin, &harvest);
  } catch (const std::bad_alloc&) {
    out_of_memory = true;
  }
  lock.lock();
  pumping_ = false;
  ++visits_;
  Distribute(&harvest);
  if (sleepers_ != 0) changed_.notify_all();
  if (out_of_memory) throw std::bad_alloc();
}

void Client::Distribute(Harvest* harvest) {
  while (EventPtr event = harvest->events.Pop()) Route(std::move(event));
  if (!harvest->failure.ok() && !lost_) {
    lost_ = true;
    lost_status_ = harvest->failure;
    shutdown(attachment_.socket.get(), SHUT_RDWR);
  }
  ShowReady();
}

// Events of calls that timed out and of turns that ended have no receiver and are dropped.
void Client::Route(EventPtr event) {
  if (event->type == KAIROS_EVENT_SESSION) return QueueState(std::move(event));
  for (Waiter* waiter = waiters_; waiter != nullptr; waiter = waiter->next) {
    if (waiter->request != event->request) continue;
    if (waiter->reply == nullptr) waiter->reply = std::move(event);
    return;
  }
  const auto turn = turns_.find(event->request);
  if (turn == turns_.end() || event->type == KAIROS_EVENT_REPLY) return;
  if (event->session != 0) turn->second.session = event->session;
  if (event->session == 0) event->session = turn->second.session;
  if (event->type == KAIROS_EVENT_FINAL || event->type == KAIROS_EVENT_ERROR) turns_.erase(turn);
  queue_.Push(std::move(event));
}

void Client::QueueState(EventPtr event) {
  constexpr uint64_t kStatesMax = 1024;
  if (!watching_) return;
  if (states_.count() < kStatesMax) {
    states_.Push(std::move(event));
  } else {
    states_.MergeState(*event);
  }
}

// Leaves the ring empty and announced as asleep, so that the next record comes with a doorbell.
void Client::ArmDescriptor(Lock& lock) {
  while (epoll_.valid() && !pumping_ && !lost_ && !closing_ && !QueueIsFull() &&
         !attachment_.replies.asleep()) {
    pumping_ = true;
    lock.unlock();
    Harvest harvest;
    bool out_of_memory = false;
    try {
      Drain(&harvest);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
    if (!out_of_memory && !harvest.more && harvest.failure.ok() &&
        !attachment_.replies.PrepareSleep()) {
      attachment_.replies.FinishSleep();
    }
    lock.lock();
    pumping_ = false;
    Distribute(&harvest);
    if (sleepers_ != 0) changed_.notify_all();
    if (out_of_memory) {
      // A record waits for memory: the descriptor says so until the next call looks.
      eventfd_write(ready_.get(), 1);
      ready_shown_ = true;
      return;
    }
  }
}

// What was taken before memory ran short is in *harvest then, too.
void Client::Visit(Deadline deadline, bool spin, Harvest* harvest) {
  FlushOutgoing();
  if (attachment_.replies.asleep()) {
    ReadDoorbells(harvest);
    attachment_.replies.FinishSleep();
  }
  Drain(harvest);
  if (!harvest->events.empty() || harvest->more || !harvest->failure.ok()) return;
  AwaitReplies(deadline, spin, harvest);
  Drain(harvest);
}

// Takes messages until the ring is empty or a batch is full.
void Client::Drain(Harvest* harvest) {
  constexpr uint64_t kBatchEvents = 256;
  constexpr uint64_t kBatchBytes = 8u << 20;
  struct GiveBack {
    Client* client;
    ~GiveBack() { client->RingIfNeeded(client->attachment_.replies.Release()); }
  } give_back{this};
  harvest->more = false;
  while (TakeMessage(harvest)) {
    if (harvest->events.count() >= kBatchEvents || harvest->events.bytes() >= kBatchBytes) {
      harvest->more = true;
      return;
    }
    // A large message is given back at once: the sidecar may be waiting to send its rest.
    RingConsumer& ring = attachment_.replies;
    if (ring.unreleased() > attachment_.answer.reply_ring_bytes / 2) RingIfNeeded(ring.Release());
  }
}

bool Client::TakeMessage(Harvest* harvest) {
  const auto broken = [harvest](const char* message) {
    // What ended the attachment first is what is reported.
    harvest->failure = Status(Code::kUnavailable, message, KAIROS_DETAIL_PROTOCOL);
    return false;
  };
  if (!has_held_) {
    constexpr uint32_t kFramesPerPoll = 64;
    uint32_t frames_left = kFramesPerPoll;
    switch (attachment_.replies.Poll(&frames_left, &held_)) {
      case PollResult::kEmpty: return false;
      case PollResult::kBudget:
        RingIfNeeded(attachment_.replies.Release());
        return true;
      case PollResult::kMessage: break;
      case PollResult::kOversize: return broken("the sidecar sent a record over the limit");
      case PollResult::kBroken: return broken("the sidecar broke the ring protocol");
    }
    has_held_ = true;
  }
  EventPtr event;
  const auto type = static_cast<RecordType>(held_.type);
  if (type == RecordType::kPong) {
    event = MakePong(held_.request_id);
  } else {
    const Result<ReplyView> reply = DecodeReply(type, held_.payload);
    if (!reply.ok()) return broken("the sidecar sent a malformed record");
    event = MakeEvent(type, held_.request_id, *reply);
  }
  if (event == nullptr) throw std::bad_alloc();
  has_held_ = false;
  if (type == RecordType::kError && event->request == 0) {
    // Of the attachment, not of a request: the sidecar says why it hangs up.
    harvest->failure =
        Status(Code::kUnavailable, "the sidecar ended the attachment", event->detail);
    return false;
  }
  harvest->events.Push(std::move(event));
  return true;
}

// Returns when there may be replies, the deadline passed, the client closes, or the peer is gone.
void Client::AwaitReplies(Deadline deadline, bool spin, Harvest* harvest) {
  RingConsumer& ring = attachment_.replies;
  if (deadline.at_ns == 0) {
    // A program that only polls would otherwise never learn that the sidecar died.
    ReadDoorbells(harvest);
    return;
  }
  // A spinning call comes back now and then to look at the socket.
  constexpr uint64_t kSpinVisitNs = 1'000'000;
  if (SpinForReplies(deadline, spin ? kSpinVisitNs : spin_ns_)) return;
  if (spin) {
    ReadDoorbells(harvest);
    return;
  }
  if (ring.PrepareSleep()) {
    pollfd entries[2] = {{attachment_.socket.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    poll(entries, 2, deadline.poll_ms());
    ReadDoorbells(harvest);
  }
  ring.FinishSleep();
}

bool Client::SpinForReplies(Deadline deadline, uint64_t spin_ns) {
  if (spin_ns == 0) return false;
  uint64_t start = 0;
  uint64_t now = 0;
  while (now - start < spin_ns && now < deadline.at_ns) {
    // A reply often comes sooner than a look at the clock pays.
    for (int i = 0; i < 32; ++i) {
      if (attachment_.replies.HasMore()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield" ::: "memory");
#endif
    }
    if (closing_seen_.load(std::memory_order_relaxed)) return true;
    now = MonotonicNs();
    if (start == 0) start = now;
  }
  return false;
}

void Client::ReadDoorbells(Harvest* harvest) {
  constexpr uint32_t kDoorbellsMax = 64;
  const DrainedDoorbells drained = DrainDoorbells(attachment_.socket.get(), kDoorbellsMax);
  if (!drained.closed || !harvest->failure.ok()) return;
  // What was published before the end is still in the mapping: the batch limit does not hold here.
  do {
    Drain(harvest);
  } while (harvest->more && harvest->failure.ok());
  if (harvest->failure.ok()) {
    harvest->failure = Status(Code::kUnavailable, "the sidecar died or closed the attachment",
                              KAIROS_DETAIL_SIDECAR_LOST);
  }
}

}  // namespace kairos
