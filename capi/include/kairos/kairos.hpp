// SPDX-License-Identifier: Apache-2.0
//
// kairos.hpp: KAIROS for C++17 and later, over kairos.h and nothing else.
//
//  1. What fails throws kairos::Error, which has the code, the detail and the words of kairos.h.
//     It is an exception because objects here own things: there is no half-open Client to test
//     for, and a turn that is left by an exception is cancelled. A program built without
//     exceptions uses kairos.h.
//  2. Client, Session, Turn and Event are moved, not copied. A moved-from object may be destroyed
//     or assigned to; its ids are 0 and every other call throws KAIROS_INVALID_ARGUMENT.
//     Destructors never throw and never wait.
//  3. A Session or Turn may outlive its Client. Using it then throws.
//  4. Threads: a Client, and the Sessions and Turns made from it, may be used from several
//     threads, as long as one object is used by one thread at a time; of a Client, all but moving
//     it and destroying it may be called by any thread. Close() ends calls that wait in other
//     threads with KAIROS_CANCELLED. Threads of one client take turns at reading; each gets its
//     own turn's events.
//  5. Fork: a child process cannot use its parent's objects (KAIROS_FAILED_PRECONDITION with
//     detail KAIROS_DETAIL_FORKED), and destroying them there does nothing to the parent's.
//  6. Time-outs are std::chrono durations. A negative one, such as kairos::kForever, waits without
//     limit; zero never blocks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kairos/attachment.hpp"
#include "kairos/kairos.h"
#include "kairos/values.hpp"

namespace kairos {
inline namespace cpp1 {

// ---- Turn --------------------------------------------------------------------------------------

// One request and its reply: a range of events that are read as one goes along it. An error event
// is thrown. A turn that is destroyed before its last event was read is cancelled.
class Turn {
 public:
  // Shared by the turn and its iterators: the one event that they stand at.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Event;
    using difference_type = std::ptrdiff_t;
    using pointer = Event*;
    using reference = Event&;

    Iterator() noexcept = default;
    Event& operator*() const noexcept { return *turn_->current_; }
    Event* operator->() const noexcept { return &*turn_->current_; }
    Iterator& operator++() {
      turn_->current_ = turn_->Next(kForever);
      if (!turn_->current_) turn_ = nullptr;
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.turn_ == b.turn_; }
    friend bool operator!=(const Iterator& a, const Iterator& b) { return !(a == b); }

   private:
    friend class Turn;
    explicit Iterator(Turn* turn) : turn_(turn) {}
    Turn* turn_ = nullptr;  // null: the end
  };

  Turn(Turn&& other) noexcept { Swap(other); }
  Turn& operator=(Turn&& other) noexcept {
    Turn taken(std::move(other));
    Swap(taken);
    return *this;
  }
  ~Turn() {
    if (attachment_ != nullptr) attachment_->Forget(request_);
  }

  uint64_t request() const noexcept { return request_; }
  // 0 until the accepted event was read.
  uint64_t session_id() const { return attachment().SessionOf(request_); }
  // True once the last event was read, by this object or by Client::Next().
  bool is_over() const { return attachment().IsOver(request_); }
  // The figures of a turn that is over; else, or where it failed, throws
  // KAIROS_FAILED_PRECONDITION.
  kairos_final_t final_record() const {
    const std::optional<kairos_final_t> found = attachment().FinalOf(request_);
    if (found) return *found;
    throw Error(KAIROS_FAILED_PRECONDITION, 0,
                "the turn has no final record: it runs, or it failed");
  }

  // The next event; none on time-out and after the last. Throws what an error event says.
  std::optional<Event> Next(Milliseconds timeout = kForever) {
    std::optional<Event> event = attachment().Next(request_, timeout);
    if (event) event->ThrowIfError();
    return event;
  }
  Iterator begin() { return ++Iterator(this); }
  Iterator end() noexcept { return Iterator(); }

  // Reads to the end and returns all text.
  std::string ReadText() {
    std::string text;
    for (const Event& event : *this) {
      if (event.type() == EventType::kText) text += event.text();
    }
    return text;
  }
  // Asks the turn to stop; its final event follows. No error where it is over.
  void Cancel() { detail::Check(kairos_turn_cancel(attachment().handle(), request_)); }

 private:
  friend class Client;
  friend class Session;
  Turn(detail::AttachmentRef attachment, const TurnOptions& options)
      : attachment_(std::move(attachment)) {
    request_ = this->attachment().Submit(detail::NativeTurn(options).get());
  }
  detail::Attachment& attachment() const {
    if (attachment_ == nullptr) detail::ThrowUnusable("turn: moved from");
    return *attachment_;
  }
  void Swap(Turn& other) noexcept {
    std::swap(attachment_, other.attachment_);
    std::swap(request_, other.request_);
    std::swap(current_, other.current_);
  }

  detail::AttachmentRef attachment_;
  uint64_t request_ = 0;
  std::optional<Event> current_;
};

// ---- Session -----------------------------------------------------------------------------------

// This client's hold on a durable session. Destroying it drops the hold, without waiting; the
// session stays. The holds of one client on one session are one: the first that is dropped ends
// it, which costs a later turn a read of the catalog and no more.
class Session {
 public:
  Session(Session&& other) noexcept { Swap(other); }
  Session& operator=(Session&& other) noexcept {
    Session taken(std::move(other));
    Swap(taken);
    return *this;
  }
  ~Session() {
    if (attachment_ != nullptr && held_) kairos_session_release(attachment_->handle(), id_, 0);
  }

