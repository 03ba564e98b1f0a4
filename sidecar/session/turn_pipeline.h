// SPDX-License-Identifier: Apache-2.0
// The path of one turn, in order. Every branch of the path is taken in this class; the folders
// named on the right do the work and do not know each other.
// Owner: conductor. Nothing here blocks: a stage that has to wait hands over and its answer comes
// back through On...().
//
//   Admit     ingress/   a checked request, or a refusal; idempotent repeats end here
//   Route     session/   find or create the session and its model; queue behind its open turn
//   Restore   state/     load the head version
//   Filter    context/   classify the turn; decide what of the log is kept and what is added
//   Render    chat/      template and tokenizer, on the text thread
//   Generate  engine/    lease KV, prefill what is new, decode; text streams out
//   Commit    state/     the next version, durable before the client hears of it
//   Settle    kv/        index whole blocks, keep the open one, free the rest
//   Reply     ingress/   the final record
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "sidecar/context/context_filter.h"
#include "sidecar/engine/engine.h"
#include "sidecar/ingress/reply.h"
#include "sidecar/session/model_host.h"
#include "sidecar/session/outbox.h"
#include "sidecar/session/session_router.h"
#include "sidecar/session/turn.h"
#include "sidecar/session/turn_history.h"
#include "sidecar/state/journal.h"

namespace kairos {

struct TurnLimits {
  uint32_t max_tokens_default = 512;
  float temperature_default = 0.0f;    // for clients that give no generation settings
  float top_p_default = 1.0f;
  int32_t top_k_default = 0;
  uint32_t turns_max = 4096;           // open and queued, all clients
  uint32_t sequences_max = 64;         // the engine's, for a client's share
  uint32_t waiting_per_session = 64;
};

struct TurnCounters {
  uint64_t turns_done = 0;
  uint64_t turns_refused = 0;
  uint64_t turns_cancelled = 0;
  uint64_t turns_replayed = 0;
  uint64_t tokens_reused = 0;
  uint64_t tokens_recomputed = 0;
  uint64_t tokens_new = 0;
  uint64_t tokens_generated = 0;
  uint64_t turn_ns = 0;                // sum of total_ns
  uint64_t model_ns = 0;               // of it, inside the model's steps
};

class TurnPipeline {
 public:
  struct Parts {
    SessionRouter& router;
    ModelHosts& models;
    const ContextFilter& filter;
    Outbox<JournalCommand>& journal;
    Outbox<Reply>& replies;
  };

  TurnPipeline(Parts parts, const TurnLimits& limits) : parts_(parts), limits_(limits) {}

  // While others are attached, no client runs turns in more than three quarters of the engine's
  // places and KV slots together; one turn it may always run.
  void Attach(AttachmentId attachment) { attached_.insert(attachment.value); }
  size_t clients() const { return attached_.size(); }
  void Admit(Request&& request, uint64_t now_ns);
  void OnJournal(JournalResult&& result, uint64_t now_ns);
  void OnText(TextResult&& result, uint64_t now_ns);
  void OnGrammar(GrammarResult&& result, uint64_t now_ns);
  void OnEngine(EngineEvent&& event, uint64_t now_ns);

  void Cancel(AttachmentId attachment, RequestId request, uint64_t now_ns);
  // Cancels everything of a dead client; kDetached follows when all of it has ended.
  void Detach(AttachmentId attachment, uint64_t now_ns);
  // Ends turns whose deadline passed before they reached the engine.
  void ExpireDeadlines(uint64_t now_ns);
  // Cancels a session's turns, the waiting ones too (delete).
  void CancelSession(Session& session, uint64_t now_ns);
  // Holds for turns that have not begun to generate.
  void SetLimits(const TurnLimits& limits) { limits_ = limits; }
  void Drain() { draining_ = true; }
  void CancelAll(uint64_t now_ns);

  // Called when a deleted session's last turn has ended.
  void SetDeleteWhenIdle(std::function<void(SessionId)> callback) {
    delete_idle_ = std::move(callback);
  }
  // Gives a session's KV back and forgets whose blocks they were.
  void DropKv(Session& session, bool evict);

  // An operation that held the session like a turn (rewind, context write) has ended.
  void EndOperation(Session& session, uint64_t ticket);

  size_t turns_open() const { return turns_.size(); }
  const TurnCounters& counters() const { return counters_; }
  TurnHistory& history() { return history_; }

 private:
  void Route(Turn& turn);
  void Start(Turn& turn);
  bool ChooseModel(Turn& turn, const Session& session);
  void Restore(Turn& turn, Session& session);
  void Filter(Turn& turn, Session& session);
  static Status TakeToolResults(Turn& turn, const StateVersion& head, std::string* error);
  void ChooseKept(Turn& turn, Session& session);
  void Render(Turn& turn, Session& session);
  void Compose(Turn& turn, Session& session, TextResult& rendered);
  void ComposeRaw(Turn& turn, Session& session);
  void EndRender(Turn& turn, Session& session);
  static ReplyRules RulesOf(const Turn& turn);
  void Generate(Turn& turn, Session& session);
  void Submit(Turn& turn, Session& session, uint32_t max_new);
  void AccountReuse(Turn& turn, const Session& session);
  void OnToken(Turn& turn, EngineEvent& event);
  void OnFinished(Turn& turn, EngineEvent& event);
  bool DropReasoning(Turn& turn) const;
  void RecordToolCalls(Turn& turn);
  void CommitOrDiscard(Turn& turn, Session& session);
  void Commit(Turn& turn, Session& session);
  void OnCommitted(Turn& turn, JournalResult& result);
  // `tokens` keep their KV, of `computed` whose KV was stored.
  void Settle(Turn& turn, Session& session, std::span<const TokenId> tokens, uint32_t computed);
  void ReplyFinal(Turn& turn, Session& session, Version version);
  void Replay(Turn& turn, const StoredReply& stored);
  void Fail(Turn& turn, Code code, int64_t detail, const std::string& text);
  void Fail(Turn& turn, const Status& status) {
    Fail(turn, status.code(), status.detail(), status.message());
  }
  void Finish(Turn& turn);
  void CancelTurn(Turn& turn);
  void HandOver(Turn& turn);
  void LookUpKey(const Turn& turn);
  void RetryWaitingKv();
  void RetryWaitingKv(ModelHost& host);
  void OpenStreams(Turn& turn, const Session& session, std::vector<std::string> stops);
  void Tell(Turn& turn, std::vector<ToolEvent>&& events);
  uint32_t NewTokensMax(const Turn& turn) const;
  bool IsOverShare(const Turn& turn, const Session& session) const;
  void NoteHeld(const Turn& turn, bool begins);
  Reply MakeReply(const Turn& turn, ReplyKind kind) const;
  Session& SessionOf(const Turn& turn);
  Turn* FindTurn(uint64_t id);
  static BlockKey RootKey(const ModelHost& host, const Session& session);
  static std::string OnceKey(const Turn& turn);

  Parts parts_;
  TurnLimits limits_;
  std::unordered_map<uint64_t, std::unique_ptr<Turn>> turns_;
  std::unordered_map<std::string, uint64_t> once_;       // idempotency keys in flight
  std::unordered_set<uint32_t> attached_;
  std::unordered_map<uint32_t, bool> detaching_;  // attachments that end when their turns have
  std::function<void(SessionId)> delete_idle_;
  TurnCounters counters_;
  TurnHistory history_;
  uint64_t next_turn_ = 1;
  uint64_t now_ns_ = 0;
  bool draining_ = false;
  bool retrying_kv_ = false;
};

}  // namespace kairos
