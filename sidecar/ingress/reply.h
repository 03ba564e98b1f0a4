// SPDX-License-Identifier: Apache-2.0
// What the conductor sends back towards one client. Ingress turns it into ring records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "kairos/kairos.h"

namespace kairos {

enum class ReplyKind : int32_t {
  kAccepted,   // session, version
  kText,       // text, tokens; detail: a KAIROS_DETAIL_CALL_* where it is a broken call
  kReasoning,  // text, tokens
  kToolCall,   // text, tokens
  kLogprobs,   // text
  kFinal,      // final, tokens
  kError,      // code, detail, text
  kResult,     // of a session or context request: session, version, text, sessions
  kSession,    // of no request: state of a session that the client watches, in sessions[0];
               // session 0: states of others were left out
  kDetached,   // everything of the attachment is released
};

// What streams while a turn runs; the others end a request or begin it.
inline bool IsStream(ReplyKind kind) {
  return kind == ReplyKind::kText || kind == ReplyKind::kReasoning ||
         kind == ReplyKind::kToolCall || kind == ReplyKind::kLogprobs;
}

struct Reply {
  ReplyKind kind = ReplyKind::kResult;
  AttachmentId attachment;
  RequestId id;
  SessionId session;
  uint64_t version = 0;
  int32_t code = 0;
  int32_t detail = 0;
  bool not_changed = false;  // kResult without text: the client has it, see Request::known_version
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<kairos_session_t> sessions;
  kairos_final_t final{};
};

}  // namespace kairos
