// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/session_router.h"

#include <sys/random.h>

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"

namespace kairos {
namespace {

uint64_t RandomId() {
  uint64_t id = 0;
  // An id must not collide with one that some client still remembers, so it is never derived from a
  // counter or the time.
  KAIROS_CHECK(getrandom(&id, sizeof(id), 0) == sizeof(id));
  return id;
}

}  // namespace

bool SessionRouter::MaySee(const Session& session, uint32_t uid,
                           const std::string& name_space) const {
  if (session.record.name_space != name_space) return false;
  if (session.record.uid == uid) return true;
  return std::any_of(grants_.begin(), grants_.end(), [&](const NamespaceGrant& grant) {
    return grant.uid == uid && grant.name_space == name_space;
  });
}

Session* SessionRouter::FindEvenDeleting(SessionId id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

Session* SessionRouter::FindAny(SessionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second->deleting) return nullptr;
  return found->second.get();
}

Session* SessionRouter::Find(SessionId id, uint32_t uid, const std::string& name_space) {
  Session* session = FindAny(id);
  return session != nullptr && MaySee(*session, uid, name_space) ? session : nullptr;
}

Result<Session*> SessionRouter::Create(uint32_t uid, const std::string& name_space) {
  uint32_t& count = count_by_uid_[uid];
  if (count >= limits_.sessions_per_uid) {
    return Status(Code::kResourceExhausted,
                  "too many sessions for this uid (limits.sessions_per_uid)", KAIROS_DETAIL_QUOTA);
  }
  uint64_t id = 0;
  while (id == 0 || sessions_.contains(SessionId{id})) id = RandomId();
  auto session = std::make_unique<Session>();
  session->record.id = SessionId{id};
  session->record.uid = uid;
  session->record.name_space = name_space;
  session->record.created_unix_ms = session->record.used_unix_ms = UnixMs();
  Session* raw = session.get();
  sessions_.emplace(SessionId{id}, std::move(session));
  ++count;
  return raw;
}

void SessionRouter::Adopt(SessionRecord&& record, ModelHost* host) {
  auto session = std::make_unique<Session>();
  session->host = host;
  session->record = std::move(record);
  session->persisted = true;
  const uint64_t now_ms = UnixMs();
  const uint64_t used_ms = session->record.used_unix_ms;
  session->unused.StartAt(now_ms > used_ms ? now_ms - used_ms : 0);
  session->in_phase = session->unused;
  session->seen = {session->record.head.value, session->phase()};
  ++count_by_uid_[session->record.uid];
  const SessionId id = session->record.id;
  sessions_.insert_or_assign(id, std::move(session));
}

void SessionRouter::Erase(SessionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  // One that never came to be was not announced.
  if (found->second->seen) Tell(*found->second);
  const auto count = count_by_uid_.find(found->second->record.uid);
  if (--count->second == 0) count_by_uid_.erase(count);
  sessions_.erase(found);
}

void SessionRouter::Announce(Session& session) {
  // About to go, or its first turn failed and it goes as well: its end is what is told.
  if (session.deleting || (!session.persisted && session.open_turn == 0)) return;
  const SessionSighting now{session.record.head.value, session.phase()};
  if (session.seen == now) return;
  session.seen = now;
  Tell(session);
}

void SessionRouter::Tell(const Session& session) {
  watch_.Note(session.record.id, [&](uint32_t uid, const std::string& name_space) {
    return MaySee(session, uid, name_space);
  });
}

bool SessionRouter::Open(Session& session, uint64_t turn) {
  if (session.open_turn != 0) {
    session.waiting.push_back(turn);
    return false;
  }
  session.open_turn = turn;
  return true;
}

uint64_t SessionRouter::Close(Session& session, uint64_t turn, uint64_t now_ns) {
  KAIROS_CHECK(session.open_turn == turn);
  session.open_turn = 0;
  session.idle_since_ns = now_ns;
  if (!session.waiting.empty()) {
    session.open_turn = session.waiting.front();
    session.waiting.pop_front();
  }
  Announce(session);
  return session.open_turn;
}

void SessionRouter::RemoveWaiting(Session& session, uint64_t turn) {
  std::erase(session.waiting, turn);
}

std::vector<SessionId> SessionRouter::List(int64_t uid, const std::string& name_space,
                                           SessionId after, uint32_t max) const {
  std::vector<SessionId> ids;
  for (const auto& [id, session] : sessions_) {
    if (session->deleting || !(after < id)) continue;
    if (uid >= 0 && !MaySee(*session, static_cast<uint32_t>(uid), name_space)) continue;
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  if (ids.size() > max) ids.resize(max);
  return ids;
}

Session* SessionRouter::ColdestTail(const ModelHost* host) {
  // An open turn without a lease only waits; could its tail not be had, two such turns could wait
  // for each other.
  const auto warmth = [](const Session& session) {
    return std::pair(session.open_turn != 0, session.idle_since_ns);
  };
  Session* coldest = nullptr;
  for (auto& [id, session] : sessions_) {
    if (session->tail.empty() || session->kv_host != host) continue;
    if (coldest == nullptr || warmth(*session) < warmth(*coldest)) coldest = session.get();
  }
  return coldest;
}

void SessionRouter::TrimHeads() {
  std::vector<Session*> idle;
  for (auto& [id, session] : sessions_) {
    if (session->open_turn == 0 && session->head && session->persisted) {
      idle.push_back(session.get());
    }
  }
  if (idle.size() <= limits_.heads_loaded_max) return;
  std::sort(idle.begin(), idle.end(), [](const Session* a, const Session* b) {
    return a->idle_since_ns < b->idle_since_ns;
  });
  for (size_t i = 0; i + limits_.heads_loaded_max < idle.size(); ++i) idle[i]->head.reset();
}

std::vector<SessionId> SessionRouter::Expired(uint64_t now_ns) {
  std::vector<SessionId> ids;
  for (const auto& [id, session] : sessions_) {
    const SessionRecord& record = session->record;
    if (record.ttl_seconds == 0 || session->open_turn != 0 || session->deleting) continue;
    if (session->unused.Ms(now_ns) / 1000 >= record.ttl_seconds) ids.push_back(id);
  }
  return ids;
}

}  // namespace kairos
