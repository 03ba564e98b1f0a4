// SPDX-License-Identifier: Apache-2.0
#include "bench/echo_pair.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <csignal>
#include <cstring>
#include <new>

#include "base/clock.h"

namespace kairos {
namespace {

constexpr uint64_t kRawBytes = 1u << 20;
constexpr uint32_t kPayloadMax = 65536;

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void EndChild(pid_t pid) {
  if (pid <= 0) return;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace

struct RawRingEcho::Ring {
  alignas(128) uint64_t tail;  // written by the producer
  alignas(128) uint64_t head;  // written by the consumer
  alignas(128) std::byte bytes[kRawBytes];
};

struct RawRingEcho::Memory {
  Ring there;
  Ring back;
  uint32_t stop;
};

// A message is 8 bytes of length and the payload, and starts anew where it would pass the end; with
// one message in flight there is always room.
void RawRingEcho::Send(Ring* ring, const std::byte* from, uint32_t bytes) {
  uint64_t tail = ring->tail;
  const uint64_t size = (uint64_t{bytes} + 15) & ~uint64_t{7};
  uint64_t offset = tail & (kRawBytes - 1);
  if (offset + size > kRawBytes) {
    tail += kRawBytes - offset;
    offset = 0;
  }
  std::memcpy(ring->bytes + offset + 8, from, bytes);
  const uint64_t length = bytes;
  std::memcpy(ring->bytes + offset, &length, sizeof(length));
  __atomic_store_n(&ring->tail, tail + size, __ATOMIC_RELEASE);
}

uint32_t RawRingEcho::Receive(Ring* ring, std::byte* to, const uint32_t* stop) {
  uint64_t head = ring->head;
  uint64_t tail;
  while ((tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE)) == head) {
    if (stop != nullptr && __atomic_load_n(stop, __ATOMIC_RELAXED) != 0) return 0;
    Relax();
  }
  // One message is in flight, so a tail past the ring's end means a message at its start.
  const uint64_t offset = head & (kRawBytes - 1);
  if (offset + (tail - head) > kRawBytes) head += kRawBytes - offset;
  uint64_t length;
  std::memcpy(&length, ring->bytes + (head & (kRawBytes - 1)), sizeof(length));
  std::memcpy(to, ring->bytes + (head & (kRawBytes - 1)) + 8, length);
  __atomic_store_n(&ring->head, tail, __ATOMIC_RELEASE);
  return static_cast<uint32_t>(length);
}

RawRingEcho::RawRingEcho() : buffer_(kPayloadMax) {
  void* mapping = mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (mapping == MAP_FAILED) return;
  memory_ = new (mapping) Memory;
  pid_ = fork();
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) {
    const uint32_t bytes = Receive(&memory_->there, buffer_.data(), &memory_->stop);
    if (bytes == 0) _exit(0);
    Send(&memory_->back, buffer_.data(), bytes);
  }
}

RawRingEcho::~RawRingEcho() {
  if (memory_ == nullptr) return;
  __atomic_store_n(&memory_->stop, 1u, __ATOMIC_RELAXED);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  munmap(memory_, sizeof(Memory));
}

uint64_t RawRingEcho::Ping(uint32_t bytes) {
  const uint64_t begin = MonotonicNs();
  Send(&memory_->there, buffer_.data(), bytes);
  Receive(&memory_->back, buffer_.data(), nullptr);
  return MonotonicNs() - begin;
}

struct FramedRingEcho::Memory {
  WriterWords here;
  WriterWords child;
  alignas(128) std::byte there[kRawBytes];
  std::byte back[kRawBytes];
  uint32_t stop;
};

FramedRingEcho::FramedRingEcho() : buffer_(kPayloadMax) {
  void* mapping = mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (mapping == MAP_FAILED) return;
  memory_ = static_cast<Memory*>(mapping);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    RingConsumer consumer({&memory_->child, &memory_->here, memory_->there, kRawBytes, 0}, {});
    RingProducer producer({&memory_->child, &memory_->here, memory_->back, kRawBytes, 0});
    Answer(&producer, &consumer);
    _exit(0);
  }
  there_ = RingProducer({&memory_->here, &memory_->child, memory_->there, kRawBytes, 0});
  back_ = RingConsumer({&memory_->here, &memory_->child, memory_->back, kRawBytes, 0}, {});
}

