// SPDX-License-Identifier: Apache-2.0
// The operators' socket: one ZeroMQ ROUTER behind a ControlDoor, for this uid and root alone. It
// hands checked requests to the conductor and its replies back; it touches no session itself.
// Owner: control thread. A request that the conductor has not answered within a second gets
// UNAVAILABLE, and its late answer is dropped. Fences zmq.h (control_server.cc, control_client.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/spsc_queue.h"
#include "base/status.h"
#include "base/waker.h"
#include "sidecar/control/control_door.h"
#include "sidecar/control/control_messages.h"

namespace kairos {

class ControlServer {
 public:
  // Binds `path`, mode 0600, replacing a socket that is there: the caller holds the instance lock.
  // `requests` go to the conductor and wake it; `replies` come back and wake `own`.
  static Result<std::unique_ptr<ControlServer>> Create(const std::string& path,
                                                       SpscQueue<ControlRequest>& requests,
                                                       Waker& conductor,
                                                       SpscQueue<ControlReply>& replies, Waker& own,
                                                       std::string* error);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  // Sleeps at most timeout_ms (-1: no limit) until a message, a reply or a wake of `own`, then does
  // what there is to do. True when it did something. Control thread only.
  bool DoWork(int timeout_ms);

  // Peers and messages: malformed, not allowed, or without room.
  uint64_t refused_total() const { return refused_total_ + door_.refused_total(); }

 private:
  struct Pending {
    std::string peer;  // routing id
    uint64_t request_id = 0;
    uint16_t verb = 0;
    uint64_t deadline_ns = 0;
  };

  ControlServer(SpscQueue<ControlRequest>& requests, Waker& conductor,
                SpscQueue<ControlReply>& replies, Waker& own)
      : requests_(requests), conductor_(conductor), replies_(replies), own_(own) {}

  Status Bind(const std::string& path, std::string* error);
  void Sleep(int timeout_ms);
  int SleepMs(int timeout_ms) const;
  bool TakeMessages();
  bool TakeReplies();
  bool ExpirePending();
  void OnMessage(const std::string& peer, std::string_view envelope, std::string_view body);
  void Refuse(const Pending& to, const Status& status);
  void Send(const Pending& to, const ControlReply& reply);

  SpscQueue<ControlRequest>& requests_;
  Waker& conductor_;
  SpscQueue<ControlReply>& replies_;
  Waker& own_;
  void* context_ = nullptr;
  void* socket_ = nullptr;
  ControlDoor door_;
  uint64_t next_ticket_ = 1;
  uint64_t refused_total_ = 0;
  std::unordered_map<uint64_t, Pending> pending_;
};

}  // namespace kairos
