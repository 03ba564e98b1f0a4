// SPDX-License-Identifier: Apache-2.0
#include "sidecar/control/control_client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/clock.h"

namespace kairos {

namespace {

// libzmq retries for ever where nobody listens, so that is found out first.
bool SomebodyListens(const std::string& path, std::string* error) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    *error = "the path must have 1 to 107 bytes";
    return false;
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    *error = std::strerror(errno);
    return false;
  }
  const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  if (!connected) *error = std::strerror(errno);
  close(fd);
  return connected;
}

// Parts of the next message; empty when none came in time.
std::vector<std::string> Receive(void* socket, int timeout_ms) {
  std::vector<std::string> parts;
  zmq_pollitem_t item{socket, 0, ZMQ_POLLIN, 0};
  if (zmq_poll(&item, 1, timeout_ms) <= 0) return parts;
  bool more = true;
  while (more) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&message);
      break;
    }
    parts.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
    more = zmq_msg_more(&message) != 0;
    zmq_msg_close(&message);
  }
  return parts;
}

}  // namespace

Result<std::unique_ptr<ControlClient>> ControlClient::Open(const std::string& path,
                                                           std::string* error) {
  const Status unavailable(Code::kUnavailable, "no sidecar listens there");
  std::string words;
  if (!SomebodyListens(path, &words)) {
    if (error != nullptr) *error = path + ": " + words;
    return unavailable;
  }
  std::unique_ptr<ControlClient> client(new ControlClient);
  client->context_ = zmq_ctx_new();
  if (client->context_ != nullptr) client->socket_ = zmq_socket(client->context_, ZMQ_DEALER);
  void* socket = client->socket_;
  const int linger = 0;
  const int heartbeat_ms = 2000;
  const int heartbeat_timeout_ms = 6000;
  const int64_t bytes_max = kControlReplyBytesMax;
  if (socket != nullptr) {
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger));
    zmq_setsockopt(socket, ZMQ_HEARTBEAT_IVL, &heartbeat_ms, sizeof(heartbeat_ms));
    zmq_setsockopt(socket, ZMQ_HEARTBEAT_TIMEOUT, &heartbeat_timeout_ms,
                   sizeof(heartbeat_timeout_ms));
    zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &bytes_max, sizeof(bytes_max));
  }
  if (socket == nullptr || zmq_connect(socket, ("ipc://" + path).c_str()) != 0) {
    if (error != nullptr) *error = path + ": " + zmq_strerror(zmq_errno());
    return unavailable;
  }
  return client;
}

ControlClient::~ControlClient() {
  if (socket_ != nullptr) zmq_close(socket_);
  if (context_ != nullptr) zmq_ctx_term(context_);
}

Status ControlClient::Call(const ControlRequest& request, int timeout_ms, ControlReply* reply) {
  const std::string body = EncodeRequest(request);
  ControlEnvelope envelope;
  envelope.verb = static_cast<uint16_t>(request.verb);
  envelope.request_id = next_request_id_++;
  const std::string head = EncodeEnvelope(envelope, body);
  if (zmq_send(socket_, head.data(), head.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ||
      zmq_send(socket_, body.data(), body.size(), ZMQ_DONTWAIT) < 0) {
    return {Code::kUnavailable, "the sidecar takes no more requests"};
  }
  const uint64_t until_ns = MonotonicNs() + static_cast<uint64_t>(timeout_ms) * 1'000'000;
  for (uint64_t now_ns = MonotonicNs(); now_ns < until_ns; now_ns = MonotonicNs()) {
    const std::vector<std::string> parts =
        Receive(socket_, static_cast<int>((until_ns - now_ns) / 1'000'000 + 1));
    if (parts.size() != 2) continue;
    ControlEnvelope answer;
    KAIROS_RETURN_IF_ERROR(DecodeEnvelope(parts[0], parts[1], &answer));
    // An answer to an earlier call that had timed out.
    if (answer.request_id != envelope.request_id) continue;
    return DecodeReply(parts[1], reply);
  }
  return {Code::kUnavailable, "the sidecar did not answer in time"};
}

}  // namespace kairos
