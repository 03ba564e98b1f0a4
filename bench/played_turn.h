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
  // After so long without an event the sidecar is asked whether it answers; if so, it goes on.
  uint64_t silence_ns = 120'000'000'000;
  uint64_t until_ns = 0;  // monotonic; given up then. 0: no limit
};

struct PlayedTurn {
  bool ok = false;
  bool unanswered = false;  // given up because the sidecar answers nothing
  std::string error;
  std::string text;
  std::vector<int32_t> tokens;
  kairos_final_t final{};
  double ttft_ms = 0.0;   // submit to the first token's arrival
  double total_ms = 0.0;  // submit to the final event's arrival
};

// Returns the request id, or 0 with out->error set.
uint64_t SubmitTurn(kairos_client_t* client, const TurnAsk& ask, PlayedTurn* out);
// Submits and reads events until the turn ends, however long that takes. Blocks. Gives up, and
// cancels the turn, where the sidecar does not answer a ping either, within `silence_ns` but 10 s
// at least, or at `until_ns`.
PlayedTurn PlayTurn(kairos_client_t* client, const TurnAsk& ask);
std::string LastError();

}  // namespace kairos
