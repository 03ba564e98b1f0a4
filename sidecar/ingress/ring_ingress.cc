// SPDX-License-Identifier: Apache-2.0
#include "sidecar/ingress/ring_ingress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <sched.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "shm/doorbell.h"

namespace kairos {
namespace {

// What an epoll event is about: kind in the upper half, attachment id in the lower.
enum EventKind : uint32_t { kListen = 1, kWaker = 2, kSocket = 3, kPidfd = 4 };

constexpr int kEventsPerPoll = 64;
constexpr int kAcceptsPerRound = 16;
constexpr int kRepliesPerRound = 1024;
constexpr uint32_t kDoorbellsPerVisit = 64;
// While rings are busy the sockets are looked at this often.
constexpr uint64_t kPollPeriodNs = 50'000;
constexpr uint64_t kWindowNs = 1'000'000'000;
constexpr uint64_t kIdleSweepNs = 1'000'000'000;
constexpr int kSpinBatch = 32;

bool Watch(int epoll, int operation, int fd, uint32_t events, EventKind kind, uint32_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(kind) << 32 | id;
  return epoll_ctl(epoll, operation, fd, &event) == 0;
}

int SpinUs(int asked) {
  if (asked >= 0) return asked;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const bool several = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) > 1;
  return several ? 20 : 0;
}

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

RingIngress::RingIngress(const IngressOptions& options, SpscQueue<Request>& requests,
                         Waker& conductor_waker, SpscQueue<Reply>& replies, Waker& own_waker)
    : options_(options), replies_(replies), conductor_waker_(conductor_waker),
      own_waker_(own_waker) {
  ports_.requests = &requests;
  ports_.counters = &counters_;
  ports_.ring_bytes_max = options.ring_memory_max;
  offer_.features = kFeatureWatch;
  offer_.request_ring_bytes = options.request_ring_bytes;
  offer_.reply_ring_bytes = options.reply_ring_bytes;
  offer_.ring_bytes_max = options.ring_bytes_max;
  offer_.request_bytes_max = options.request_bytes_max;
  offer_.reply_bytes_max = options.reply_bytes_max;
  offer_.start_position = options.start_position;
  offer_.incarnation = options.incarnation;
  spin_ns_max_ = static_cast<uint64_t>(SpinUs(options.spin_us)) * 1000;
  spin_ns_ = spin_ns_max_;
}

RingIngress::~RingIngress() {
  if (listener_.valid()) unlink(options_.socket_path.c_str());
}

Result<std::unique_ptr<RingIngress>> RingIngress::Create(const IngressOptions& options,
                                                         SpscQueue<Request>& requests,
                                                         Waker& conductor_waker,
                                                         SpscQueue<Reply>& replies,
                                                         Waker& own_waker) {
  if (!IsRingSize(options.request_ring_bytes) || !IsRingSize(options.reply_ring_bytes)) {
    return Status(Code::kInvalidArgument, "ring bytes: a power of two, 64 KiB to 64 MiB");
  }
  if (options.start_position % kFrameAlign != 0) {
    return Status(Code::kInvalidArgument, "start position: a multiple of 8");
  }
  std::unique_ptr<RingIngress> ingress(
      new RingIngress(options, requests, conductor_waker, replies, own_waker));
  KAIROS_RETURN_IF_ERROR(ingress->Open());
  return ingress;
}

Status RingIngress::Open() {
  if (offer_.incarnation == Incarnation{} &&
      getrandom(&offer_.incarnation, sizeof(offer_.incarnation), 0) !=
          static_cast<ssize_t>(sizeof(offer_.incarnation))) {
    return Status(Code::kUnavailable, "no random numbers for the incarnation", errno);
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  descriptor_limit_ = limit.rlim_cur;
  KAIROS_ASSIGN_OR_RETURN(listener_, ListenForClients(options_.socket_path, options_.socket_mode));
  epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  KAIROS_RETURN_IF_ERROR(acceptor_.Open());
  if (!epoll_.valid() ||
      !Watch(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListen, 0) ||
      !Watch(epoll_.get(), EPOLL_CTL_ADD, own_waker_.fd(), EPOLLIN, kWaker, 0)) {
    return Status(Code::kResourceExhausted, "ingress cannot watch its descriptors", errno);
  }
  return Status();
}

// ---- One round ----------------------------------------------------------------------------------

int RingIngress::DoWork(uint64_t now_ns) {
  int done = SettleBlocked(now_ns);
  done += DrainHot(now_ns);
  done += TakeReplies(now_ns);
  if (now_ns >= next_poll_ns_) {
    next_poll_ns_ = now_ns + kPollPeriodNs;
    TakeLimits();
    done += PollEvents(0);
  }
  RunTimers(now_ns);
  if (done > 0) {
    last_active_ns_ = now_ns;
    next_sweep_ns_ = std::min(next_sweep_ns_, now_ns + options_.sweep_ns);
  }
  FinishRound();
  return done;
}

void RingIngress::ChangeLimits(IngressLimits limits) {
  const bool sent = limits_asked_.TryPush(std::move(limits));
  KAIROS_CHECK(sent);
  own_waker_.Wake();
}

void RingIngress::TakeLimits() {
  while (const std::optional<IngressLimits> limits = limits_asked_.TryPop()) {
    options_.attachments_max = options_.attachments_per_uid_max = limits->attachments_max;
    options_.attachments_per_process_max = limits->attachments_per_process_max;
    ports_.ring_bytes_max = limits->ring_memory_max;
    options_.attachment.in_flight_max = limits->in_flight_max;
    spin_ns_ = spin_ns_max_ = static_cast<uint64_t>(SpinUs(limits->spin_us)) * 1000;
  }
}

void RingIngress::FinishRound() {
  if (ports_.pushed) {
    ports_.pushed = false;
    conductor_waker_.Wake();
  }
  std::erase_if(hot_, [](const Attachment* one) { return !one->is_hot; });
  if (may_reap_) Reap();
}

Attachment* RingIngress::Find(uint32_t id) {
  const auto found = attachments_.find(id);
  return found == attachments_.end() ? nullptr : found->second.get();
}

void RingIngress::Heat(Attachment& attachment) {
  if (attachment.phase() != Attachment::Phase::kLive || attachment.is_polled) return;
  attachment.ring().FinishSleep();
  if (attachment.is_hot) return;
  attachment.is_hot = true;
  // An entry that FinishRound has not dropped yet serves again.
  if (std::find(hot_.begin(), hot_.end(), &attachment) == hot_.end()) hot_.push_back(&attachment);
}

int RingIngress::DrainHot(uint64_t now_ns) {
  int done = 0;
  for (size_t i = 0; i < hot_.size(); ++i) {
    Attachment& attachment = *hot_[i];
    if (!attachment.is_hot) continue;
    attachment.EndPause(now_ns);
    if (!attachment.CanRead() || !attachment.ring().HasMore()) {
      if (attachment.ring().unreleased() > 0) Visit(attachment, now_ns);
      continue;
    }
    const uint32_t messages = attachment.Drain(now_ns);
    done += static_cast<int>(messages) + 1;
    Visit(attachment, now_ns);
  }
  // The order turns, so that the first one has no standing advantage for the queue's last places.
  if (hot_.size() > 1) std::rotate(hot_.begin(), hot_.begin() + 1, hot_.end());
  return done;
}

// The common end of every look at an attachment.
void RingIngress::Visit(Attachment& attachment, uint64_t now_ns) {
  attachment.Settle(now_ns);
  BoundBuffers(attachment, now_ns);
  blocked_ |= attachment.waits_for_conductor();
  stalled_ |= attachment.replies().waiting_count() > 0;
  if (attachment.phase() == Attachment::Phase::kLeaving) {
    if (attachment.is_polled) Promote(attachment);
    attachment.is_hot = false;
  }
}

void RingIngress::BoundBuffers(Attachment& attachment, uint64_t now_ns) {
  const bool live = attachment.phase() == Attachment::Phase::kLive;
  const bool holds = live && attachment.ring().in_message();
  const uint64_t held = holds ? attachment.ring().buffer_bytes() : 0;
  buffered_bytes_ = buffered_bytes_ - attachment.buffer_counted + held;
  attachment.buffer_counted = held;
  if (held == 0 || buffered_bytes_ <= options_.buffered_bytes_max) return;
  counters_.over_memory.Add();
  attachment.Expel(Violation::kNone, KAIROS_RESOURCE_EXHAUSTED, KAIROS_DETAIL_QUOTA,
                   "half-sent requests of all clients: over their limit", now_ns);
  buffered_bytes_ -= held;
  attachment.buffer_counted = 0;
  attachment.Settle(now_ns);
}

int RingIngress::TakeReplies(uint64_t now_ns) {
  int taken = 0;
  for (; taken < kRepliesPerRound; ++taken) {
    std::optional<Reply> reply = replies_.TryPop();
    if (!reply) break;
    Attachment* attachment = Find(reply->attachment.value);
    if (attachment == nullptr) {
      counters_.replies_dropped.Add();
      continue;
    }
    if (reply->kind == ReplyKind::kDetached) {
      // Only an attachment that asked for it; another answer is not for a living client.
      if (attachment->phase() == Attachment::Phase::kLeaving) {
        std::erase(touched_, attachment);
        std::erase(hot_, attachment);
        census_.Leave(attachment->peer());
        attachments_.erase(attachment->id().value);
        counters_.attachments.Set(attachments_.size());
      }
      continue;
    }
    attachment->Deliver(std::move(*reply), now_ns);
    if (touched_.empty() || touched_.back() != attachment) touched_.push_back(attachment);
  }
  for (Attachment* attachment : touched_) Visit(*attachment, now_ns);
  touched_.clear();
  return taken;
}

int RingIngress::SettleBlocked(uint64_t now_ns) {
  if (!blocked_) return 0;
  blocked_ = false;
  int moved = 0;
  for (auto& [id, attachment] : attachments_) {
    if (!attachment->waits_for_conductor()) continue;
    if (attachment->Settle(now_ns)) ++moved;
    blocked_ |= attachment->waits_for_conductor();
    // What it had to leave in its ring can be read now.
    if (attachment->CanRead() && attachment->ring().HasMore()) Heat(*attachment);
  }
  return moved;
}

// ---- Events -------------------------------------------------------------------------------------

int RingIngress::PollEvents(int timeout_ms) {
  epoll_event events[kEventsPerPoll];
  const int count = epoll_wait(epoll_.get(), events, kEventsPerPoll, timeout_ms);
  if (count <= 0) return 0;
  const uint64_t now_ns = MonotonicNs();
  for (int i = 0; i < count; ++i) OnEvent(events[i], now_ns);
  return count;
}

void RingIngress::OnEvent(const epoll_event& event, uint64_t now_ns) {
  const auto kind = static_cast<EventKind>(event.data.u64 >> 32);
  if (kind == kWaker) return;
  if (kind == kListen) {
    AcceptClients(now_ns);
    return;
  }
  // An earlier event of the same batch may have ended it.
  Attachment* attachment = Find(static_cast<uint32_t>(event.data.u64));
  if (attachment == nullptr || attachment->phase() == Attachment::Phase::kLeaving) return;
  last_active_ns_ = now_ns;
  if (attachment->phase() == Attachment::Phase::kHello) {
    TakeHello(*attachment, now_ns);
    return;
  }
  if (kind == kPidfd || (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    attachment->Leave(now_ns);
    Visit(*attachment, now_ns);
    return;
  }
  OnDoorbells(*attachment, now_ns);
}

void RingIngress::OnDoorbells(Attachment& attachment, uint64_t now_ns) {
  const DrainedDoorbells drained = DrainDoorbells(attachment.socket(), kDoorbellsPerVisit);
  counters_.doorbells.Add(drained.count);
  if (drained.closed) {
    attachment.Leave(now_ns);
    Visit(attachment, now_ns);
    return;
  }
  const bool useful = attachment.ring().HasMore() || !attachment.replies().empty();
  const uint32_t empty = drained.count - (useful && drained.count > 0 ? 1 : 0);
  if (empty > 0) CountDoorbells(attachment, empty, now_ns);
  attachment.was_suspect = false;
  Heat(attachment);
  if (!attachment.replies().empty()) Visit(attachment, now_ns);
}

void RingIngress::CountDoorbells(Attachment& attachment, uint32_t empty, uint64_t now_ns) {
  counters_.doorbells_empty.Add(empty);
  if (now_ns > attachment.window_start_ns + kWindowNs) {
    attachment.window_start_ns = now_ns;
    attachment.window_doorbells = 0;
  }
  attachment.window_doorbells += empty;
  if (attachment.window_doorbells > options_.doorbells_empty_max) Demote(attachment, now_ns);
}

void RingIngress::Demote(Attachment& attachment, uint64_t now_ns) {
  if (attachment.is_polled) return;
  counters_.demotions.Add();
  attachment.is_polled = true;
  attachment.is_hot = false;
  attachment.polled_until_ns = now_ns + options_.demotion_ns;
  attachment.window_doorbells = 0;
  ++demoted_;
  // Its end is still reported.
  Watch(epoll_.get(), EPOLL_CTL_MOD, attachment.socket(), EPOLLRDHUP, kSocket,
        attachment.id().value);
}

void RingIngress::Promote(Attachment& attachment) {
  attachment.is_polled = false;
  --demoted_;
  if (attachment.phase() != Attachment::Phase::kLive) return;
  Watch(epoll_.get(), EPOLL_CTL_MOD, attachment.socket(), EPOLLIN | EPOLLRDHUP, kSocket,
        attachment.id().value);
  Heat(attachment);
}

// ---- Attaching ----------------------------------------------------------------------------------

void RingIngress::AcceptClients(uint64_t now_ns) {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    Descriptor socket;
    switch (acceptor_.Accept(listener_.get(), &socket)) {
      case Acceptor::Outcome::kNone: return;
      case Acceptor::Outcome::kAccepted: AcceptOne(std::move(socket), now_ns); break;
      case Acceptor::Outcome::kWithoutRoom:
        (void)RefuseClient(socket.get(), PeerCredentials{}, true);
        socket.Close();
        acceptor_.Restore();
        break;
    }
  }
}

void RingIngress::AcceptOne(Descriptor socket, uint64_t now_ns) {
  auto peer = ReadPeer(socket.get());
  if (!peer.ok()) return;
  constexpr uint64_t kOfOneClient = 4;
  const uint64_t room = std::max<uint64_t>(options_.descriptors_reserved, descriptor_limit_ / 5);
  const bool is_short = IsShortOfDescriptors(socket.get(), kOfOneClient + room, descriptor_limit_);
  if (RefuseClient(socket.get(), *peer, is_short)) return;
  while (next_id_ == 0 || attachments_.contains(next_id_)) ++next_id_;
  const AttachmentId id{next_id_++};
  if (!Watch(epoll_.get(), EPOLL_CTL_ADD, socket.get(), EPOLLIN | EPOLLRDHUP, kSocket, id.value)) {
    return;
  }
  auto attachment = std::make_unique<Attachment>(id, std::move(socket), *peer, options_.attachment,
                                                 &ports_, now_ns);
  Attachment& made = *attachment;
  attachments_.emplace(id.value, std::move(attachment));
  census_.Enter(*peer);
  ++hellos_;
  counters_.attachments.Set(attachments_.size());
  TakeHello(made, now_ns);
}

bool RingIngress::RefuseClient(int socket, const PeerCredentials& peer, bool short_of_descriptors) {
  Code code = Code::kResourceExhausted;
  int32_t detail = KAIROS_DETAIL_QUOTA;
  std::string text;
  const auto& uids = options_.allowed_uids;
  if (short_of_descriptors) {
    text = "the sidecar is short of file descriptors";
  } else if (draining_.on()) {
    code = Code::kUnavailable;
    detail = KAIROS_DETAIL_DRAINING;
    text = "the sidecar is shutting down";
  } else if (!uids.empty() && std::find(uids.begin(), uids.end(), peer.uid) == uids.end()) {
    code = Code::kFailedPrecondition;
    text = "this user may not attach";
  } else if (attachments_.size() >= options_.attachments_max) {
    text = fmt::format("attached clients: at most {} (limits.attachments)",
                       options_.attachments_max);
  } else if (census_.OfUser(peer) >= options_.attachments_per_uid_max) {
    text = fmt::format("attached clients of this user: at most {}",
                       options_.attachments_per_uid_max);
  } else if (census_.OfProcess(peer) >= options_.attachments_per_process_max) {
    text = fmt::format("attached clients of this process: at most {} "
                       "(limits.attachments_per_process)",
                       options_.attachments_per_process_max);
  }
  if (text.empty()) return false;
  counters_.attach_refused.Add();
  // Closing a socket with an unread hello would reset the client before it sees the answer.
  (void)DrainDoorbells(socket, 1);
  (void)SendRefusal(socket, code, detail, text.c_str());
  return true;
}

void RingIngress::TakeHello(Attachment& attachment, uint64_t now_ns) {
  if (attachment.is_failed) return;
  bool again = false;
  if (attachment.Welcome(offer_, now_ns, &again)) {
    --hellos_;
    counters_.attached.Add();
    if (attachment.pidfd() >= 0) {
      Watch(epoll_.get(), EPOLL_CTL_ADD, attachment.pidfd(), EPOLLIN, kPidfd,
            attachment.id().value);
    }
    Heat(attachment);
    Visit(attachment, now_ns);
    return;
  }
  if (again) return;
  counters_.attach_refused.Add();
  may_reap_ = true;
  attachment.is_failed = true;
}

// Ends attachments that never became live; those that did leave with kDetached.
void RingIngress::Reap() {
  may_reap_ = false;
  for (auto at = attachments_.begin(); at != attachments_.end();) {
    Attachment& attachment = *at->second;
    if (attachment.phase() != Attachment::Phase::kHello || !attachment.is_failed) {
      ++at;
      continue;
    }
    --hellos_;
    census_.Leave(attachment.peer());
    at = attachments_.erase(at);
  }
  counters_.attachments.Set(attachments_.size());
}

// ---- Timers -------------------------------------------------------------------------------------

void RingIngress::RunTimers(uint64_t now_ns) {
  if (demoted_ > 0 && now_ns >= next_demoted_ns_) {
    next_demoted_ns_ = now_ns + options_.polled_ns;
    PollDemoted(now_ns);
  }
  if (now_ns < next_sweep_ns_ || attachments_.empty()) return;
  const bool active = now_ns - last_active_ns_ < options_.active_ns;
  next_sweep_ns_ = now_ns + (active || stalled_ || hellos_ > 0 ? options_.sweep_ns : kIdleSweepNs);
  Sweep(now_ns);
}

void RingIngress::PollDemoted(uint64_t now_ns) {
  for (auto& [id, attachment] : attachments_) {
    if (!attachment->is_polled) continue;
    if (now_ns >= attachment->polled_until_ns) {
      Promote(*attachment);
      continue;
    }
    attachment->EndPause(now_ns);
    attachment->Drain(now_ns);
    Visit(*attachment, now_ns);
  }
}

void RingIngress::Sweep(uint64_t now_ns) {
  counters_.sweeps.Add();
  stalled_ = false;
  for (auto& [id, attachment] : attachments_) {
    if (attachment->phase() == Attachment::Phase::kHello) {
      // Accepted in this round, it can be younger than the round's time.
      if (!attachment->is_failed &&
          now_ns > attachment->since_ns() + options_.hello_timeout_ns) {
        counters_.attach_timeouts.Add();
        attachment->is_failed = true;
        may_reap_ = true;
      }
      continue;
    }
    if (attachment->phase() != Attachment::Phase::kLive) continue;
    attachment->CheckSlow(now_ns);
    Visit(*attachment, now_ns);
    const bool unannounced = attachment->ring().asleep() && !attachment->is_polled &&
                             attachment->CanRead() && attachment->ring().HasMore();
    if (!unannounced) {
      attachment->was_suspect = false;
    } else if (!attachment->was_suspect) {
      // Its doorbell may be on the way.
      attachment->was_suspect = true;
      stalled_ = true;
    } else {
      attachment->was_suspect = false;
      counters_.lost_wakes.Add();
      Heat(*attachment);
    }
  }
}

// ---- Sleeping -----------------------------------------------------------------------------------

// The time of the last look at the clock when there was work, else 0.
uint64_t RingIngress::SpinForWork(uint64_t now_ns) {
  if (spin_ns_max_ == 0 || hot_.empty()) return 0;
  const uint64_t end_ns = now_ns + spin_ns_;
  do {
    for (int i = 0; i < kSpinBatch; ++i) {
      if (!replies_.empty()) return now_ns;
      for (Attachment* attachment : hot_) {
        if (attachment->CanRead() && attachment->ring().HasMore()) return now_ns;
      }
      Relax();
    }
    now_ns = MonotonicNs();
  } while (now_ns < end_ns);
  return 0;
}

// Announces sleep to every hot attachment. False: some of them has more.
bool RingIngress::PrepareSleep() {
  bool has_more = false;
  for (Attachment* attachment : hot_) {
    // One that is not read has no use for doorbells of requests; it stays as it is.
    if (!attachment->CanRead()) continue;
    if (attachment->ring().PrepareSleep()) {
      attachment->is_hot = false;
    } else {
      attachment->ring().FinishSleep();
      has_more = true;
    }
  }
  std::erase_if(hot_, [](const Attachment* one) { return !one->is_hot; });
  return !has_more;
}

int RingIngress::SleepMs(uint64_t now_ns) const {
  if (blocked_) return 1;
  if (attachments_.empty()) return -1;
  uint64_t until = next_sweep_ns_;
  if (demoted_ > 0) until = std::min(until, next_demoted_ns_);
  for (const Attachment* one : hot_) {
    if (one->paused_until_ns() != 0) until = std::min(until, one->paused_until_ns());
  }
  if (until <= now_ns) return 0;
  return static_cast<int>((until - now_ns + 999'999) / 1'000'000);
}

uint64_t RingIngress::Wait(uint64_t now_ns, int max_ms) {
  if (const uint64_t seen_ns = SpinForWork(now_ns); seen_ns != 0) {
    spin_ns_ = std::min(spin_ns_max_, spin_ns_ * 2);
    return seen_ns;
  }
  // A spin that found nothing is shortened next time, down to an eighth.
  spin_ns_ = std::max(spin_ns_ / 2, spin_ns_max_ / 8);
  own_waker_.Prepare();
  if (!replies_.empty() || !limits_asked_.empty() || !PrepareSleep()) {
    own_waker_.Finish();
    return MonotonicNs();
  }
  int timeout_ms = SleepMs(MonotonicNs());
  if (max_ms >= 0 && (timeout_ms < 0 || timeout_ms > max_ms)) timeout_ms = max_ms;
  PollEvents(timeout_ms);
  own_waker_.Finish();
  counters_.wakeups.Add();
  FinishRound();
  return MonotonicNs();
}

}  // namespace kairos
