// SPDX-License-Identifier: Apache-2.0
#include "shm/attach.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/clock.h"
#include "shm/socket_path.h"

namespace kairos {
namespace {

Status Protocol(const char* message) {
  return Status(Code::kFailedPrecondition, message, KAIROS_DETAIL_PROTOCOL);
}

bool FillAddress(const std::string& path, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address->sun_path)) return false;
  std::memcpy(address->sun_path, path.data(), path.size());
  return true;
}

// Makes every missing directory above `path`. The last one is private to user and group.
bool MakeDirectoryOf(const std::string& path) {
  const size_t end = path.rfind('/');
  if (end == std::string::npos || end == 0) return true;
  for (size_t at = path.find('/', 1); at != std::string::npos && at <= end;
       at = path.find('/', at + 1)) {
    const mode_t mode = at == end ? 0750 : 0755;
    if (mkdir(path.substr(0, at).c_str(), mode) != 0 && errno != EEXIST) return false;
  }
  return true;
}

AttachAnswer EmptyAnswer() {
  AttachAnswer answer{};
  answer.magic = kAnswerMagic;
  answer.size = sizeof(answer);
  answer.layout_hash = LayoutHash();
  return answer;
}

// One ring size: what was asked, or the default; refused when it is no ring size or too large.
bool ChooseRing(uint32_t asked, uint64_t fallback, uint64_t max, uint32_t* chosen) {
  const uint64_t size = asked == 0 ? fallback : asked;
  *chosen = static_cast<uint32_t>(size);
  return IsRingSize(size) && size <= max;
}

SegmentSpec SpecOf(const AttachAnswer& answer, SegmentRole role) {
  SegmentSpec spec;
  spec.role = role;
  spec.ring_bytes = role == SegmentRole::kClientToSidecar ? answer.request_ring_bytes
                                                          : answer.reply_ring_bytes;
  spec.start_position = answer.start_position;
  spec.features = answer.features;
  spec.incarnation = answer.incarnation;
  spec.attachment = answer.attachment;
  return spec;
}

Status SendAnswer(int socket, const AttachAnswer& answer, const int* fds, size_t fd_count) {
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  iovec bytes{const_cast<AttachAnswer*>(&answer), sizeof(answer)};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (fd_count != 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds, fd_count * sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != static_cast<ssize_t>(sizeof(answer))) {
    return Status(Code::kUnavailable, "attach answer cannot be sent", errno);
  }
  return Status();
}

}  // namespace

bool IsNameSpace(std::string_view name) {
  if (name.empty() || name.size() > kNameSpaceBytesMax) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

// ---- Sidecar side -------------------------------------------------------------------------------

Result<Descriptor> ListenForClients(const std::string& path, mode_t mode) {
  sockaddr_un address;
  if (!FillAddress(path, &address)) {
    return Status(Code::kInvalidArgument, "socket path: 1 to 107 bytes",
                  static_cast<int64_t>(path.size()));
  }
  if (!MakeDirectoryOf(path)) {
    return Status(Code::kUnavailable, "socket directory cannot be made", errno);
  }
  struct stat status{};
  if (lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      return Status(Code::kFailedPrecondition, "socket path is taken by something else");
    }
    if (unlink(path.c_str()) != 0) {
      return Status(Code::kUnavailable, "stale socket cannot be removed", errno);
    }
  }
  Descriptor socket_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_fd.valid()) return Status(Code::kResourceExhausted, "no socket", errno);
  // Before bind, so that the path never has a wider mode; chmod then undoes a tighter umask.
  fchmod(socket_fd.get(), mode);
  if (bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(path.c_str(), mode) != 0 || listen(socket_fd.get(), 256) != 0) {
    return Status(Code::kUnavailable, "socket cannot listen", errno);
  }
  return socket_fd;
}

Result<AttachHello> ReceiveHello(int socket) {
  AttachHello hello{};
  // Descriptors that a client sends along are discarded by the kernel: no control buffer is given.
  const ssize_t got = recv(socket, &hello, sizeof(hello), MSG_DONTWAIT);
  if (got < 0) return Status(Code::kUnavailable, "no hello yet", errno);
  if (got == 0) return Status(Code::kUnavailable, "client left before its hello", ECONNRESET);
  if (got != static_cast<ssize_t>(sizeof(hello)) || hello.magic != kHelloMagic ||
      hello.size < sizeof(hello)) {
    return Status(Code::kInvalidArgument, "hello: not a hello of this protocol",
                  KAIROS_DETAIL_PROTOCOL);
  }
  return hello;
}

