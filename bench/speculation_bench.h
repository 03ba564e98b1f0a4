// SPDX-License-Identifier: Apache-2.0
// What guessing tokens gains on agents' conversations: decode time with and without it, and how
// often guesses about the transcript's own words are right (a model that repeats itself flatters).
#pragma once

#include <cstdint>
#include <string>

namespace kairos {

struct SpeculationBenchOptions {
  std::string model;          // GGUF file or fetched name
  std::string draft_model;    // guesses as well; empty: none
  std::string conversations;  // .jsonl of objects with "messages" and "tools"
  uint32_t count = 6;         // of the file's conversations, the first
  uint32_t max_tokens = 64;   // of an answer
  uint32_t threads = 2;
  bool json = false;
};

// Exit status: 0 when everything could be measured and both ways said the same.
int RunSpeculationBench(const SpeculationBenchOptions& options);

}  // namespace kairos
