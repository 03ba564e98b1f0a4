// SPDX-License-Identifier: Apache-2.0
// A byte ring between exactly two processes: one produces, one consumes, neither trusts the other.
//
//   positions are 64-bit, only ever grow, and are masked when used
//   frame   = FrameHeader, payload, zero to seven bytes up to a multiple of 8; never wraps
//   padding = a frame of type 0 up to the ring's end; where only 8 bytes are left before the end,
//             both sides skip them without a header
//   message = one frame with BEGIN|END, or BEGIN, middle..., END frames with nothing in between
//             except padding. Payloads of messages are 1 byte up to message_bytes_max.
//
// 1. A frame exists once `tail` was published. A producer that dies before leaves no trace.
// 2. A consumer loads `tail` once per refill, copies each header once and each payload once, and
//    checks and uses only the copies. Its own position is private; the shared copy is write-only.
// 3. Nothing here blocks, starts a thread or makes a syscall; shm/doorbell.h does the waking.
// 4. An end belongs to one thread at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "shm/layout.h"

#if defined(__SANITIZE_THREAD__)
#define KAIROS_SHM_WORDWISE 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KAIROS_SHM_WORDWISE 1
#endif
#endif

namespace kairos {

// Why an attachment was closed by the side that noticed. Counted by the sidecar.
enum class Violation : uint32_t {
  kNone,
  kTailBackwards,
  kTailBeyondCapacity,
  kTailMisaligned,
  kHeadInvalid,
  kBadLength,
  kBadPadding,
  kUnknownType,
  kBadFlags,
  kEndWithoutBegin,
  kBeginInsideMessage,
  kFragmentMismatch,
  kDuplicateRequestId,
  kBadRecord,
  kCount,
};

constexpr const char* ViolationName(Violation violation) {
  constexpr const char* kNames[] = {
      "none",         "tail_backwards",      "tail_beyond_capacity",  "tail_misaligned",
      "head_invalid", "bad_length",          "bad_padding",           "unknown_type",
      "bad_flags",    "end_without_begin",   "begin_inside_message",  "fragment_mismatch",
      "duplicate_request_id", "bad_record"};
  static_assert(std::size(kNames) == static_cast<size_t>(Violation::kCount));
  return violation < Violation::kCount ? kNames[static_cast<size_t>(violation)] : "unknown";
}

// One direction as one end sees it. The mappings outlive the ring ends.
struct RingView {
  WriterWords* own = nullptr;         // written by this process
  const WriterWords* peer = nullptr;  // written by the other
  std::byte* bytes = nullptr;         // `capacity` bytes; a consumer only reads them
  uint64_t capacity = 0;              // power of two
  uint64_t start = 0;                 // first position, a multiple of 8
};

namespace shared_word {

// Partner of every Publish: a release store (or RMW) by the one writer, an acquire load by the
// other side. What was written before the store is visible after the load.
inline uint64_t Load(const uint64_t& word, std::memory_order order) {
  return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(word)).load(order);
}
inline void Store(uint64_t& word, uint64_t value) {
  std::atomic_ref<uint64_t>(word).store(value, std::memory_order_release);
}
// A read-modify-write on both sides is the full fence of the sleep protocol (store own word, then
// look at the other's): stronger than release/acquire, and understood by thread sanitizer.
inline void StoreAndFence(uint64_t& word, uint64_t value) {
  std::atomic_ref<uint64_t>(word).exchange(value, std::memory_order_seq_cst);
}

}  // namespace shared_word

// Copies bytes that the other process may be writing. After it returns only `to` is meaningful: the
// barrier keeps the compiler from reading `from` a second time in place of the copy.
inline void CopyFromShared(std::byte* to, const std::byte* from, size_t size) {
#ifdef KAIROS_SHM_WORDWISE
  size_t i = 0;
  for (; i + 8 <= size && (reinterpret_cast<uintptr_t>(from) & 7) == 0; i += 8) {
    const uint64_t word =
        __atomic_load_n(reinterpret_cast<const uint64_t*>(from + i), __ATOMIC_RELAXED);
    std::memcpy(to + i, &word, sizeof(word));
  }
  for (; i < size; ++i) {
    to[i] = static_cast<std::byte>(
        __atomic_load_n(reinterpret_cast<const unsigned char*>(from) + i, __ATOMIC_RELAXED));
  }
#else
  std::memcpy(to, from, size);
  asm volatile("" ::: "memory");
#endif
}

