// SPDX-License-Identifier: Apache-2.0
// How a turn's messages continue, or rewrite, what the session already holds.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sidecar/chat/wire_format.h"
#include "sidecar/state/session_state.h"

namespace kairos {

struct HistoryMatch {
  uint32_t kept_messages = 0;     // of the stored ones
  uint32_t kept_tokens = 0;       // of the stored log
  size_t added_begin = 0;         // first of the turn's messages to append
  int64_t first_difference = -1;  // message index where a resent history differs
};

// Whole-history turns: stored and resent messages are compared one by one; the first difference, or
// a shorter resent history, cuts the log there. At least one message is always left to append.
// `format` is the model's, to know an answer again by what clients were told of it.
HistoryMatch MatchHistory(const StateVersion& stored, std::span<const ChatMessage> resent,
                          const WireFormat& format);

// The stored leading system messages only (start over).
HistoryMatch KeepSystemOnly(const StateVersion& stored);

}  // namespace kairos
