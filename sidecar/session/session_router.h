// SPDX-License-Identifier: Apache-2.0
// Every session of this sidecar by id: who may see it, whose turn is open, who waits, what is idle,
// and who watches it change.
// Owner: conductor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "sidecar/session/session.h"
#include "sidecar/session/session_watch.h"

namespace kairos {

// A namespace that other uids than a session's owner may use (config: [[grant]]).
struct NamespaceGrant {
  uint32_t uid = 0;
  std::string name_space;
};

struct RouterLimits {
  uint32_t sessions_per_uid = 4096;
  uint32_t heads_loaded_max = 256;   // idle sessions whose log is kept in memory
};

class SessionRouter {
 public:
  SessionRouter(const RouterLimits& limits, std::vector<NamespaceGrant> grants)
      : limits_(limits), grants_(std::move(grants)) {}

  // Holds for what is asked from now on.
  void SetLimits(const RouterLimits& limits, std::vector<NamespaceGrant> grants) {
    limits_ = limits;
    grants_ = std::move(grants);
  }

  // Null when unknown or not this caller's: the two look alike on purpose.
  Session* Find(SessionId id, uint32_t uid, const std::string& name_space);
  Session* FindAny(SessionId id);
  Session* FindEvenDeleting(SessionId id);

  // A fresh id and an empty session without a model; RESOURCE_EXHAUSTED at the uid's quota.
  Result<Session*> Create(uint32_t uid, const std::string& name_space);
  // At start: a session the catalog knows. It has been unused since its record says so. `host` is
  // null where its model is not in memory.
  void Adopt(SessionRecord&& record, ModelHost* host);
  void Erase(SessionId id);
  // Lets watchers know where version or phase are not what they were told last. Close and Erase do.
  void Announce(Session& session);
  SessionWatch& watch() { return watch_; }
  const SessionWatch& watch() const { return watch_; }

  // True when the turn may start now; otherwise it waits behind the open one.
  bool Open(Session& session, uint64_t turn);
  // Ends the open turn; returns the next one, already opened, or 0.
  uint64_t Close(Session& session, uint64_t turn, uint64_t now_ns);
  void RemoveWaiting(Session& session, uint64_t turn);

  // Ids in ascending order, above `after`, that the caller may see. uid -1: all (operators).
  std::vector<SessionId> List(int64_t uid, const std::string& name_space, SessionId after,
                              uint32_t max) const;
  // The session whose open KV block of this model goes first: idle ones before those with a turn,
  // then the one used longest ago. Null when none has one; a turn that runs has its in the lease.
  Session* ColdestTail(const ModelHost* host);
  // Unloads the logs of the longest idle sessions beyond the limit.
  void TrimHeads();
  // Idle sessions whose time to live is over.
  std::vector<SessionId> Expired(uint64_t now_ns);

  size_t size() const { return sessions_.size(); }
  template <typename Visitor>
  void ForEach(Visitor&& visitor) {
    for (auto& [id, session] : sessions_) visitor(*session);
  }

 private:
  bool MaySee(const Session& session, uint32_t uid, const std::string& name_space) const;
  void Tell(const Session& session);

  RouterLimits limits_;
  std::vector<NamespaceGrant> grants_;
  std::unordered_map<SessionId, std::unique_ptr<Session>> sessions_;
  std::unordered_map<uint32_t, uint32_t> count_by_uid_;
  SessionWatch watch_;
};

}  // namespace kairos