inline void CopyToShared(std::byte* to, const std::byte* from, size_t size) {
#ifdef KAIROS_SHM_WORDWISE
  size_t i = 0;
  for (; i + 8 <= size && (reinterpret_cast<uintptr_t>(to) & 7) == 0; i += 8) {
    uint64_t word;
    std::memcpy(&word, from + i, sizeof(word));
    __atomic_store_n(reinterpret_cast<uint64_t*>(to + i), word, __ATOMIC_RELAXED);
  }
  for (; i < size; ++i) {
    __atomic_store_n(reinterpret_cast<unsigned char*>(to) + i,
                     static_cast<unsigned char>(from[i]), __ATOMIC_RELAXED);
  }
#else
  std::memcpy(to, from, size);
#endif
}

// A message on its way out, possibly in pieces. `payload` stays valid until Push says kDone.
struct OutgoingMessage {
  uint16_t type = 0;
  uint64_t request_id = 0;
  std::span<const std::byte> payload;  // not empty
  uint64_t sent = 0;                   // payload bytes already in the ring
};

enum class PushResult { kDone, kFull, kTooLarge, kEmpty, kBroken };

// Record types that a consumer accepts, both ends included; 0 is padding and never in a range.
struct FrameTypes {
  uint16_t first = 1;
  uint16_t last = 0xfeff;
};

class RingProducer {
 public:
  RingProducer() = default;
  explicit RingProducer(const RingView& view, uint64_t message_bytes_max = kMessageBytesMax)
      : view_(view),
        tail_(view.start),
        published_(view.start),
        head_seen_(view.start),
        message_bytes_max_(message_bytes_max) {}

  // Largest payload of one frame.
  uint32_t frame_payload_max() const {
    return static_cast<uint32_t>(view_.capacity / kFramePartOfRing - sizeof(FrameHeader));
  }

  // Reserves one frame of `payload_bytes` (0..frame_payload_max()) and returns where its payload
  // goes, or null when the ring is full or broken(). The consumer sees nothing before Publish().
  // At most one claim is open.
  [[nodiscard]] std::byte* Claim(uint32_t payload_bytes) {
    if (payload_bytes > frame_payload_max()) return nullptr;
    const uint64_t frame = FrameBytes(payload_bytes);
    const uint64_t remaining = view_.capacity - Offset(tail_);
    const uint64_t padding = remaining < frame ? remaining : 0;
    if (!HasRoom(padding + frame)) return nullptr;
    if (padding >= sizeof(FrameHeader)) {
      WriteHeader(tail_, static_cast<uint32_t>(padding - sizeof(FrameHeader)), kFramePadding, 0, 0);
    }
    tail_ += padding;
    claim_bytes_ = payload_bytes;
    has_claim_ = true;
    return view_.bytes + Offset(tail_) + sizeof(FrameHeader);
  }

  // Turns the open claim into a frame; still unseen until Publish().
  void Commit(uint16_t type, uint16_t flags, uint64_t request_id) {
    if (!has_claim_) return;
    WriteHeader(tail_, claim_bytes_, type, flags, request_id);
    tail_ += FrameBytes(claim_bytes_);
    has_claim_ = false;
  }

  // Drops the open claim.
  void Abort() { has_claim_ = false; }

  // Makes every committed frame visible. True: the consumer sleeps and has not been rung for this
  // sleep, so the caller sends one doorbell.
  [[nodiscard]] bool Publish() {
    if (tail_ != published_) {
      published_ = tail_;
      shared_word::StoreAndFence(view_.own->tail, published_);
    }
    const uint64_t epoch =
        shared_word::Load(view_.peer->sleep_epoch, std::memory_order_seq_cst);
    if ((epoch & 1) == 0 || epoch == rung_epoch_) return false;
    rung_epoch_ = epoch;
    return true;
  }

