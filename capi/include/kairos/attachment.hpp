// SPDX-License-Identifier: Apache-2.0
//
// attachment.hpp: how kairos.hpp, which is what programs include, finds the turn of each event.
#pragma once

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "kairos/kairos.h"
#include "kairos/values.hpp"

namespace kairos {
inline namespace cpp1 {

namespace detail {

class Attachment;
using AttachmentRef = std::shared_ptr<Attachment>;

// The attachment, and what was read for each of its turns. Shared by the client and what was made
// from it, so that none of them can outlive it. One thread at a time reads the library's queue,
// which keeps the events of a turn in order; the others wait here, and one of them takes over.
class Attachment {
 public:
  static AttachmentRef Open(const ClientOptions& options) {
    return AttachmentRef(new Attachment(options), &Destroy);
  }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  kairos_client_t* handle() const noexcept { return handle_; }
  int32_t call_timeout_ms() const noexcept { return call_timeout_ms_; }

  // The library knows a closed handle, so a second close changes nothing.
  void Close() noexcept {
    // In a forked child the lock may be held by a thread that is not there.
    if (IsOurs()) {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    kairos_client_close(handle_);
    if (IsOurs()) changed_.notify_all();
  }

  uint64_t Submit(const kairos_turn_options_t& options) {
    CheckProcess();
    // Memory first: a turn that was queued is never without its mailbox.
    std::map<uint64_t, Mailbox> fresh;
    fresh.try_emplace(0);
    auto node = fresh.extract(fresh.begin());
    // Under the lock: an event must not be read before its mailbox is there.
    const std::lock_guard<std::mutex> lock(mutex_);
    uint64_t request = 0;
    Check(kairos_turn_submit(handle_, &options, &request));
    node.key() = request;
    mailboxes_.insert(std::move(node));
    return request;
  }

  // Cancels the turn unless it is over, and drops what is still to come of it.
  void Forget(uint64_t request) noexcept {
    if (!IsOurs()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = mailboxes_.find(request);
    if (found == mailboxes_.end()) return;
    if (!found->second.handed_out_last) kairos_turn_cancel(handle_, request);
    boxed_ -= found->second.events.size();
    mailboxes_.erase(found);
  }

  // The next event of a turn, or with request 0 of any turn. None on time-out, and after a turn's
  // last.
  std::optional<Event> Next(uint64_t request, Milliseconds timeout) {
    CheckProcess();
    const auto start = std::chrono::steady_clock::now();
    std::unique_lock<std::mutex> lock(mutex_);
    for (bool looked = false;; looked = true) {
      if (closed_) throw Error(KAIROS_CANCELLED, 0, "the client was closed");
      RouteArrived();
      if (std::optional<Event> event = TakeFrom(request)) return event;
      if (request != 0 && mailboxes_.at(request).handed_out_last) return std::nullopt;
      const Milliseconds left = Left(start, timeout);
      if (looked && left.count() == 0) return std::nullopt;
      if (!reading_) {
        Read(lock, left);
      } else if (left.count() < 0) {
        changed_.wait(lock);
      } else {
        changed_.wait_for(lock, left);
      }
    }
  }

  uint64_t SessionOf(uint64_t request) { return Look(request, &Mailbox::session_id); }
  bool IsOver(uint64_t request) { return Look(request, &Mailbox::handed_out_last); }
  std::optional<kairos_final_t> FinalOf(uint64_t request) {
    return Look(request, &Mailbox::final_record);
  }

 private:
  struct Mailbox {
    std::deque<Event> events;
    uint64_t session_id = 0;
    bool handed_out_last = false;
    std::optional<kairos_final_t> final_record;
  };

  explicit Attachment(const ClientOptions& options)
      : call_timeout_ms_(TimeoutMs(options.call_timeout)) {
    kairos_client_options_t native;
    kairos_client_options_init(&native);
    native.socket_path = View(options.socket_path);
    native.name_space = View(options.name_space);
    native.request_ring_bytes = options.request_ring_bytes;
    native.reply_ring_bytes = options.reply_ring_bytes;
    native.spin_us = options.spin_us;
    // 0 would stand for the default.
    const int32_t connect_ms = TimeoutMs(options.connect_timeout);
    native.connect_timeout_ms =
        connect_ms < 0 ? std::numeric_limits<int32_t>::max() : connect_ms == 0 ? 1 : connect_ms;
    Check(kairos_client_open(&native, &handle_));
  }
  ~Attachment() { kairos_client_close(handle_); }
  // A forked child leaves the memory alone: a condition that a parent's thread waits for cannot be
  // destroyed there.
  static void Destroy(Attachment* attachment) noexcept {
    if (attachment->IsOurs()) delete attachment;
  }

  bool IsOurs() const noexcept { return process_ == getpid(); }
  // Before the lock is touched: a thread of the parent may have held it at the fork.
  void CheckProcess() const {
    if (IsOurs()) return;
    throw Error(KAIROS_FAILED_PRECONDITION, KAIROS_DETAIL_FORKED,
                "the client was opened before fork; open one in this process");
  }

  template <typename Field>
  Field Look(uint64_t request, Field Mailbox::*field) {
    CheckProcess();
    const std::lock_guard<std::mutex> lock(mutex_);
    return mailboxes_.at(request).*field;
  }

  static Milliseconds Left(std::chrono::steady_clock::time_point start, Milliseconds timeout) {
    if (timeout.count() < 0) return kForever;
    const auto passed = std::chrono::duration_cast<Milliseconds>(
        std::chrono::steady_clock::now() - start);
    // A longest wait keeps the clock's arithmetic in range; whoever waits comes back here.
    constexpr Milliseconds kMost = std::chrono::hours(24);
    if (passed >= timeout) return Milliseconds(0);
    return timeout - passed < kMost ? timeout - passed : kMost;
  }

  // One event, as the reader; the lock is given up while it waits.
  void Read(std::unique_lock<std::mutex>& lock, Milliseconds timeout) {
    reading_ = true;
    lock.unlock();
    kairos_event_t* event = nullptr;
    const int32_t result = kairos_event_next(handle_, TimeoutMs(timeout), &event);
    lock.lock();
    reading_ = false;
    changed_.notify_all();
    arrived_ = Event(event);
    if (result < 0 && !closed_) Check(result);
  }

  // Puts what was read into its mailbox. Where memory runs short it stays in `arrived_`, and
  // whoever comes next tries again.
  void RouteArrived() {
    if (!arrived_) return;
    const auto found = mailboxes_.find(arrived_.request());
    if (found != mailboxes_.end()) {
      found->second.events.push_back(std::move(arrived_));
      ++boxed_;
    }
    arrived_ = Event();
  }

  std::optional<Event> TakeFrom(uint64_t request) {
    if (boxed_ == 0) return std::nullopt;
    auto found = mailboxes_.begin();
    if (request != 0) {
      found = mailboxes_.find(request);
    } else {
      while (found->second.events.empty()) ++found;
    }
    Mailbox& box = found->second;
    if (box.events.empty()) return std::nullopt;
    if (box.events.front().type() == EventType::kFinal) {
      box.final_record = box.events.front().final_record();
    }
    Event event = std::move(box.events.front());
    box.events.pop_front();
    --boxed_;
    if (event.session_id() != 0) box.session_id = event.session_id();
    box.handed_out_last = event.is_last();
    return event;
  }

  const pid_t process_ = getpid();
  const int32_t call_timeout_ms_;
  kairos_client_t* handle_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reading_ = false;
  bool closed_ = false;
  Event arrived_;           // read, but not in its mailbox yet
  std::size_t boxed_ = 0;   // events in all mailboxes
  std::map<uint64_t, Mailbox> mailboxes_;
};

// The C structs of a turn. They point into the options and into this.
class NativeTurn {
 public:
  explicit NativeTurn(const TurnOptions& options) {
    kairos_turn_options_init(&turn_);
    turn_.flags = options.flags;
    turn_.session_id = options.session_id;
    turn_.if_version =
        options.if_version ? static_cast<int64_t>(*options.if_version) : KAIROS_VERSION_ANY;
    turn_.tools_json = View(options.tools_json);
    turn_.idempotency_key = View(options.idempotency_key);
    turn_.model = View(options.model);
    const uint64_t deadline_ms = CountOf(options.deadline, "deadline");
    constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
    turn_.deadline_ms = deadline_ms < kMost ? static_cast<uint32_t>(deadline_ms) : kMost;
    turn_.priority = options.priority;
    turn_.on_cancel = options.on_cancel;
    turn_.tool_choice = options.tool_choice;
    turn_.tool_name = View(options.tool_name);
    turn_.tokens = options.tokens.data();
    turn_.token_count = static_cast<uint32_t>(options.tokens.size());
    SetMessages(options.messages);
    if (options.generation) SetGeneration(*options.generation);
  }
  NativeTurn(const NativeTurn&) = delete;
  NativeTurn& operator=(const NativeTurn&) = delete;

  const kairos_turn_options_t& get() const noexcept { return turn_; }

 private:
  void SetMessages(const std::vector<Message>& messages) {
    messages_.reserve(messages.size());
    for (const Message& message : messages) {
      kairos_message_t native;
      kairos_message_init(&native);
      native.role = View(message.role);
      native.content = View(message.content);
      native.name = View(message.name);
      native.tool_call_id = View(message.tool_call_id);
      native.tool_calls_json = View(message.tool_calls_json);
      messages_.push_back(native);
    }
    turn_.messages = messages_.data();
    turn_.message_count = static_cast<uint32_t>(messages_.size());
  }

  void SetGeneration(const Generation& generation) {
    kairos_generation_init(&generation_);
    generation_.flags = generation.flags;
    generation_.max_tokens = generation.max_tokens;
    generation_.temperature = generation.temperature;
    generation_.top_k = generation.top_k;
    generation_.top_p = generation.top_p;
    generation_.min_p = generation.min_p;
    generation_.repetition_penalty = generation.repetition_penalty;
    generation_.presence_penalty = generation.presence_penalty;
    generation_.penalty_window = generation.penalty_window;
    generation_.seed = generation.seed;
    generation_.logprobs = generation.logprobs;
    generation_.constraint_kind = generation.constraint_kind;
    generation_.constraint = View(generation.constraint);
    stops_.reserve(generation.stops.size());
    for (const std::string& stop : generation.stops) stops_.push_back(View(stop));
    generation_.stops = stops_.data();
    generation_.stop_count = static_cast<uint32_t>(stops_.size());
    generation_.biases = generation.biases.data();
    generation_.bias_count = static_cast<uint32_t>(generation.biases.size());
    turn_.generation = &generation_;
  }

  kairos_turn_options_t turn_;
  kairos_generation_t generation_;
  std::vector<kairos_message_t> messages_;
  std::vector<kairos_string_t> stops_;
};

}  // namespace detail

}  // namespace cpp1
}  // namespace kairos
