// SPDX-License-Identifier: Apache-2.0
// Who wants to hear of which sessions, and what they have not been told yet. Only names of sessions
// wait here: what is told is the state at the moment of telling.
// Owner: conductor.
//
// 1. A watcher hears of sessions that it may see, and of nothing else.
// 2. A change that finds the last one untold replaces it, and the watcher is told so.
// 3. Telling is paced by the caller, who stops when the way to ingress is full.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "base/latest_queue.h"
#include "base/units.h"

namespace kairos {

class SessionWatch {
 public:
  static constexpr uint32_t kUntoldMax = 256;  // sessions, of one watcher

  struct News {
    AttachmentId to;
    SessionId session;     // 0: changes of some sessions were left out
    bool skipped = false;  // an earlier change was not told
  };

  // Again: as before, with nothing untold forgotten.
  void Subscribe(AttachmentId attachment, uint32_t uid, const std::string& name_space);
  void Unsubscribe(AttachmentId attachment) { watchers_.erase(attachment); }
  // The session changed, or is no more; `may_see(uid, name_space)` says who may know.
  void Note(SessionId session,
            const std::function<bool(uint32_t, const std::string&)>& may_see);
  // One change to tell, of each watcher in turn; none: all has been told.
  std::optional<News> Next();
  size_t watchers() const { return watchers_.size(); }

 private:
  struct Watcher {
    uint32_t uid = 0;
    std::string name_space;
    LatestQueue<SessionId, std::monostate> untold{kUntoldMax};
  };

  std::map<AttachmentId, Watcher> watchers_;
  AttachmentId last_told_;
};

}  // namespace kairos
