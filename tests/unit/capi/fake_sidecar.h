// SPDX-License-Identifier: Apache-2.0
// A sidecar without a model, over the real rings: one thread, sessions in memory, replies made from
// the words of the last message. For tests of clients only.
//
//   "hang"      accepts and waits for a cancel
//   "fail"      an error event: quota
//   "burst N"   N text events
//   "tool"      a tool call
//   "logprobs"  a logprobs event
//   "die"       closes the attachment without a last event
//   "nonsense"  a record of a type that no client knows
//   "states N"  N records of a session's state, of sessions 1, 2, 3, 1, ..., and of versions 1 to N
//   else        echoes the message, one text event
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shm/attach.h"
#include "shm/records.h"
#include "shm/ring.h"

namespace kairos {

class FakeSidecar {
 public:
  // Listens on a new path in the temporary folder, or on `path`.
  explicit FakeSidecar(std::string path = "", uint64_t features = kFeatureWatch);
  ~FakeSidecar();

  const std::string& path() const { return path_; }
  // Closes every attachment, as death would, and listens on.
  void DropClients() { Order(kDrop); }
  // Leaves requests unread, or goes on.
  void Pause() { Order(kPause); }
  void Resume() { Order(kResume); }
  // Ends of attachments seen so far.
  uint32_t departures() const { return departures_.load(std::memory_order_acquire); }
  // Reads that were answered without text.
  uint64_t not_changed() const { return not_changed_.load(std::memory_order_acquire); }
  uint64_t requests() const { return requests_.load(std::memory_order_acquire); }

 private:
  struct Outgoing {
    RecordType type;
    uint64_t request;
    Payload payload;
    uint64_t sent = 0;
  };
  struct Connection {
    Descriptor socket;
    SegmentPair segments;
    RingConsumer requests;
    RingProducer replies;
    std::deque<Outgoing> queue;
    std::map<uint64_t, uint64_t> hanging;  // request to session
    bool attached = false;
    bool dead = false;
  };
  struct Session {
    uint64_t version = 0;
    uint64_t parent = 0;
    std::string label;
    uint32_t flags = 0;
    std::string context = "{}";
    std::map<uint64_t, std::string> messages;  // JSON array by version
  };
  enum : uint32_t { kStop = 1, kDrop = 2, kPause = 4, kResume = 8 };

  void Order(uint32_t order);
  void Run();
  uint32_t ObeyOrders();
  void Accept();
  void Attach(Connection& connection);
  bool Serve(Connection& connection);
  void Flush(Connection& connection);
  void Handle(Connection& connection, const RingMessage& message);
  void HandleSession(Connection& connection, RecordType type, uint64_t id, PayloadView payload);
  void HandleCreate(Connection& connection, uint64_t id, PayloadView payload);
  void HandleContextWrite(Connection& connection, uint64_t id, PayloadView payload);
  void HandleTurn(Connection& connection, uint64_t id, PayloadView payload);
  void HandleCancel(Connection& connection, uint64_t id, PayloadView payload);
  void AnswerTurn(Connection& connection, uint64_t id, uint64_t session, const std::string& text);
  void Finish(Connection& connection, uint64_t id, uint64_t session, int32_t finish);
  void Reply(Connection& connection, RecordType type, uint64_t id, const ReplyFields& fields);
  void Refuse(Connection& connection, uint64_t id, int32_t code, int32_t detail, const char* text);
  kairos_session_t Describe(uint64_t id, const Session& session) const;

  std::string path_;
  const uint64_t features_;
  std::string folder_;  // made by us, removed at the end
  Descriptor listener_;
  Descriptor wake_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<uint64_t, Session> sessions_;
  uint64_t next_session_ = 1;
  bool paused_ = false;
  std::atomic<uint32_t> orders_{0};
  std::atomic<uint32_t> obeyed_{0};
  std::atomic<uint32_t> departures_{0};
  std::atomic<uint64_t> requests_{0};
  std::atomic<uint64_t> not_changed_{0};
  std::thread thread_;
};

}  // namespace kairos