Result<AttachAnswer> Negotiate(const AttachHello& hello, const AttachOffer& offer,
                               uint32_t attachment) {
  if (hello.pointer_bytes != sizeof(void*)) return Protocol("hello: the client is not 64-bit");
  if (hello.layout_hash != LayoutHash()) {
    return Protocol("hello: the client speaks another segment layout; update libkairos");
  }
  if (hello.abi_min > offer.abi_max || hello.abi_max < offer.abi_min) {
    return Protocol("hello: no protocol version in common; update libkairos or kairosd");
  }
  const std::string_view name(hello.name_space,
                              std::min<size_t>(hello.name_space_size, kNameSpaceBytesMax));
  if (hello.name_space_size != 0 &&
      (hello.name_space_size > kNameSpaceBytesMax || !IsNameSpace(name))) {
    return Status(Code::kInvalidArgument, "name_space: 1 to 64 of [A-Za-z0-9._-]");
  }
  AttachAnswer answer = EmptyAnswer();
  if (!ChooseRing(hello.request_ring_bytes, offer.request_ring_bytes, offer.ring_bytes_max,
                  &answer.request_ring_bytes)) {
    return Status(Code::kInvalidArgument,
                  "request_ring_bytes: a power of two, 64 KiB to the sidecar's limit");
  }
  if (!ChooseRing(hello.reply_ring_bytes, offer.reply_ring_bytes, offer.ring_bytes_max,
                  &answer.reply_ring_bytes)) {
    return Status(Code::kInvalidArgument,
                  "reply_ring_bytes: a power of two, 64 KiB to the sidecar's limit");
  }
  answer.abi = std::min(hello.abi_max, offer.abi_max);
  answer.features = hello.features & offer.features;
  answer.incarnation = offer.incarnation;
  answer.start_position = offer.start_position;
  answer.request_bytes_max = offer.request_bytes_max;
  answer.reply_bytes_max = offer.reply_bytes_max;
  answer.attachment = attachment;
  return answer;
}

Result<SegmentPair> CreateSegments(const AttachAnswer& answer) {
  SegmentPair pair;
  KAIROS_ASSIGN_OR_RETURN(pair.c2s,
                          Segment::Create(SpecOf(answer, SegmentRole::kClientToSidecar)));
  KAIROS_ASSIGN_OR_RETURN(pair.s2c,
                          Segment::Create(SpecOf(answer, SegmentRole::kSidecarToClient)));
  return pair;
}

Status SendWelcome(int socket, const AttachAnswer& answer, const SegmentPair& pair) {
  const int fds[2] = {pair.c2s.fd(), pair.s2c.fd()};
  return SendAnswer(socket, answer, fds, 2);
}

Status SendRefusal(int socket, Code code, int32_t detail, std::string_view text) {
  AttachAnswer answer = EmptyAnswer();
  answer.code = static_cast<int32_t>(code);
  answer.detail = detail;
  answer.text_size = static_cast<uint32_t>(std::min(text.size(), sizeof(answer.text)));
  std::memcpy(answer.text, text.data(), answer.text_size);
  return SendAnswer(socket, answer, nullptr, 0);
}

// ---- Client side --------------------------------------------------------------------------------