  // Copies as much of the message into the ring as fits, in frames, without publishing. kFull: call
  // again with the same object when there is room, with no other message in between; or give up
  // with PushAbort(). kTooLarge, kEmpty: nothing was written (a payload has at least one byte, so a
  // ring that was zeroed by hole punching never parses).
  [[nodiscard]] PushResult Push(OutgoingMessage* message) {
    const uint64_t size = message->payload.size();
    if (size == 0) return PushResult::kEmpty;
    if (size > message_bytes_max_) return PushResult::kTooLarge;
    while (message->sent < size) {
      const uint32_t piece =
          static_cast<uint32_t>(std::min<uint64_t>(size - message->sent, frame_payload_max()));
      std::byte* payload = Claim(piece);
      if (payload == nullptr) return broken_ ? PushResult::kBroken : PushResult::kFull;
      CopyToShared(payload, message->payload.data() + message->sent, piece);
      uint16_t flags = message->sent == 0 ? kFrameBegin : 0;
      message->sent += piece;
      if (message->sent == size) flags |= kFrameEnd;
      Commit(message->type, flags, message->request_id);
    }
    return PushResult::kDone;
  }

  // Tells the consumer to forget the message that was begun. kFull: try again later.
  [[nodiscard]] PushResult PushAbort(uint16_t type, uint64_t request_id) {
    if (Claim(0) == nullptr) return broken_ ? PushResult::kBroken : PushResult::kFull;
    Commit(type, kFrameAbort, request_id);
    return PushResult::kDone;
  }

  // Whether a whole message of `size` bytes fits now (with all its headers and padding).
  [[nodiscard]] bool Fits(uint64_t size) { return HasRoom(MessageRoom(size)); }

  // Ring bytes a message can need at worst.
  uint64_t MessageRoom(uint64_t size) const {
    const uint64_t frames = size / frame_payload_max() + 1;
    return size + frames * (sizeof(FrameHeader) + kFrameAlign) +
           view_.capacity / kFramePartOfRing;
  }

  // Room left by what is known of the consumer, refreshed.
  uint64_t FreeBytes() {
    RefreshHead();
    return view_.capacity - (tail_ - head_seen_);
  }

  // Announces that this side waits for room. False: there is room for `bytes` already (or the ring
  // is broken), do not wait. After waiting, with any outcome, FinishWait().
  [[nodiscard]] bool PrepareWait(uint64_t bytes) {
    if ((space_epoch_ & 1) == 0) shared_word::StoreAndFence(view_.own->space_epoch, ++space_epoch_);
    return !HasRoom(bytes) && !broken_;
  }
  void FinishWait() {
    if ((space_epoch_ & 1) != 0) shared_word::Store(view_.own->space_epoch, ++space_epoch_);
  }

  // True once the consumer published a position that cannot be.
  bool broken() const { return broken_; }
  uint64_t tail() const { return tail_; }
  // Everything written so far was consumed.
  bool Drained() {
    RefreshHead();
    return head_seen_ == tail_;
  }

 private:
  static uint64_t FrameBytes(uint64_t payload) {
    return (sizeof(FrameHeader) + payload + kFrameAlign - 1) & ~(kFrameAlign - 1);
  }
  uint64_t Offset(uint64_t position) const { return position & (view_.capacity - 1); }

  bool HasRoom(uint64_t bytes) {
    if (view_.capacity - (tail_ - head_seen_) >= bytes) return true;
    RefreshHead();
    return !broken_ && view_.capacity - (tail_ - head_seen_) >= bytes;
  }

  void RefreshHead() {
    const uint64_t head = shared_word::Load(view_.peer->head, std::memory_order_seq_cst);
    if (head - head_seen_ > published_ - head_seen_ || head % kFrameAlign != 0) {
      broken_ = true;
      return;
    }
    head_seen_ = head;
  }

  void WriteHeader(uint64_t at, uint32_t length, uint16_t type, uint16_t flags, uint64_t id) {
    auto* words = reinterpret_cast<uint64_t*>(view_.bytes + Offset(at));
    const uint64_t first = length | static_cast<uint64_t>(type) << 32 |
                           static_cast<uint64_t>(flags) << 48;
    __atomic_store_n(words, first, __ATOMIC_RELAXED);
    __atomic_store_n(words + 1, id, __ATOMIC_RELAXED);
  }

  RingView view_;
  uint64_t tail_ = 0;       // next position, private until published
  uint64_t published_ = 0;
  uint64_t head_seen_ = 0;  // last good position of the consumer
  uint64_t rung_epoch_ = 0;
  uint64_t space_epoch_ = 0;
  uint64_t message_bytes_max_ = kMessageBytesMax;
  uint32_t claim_bytes_ = 0;
  bool has_claim_ = false;
  bool broken_ = false;
};

