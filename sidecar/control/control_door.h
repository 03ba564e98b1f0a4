// SPDX-License-Identifier: Apache-2.0
// The way in to the control socket: accepts local peers, and passes bytes between each of them and
// libzmq's own endpoint. It is there for what libzmq 4.3 leaves open: it aborts the process when no
// descriptor is left to accept with, and keeps the frames of an unfinished message without limit.
// Owner: control thread.
//
// 1. A peer of another uid than ours and root's is closed unread, and so is every one while the
//    process is short of descriptors.
// 2. At most kPeersMax at once: a new one takes the place of the one that was idle longest.
// 3. What a peer sends is followed by ZmtpFraming, and passed on only while it keeps to the limits.
// 4. A direction is read only when what was read before has been passed on.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/status.h"
#include "shm/acceptor.h"
#include "shm/descriptor.h"
#include "sidecar/control/zmtp_framing.h"

namespace kairos {

class ControlDoor {
 public:
  static constexpr size_t kPeersMax = 32;

  // Listens on `path`, mode 0600, replacing a socket that is there: the caller holds the instance
  // lock. `inner` is the name of libzmq's endpoint in the abstract namespace, without its '@'.
  [[nodiscard]] Status Open(const std::string& path, std::string inner, uint64_t message_bytes_max);
  ~ControlDoor();

  // Readable when DoWork() has something to do.
  int fd() const { return epoll_.get(); }
  // A bounded round over all peers; never blocks. True when it did something.
  bool DoWork();
  // Peers that were closed for who they are, what they sent, or for want of descriptors.
  uint64_t refused_total() const { return refused_total_; }
  size_t peer_count() const { return peers_.size(); }

 private:
  // One direction: what was read and has not been written yet.
  struct Stream {
    std::array<char, 16384> bytes;
    size_t begin = 0;
    size_t end = 0;
    bool empty() const { return begin == end; }
  };
  struct Peer {
    explicit Peer(uint64_t message_bytes_max) : framing(message_bytes_max) {}
    Descriptor outer;
    Descriptor inner;
    ZmtpFraming framing;
    Stream to_inner;
    Stream to_outer;
    uint64_t active = 0;  // round of its last bytes
  };

  void AcceptPeers();
  bool Admit(Descriptor outer);
  Descriptor ConnectInner() const;
  bool Pass(Peer& peer);
  bool Move(int from, int to, Stream& stream, ZmtpFraming* framing, bool* moved);
  bool Watch(uint32_t id, Peer& peer, bool is_new);
  void DropIdlest();

  std::string path_;
  std::string inner_;
  uint64_t message_bytes_max_ = 0;
  uint64_t descriptor_limit_ = 0;
  Descriptor listener_;
  Descriptor epoll_;
  Acceptor acceptor_;
  std::unordered_map<uint32_t, std::unique_ptr<Peer>> peers_;
  uint32_t next_id_ = 1;
  uint64_t round_ = 0;
  uint64_t refused_total_ = 0;
};

}  // namespace kairos
