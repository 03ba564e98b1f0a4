// SPDX-License-Identifier: Apache-2.0
// kairos-bench engine: the engine alone, in this process, beside llama.cpp in the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/peer_process.h"

namespace kairos {

struct EngineBenchOptions {
  std::string model;  // GGUF file or fetched name
  PeerOptions peer;
  uint32_t threads = 2;
  uint32_t repetitions = 5;
  // Shortened to what the model allows.
  std::vector<uint32_t> prompts = {128, 512, 2048, 4096, 8192};  // tokens of a prefill
  std::vector<uint32_t> contexts = {0, 1024, 4096, 8192};  // tokens before a decode, alone; 0: 16
  std::vector<uint32_t> batches = {2, 4, 8, 16, 32};      // sequences of a decode, short context
  uint32_t shared = 4096;   // tokens of a prefix that 8 sequences share; 0: skip
  uint32_t arrival = 6000;  // tokens of a prompt that arrives while 8 sequences decode; 0: skip
  bool stolen_core = false;  // instead: speed while another process spins on one core
  std::string plot;         // SVG file to write; empty: none
  bool json = false;
  bool quick = false;  // small inputs, once: proves that it works, measures nothing
};

// Exit status: 0 when everything could be measured.
int RunEngineBench(const EngineBenchOptions& options);

}  // namespace kairos
