// SPDX-License-Identifier: Apache-2.0
// The bytes of a stored version: tokens and messages as blobs, and the checksum over a whole row.
// docs/STATE_FORMAT.md has the layout. Pure; any thread. Bytes to decode may be damaged in any way.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidecar/state/session_state.h"

namespace kairos {

// A version as it lies in the catalog: the first kept_tokens tokens and kept_messages messages of
// `base`, then these. base 0: nothing before.
struct VersionRecord {
  int64_t base = 0;
  uint32_t kept_tokens = 0;
  uint32_t kept_messages = 0;
  uint64_t token_count = 0;    // of the whole version
  uint64_t message_count = 0;
  std::string tokens;          // encoded
  std::string messages;        // encoded
  std::string context_json;
  int32_t phase = 0;
  std::string waiting_for;
  uint64_t created_unix_ms = 0;
  uint64_t tools_hash = 0;
};

std::string EncodeTokens(std::span<const TokenId> tokens);
std::string EncodeMessages(std::span<const MessageRecord> messages);
// Append to *tokens or *messages. False when the bytes are not an encoding.
bool DecodeTokens(std::string_view bytes, std::vector<TokenId>* tokens);
bool DecodeMessages(std::string_view bytes, std::vector<MessageRecord>* messages);

uint64_t RecordChecksum(const VersionRecord& record);
// Makes `version` (as decoded from `record`'s base) into the version of `record`, apart from its
// numbers and tools. False when the record does not fit the base or is damaged.
bool ApplyRecord(const VersionRecord& record, StateVersion* version);

}  // namespace kairos
