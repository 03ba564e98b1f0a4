// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/session_watch.h"

namespace kairos {

void SessionWatch::Subscribe(AttachmentId attachment, uint32_t uid,
                             const std::string& name_space) {
  Watcher& watcher = watchers_[attachment];
  watcher.uid = uid;
  watcher.name_space = name_space;
}

void SessionWatch::Note(SessionId session,
                        const std::function<bool(uint32_t, const std::string&)>& may_see) {
  for (auto& [attachment, watcher] : watchers_) {
    if (may_see(watcher.uid, watcher.name_space)) watcher.untold.Push(session, {});
  }
}

std::optional<SessionWatch::News> SessionWatch::Next() {
  auto at = watchers_.upper_bound(last_told_);
  for (size_t i = 0; i < watchers_.size(); ++i, ++at) {
    if (at == watchers_.end()) at = watchers_.begin();
    auto& [attachment, watcher] = *at;
    if (watcher.untold.empty()) continue;
    last_told_ = attachment;
    const auto item = watcher.untold.Pop();
    return News{attachment, item.key, item.skipped};
  }
  return std::nullopt;
}

}  // namespace kairos
