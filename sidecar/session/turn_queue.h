// SPDX-License-Identifier: Apache-2.0
// Turns that wait for what is scarce, in the order in which they get it. Owner: the thread that
// hands it out: the conductor KV slots, the grammar thread its time.
//
// 1. Clients take turns; of one client, its turns go in order of arrival.
// 2. The first in line is overtaken by nobody, however small, unless what it waits for is its own
//    client's share: then only that client waits.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "base/units.h"

namespace kairos {

class TurnQueue {
 public:
  enum class Outcome {
    kDone,       // it got it, or is gone
    kNoRoom,     // not now
    kOverShare,  // not while its client holds so much
  };

  void Push(AttachmentId client, uint64_t turn) {
    for (Line& line : lines_) {
      if (line.client == client) return line.turns.push_back(turn);
    }
    lines_.push_back({client, {turn}});
  }

  // Tries turns as long as one of them may get something. `attempt(turn)` may push others.
  template <typename Attempt>
  void Run(Attempt attempt) {
    for (size_t over_share = 0; over_share < lines_.size();) {
      const Outcome outcome = attempt(lines_.front().turns.front());
      if (outcome == Outcome::kNoRoom) return;
      Line line = std::move(lines_.front());
      lines_.pop_front();
      ++over_share;
      if (outcome == Outcome::kDone) {
        line.turns.pop_front();
        over_share = 0;
      }
      if (!line.turns.empty()) lines_.push_back(std::move(line));
    }
  }

 private:
  struct Line {
    AttachmentId client;
    std::deque<uint64_t> turns;  // never empty
  };
  std::deque<Line> lines_;
};

}  // namespace kairos
