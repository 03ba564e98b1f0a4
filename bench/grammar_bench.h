// SPDX-License-Identifier: Apache-2.0
// kairos-bench grammar: what holding replies to a grammar costs: compiling, masks, and decoding.
#pragma once

#include <cstdint>
#include <string>

namespace kairos {

struct GrammarBenchOptions {
  std::string model;    // GGUF file or fetched name
  std::string schemas;  // one JSON schema a line, or conversations with `tools`; empty: some tools
  uint32_t threads = 2;
  uint32_t walks = 4;         // replies walked for each schema
  uint32_t repetitions = 15;  // of the decoding
  bool json = false;
  bool quick = false;  // little, once: proves that it works, measures nothing
};

// Exit status: 0 when everything could be measured.
int RunGrammarBench(const GrammarBenchOptions& options);

}  // namespace kairos