enum class PollResult {
  kEmpty,
  kMessage,
  kOversize,  // a message over the limit ended; type and id are valid, the payload was dropped
  kBudget,    // frames_left reached 0; there may be more
  kBroken,    // violation() says why; the ring is dead for ever
};

// Private copy of one message, valid until the next Poll.
struct RingMessage {
  uint16_t type = 0;
  uint64_t request_id = 0;
  std::span<const std::byte> payload;
};

class RingConsumer {
 public:
  RingConsumer() = default;
  RingConsumer(const RingView& view, FrameTypes types,
               uint64_t message_bytes_max = kMessageBytesMax)
      : view_(view),
        head_(view.start),
        released_(view.start),
        tail_seen_(view.start),
        types_(types),
        message_bytes_max_(message_bytes_max) {}

  // Takes the next whole message, spending one of `*frames_left` per frame.
  [[nodiscard]] PollResult Poll(uint32_t* frames_left, RingMessage* out) {
    if (violation_ != Violation::kNone) return PollResult::kBroken;
    if (!in_message_ && buffer_.size() > kBufferKept) std::vector<std::byte>().swap(buffer_);
    for (;;) {
      if (head_ == tail_seen_) {
        if (!RefreshTail()) return PollResult::kBroken;
        if (head_ == tail_seen_) return PollResult::kEmpty;
      }
      if (*frames_left == 0) return PollResult::kBudget;
      const Step step = TakeFrame(out);
      if (step == Step::kBroken) return PollResult::kBroken;
      if (step == Step::kPadding) continue;
      --*frames_left;
      if (step == Step::kMessage) return PollResult::kMessage;
      if (step == Step::kOversize) return PollResult::kOversize;
    }
  }

  // Gives consumed bytes back to the producer. True: the producer waits for room and has not been
  // rung for this wait, so the caller sends one doorbell.
  [[nodiscard]] bool Release() {
    if (head_ != released_) {
      released_ = head_;
      shared_word::StoreAndFence(view_.own->head, released_);
    }
    const uint64_t epoch =
        shared_word::Load(view_.peer->space_epoch, std::memory_order_seq_cst);
    if ((epoch & 1) == 0 || epoch == rung_epoch_) return false;
    rung_epoch_ = epoch;
    return true;
  }

  // Bytes consumed and not yet given back.
  uint64_t unreleased() const { return head_ - released_; }

  // Announces sleep. False: there is something to poll already, do not sleep. After waking, with
  // any outcome, FinishSleep().
  [[nodiscard]] bool PrepareSleep() {
    if ((sleep_epoch_ & 1) == 0) shared_word::StoreAndFence(view_.own->sleep_epoch, ++sleep_epoch_);
    return !HasMore();
  }
  void FinishSleep() {
    if ((sleep_epoch_ & 1) != 0) shared_word::Store(view_.own->sleep_epoch, ++sleep_epoch_);
  }
  bool asleep() const { return (sleep_epoch_ & 1) != 0; }

  // One load: whether a Poll would find something (or a violation).
  bool HasMore() const {
    return head_ != tail_seen_ ||
           shared_word::Load(view_.peer->tail, std::memory_order_seq_cst) != head_;
  }

  Violation violation() const { return violation_; }
  uint64_t head() const { return head_; }
  // Private bytes held for reassembly.
  uint64_t buffer_bytes() const { return buffer_.size(); }
  bool in_message() const { return in_message_; }

 private:
  enum class Step { kBroken, kPadding, kPiece, kMessage, kOversize };
  // A larger reassembly buffer is given back after its message was used.
  static constexpr size_t kBufferKept = 256u << 10;

  uint64_t frame_max() const { return view_.capacity / kFramePartOfRing; }

  Step Break(Violation violation) {
    violation_ = violation;
    return Step::kBroken;
  }

  bool RefreshTail() {
    const uint64_t tail = shared_word::Load(view_.peer->tail, std::memory_order_acquire);
    const uint64_t ahead = tail - head_;
    if (ahead > view_.capacity) {
      Break(static_cast<int64_t>(ahead) < 0 ? Violation::kTailBackwards
                                            : Violation::kTailBeyondCapacity);
      return false;
    }
    if (ahead % kFrameAlign != 0) {
      Break(Violation::kTailMisaligned);
      return false;
    }
    tail_seen_ = tail;
    return true;
  }