void FramedRingEcho::Answer(RingProducer* producer, RingConsumer* consumer) const {
  while (__atomic_load_n(&memory_->stop, __ATOMIC_RELAXED) == 0) {
    RingMessage message;
    uint32_t frames = 64;
    const PollResult polled = consumer->Poll(&frames, &message);
    if (polled == PollResult::kBroken) return;
    if (polled != PollResult::kMessage) {
      Relax();
      continue;
    }
    OutgoingMessage answer{message.type, message.request_id, message.payload, 0};
    if (producer->Push(&answer) != PushResult::kDone) return;
    // Nobody sleeps here, so there is nobody to ring.
    (void)producer->Publish();
    (void)consumer->Release();
  }
}

FramedRingEcho::~FramedRingEcho() {
  if (memory_ == nullptr) return;
  __atomic_store_n(&memory_->stop, 1u, __ATOMIC_RELAXED);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  munmap(memory_, sizeof(Memory));
}

uint64_t FramedRingEcho::Ping(uint32_t bytes) {
  const uint64_t begin = MonotonicNs();
  OutgoingMessage message{1, 1, {buffer_.data(), bytes}, 0};
  if (there_.Push(&message) != PushResult::kDone) return 0;
  (void)there_.Publish();
  for (;;) {
    RingMessage answer;
    uint32_t frames = 64;
    const PollResult polled = back_.Poll(&frames, &answer);
    if (polled == PollResult::kMessage) break;
    if (polled == PollResult::kBroken) return 0;
    Relax();
  }
  (void)back_.Release();
  return MonotonicNs() - begin;
}

ZmqEcho::ZmqEcho(const std::string& folder) : buffer_(kPayloadMax) {
  const std::string address = "ipc://" + folder + "/zmq.sock";
  // libzmq does not survive a fork, so each process makes a context of its own.
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    void* context = zmq_ctx_new();
    void* router = zmq_socket(context, ZMQ_ROUTER);
    if (router == nullptr || zmq_bind(router, address.c_str()) != 0) _exit(1);
    for (;;) {
      char name[256];
      const int name_size = zmq_recv(router, name, sizeof(name), 0);
      const int size = zmq_recv(router, buffer_.data(), buffer_.size(), 0);
      if (name_size < 0 || size < 0) _exit(1);
      zmq_send(router, name, static_cast<size_t>(name_size), ZMQ_SNDMORE);
      zmq_send(router, buffer_.data(), static_cast<size_t>(size), 0);
    }
  }
  if (pid_ < 0) return;
  context_ = zmq_ctx_new();
  socket_ = zmq_socket(context_, ZMQ_DEALER);
  const int timeout_ms = 5000;
  const int linger = 0;
  zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &timeout_ms, sizeof(timeout_ms));
  zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof(linger));
  if (zmq_connect(socket_, address.c_str()) != 0 || Ping(64) == 0) {
    zmq_close(socket_);
    socket_ = nullptr;
  }
}

ZmqEcho::~ZmqEcho() {
  if (socket_ != nullptr) zmq_close(socket_);
  if (context_ != nullptr) zmq_ctx_term(context_);
  EndChild(pid_);
}

uint64_t ZmqEcho::Ping(uint32_t bytes) {
  const uint64_t begin = MonotonicNs();
  if (zmq_send(socket_, buffer_.data(), bytes, 0) < 0) return 0;
  if (zmq_recv(socket_, buffer_.data(), buffer_.size(), 0) < 0) return 0;
  return MonotonicNs() - begin;
}

}  // namespace kairos