  uint64_t id() const noexcept { return id_; }

  // Queues a turn; never blocks. KAIROS_RESOURCE_EXHAUSTED with detail KAIROS_DETAIL_RING_FULL
  // means: read events, then try again.
  [[nodiscard]] Turn Submit(TurnOptions options) {
    Attachment();
    options.session_id = id_;
    return Turn(attachment_, options);
  }
  // A user's message.
  [[nodiscard]] Turn Submit(std::string content) {
    TurnOptions options;
    options.messages.push_back({"user", std::move(content), "", "", ""});
    return Submit(std::move(options));
  }

  // The calls below wait for the sidecar's answer, up to ClientOptions::call_timeout.

  // A new session that starts as `version` of this one (0: head) and shares its KV.
  [[nodiscard]] Session Fork(uint64_t version = 0) {
    uint64_t fork = 0;
    detail::Check(kairos_session_fork(handle(), id_, version, &fork, timeout_ms()));
    return Session(attachment_, fork);
  }
  // Makes `version` the head. Later versions stay nameable until pruned.
  void Rewind(uint64_t version) {
    detail::Check(kairos_session_rewind(handle(), id_, version, timeout_ms()));
  }
  // Drops the hold and waits for it.
  void Release() {
    detail::Check(kairos_session_release(handle(), id_, timeout_ms()));
    held_ = false;
  }
  // Cancels its open turn and frees it everywhere.
  void Delete() {
    detail::Check(kairos_session_delete(handle(), id_, timeout_ms()));
    held_ = false;
  }
  kairos_session_t Stat() const {
    kairos_session_t out{};
    out.struct_size = sizeof(out);
    detail::Check(kairos_session_stat(handle(), id_, &out, timeout_ms()));
    return out;
  }
  // The messages of a version (0: head), a JSON array.
  std::string Messages(uint64_t version = 0) const {
    kairos_event_t* event = nullptr;
    detail::Check(kairos_session_messages(handle(), id_, version, &event, timeout_ms()));
    return std::string(Event(event).text());
  }
  // The task context of a version (0: head), a JSON object.
  std::string Context(uint64_t version = 0) const {
    kairos_event_t* event = nullptr;
    detail::Check(kairos_context_read(handle(), id_, version, &event, timeout_ms()));
    return std::string(Event(event).text());
  }
  // Replaces the task context; returns the new version.
  uint64_t SetContext(const std::string& json, std::optional<uint64_t> if_version = std::nullopt) {
    uint64_t version = 0;
    const int64_t expected = if_version ? static_cast<int64_t>(*if_version) : KAIROS_VERSION_ANY;
    detail::Check(kairos_context_write(handle(), id_, expected, detail::View(json), &version,
                                       timeout_ms()));
    return version;
  }

 private:
  friend class Client;
  Session(detail::AttachmentRef attachment, uint64_t id) noexcept
      : attachment_(std::move(attachment)), id_(id) {}
  const detail::Attachment& Attachment() const {
    if (attachment_ == nullptr) detail::ThrowUnusable("session: moved from");
    return *attachment_;
  }
  kairos_client_t* handle() const { return Attachment().handle(); }
  int32_t timeout_ms() const { return Attachment().call_timeout_ms(); }
  void Swap(Session& other) noexcept {
    std::swap(attachment_, other.attachment_);
    std::swap(id_, other.id_);
    std::swap(held_, other.held_);
  }