  Step TakeFrame(RingMessage* out) {
    const uint64_t offset = head_ & (view_.capacity - 1);
    const uint64_t available = tail_seen_ - head_;
    const uint64_t remaining = view_.capacity - offset;
    if (remaining < sizeof(FrameHeader)) {
      head_ += remaining;  // positions are multiples of 8, so `available` covers it
      return Step::kPadding;
    }
    if (available < sizeof(FrameHeader)) return Break(Violation::kBadLength);
    const FrameHeader header = ReadHeader(offset);
    const uint64_t frame =
        (sizeof(FrameHeader) + uint64_t{header.length} + kFrameAlign - 1) & ~(kFrameAlign - 1);
    if (header.type == kFramePadding) {
      if (header.flags != 0 || header.request_id != 0 || frame != remaining ||
          frame > available || frame > frame_max()) {
        return Break(Violation::kBadPadding);
      }
      head_ += frame;
      return Step::kPadding;
    }
    if (frame > frame_max() || frame > available || frame > remaining) {
      return Break(Violation::kBadLength);
    }
    if (header.type < types_.first || header.type > types_.last) {
      return Break(Violation::kUnknownType);
    }
    const Step step = TakePayload(header, view_.bytes + offset + sizeof(FrameHeader), out);
    if (step != Step::kBroken) head_ += frame;
    return step;
  }

  FrameHeader ReadHeader(uint64_t offset) const {
    const auto* words = reinterpret_cast<const uint64_t*>(view_.bytes + offset);
    const uint64_t first = __atomic_load_n(words, __ATOMIC_RELAXED);
    FrameHeader header;
    header.length = static_cast<uint32_t>(first);
    header.type = static_cast<uint16_t>(first >> 32);
    header.flags = static_cast<uint16_t>(first >> 48);
    header.request_id = __atomic_load_n(words + 1, __ATOMIC_RELAXED);
    return header;
  }

  Step TakePayload(const FrameHeader& header, const std::byte* from, RingMessage* out) {
    if (header.flags == kFrameAbort) {
      if (header.length != 0) return Break(Violation::kBadLength);
      if (!in_message_) return Break(Violation::kEndWithoutBegin);
      in_message_ = false;
      return Step::kPiece;
    }
    if ((header.flags & ~(kFrameBegin | kFrameEnd)) != 0) return Break(Violation::kBadFlags);
    if (header.length == 0) return Break(Violation::kBadLength);
    const bool begins = (header.flags & kFrameBegin) != 0;
    const uint64_t grown = (begins ? 0 : message_bytes_) + header.length;
    // First of all: where memory runs short this frame was not taken, and is met again.
    if (grown <= message_bytes_max_ && buffer_.size() < grown) buffer_.resize(grown);
    if (begins) {
      if (in_message_) return Break(Violation::kBeginInsideMessage);
      in_message_ = true;
      type_ = header.type;
      request_id_ = header.request_id;
      message_bytes_ = 0;
    } else if (!in_message_) {
      return Break(Violation::kEndWithoutBegin);
    } else if (header.type != type_ || header.request_id != request_id_) {
      return Break(Violation::kFragmentMismatch);
    }
    if (grown <= message_bytes_max_) {
      CopyFromShared(buffer_.data() + message_bytes_, from, header.length);
    }
    // Past the limit the count sticks just above it: the rest is dropped, and cannot overflow.
    message_bytes_ = std::min(grown, message_bytes_max_ + 1);
    if ((header.flags & kFrameEnd) == 0) return Step::kPiece;
    in_message_ = false;
    out->type = type_;
    out->request_id = request_id_;
    const bool oversize = message_bytes_ > message_bytes_max_;
    out->payload = std::span<const std::byte>(buffer_.data(), oversize ? 0 : message_bytes_);
    return oversize ? Step::kOversize : Step::kMessage;
  }

  RingView view_;
  uint64_t head_ = 0;       // authoritative
  uint64_t released_ = 0;   // what the producer was told
  uint64_t tail_seen_ = 0;  // checked copy
  FrameTypes types_;
  uint64_t message_bytes_max_ = kMessageBytesMax;
  uint64_t sleep_epoch_ = 0;
  uint64_t rung_epoch_ = 0;
  Violation violation_ = Violation::kNone;
  bool in_message_ = false;
  uint16_t type_ = 0;
  uint64_t request_id_ = 0;
  uint64_t message_bytes_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace kairos
