// SPDX-License-Identifier: Apache-2.0
//
// values.hpp: errors, options and events of kairos.hpp, which is what programs include.
#pragma once

#if defined(__GNUC__) && !defined(__cpp_exceptions)
#error "kairos.hpp reports errors by exceptions; without them, include kairos/kairos.h"
#endif

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kairos/kairos.h"

namespace kairos {
// The version of these headers' own types: programs of two versions can meet in one process.
inline namespace cpp1 {

using Milliseconds = std::chrono::milliseconds;
inline constexpr Milliseconds kForever{-1};

// ---- Errors ------------------------------------------------------------------------------------

class Error : public std::runtime_error {
 public:
  Error(int32_t code, int32_t detail, const std::string& words)
      : std::runtime_error(words), code_(code), detail_(detail) {}

  int32_t code() const noexcept { return code_; }      // KAIROS_*, positive
  int32_t detail() const noexcept { return detail_; }  // KAIROS_DETAIL_*, or 0

 private:
  int32_t code_;
  int32_t detail_;
};

// ---- What a program says -----------------------------------------------------------------------

struct ClientOptions {
  std::string socket_path;          // empty: $KAIROS_SOCKET, else the per-user default
  std::string name_space;           // empty: "default"
  uint32_t request_ring_bytes = 0;  // 0: sidecar's default; else a power of two, 64 KiB..64 MiB
  uint32_t reply_ring_bytes = 0;
  int32_t spin_us = -1;             // how long to poll before sleeping; -1: default
  Milliseconds connect_timeout{5'000};
  // Of calls that ask the sidecar and wait for its answer; turns are not meant.
  Milliseconds call_timeout{60'000};
};

struct SessionOptions {
  std::string label;              // shown to operators, at most 128 bytes
  std::string model;              // name of a resident model; empty: the default
  bool exact = false;             // all KV in 16 bits
  bool drop_reasoning = false;    // what the model thinks is told, and not kept in the log
  int32_t priority = 0;           // -100..100, higher first
  std::chrono::seconds ttl{0};    // 0: no limit; deleted after this long without a turn
};

struct Message {
  std::string role;             // "system", "user", "assistant", "tool"
  std::string content;
  std::string name;             // of the tool, optional
  std::string tool_call_id;     // for role "tool", optional
  std::string tool_calls_json;  // for role "assistant": JSON array, optional
};

struct Generation {
  uint32_t max_tokens = 0;         // 0: sidecar's default
  float temperature = 0;           // 0: greedy
  int32_t top_k = 0;               // 0: off
  float top_p = 1;                 // 1: off
  float min_p = 0;                 // 0: off
  float repetition_penalty = 1;    // 1: off
  float presence_penalty = 0;      // 0: off
  int32_t penalty_window = 0;      // tokens looked back, 0: 64, -1: all
  uint64_t seed = 0;
  uint32_t logprobs = 0;           // alternatives per token in events, 0..20
  std::vector<std::string> stops;  // at most 16 of at most 256 bytes
  std::vector<kairos_logit_bias_t> biases;  // at most 1024
  int32_t constraint_kind = KAIROS_CONSTRAINT_NONE;
  std::string constraint;          // what the text must match, at most 256 KiB
  uint32_t flags = 0;              // KAIROS_AUTO_*, KAIROS_IGNORE_EOS, KAIROS_LOGITS_HASH
};

struct TurnOptions {
  std::vector<Message> messages;
  std::vector<int32_t> tokens;        // raw-token turn instead of messages
  uint64_t session_id = 0;            // 0: a session is made; a Session fills this in
  std::optional<uint64_t> if_version;  // refuse unless this is the head
  std::string tools_json;             // JSON array of function schemas; empty: as before
  std::string idempotency_key;        // at most 128 bytes
  Milliseconds deadline{0};           // from submit; 0: none
  int32_t priority = 0;               // -100..100, added to the session's
  int32_t on_cancel = KAIROS_ON_CANCEL_COMMIT;
  int32_t tool_choice = KAIROS_TOOL_CHOICE_AUTO;
  std::string tool_name;              // for KAIROS_TOOL_CHOICE_NAMED
  std::string model;                  // empty: the session's; a new session's: the default
  uint32_t flags = 0;                 // KAIROS_TURN_*
  std::optional<Generation> generation;  // none: the sidecar's defaults
};

inline std::string_view LabelOf(const kairos_session_t& session) noexcept {
  const std::size_t size = session.label_size;
  return {session.label, size < sizeof(session.label) ? size : sizeof(session.label)};
}

// Empty where its model is not in memory.
inline std::string_view ModelOf(const kairos_session_t& session) noexcept {
  const std::string_view padded(session.model, sizeof(session.model));
  return padded.substr(0, padded.find('\0'));
}

// ---- Events ------------------------------------------------------------------------------------

enum class EventType : int32_t {
  kAccepted = KAIROS_EVENT_ACCEPTED,
  kText = KAIROS_EVENT_TEXT,
  kToolCall = KAIROS_EVENT_TOOL_CALL,
  kLogprobs = KAIROS_EVENT_LOGPROBS,
  kFinal = KAIROS_EVENT_FINAL,
  kError = KAIROS_EVENT_ERROR,
  kReply = KAIROS_EVENT_REPLY,
  kReasoning = KAIROS_EVENT_REASONING,
  kSession = KAIROS_EVENT_SESSION,
};

// A view of an event's tokens, for range-for; valid as long as the event.
struct TokenView {
  const int32_t* data = nullptr;
  uint32_t size = 0;
  const int32_t* begin() const noexcept { return data; }
  const int32_t* end() const noexcept { return data + size; }
};

namespace detail {

[[noreturn]] inline void ThrowUnusable(const char* words) {
  throw Error(KAIROS_INVALID_ARGUMENT, 0, words);
}

// Throws the thread's last error where a call of kairos.h returned a negative code.
template <typename Number>
Number Check(Number result) {
  if (result >= 0) return result;
  char words[512];
  kairos_last_error(words, sizeof(words));
  const auto code = static_cast<int32_t>(-result);
  throw Error(code, kairos_last_detail(), words[0] == '\0' ? kairos_strerror(code) : words);
}

// A count of kairos.h, where less than none would become a very large number.
template <typename Duration>
uint64_t CountOf(Duration duration, const char* field) {
  if (duration.count() >= 0) return static_cast<uint64_t>(duration.count());
  throw Error(KAIROS_INVALID_ARGUMENT, 0, std::string(field) + ": below 0");
}

inline kairos_string_t View(const std::string& text) noexcept {
  if (text.empty()) return {nullptr, 0};
  return {text.data(), text.size()};
}

// Milliseconds of kairos.h.
inline int32_t TimeoutMs(Milliseconds timeout) noexcept {
  if (timeout.count() < 0) return -1;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(timeout.count() < kMost ? timeout.count() : kMost);
}

}  // namespace detail

// One event of a turn, or of Client::NextState(); frees it. Accessors of an empty one give 0 and
// empty views, as kairos.h does.
class Event {
 public:
  Event() noexcept = default;
  // Takes over an event of kairos.h.
  explicit Event(kairos_event_t* owned) noexcept : event_(owned) {}

  explicit operator bool() const noexcept { return event_ != nullptr; }
  EventType type() const noexcept { return static_cast<EventType>(kairos_event_type(get())); }
  uint64_t request() const noexcept { return kairos_event_request(get()); }
  uint64_t session_id() const noexcept { return kairos_event_session(get()); }
  uint64_t version() const noexcept { return kairos_event_version(get()); }
  // Of a text event: 0, or why the text is a tool call that could not be read.
  int32_t detail() const noexcept { return kairos_event_detail(get()); }
  // Text, or JSON, by type. Valid as long as the event.
  std::string_view text() const noexcept {
    const kairos_string_t text = kairos_event_text(get());
    return text.size == 0 ? std::string_view() : std::string_view(text.data, text.size);
  }
  TokenView tokens() const noexcept {
    TokenView view;
    view.data = kairos_event_tokens(get(), &view.size);
    return view;
  }
  bool is_last() const noexcept {
    return type() == EventType::kFinal || type() == EventType::kError;
  }
  // Throws KAIROS_FAILED_PRECONDITION where this is not a final event.
  kairos_final_t final_record() const {
    kairos_final_t out{};
    out.struct_size = sizeof(out);
    detail::Check(kairos_event_final(get(), &out));
    return out;
  }
  // Throws KAIROS_FAILED_PRECONDITION where this is not the state of a session.
  kairos_session_t summary() const {
    kairos_session_t out{};
    out.struct_size = sizeof(out);
    detail::Check(kairos_event_summary(get(), &out));
    return out;
  }
  // Of a session's state: earlier changes were left out, with session_id() 0 those of any session.
  bool skipped() const noexcept { return kairos_event_detail(get()) == KAIROS_DETAIL_SKIPPED; }
  // Throws what an error event says; does nothing for all others.
  void ThrowIfError() const {
    if (type() != EventType::kError) return;
    const int32_t code = kairos_event_code(get());
    throw Error(code, kairos_event_detail(get()),
                text().empty() ? kairos_strerror(code) : std::string(text()));
  }

 private:
  struct Release {
    void operator()(kairos_event_t* event) const noexcept { kairos_event_release(event); }
  };
  const kairos_event_t* get() const noexcept { return event_.get(); }

  std::unique_ptr<kairos_event_t, Release> event_;
};

}  // namespace cpp1
}  // namespace kairos