  detail::AttachmentRef attachment_;
  uint64_t id_ = 0;
  bool held_ = true;
};

// ---- Client ------------------------------------------------------------------------------------

// One attachment of this process to the sidecar. Destroying it detaches: the sidecar cancels its
// open turns, and sessions stay.
class Client {
 public:
  // Attaches; blocks up to options.connect_timeout.
  explicit Client(const ClientOptions& options = {})
      : attachment_(detail::Attachment::Open(options)) {}
  Client(Client&& other) noexcept = default;
  Client& operator=(Client&& other) noexcept {
    Client taken(std::move(other));
    std::swap(attachment_, taken.attachment_);
    return *this;
  }
  ~Client() { Close(); }

  // Detaches now. May be called again, and while other threads wait.
  void Close() noexcept {
    if (attachment_ != nullptr) attachment_->Close();
  }

  // A descriptor that polls readable when Next() or NextState() may have something. Owned by the
  // client. Call them with 0ms until they give none before waiting on it again.
  int fd() { return detail::Check(kairos_client_fd(attachment().handle())); }

  // The next event of any turn, error events included; none on time-out. For event loops: dispatch
  // by Event::request(), and keep the Turn objects, since a turn ends with its object.
  std::optional<Event> Next(Milliseconds timeout) { return attachment().Next(0, timeout); }

  // Says whether NextState() is to tell, from now on, of changes of version or phase of every
  // session of this uid and namespace. For what was before, call Sessions() then.
  void Watch(bool on = true) {
    detail::Check(kairos_watch(attachment().handle(), on ? KAIROS_WATCH_SESSIONS : 0,
                               attachment().call_timeout_ms()));
  }
  // The next of them; none on time-out. Whoever reads slowly gets the latest state of each
  // session, see Event::skipped().
  std::optional<Event> NextState(Milliseconds timeout = kForever) {
    kairos_event_t* event = nullptr;
    const int32_t count = detail::Check(
        kairos_watch_next(attachment().handle(), detail::TimeoutMs(timeout), &event));
    if (count == 0) return std::nullopt;
    return Event(event);
  }

  // Queues a turn; see Session::Submit(). Without options.session_id the sidecar makes a session,
  // which Turn::session_id() names.
  [[nodiscard]] Turn Submit(const TurnOptions& options) {
    attachment();
    return Turn(attachment_, options);
  }

  // The calls below wait for the sidecar's answer, up to ClientOptions::call_timeout.

  [[nodiscard]] Session CreateSession(const SessionOptions& options = {}) {
    kairos_session_options_t native;
    kairos_session_options_init(&native);
    native.flags = options.drop_reasoning ? KAIROS_SESSION_DROP_REASONING : 0;
    native.fidelity = options.exact ? KAIROS_FIDELITY_EXACT : KAIROS_FIDELITY_DEFAULT;
    native.priority = options.priority;
    native.ttl_seconds = detail::CountOf(options.ttl, "ttl");
    native.label = detail::View(options.label);
    native.model = detail::View(options.model);
    uint64_t id = 0;
    detail::Check(kairos_session_create(attachment().handle(), &native, &id,
                                        attachment().call_timeout_ms()));
    return Session(attachment_, id);
  }
  // KAIROS_NOT_FOUND also where the session belongs to another uid or namespace.
  [[nodiscard]] Session OpenSession(uint64_t id) {
    detail::Check(kairos_session_open(attachment().handle(), id, nullptr,
                                      attachment().call_timeout_ms()));
    return Session(attachment_, id);
  }
  // All sessions of this uid and namespace, in order of id.
  std::vector<kairos_session_t> Sessions() {
    constexpr uint32_t kPage = 256;
    std::vector<kairos_session_t> all;
    for (;;) {
      const std::size_t before = all.size();
      const uint64_t after = before == 0 ? 0 : all.back().id;
      all.resize(before + kPage);
      all[before].struct_size = sizeof(kairos_session_t);
      const int32_t count =
          detail::Check(kairos_session_list(attachment().handle(), after, &all[before], kPage,
                                            attachment().call_timeout_ms()));
      all.resize(before + static_cast<std::size_t>(count));
      if (static_cast<uint32_t>(count) < kPage) return all;
    }
  }
  // The time that an echo of `size` bytes (0..65536) takes. `spin` polls without sleeping.
  std::chrono::nanoseconds Ping(uint32_t size = 0, bool spin = false) {
    return std::chrono::nanoseconds(detail::Check(kairos_client_ping(
        attachment().handle(), size, spin ? 1 : 0, attachment().call_timeout_ms())));
  }

 private:
  detail::Attachment& attachment() const {
    if (attachment_ == nullptr) detail::ThrowUnusable("client: moved from");
    return *attachment_;
  }

  detail::AttachmentRef attachment_;
};

}  // namespace cpp1
}  // namespace kairos
