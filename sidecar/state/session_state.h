// SPDX-License-Identifier: Apache-2.0
// What a session remembers: its record, and the contents of one immutable version. Plain values.
// Token ids are the truth; text, messages and KV are derived from or attached to them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "sidecar/chat/chat_renderer.h"

namespace kairos {

struct SessionRecord {
  SessionId id;
  uint32_t uid = 0;
  std::string name_space;
  std::string label;
  int32_t fidelity = 0;
  int32_t priority = 0;
  uint64_t ttl_seconds = 0;
  uint64_t created_unix_ms = 0;
  uint64_t used_unix_ms = 0;
  SessionId parent;              // fork source, or 0
  std::string model;             // fingerprint in hex; the tokens of all named versions are its
  std::string model_name;        // what that model was called last; for people
  Version head;                  // 0 before the first commit
  Version oldest;                // oldest version that can be named; 0 when there is none
  Version newest;                // highest number given out
  // Summary of the head, so that list and stat need not load it.
  uint64_t token_count = 0;
  uint64_t message_count = 0;
  int32_t phase = 0;             // KAIROS_PHASE_*
  std::string waiting_for;       // tool name
  uint32_t flags = 0;            // KAIROS_SESSION_*
};

struct MessageRecord {
  ChatMessage message;
  uint32_t token_end = 0;        // tokens of the log up to and including this message
  bool cancelled = false;        // generated, but cut short by a cancel
};

struct StateVersion {
  Version version;
  Version parent;
  std::vector<TokenId> tokens;
  std::vector<MessageRecord> messages;
  std::string tools_json;
  std::string context_json;      // task context, see docs/STATE_FORMAT.md
  int32_t phase = 0;
  std::string waiting_for;
  uint64_t created_unix_ms = 0;
};

// What a session's record repeats of its head.
struct HeadSummary {
  uint64_t token_count = 0;
  uint64_t message_count = 0;
  int32_t phase = 0;
  std::string waiting_for;
};

// A version to be written, as its difference from the parent: the parent's first kept_tokens tokens
// and kept_messages messages, then these.
struct VersionDelta {
  Version version;               // newest + 1
  Version parent;                // 0: from nothing
  uint32_t kept_tokens = 0;
  uint32_t kept_messages = 0;
  std::vector<TokenId> tokens;
  std::vector<MessageRecord> messages;
  std::string tools_json;        // whole, not a difference
  std::string context_json;
  int32_t phase = 0;
  std::string waiting_for;
  uint64_t created_unix_ms = 0;
  // Totals of the version, for the session's record.
  uint64_t token_count = 0;
  uint64_t message_count = 0;
};

// The reply of a turn kept under its idempotency key.
struct StoredReply {
  SessionId session;
  Version version;
  std::string text;              // what was streamed, as session/reply_parts.h writes it
  std::string final_bytes;       // kairos_final_t as bytes
};

}  // namespace kairos
