// SPDX-License-Identifier: Apache-2.0
// The two memfds of an attachment: made, filled, reserved and sealed by the sidecar; checked, then
// mapped by the client. No names, so nothing is left behind when either side dies.
//
// 1. Both are sealed against shrinking, growing and further seals, so a peer cannot make an access
//    fault by truncating. s2c is also sealed against future writable mappings and writes, after the
//    sidecar mapped it: the client can only read it.
// 2. Every page exists before the descriptor is passed. The holder of a writable descriptor can
//    still punch holes into c2s; that zeroes its own bytes and charges pages again, nothing more.
// 3. Mappings do not survive into a forked child.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "shm/layout.h"
#include "shm/ring.h"

namespace kairos {

struct SegmentSpec {
  SegmentRole role = SegmentRole::kClientToSidecar;
  uint64_t ring_bytes = kRingBytesDefault;
  uint64_t start_position = 0;
  uint64_t features = 0;
  Incarnation incarnation{};
  uint32_t attachment = 0;
};

// A mapped segment. Movable; unmaps when destroyed. Any thread, one at a time.
class Segment {
 public:
  Segment();
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;

  // Sidecar. kResourceExhausted with errno as detail when descriptors or memory are short.
  // `spec.ring_bytes` satisfies IsRingSize().
  static Result<Segment> Create(const SegmentSpec& spec);
  // Client. Checks seals, size and header of the untrusted `fd` against `expected` (all fields)
  // before mapping it; takes no ownership of `fd`. kFailedPrecondition names what does not match.
  static Result<Segment> Map(int fd, const SegmentSpec& expected);

  bool mapped() const { return mapping_ != nullptr; }
  uint64_t bytes() const;
  WriterWords* words() const;
  std::byte* ring() const;
  // The memfd of a created segment until CloseFd(); -1 otherwise.
  int fd() const { return fd_; }
  void CloseFd();

 private:
  struct Mapping;
  std::unique_ptr<Mapping> mapping_;
  int fd_ = -1;
};

// Both segments as one side holds them.
struct SegmentPair {
  Segment c2s;
  Segment s2c;
};

// Views of the two rings for each side; the pair outlives them.
RingView SidecarRequestView(const SegmentPair& pair, uint64_t ring_bytes, uint64_t start);
RingView SidecarReplyView(const SegmentPair& pair, uint64_t ring_bytes, uint64_t start);
RingView ClientRequestView(const SegmentPair& pair, uint64_t ring_bytes, uint64_t start);
RingView ClientReplyView(const SegmentPair& pair, uint64_t ring_bytes, uint64_t start);

}  // namespace kairos
