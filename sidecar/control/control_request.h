// SPDX-License-Identifier: Apache-2.0
// What travels between the control thread and the conductor: plain values in bounded queues.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "kairos/kairos.h"

namespace kairos {

enum class ControlVerb : int32_t {
  kPing = 1,
  kStats = 2,
  kSessionList = 3,    // after, list_max
  kSessionShow = 4,    // text: messages as JSON, sessions[0]
  kSessionFork = 5,
  kSessionRewind = 6,
  kSessionDelete = 7,
  kDrain = 8,           // drain_timeout_ms; text: {"drain_timeout_ms","turns_open"}
  kReload = 9,          // text: a JSON array of what changed, {"key","before","after"}
  kSessionWhy = 10,     // text: recent turns as JSON
  kSessionContext = 11, // text: the task context as JSON
  kSessionVersion = 12, // text: one version's summary as JSON
  kModelShow = 13,      // text: a JSON array of the models, the default one first
};
inline constexpr ControlVerb kControlVerbLast = ControlVerb::kModelShow;

// Name with its unit at the end, and value.
using Figures = std::vector<std::pair<std::string, double>>;

struct ControlRequest {
  ControlVerb verb = ControlVerb::kPing;
  uint64_t ticket = 0;          // the control thread's, comes back in the reply
  uint32_t uid = 0;             // of the peer, already authorised
  SessionId session;
  uint64_t version = 0;         // 0: head
  SessionId after;
  uint32_t list_max = 0;
  std::optional<uint64_t> drain_timeout_ms;  // none: the setting
};

struct ControlReply {
  uint64_t ticket = 0;
  int32_t code = 0;             // KAIROS_*
  int32_t detail = 0;
  std::string text;
  SessionId session;
  uint64_t version = 0;
  std::vector<kairos_session_t> sessions;
  Figures stats;
};

}  // namespace kairos
