// SPDX-License-Identifier: Apache-2.0
// kairos-bench turns: sessions against stateless serving, and resume after kill -9.
#pragma once

#include <cstdint>
#include <string>

#include "bench/peer_process.h"

namespace kairos {

struct TurnBenchOptions {
  std::string daemon;         // path of kairosd
  std::string model;
  std::string conversation;   // FILE or FILE:N
  std::string work;           // folder for sockets and the catalog
  uint32_t max_tokens = 48;   // per answer
  uint32_t sustained_sessions = 8;
  uint32_t sustained_turns = 4;
  PeerOptions peer;           // plays the same conversation, with and without its prompt cache
  bool json = false;
  double silence_s = 120;     // without an event, until the sidecar is asked whether it answers
  double limit_min = 120;     // for playing the turns; then what was played is shown
  bool quick = false;         // two turns, no sustained load
};

// Exit status: 0 when every token was equal with and without reuse and after the restart.
int RunTurnBench(const TurnBenchOptions& options);

}  // namespace kairos
