// SPDX-License-Identifier: Apache-2.0
// A checked request: what the conductor gets after ingress has copied and validated a ring record.
// Every length, number and UTF-8 string in it has been checked against the limits of the header.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "sidecar/chat/chat_renderer.h"
#include "sidecar/engine/sequence.h"

namespace kairos {

enum class RequestKind : int32_t {
  kAttach,   // an attachment opened (from ingress itself): uid, name_space
  kDetach,   // its process is gone: cancel its turns, drop its holds; reply with kDetached
  kSessionCreate,
  kSessionOpen,
  kSessionFork,
  kSessionRewind,
  kSessionRelease,
  kSessionDelete,
  kSessionList,
  kSessionStat,
  kSessionMessages,
  kContextRead,
  kContextWrite,
  kVersionRead,  // operators only
  kTurnSubmit,
  kTurnCancel,
  kWatch,        // what the attachment is told of; replaces what it asked before
};

struct TurnRequest {
  std::vector<ChatMessage> messages;
  std::vector<TokenId> tokens;  // raw-token turn when not empty
  std::string tools_json;
  bool has_tools = false;
  std::string idempotency_key;
  uint32_t flags = 0;            // KAIROS_TURN_*
  uint32_t generation_flags = 0; // those of kairos_generation_t
  uint32_t max_tokens = 0;       // 0: default
  bool temperature_given = false;  // else the settings' or the filter's
  bool top_p_given = false;        // else the settings'
  bool top_k_given = false;        // else the settings'
  SamplingParams sampling;
  int32_t priority = 0;
  int32_t on_cancel = 0;
  int32_t tool_choice = 0;       // KAIROS_TOOL_CHOICE_*
  std::string tool_name;
  int32_t constraint_kind = 0;   // KAIROS_CONSTRAINT_*
  std::string constraint;
  std::string model;             // name; empty: as kairos_turn_options_t says
  uint64_t deadline_ns = 0;      // monotonic; 0: none
};

struct Request {
  RequestKind kind = RequestKind::kAttach;
  AttachmentId attachment;
  RequestId id;                 // also the target of kTurnCancel, in `target`
  uint64_t received_ns = 0;
  uint32_t uid = 0;
  std::string name_space;
  SessionId session;
  uint64_t version = 0;         // fork, rewind, messages, context read: 0 is the head
  uint64_t known_version = 0;   // messages, context read: the client has its text; 0: none
  int64_t if_version = -1;
  RequestId target;             // kTurnCancel
  // kSessionCreate
  uint32_t session_flags = 0;   // KAIROS_SESSION_*
  int32_t fidelity = 0;
  int32_t priority = 0;
  uint64_t ttl_seconds = 0;
  std::string label;
  std::string model;            // name; empty: the default
  // kSessionList
  SessionId after;
  uint32_t list_max = 0;
  // kContextWrite
  std::string json;
  // kWatch
  uint32_t watch_flags = 0;     // KAIROS_WATCH_*
  std::optional<TurnRequest> turn;
};

}  // namespace kairos
