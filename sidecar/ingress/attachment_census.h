// SPDX-License-Identifier: Apache-2.0
// How many attachments each user and each process holds, for the limits on them. Peers of pid 0 are
// in other pid namespaces and cannot be told apart: they count for their user alone.
// Owner: ingress thread.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "shm/peer.h"

namespace kairos {

class AttachmentCensus {
 public:
  void Enter(const PeerCredentials& peer) {
    ++of_user_[peer.uid];
    if (peer.pid != 0) ++of_process_[peer.pid];
  }

  // Once for each Enter, with the same peer.
  void Leave(const PeerCredentials& peer) {
    Decrement(&of_user_, peer.uid);
    if (peer.pid != 0) Decrement(&of_process_, peer.pid);
  }

  uint32_t OfUser(const PeerCredentials& peer) const { return Count(of_user_, peer.uid); }
  uint32_t OfProcess(const PeerCredentials& peer) const { return Count(of_process_, peer.pid); }

 private:
  template <typename Key>
  static uint32_t Count(const std::unordered_map<Key, uint32_t>& counts, Key key) {
    const auto found = counts.find(key);
    return found == counts.end() ? 0 : found->second;
  }

  template <typename Key>
  static void Decrement(std::unordered_map<Key, uint32_t>* counts, Key key) {
    const auto found = counts->find(key);
    if (--found->second == 0) counts->erase(found);
  }

  std::unordered_map<uint32_t, uint32_t> of_user_;
  std::unordered_map<int32_t, uint32_t> of_process_;
};

}  // namespace kairos
