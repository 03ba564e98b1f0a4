// SPDX-License-Identifier: Apache-2.0
// A Turn is one request of one session, from its ring record to its final reply.
// Owner: conductor. No other thread reads or writes a Turn.
//
//   kAdmitted -> kQueued -> kRestoring -> kRendering -> kGenerating -> kCommitting -> (gone)
//                                             |              ^
//                                             +-> kCompiling, kWaitingKv: neither, one or both
//
// 1. A session has at most one turn past kQueued.
// 2. The session's head changes only when the catalog has acknowledged the commit. A turn that
//    fails earlier leaves the session exactly as it found it.
// 3. A turn holds a KV lease only in kGenerating; Settle ends it before kCommitting.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidecar/chat/calls/tool_stream.h"
#include "sidecar/chat/tokenizer.h"
#include "sidecar/context/context_filter.h"
#include "sidecar/engine/sequence.h"
#include "sidecar/grammar/reply_grammar.h"
#include "sidecar/ingress/request.h"
#include "sidecar/session/history_match.h"
#include "sidecar/session/kv_lease.h"
#include "sidecar/session/reply_parts.h"

namespace kairos {

struct ModelHost;

enum class TurnPhase : int32_t {
  kAdmitted,    // waits for the idempotency look-up
  kQueued,      // behind the session's open turn
  kRestoring,   // head version is being read
  kRendering,   // text thread
  kCompiling,   // grammar thread
  kWaitingKv,   // no slots now
  kGenerating,  // in the engine
  kCommitting,  // in the catalog
};

// Why turns are refused, or cut, while the sidecar ends.
inline constexpr const char* kDrainingWords = "the sidecar is shutting down";

struct Turn {
  uint64_t id = 0;                // also its SequenceId and its ticket
  Request request;                // request.turn is set
  SessionId session;
  bool creates_session = false;
  ModelHost* host = nullptr;      // the model it runs under; set when its time has come
  bool moves_model = false;       // the session's was another
  TurnPhase phase = TurnPhase::kAdmitted;
  bool accepted = false;
  bool cancel = false;            // asked for; takes effect at the next stage or engine step
  bool deadline_passed = false;
  bool cut_by_drain = false;      // the sidecar ends, and the turn with it
  bool client_gone = false;
  bool client_cancelled = false;  // it asked for it, and gets what is there
  std::vector<uint64_t> followers;  // turns with the same idempotency key that wait for this reply

  // Restore, filter, render.
  Version base;
  HistoryMatch match;
  FilterVerdict verdict;
  std::vector<ChatMessage> added;
  std::string tools_json;
  std::string context_json;
  bool tools_changed = false;
  bool reset = false;
  std::vector<uint32_t> added_ends;  // token log sizes after each added message
  std::vector<TokenId> tokens;       // the context
  std::shared_ptr<TokenConstraint> constraint;
  ReplyGrammar to_compile;           // until the grammar thread has it

  // Generate.
  KvLease lease;
  std::vector<std::string> tool_names;  // that may be called; none: any
  std::unique_ptr<TextStream> stream;
  std::unique_ptr<ToolStream> calls;
  std::string text;                  // as generated, markup too; with what of it the prompt opened
  std::vector<ReplyPart> told;       // of it, to the client
  std::vector<TokenId> untold;       // of `generated`, the last ones, in no record yet
  std::vector<TokenId> generated;
  std::vector<TokenId> answer;       // of these, what the log keeps
  FinishCause cause = FinishCause::kPrefilled;
  std::string waiting_for;           // first tool called

  // Measurement.
  uint64_t started_ns = 0;
  uint64_t marked_ns = 0;
  uint64_t wait_since_ns = 0;
  kairos_final_t final{};

  const TurnRequest& ask() const { return *request.turn; }
  // Books the time since the last mark under a KAIROS_STAGE_*.
  void Mark(int stage, uint64_t now_ns) {
    final.stage_ns[stage] += now_ns - marked_ns;
    marked_ns = now_ns;
  }
};

}  // namespace kairos
