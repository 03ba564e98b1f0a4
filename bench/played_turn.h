// SPDX-License-Identifier: Apache-2.0
// Plays one turn through the C interface and measures it from the client's side.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/conversation.h"
#include "kairos/kairos.h"

namespace kairos {

struct TurnAsk {
  uint64_t session = 0;
  std::vector<ScriptedMessage> messages;
  std::string tools_json;
  uint32_t flags = 0;
  uint32_t max_tokens = 48;
  bool logits_hash = false;
  bool ignore_eos = false;
  // Called five times a second or so until the turn ends, with the seconds since it was submitted.
  std::function<void(double)> waiting = {};
};

struct PlayedTurn {
  bool ok = false;
  std::string error;
  std::string text;
  std::vector<int32_t> tokens;
  kairos_final_t final{};
  double ttft_ms = 0.0;   // submit to the first token's arrival
  double total_ms = 0.0;  // submit to the final event's arrival
};

// Returns the request id, or 0 with out->error set.
uint64_t SubmitTurn(kairos_client_t* client, const TurnAsk& ask, PlayedTurn* out);
// Submits and reads events until the turn ends. Blocks.
PlayedTurn PlayTurn(kairos_client_t* client, const TurnAsk& ask);
std::string LastError();

}  // namespace kairos