namespace {

Result<Descriptor> Connect(const AttachOptions& options, std::string* text) {
  sockaddr_un address;
  if (!FillAddress(options.socket_path, &address)) {
    return Status(Code::kInvalidArgument, "socket_path: 1 to 107 bytes");
  }
  Descriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status(Code::kResourceExhausted, "no socket", errno);
  if (options.timeout_ms >= 0) {
    // Bounds connect() on a full backlog, where a non-blocking one would only say EAGAIN.
    const int ms = std::max(options.timeout_ms, 1);
    const timeval limit{ms / 1000, ms % 1000 * 1000};
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  int result;
  do {
    result = connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return fd;
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    return Status(Code::kDeadlineExceeded, "the sidecar accepts no connection in time", errno);
  }
  if (errno == EACCES) {
    const std::string folder = FolderThatShutsOut(options.socket_path);
    if (!folder.empty()) *text = "socket_path: permission denied by the folder " + folder;
    return Status(Code::kUnavailable, "socket_path: permission denied", errno);
  }
  return Status(Code::kUnavailable, "no sidecar listens on socket_path", errno);
}

Status SendHello(int socket, const AttachOptions& options) {
  AttachHello hello{};
  hello.magic = kHelloMagic;
  hello.size = sizeof(hello);
  hello.pointer_bytes = sizeof(void*);
  hello.abi_min = options.abi_min;
  hello.abi_max = options.abi_max;
  hello.layout_hash = LayoutHash();
  hello.features = options.features;
  hello.request_ring_bytes = options.request_ring_bytes;
  hello.reply_ring_bytes = options.reply_ring_bytes;
  if (!options.name_space.empty() && !IsNameSpace(options.name_space)) {
    return Status(Code::kInvalidArgument, "name_space: 1 to 64 of [A-Za-z0-9._-]");
  }
  hello.name_space_size = static_cast<uint32_t>(options.name_space.size());
  std::memcpy(hello.name_space, options.name_space.data(), options.name_space.size());
  ssize_t sent;
  do {
    sent = send(socket, &hello, sizeof(hello), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(sizeof(hello))) return Status();
  // A sidecar that refuses everyone may have answered and closed already; its answer is still
  // there.
  if (errno == EPIPE || errno == ECONNRESET) return Status();
  return Status(Code::kUnavailable, "the hello cannot be sent", errno);
}

Status AwaitReadable(int socket, uint64_t deadline_ns) {
  for (;;) {
    const uint64_t now = MonotonicNs();
    if (now >= deadline_ns) break;
    pollfd entry{socket, POLLIN, 0};
    const int wait_ms =
        static_cast<int>(std::min<uint64_t>((deadline_ns - now) / 1'000'000u + 1, 1'000'000u));
    const int ready = poll(&entry, 1, wait_ms);
    if (ready > 0) return Status();
    if (ready < 0 && errno != EINTR) return Status(Code::kUnavailable, "socket failed", errno);
  }
  return Status(Code::kDeadlineExceeded, "the sidecar does not answer in time");
}

struct ReceivedAnswer {
  AttachAnswer answer{};
  Descriptor c2s;
  Descriptor s2c;
};

Status ReceiveAnswer(int socket, ReceivedAnswer* out) {
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
  iovec bytes{&out->answer, sizeof(out->answer)};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got;
  int resets = 0;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    // A sidecar that refuses before it read the hello resets the socket; its answer comes behind.
  } while (got < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
  if (got <= 0) return Status(Code::kUnavailable, "the sidecar closed the connection", errno);
  size_t count = 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t fds = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < fds; ++i, ++count) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
      Descriptor owned(fd);  // any beyond the second is closed at once
      if (count == 0) out->c2s = std::move(owned);
      if (count == 1) out->s2c = std::move(owned);
    }
  }
  const AttachAnswer& answer = out->answer;
  if (got != static_cast<ssize_t>(sizeof(answer)) || answer.magic != kAnswerMagic ||
      answer.size < sizeof(answer) || answer.text_size > sizeof(answer.text)) {
    return Protocol("the answer is not one of this protocol");
  }
  if (answer.code == 0 && count != 2) return Protocol("the welcome lacks its two segments");
  return Status();
}

Status MapAnswer(const ReceivedAnswer& received, const AttachOptions& options,
                 ClientAttachment* out) {
  const AttachAnswer& answer = received.answer;
  if (answer.layout_hash != LayoutHash()) {
    return Protocol("the sidecar speaks another segment layout");
  }
  if (answer.abi < options.abi_min || answer.abi > options.abi_max) {
    return Protocol("the sidecar chose a protocol version that was not offered");
  }
  if (answer.start_position % kFrameAlign != 0) return Protocol("start position is misaligned");
  KAIROS_ASSIGN_OR_RETURN(
      out->segments.c2s,
      Segment::Map(received.c2s.get(), SpecOf(answer, SegmentRole::kClientToSidecar)));
  KAIROS_ASSIGN_OR_RETURN(
      out->segments.s2c,
      Segment::Map(received.s2c.get(), SpecOf(answer, SegmentRole::kSidecarToClient)));
  out->requests = RingProducer(
      ClientRequestView(out->segments, answer.request_ring_bytes, answer.start_position),
      answer.request_bytes_max);
  out->replies = RingConsumer(
      ClientReplyView(out->segments, answer.reply_ring_bytes, answer.start_position),
      options.reply_types, answer.reply_bytes_max);
  out->answer = answer;
  return Status();
}

Status AttachInto(const AttachOptions& options, ClientAttachment* out, std::string* text) {
  const uint64_t limit_ms =
      options.timeout_ms < 0 ? 86'400'000u : static_cast<uint64_t>(options.timeout_ms);
  const uint64_t deadline_ns = MonotonicNs() + limit_ms * 1'000'000u;
  KAIROS_ASSIGN_OR_RETURN(out->socket, Connect(options, text));
  KAIROS_RETURN_IF_ERROR(SendHello(out->socket.get(), options));
  KAIROS_RETURN_IF_ERROR(AwaitReadable(out->socket.get(), deadline_ns));
  ReceivedAnswer received;
  KAIROS_RETURN_IF_ERROR(ReceiveAnswer(out->socket.get(), &received));
  if (received.answer.code != 0) {
    text->assign(received.answer.text, received.answer.text_size);
    return Status(static_cast<Code>(received.answer.code), "the sidecar refused this client",
                  received.answer.detail);
  }
  return MapAnswer(received, options, out);
}

}  // namespace

Result<ClientAttachment> AttachToSidecar(const AttachOptions& options, std::string* text) {
  ClientAttachment attachment;
  text->clear();
  const Status status = AttachInto(options, &attachment, text);
  if (status.ok()) return attachment;
  if (text->empty()) text->assign(status.message());
  return status;
}

}  // namespace kairos
