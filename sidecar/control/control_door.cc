// SPDX-License-Identifier: Apache-2.0
#include "sidecar/control/control_door.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm/peer.h"

namespace kairos {
namespace {

constexpr int kEventsPerRound = 64;
constexpr int kAcceptsPerRound = 16;
constexpr int kBacklog = 128;
// Each peer has one here, one towards libzmq, and one inside it.
constexpr uint64_t kDescriptorsOfPeer = 3;
// Kept for the catalog's files and for what a refusal needs.
constexpr uint64_t kDescriptorsReserved = 16;
constexpr uint32_t kListenerId = 0;

bool IsWouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

ControlDoor::~ControlDoor() {
  if (listener_.valid()) unlink(path_.c_str());
}

Status ControlDoor::Open(const std::string& path, std::string inner, uint64_t message_bytes_max) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return {Code::kInvalidArgument, "control socket: the path must have 1 to 107 bytes"};
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  struct stat file {};
  if (lstat(path.c_str(), &file) == 0) {
    if (!S_ISSOCK(file.st_mode)) {
      return {Code::kFailedPrecondition, "control socket: a file that is no socket is there"};
    }
    unlink(path.c_str());
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  descriptor_limit_ = limit.rlim_cur;
  inner_ = std::move(inner);
  message_bytes_max_ = message_bytes_max;
  KAIROS_RETURN_IF_ERROR(acceptor_.Open());
  epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  Descriptor socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kListenerId;
  // Before bind, so that the path never has a wider mode; chmod then undoes a tighter umask.
  if (!epoll_.valid() || !socket_fd.valid() || fchmod(socket_fd.get(), 0600) != 0 ||
      bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return {Code::kUnavailable, "control socket: cannot be bound", errno};
  }
  path_ = path;
  listener_ = std::move(socket_fd);
  if (chmod(path.c_str(), 0600) != 0 || listen(listener_.get(), kBacklog) != 0 ||
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0) {
    return {Code::kUnavailable, "control socket: cannot listen", errno};
  }
  return {};
}

bool ControlDoor::DoWork() {
  epoll_event events[kEventsPerRound];
  const int count = epoll_wait(epoll_.get(), events, kEventsPerRound, 0);
  ++round_;
  for (int i = 0; i < count; ++i) {
    const auto id = static_cast<uint32_t>(events[i].data.u64);
    if (id == kListenerId) {
      AcceptPeers();
      continue;
    }
    // Both ends of one peer may be in the same batch, and the first may have ended it.
    const auto found = peers_.find(id);
    if (found == peers_.end()) continue;
    if (!Pass(*found->second) || !Watch(id, *found->second, false)) peers_.erase(found);
  }
  return count > 0;
}

void ControlDoor::AcceptPeers() {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    Descriptor socket;
    switch (acceptor_.Accept(listener_.get(), &socket)) {
      case Acceptor::Outcome::kNone: return;
      case Acceptor::Outcome::kAccepted:
        if (!Admit(std::move(socket))) ++refused_total_;
        break;
      case Acceptor::Outcome::kWithoutRoom:
        ++refused_total_;
        socket.Close();
        acceptor_.Restore();
        break;
    }
  }
}

bool ControlDoor::Admit(Descriptor outer) {
  const auto credentials = ReadPeer(outer.get());
  if (!credentials.ok() || (credentials->uid != geteuid() && credentials->uid != 0)) return false;
  if (peers_.size() >= kPeersMax) DropIdlest();
  if (IsShortOfDescriptors(outer.get(), kDescriptorsOfPeer + kDescriptorsReserved,
                           descriptor_limit_)) {
    return false;
  }
  auto peer = std::make_unique<Peer>(message_bytes_max_);
  peer->outer = std::move(outer);
  peer->inner = ConnectInner();
  peer->active = round_;
  if (!peer->inner.valid()) return false;
  while (next_id_ == kListenerId || peers_.contains(next_id_)) ++next_id_;
  const uint32_t id = next_id_++;
  if (!Watch(id, *peer, true)) return false;
  peers_.emplace(id, std::move(peer));
  return true;
}

Descriptor ControlDoor::ConnectInner() const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // The first byte stays zero: the abstract namespace.
  std::memcpy(address.sun_path + 1, inner_.data(), inner_.size());
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + inner_.size());
  Descriptor inner(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!inner.valid() ||
      connect(inner.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    return Descriptor();
  }
  return inner;
}

// False: the peer is to be closed.
bool ControlDoor::Pass(Peer& peer) {
  bool moved = false;
  const bool up =
      Move(peer.outer.get(), peer.inner.get(), peer.to_inner, &peer.framing, &moved);
  const bool down = Move(peer.inner.get(), peer.outer.get(), peer.to_outer, nullptr, &moved);
  if (moved) peer.active = round_;
  return up && down;
}

// Reads if nothing waits, and writes what there is. False at an end of file, an error, or bytes
// that `framing` refuses.
bool ControlDoor::Move(int from, int to, Stream& stream, ZmtpFraming* framing, bool* moved) {
  if (stream.empty()) {
    const ssize_t got = recv(from, stream.bytes.data(), stream.bytes.size(), MSG_DONTWAIT);
    if (got < 0) return IsWouldBlock();
    if (got == 0) return false;
    stream.begin = 0;
    stream.end = static_cast<size_t>(got);
    if (framing != nullptr && !framing->Take({stream.bytes.data(), stream.end})) {
      ++refused_total_;
      return false;
    }
    *moved = true;
  }
  const ssize_t sent = send(to, stream.bytes.data() + stream.begin, stream.end - stream.begin,
                            MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return IsWouldBlock();
  stream.begin += static_cast<size_t>(sent);
  return true;
}

bool ControlDoor::Watch(uint32_t id, Peer& peer, bool is_new) {
  const int operation = is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  const auto watch = [&](int fd, const Stream& incoming, const Stream& outgoing) {
    epoll_event event{};
    event.events = (incoming.empty() ? EPOLLIN : 0u) | (outgoing.empty() ? 0u : EPOLLOUT);
    event.data.u64 = id;
    return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
  };
  return watch(peer.outer.get(), peer.to_inner, peer.to_outer) &&
         watch(peer.inner.get(), peer.to_outer, peer.to_inner);
}

void ControlDoor::DropIdlest() {
  const auto idlest =
      std::min_element(peers_.begin(), peers_.end(), [](const auto& a, const auto& b) {
        return a.second->active < b.second->active;
      });
  if (idlest == peers_.end()) return;
  ++refused_total_;
  peers_.erase(idlest);
}

}  // namespace kairos
