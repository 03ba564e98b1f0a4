// SPDX-License-Identifier: Apache-2.0
// kairos-bench ring: the transport between separate processes, through libkairos to a live sidecar.
#pragma once

#include <string>

namespace kairos {

struct RingBenchOptions {
  std::string daemon;  // path of kairosd
  std::string model;
  std::string work;    // folder for sockets and the catalog
  bool json = false;
  bool quick = false;  // few repetitions: proves that it works, measures nothing
};

// Exit status: 0 when everything could be measured.
int RunRingBench(const RingBenchOptions& options);

}  // namespace kairos
