// SPDX-License-Identifier: Apache-2.0
// kairos-bench neighbours: how long well-behaved clients wait from token to token while a tenth of
// all clients is slow, stopped, flooding or dying, beside the same number of clients all well.
#pragma once

#include <cstdint>
#include <string>

namespace kairos {

struct NeighboursBenchOptions {
  std::string daemon;  // path of kairosd
  std::string model;
  std::string work;    // folder for sockets and the catalog
  std::string kind;    // slow, stopped, flooding or dying; empty: all of them
  uint32_t clients = 64;
  uint32_t tokens = 64;  // of each measured turn
  uint32_t repetitions = 4;
  bool json = false;
  bool quick = false;  // few clients and tokens: proves that it works, measures nothing
};

// Exit status: 0 when everything could be measured.
int RunNeighboursBench(const NeighboursBenchOptions& options);

}  // namespace kairos
