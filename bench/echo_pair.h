// SPDX-License-Identifier: Apache-2.0
// What libkairos is compared with on the same machine in the same run: an echo by another process
// over the barest ring there can be, over our rings without sidecar and library, and over ZeroMQ's
// ipc transport.
// Each starts one child process and ends it when destroyed. Owner: the bench's one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "shm/ring.h"

namespace kairos {

// Two byte rings in anonymous shared memory, one each way: length, payload, one published position.
// Both ends spin; there are no frames, no checks, no sleep. Payloads up to 65536 bytes.
class RawRingEcho {
 public:
  RawRingEcho();
  ~RawRingEcho();
  RawRingEcho(const RawRingEcho&) = delete;
  RawRingEcho& operator=(const RawRingEcho&) = delete;

  bool valid() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  // One round trip in nanoseconds.
  uint64_t Ping(uint32_t bytes);

 private:
  struct Ring;
  struct Memory;
  static void Send(Ring* ring, const std::byte* from, uint32_t bytes);
  static uint32_t Receive(Ring* ring, std::byte* to, const uint32_t* stop);

  Memory* memory_ = nullptr;
  pid_t pid_ = -1;
  std::vector<std::byte> buffer_;
};

// RingProducer and RingConsumer alone: frames, checks, private copies, positions, room.
// Both ends spin. What it costs more than RawRingEcho is what the ring protocol costs.
class FramedRingEcho {
 public:
  FramedRingEcho();
  ~FramedRingEcho();
  FramedRingEcho(const FramedRingEcho&) = delete;
  FramedRingEcho& operator=(const FramedRingEcho&) = delete;

  bool valid() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  // One round trip in nanoseconds; 0 where the ring broke.
  uint64_t Ping(uint32_t bytes);

 private:
  struct Memory;
  void Answer(RingProducer* producer, RingConsumer* consumer) const;

  Memory* memory_ = nullptr;
  pid_t pid_ = -1;
  RingProducer there_;
  RingConsumer back_;
  std::vector<std::byte> buffer_;
};

// DEALER here, ROUTER in the child, over ipc://<folder>/zmq.sock. libzmq's own threads do the I/O.
class ZmqEcho {
 public:
  explicit ZmqEcho(const std::string& folder);
  ~ZmqEcho();
  ZmqEcho(const ZmqEcho&) = delete;
  ZmqEcho& operator=(const ZmqEcho&) = delete;

  bool valid() const { return socket_ != nullptr; }
  // One round trip in nanoseconds; 0 when none came back within five seconds.
  uint64_t Ping(uint32_t bytes);

 private:
  pid_t pid_ = -1;
  void* context_ = nullptr;
  void* socket_ = nullptr;
  std::vector<std::byte> buffer_;
};

}  // namespace kairos
