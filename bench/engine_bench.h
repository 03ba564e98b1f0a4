// SPDX-License-Identifier: Apache-2.0
// kairos-bench engine: the engine alone, in this process, beside llama.cpp in the same run.
#pragma once

#include <cstdint>
#include <string>

#include "bench/peer_process.h"

namespace kairos {

struct EngineBenchOptions {
  std::string model;  // GGUF file or fetched name
  PeerOptions peer;
  uint32_t threads = 2;
  uint32_t repetitions = 5;
  bool json = false;
  bool quick = false;  // small inputs, once: proves that it works, measures nothing
};

// Exit status: 0 when everything could be measured.
int RunEngineBench(const EngineBenchOptions& options);

}  // namespace kairos
