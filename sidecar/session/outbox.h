// SPDX-License-Identifier: Apache-2.0
// What the conductor sends to another thread, in order, where that thread's bounded queue may be
// full: the rest waits here for the next loop. Its length is bounded by the number of open turns.
// Owner: conductor.
#pragma once

#include <deque>
#include <functional>
#include <utility>

namespace kairos {

template <typename T>
class Outbox {
 public:
  // `try_send` returns false, with its argument untouched, when there is no room.
  explicit Outbox(std::function<bool(T&&)> try_send) : try_send_(std::move(try_send)) {}

  void Send(T&& value) {
    if (backlog_.empty() && try_send_(std::move(value))) return;
    backlog_.push_back(std::move(value));
  }

  // True when something was sent.
  bool Flush() {
    bool sent = false;
    while (!backlog_.empty() && try_send_(std::move(backlog_.front()))) {
      backlog_.pop_front();
      sent = true;
    }
    return sent;
  }

  bool empty() const { return backlog_.empty(); }

 private:
  std::function<bool(T&&)> try_send_;
  std::deque<T> backlog_;
};

}  // namespace kairos
