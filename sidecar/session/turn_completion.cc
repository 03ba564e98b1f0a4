// SPDX-License-Identifier: Apache-2.0
// The stages of TurnPipeline after Generate, Commit to Reply.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/clock.h"
#include "sidecar/session/stage_hook.h"
#include "sidecar/session/turn_pipeline.h"
#include "sidecar/state/task_context.h"

namespace kairos {
namespace {

int FinishNumber(FinishCause cause) {
  switch (cause) {
    case FinishCause::kEndToken: return KAIROS_FINISH_STOP;
    case FinishCause::kLength: return KAIROS_FINISH_LENGTH;
    case FinishCause::kStopString: return KAIROS_FINISH_STRING;
    case FinishCause::kCancelled: return KAIROS_FINISH_CANCELLED;
    case FinishCause::kDeadline: return KAIROS_FINISH_DEADLINE;
    case FinishCause::kPrefilled:
    case FinishCause::kConstraintFailed:
    case FinishCause::kDeadEnd: return KAIROS_FINISH_NONE;
  }
  return KAIROS_FINISH_NONE;
}

bool IsCut(FinishCause cause) {
  return cause == FinishCause::kCancelled || cause == FinishCause::kDeadline;
}

// The turn's last message, for a log that has so many tokens with it.
MessageRecord AnswerOf(const Turn& turn, uint64_t log_tokens) {
  MessageRecord answer;
  answer.message.role = turn.ask().tokens.empty() ? "assistant" : "raw";
  answer.message.content = turn.text;
  answer.token_end = static_cast<uint32_t>(log_tokens);
  answer.cancelled = IsCut(turn.cause);
  return answer;
}

}  // namespace

void TurnPipeline::OnFinished(Turn& turn, EngineEvent& event) {
  StageHook("generated");
  Session& session = SessionOf(turn);
  turn.cause = event.cause;
  const std::string rest = turn.stream->Finish();
  turn.text += rest;
  std::vector<ToolEvent> events;
  turn.calls->Feed(rest, &events);
  turn.calls->Finish(&events);
  Tell(turn, std::move(events));
  turn.final.stage_ns[KAIROS_STAGE_QUEUE] += event.queue_ns;
  turn.final.stage_ns[KAIROS_STAGE_PREFILL] = event.prefill_ns;
  turn.final.stage_ns[KAIROS_STAGE_DECODE] = event.decode_ns;
  turn.final.model_ns = event.model_ns;
  turn.final.logits_hash = event.logits_hash;
  turn.final.forced_tokens = event.forced;
  turn.marked_ns = event.time_ns;
  std::vector<TokenId> log = turn.tokens;
  log.insert(log.end(), turn.generated.begin(), turn.generated.end());
  KAIROS_CHECK(event.computed <= log.size());
  turn.answer = turn.generated;
  const bool dropped = (session.record.flags & KAIROS_SESSION_DROP_REASONING) != 0 &&
                       turn.ask().tokens.empty() && DropReasoning(turn);
  const auto prompt = static_cast<uint32_t>(turn.tokens.size());
  const uint32_t kept = dropped ? KvLeaser::Keepable(event.computed, prompt) : event.computed;
  Settle(turn, session, std::span(log).first(kept), event.computed);
  session.truncated = dropped;
  if (event.cause == FinishCause::kDeadEnd) {
    return Fail(turn, Code::kInvalidArgument, KAIROS_DETAIL_GRAMMAR,
                fmt::format("after {} tokens nothing that the schema or constraint allows can "
                            "follow", turn.generated.size()));
  }
  if (event.cause == FinishCause::kConstraintFailed) {
    return Fail(turn, Code::kResourceExhausted, KAIROS_DETAIL_GRAMMAR,
                fmt::format("after {} tokens the grammar's work limits were reached; simplify the "
                            "schema or constraint", turn.generated.size()));
  }
  CommitOrDiscard(turn, session);
}

// The calls that the client was told, also of an answer that was cut behind them.
void TurnPipeline::RecordToolCalls(Turn& turn) {
  std::string calls;
  for (const ReplyPart& part : turn.told) {
    if (part.kind != ReplyKind::kToolCall) continue;
    if (calls.empty()) turn.waiting_for = part.tool;
    calls += (calls.empty() ? "[" : ",") + part.text;
  }
  if (calls.empty()) return;
  turn.context_json = TaskContextAfterToolCalls(turn.context_json, calls + "]",
                                                turn.match.kept_messages + turn.added.size());
}

void TurnPipeline::CommitOrDiscard(Turn& turn, Session& session) {
  const bool cut = IsCut(turn.cause);
  const bool discard = cut && turn.ask().on_cancel == KAIROS_ON_CANCEL_DISCARD;
  // As a transaction whose client was lost: sent again under its key, the turn must find the
  // session as it was, and no reply that is a part of one.
  const bool undone = cut && !turn.client_cancelled && !turn.ask().idempotency_key.empty();
  if (!discard && !undone && !session.deleting) return Commit(turn, session);
  if (undone) HandOver(turn);
  ++counters_.turns_cancelled;
  // Of a session that is being deleted no version is left to name, however the turn ended.
  if (session.deleting) turn.final.finish = KAIROS_FINISH_CANCELLED;
  ReplyFinal(turn, session, session.deleting ? Version{} : session.record.head);
  Finish(turn);
}

void TurnPipeline::Commit(Turn& turn, Session& session) {
  StageHook("commit");
  turn.phase = TurnPhase::kCommitting;
  RecordToolCalls(turn);
  JournalCommand command;
  command.verb = JournalVerb::kCommit;
  command.ticket = turn.id;
  command.create = !session.persisted;
  VersionDelta& delta = command.delta;
  delta.version = Version{session.record.newest.value + 1};
  delta.parent = session.record.head;
  delta.kept_tokens = turn.match.kept_tokens;
  delta.kept_messages = turn.match.kept_messages;
  delta.tokens.assign(turn.tokens.begin() + delta.kept_tokens, turn.tokens.end());
  delta.tokens.insert(delta.tokens.end(), turn.answer.begin(), turn.answer.end());
  for (size_t i = 0; i < turn.added.size(); ++i) {
    MessageRecord record;
    record.message = turn.added[i];
    record.token_end = i < turn.added_ends.size() ? turn.added_ends[i]
                                                  : static_cast<uint32_t>(turn.tokens.size());
    delta.messages.push_back(std::move(record));
  }
  const uint64_t log_tokens = turn.tokens.size() + turn.answer.size();
  if (turn.cause != FinishCause::kPrefilled) {
    delta.messages.push_back(AnswerOf(turn, log_tokens));
  }
  delta.tools_json = turn.tools_json;
  delta.context_json = turn.context_json;
  delta.phase = turn.waiting_for.empty() ? KAIROS_PHASE_WAITING_USER : KAIROS_PHASE_WAITING_TOOL;
  delta.waiting_for = turn.waiting_for;
  delta.created_unix_ms = UnixMs();
  delta.token_count = log_tokens;
  delta.message_count = delta.kept_messages + delta.messages.size();

  SessionRecord& record = command.record;
  record = session.record;
  record.model = turn.host->parts.fingerprint;
  record.model_name = turn.host->parts.name;
  record.head = record.newest = delta.version;
  record.token_count = delta.token_count;
  record.message_count = delta.message_count;
  record.phase = delta.phase;
  record.waiting_for = delta.waiting_for;
  record.used_unix_ms = delta.created_unix_ms;

  turn.final.session_id = turn.session.value;
  turn.final.version = delta.version.value;
  turn.final.generated_tokens = turn.generated.size();
  const bool calls = !turn.waiting_for.empty() && !IsCut(turn.cause);
  turn.final.finish = calls ? KAIROS_FINISH_TOOL_CALL : FinishNumber(turn.cause);
  turn.final.phase = delta.phase;
  turn.final.total_ns = now_ns_ - turn.started_ns;
  if (!turn.ask().idempotency_key.empty()) {
    command.key = turn.ask().idempotency_key;
    StoredReply stored;
    stored.session = turn.session;
    stored.version = delta.version;
    stored.text = WriteParts(turn.told);
    stored.final_bytes.assign(reinterpret_cast<const char*>(&turn.final), sizeof(turn.final));
    command.reply = std::move(stored);
  }
  parts_.journal.Send(std::move(command));
}

void TurnPipeline::OnCommitted(Turn& turn, JournalResult& result) {
  StageHook("committed");
  Session& session = SessionOf(turn);
  turn.Mark(KAIROS_STAGE_COMMIT, now_ns_);
  if (!result.status.ok()) return Fail(turn, result.status);

  SessionRecord& record = session.record;
  StateVersion& head = *session.head;
  head.parent = head.version;
  head.version = Version{turn.final.version};
  head.tokens = std::move(turn.tokens);
  head.tokens.insert(head.tokens.end(), turn.answer.begin(), turn.answer.end());
  head.messages.resize(turn.match.kept_messages);
  for (size_t i = 0; i < turn.added.size(); ++i) {
    head.messages.push_back(MessageRecord{std::move(turn.added[i]), turn.added_ends[i], false});
  }
  if (turn.cause != FinishCause::kPrefilled) {
    head.messages.push_back(AnswerOf(turn, head.tokens.size()));
  }
  head.tools_json = std::move(turn.tools_json);
  head.context_json = std::move(turn.context_json);
  head.phase = turn.final.phase;
  head.waiting_for = turn.waiting_for;
  head.created_unix_ms = record.used_unix_ms = UnixMs();
  session.persisted = true;
  Bind(session, *turn.host);
  record.head = record.newest = head.version;
  record.oldest = result.oldest;
  record.token_count = head.tokens.size();
  record.message_count = head.messages.size();
  record.phase = head.phase;
  record.waiting_for = head.waiting_for;
  session.unused.Restart();
  session.in_phase.Restart();
  if (IsCut(turn.cause)) ++counters_.turns_cancelled;
  ++counters_.turns_done;
  ReplyFinal(turn, session, head.version);
  Finish(turn);
}

// ---- Settle ------------------------------------------------------------------------------------

void TurnPipeline::Settle(Turn& turn, Session& session, std::span<const TokenId> tokens,
                          uint32_t computed) {
  StageHook("settle");
  KvLeaser& kv = turn.host->kv;
  PrefixIndex& index = turn.host->device.index();
  OpenBlock tail;
  if (turn.lease.held) NoteHeld(turn, false);
  const std::vector<BlockKey> chain = kv.Settle(std::move(turn.lease), tokens, computed, &tail);
  kv.ReleaseTail(&session.tail);
  session.tail = std::move(tail);
  size_t common = 0;
  while (common < chain.size() && common < session.chain.size() &&
         chain[common] == session.chain[common]) {
    ++common;
  }
  for (size_t i = session.chain.size(); i-- > common;) {
    index.RemoveOwner(session.chain[i], false);
  }
  for (size_t i = common; i < chain.size(); ++i) index.AddOwner(chain[i]);
  const uint32_t seen = kv.layout().FirstSeen(static_cast<uint32_t>(chain.size()));
  for (uint32_t i = 0; i < seen; ++i) index.LoosenWindow(chain[i]);
  session.chain = chain;
  session.computed_tokens = static_cast<uint32_t>(tokens.size());
  session.computed_here = true;
  session.truncated = false;
}

void TurnPipeline::DropKv(Session& session, bool evict) {
  if (session.kv_host == nullptr) return;
  session.kv_host->kv.ReleaseTail(&session.tail);
  for (size_t i = session.chain.size(); i-- > 0;) {
    session.kv_host->device.index().RemoveOwner(session.chain[i], evict);
  }
  session.chain.clear();
}

// ---- Reply and the ends of a turn --------------------------------------------------------------

void TurnPipeline::ReplyFinal(Turn& turn, Session& session, Version version) {
  StageHook("reply");
  kairos_final_t& final = turn.final;
  final.session_id = turn.session.value;
  final.version = version.value;
  final.generated_tokens = turn.generated.size();
  final.phase = session.record.phase;
  if (final.finish == 0) final.finish = FinishNumber(turn.cause);
  final.total_ns = now_ns_ - turn.started_ns;
  counters_.tokens_reused += final.reused_tokens;
  counters_.tokens_recomputed += final.recomputed_tokens;
  counters_.tokens_new += final.new_tokens;
  counters_.tokens_generated += final.generated_tokens;
  counters_.turn_ns += final.total_ns;
  counters_.model_ns += final.model_ns;
  history_.Add(final, UnixMs());
  Reply reply = MakeReply(turn, ReplyKind::kFinal);
  reply.version = version.value;
  reply.tokens = std::move(turn.untold);
  reply.final = final;
  if (turn.cut_by_drain && turn.cause == FinishCause::kCancelled) {
    reply.detail = KAIROS_DETAIL_DRAINING;
    reply.text = kDrainingWords;
  }
  parts_.replies.Send(std::move(reply));
  for (const uint64_t follower : turn.followers) {
    Turn* other = FindTurn(follower);
    if (other == nullptr) continue;
    StoredReply stored;
    stored.session = turn.session;
    stored.version = version;
    stored.text = WriteParts(turn.told);
    stored.final_bytes.assign(reinterpret_cast<const char*>(&final), sizeof(final));
    Replay(*other, stored);
  }
  turn.followers.clear();
}

void TurnPipeline::Replay(Turn& turn, const StoredReply& stored) {
  // A client that does not know yet which session its lost turn made names none.
  if (turn.request.session.value != 0 && !(turn.request.session == stored.session)) {
    return Fail(turn, Code::kInvalidArgument, 0,
                fmt::format("idempotency_key was used before, for session {:016x}; every turn "
                            "needs a key of its own",
                            stored.session.value));
  }
  turn.session = stored.session;
  ++counters_.turns_replayed;
  // The key answers only those who may see the session.
  if (parts_.router.Find(stored.session, turn.request.uid, turn.request.name_space) == nullptr) {
    return Fail(turn, Code::kNotFound, 0, "the session of this idempotency key is gone");
  }
  const size_t size = std::min(stored.final_bytes.size(), sizeof(turn.final));
  std::memcpy(&turn.final, stored.final_bytes.data(), size);
  turn.final.struct_size = sizeof(turn.final);
  turn.final.replayed = 1;
  Reply accepted = MakeReply(turn, ReplyKind::kAccepted);
  accepted.version = stored.version.value;
  parts_.replies.Send(std::move(accepted));
  for (ReplyPart& part : ReadParts(stored.text)) {
    Reply reply = MakeReply(turn, part.kind);
    reply.detail = part.detail;
    reply.text = std::move(part.text);
    parts_.replies.Send(std::move(reply));
  }
  Reply final = MakeReply(turn, ReplyKind::kFinal);
  final.version = stored.version.value;
  final.final = turn.final;
  parts_.replies.Send(std::move(final));
  turn.phase = TurnPhase::kAdmitted;  // it never opened the session
  Finish(turn);
}

void TurnPipeline::Fail(Turn& turn, Code code, int64_t detail, const std::string& text) {
  ++counters_.turns_refused;
  Reply reply = MakeReply(turn, ReplyKind::kError);
  reply.code = static_cast<int32_t>(code);
  reply.detail = static_cast<int32_t>(detail);
  reply.text = text;
  for (const uint64_t follower : turn.followers) {
    if (Turn* other = FindTurn(follower)) Fail(*other, code, detail, text);
  }
  turn.followers.clear();
  parts_.replies.Send(std::move(reply));
  Finish(turn);
}

void TurnPipeline::Finish(Turn& turn) {
  KAIROS_CHECK(!turn.lease.held);
  if (!turn.ask().idempotency_key.empty()) {
    const auto found = once_.find(OnceKey(turn));
    if (found != once_.end() && found->second == turn.id) once_.erase(found);
  }
  const uint64_t id = turn.id;
  const AttachmentId attachment = turn.request.attachment;
  Session* session = parts_.router.FindEvenDeleting(turn.session);
  const bool opened = session != nullptr && session->open_turn == id;
  turns_.erase(id);

  if (detaching_.contains(attachment.value)) Detach(attachment, now_ns_);
  if (opened) {
    const uint64_t next = parts_.router.Close(*session, id, now_ns_);
    if (next != 0) {
      Start(*turns_.at(next));
    } else if (session->deleting) {
      delete_idle_(session->record.id);
    } else if (!session->persisted) {
      // Created by this turn, which then failed: there is nothing to remember.
      DropKv(*session, true);
      parts_.router.Erase(session->record.id);
    }
  }
  RetryWaitingKv();
}

void TurnPipeline::EndOperation(Session& session, uint64_t ticket) {
  const uint64_t next = parts_.router.Close(session, ticket, now_ns_);
  if (next != 0) return Start(*turns_.at(next));
  if (session.deleting) delete_idle_(session.record.id);
}

// A turn that ends before it began, or as if it never had, does not take those along who wait for
// its reply: the first of them runs in its place.
void TurnPipeline::HandOver(Turn& turn) {
  std::vector<uint64_t> followers = std::move(turn.followers);
  turn.followers.clear();
  for (size_t i = 0; i < followers.size(); ++i) {
    Turn* heir = FindTurn(followers[i]);
    if (heir == nullptr || heir->cancel) continue;
    heir->followers.assign(followers.begin() + static_cast<ptrdiff_t>(i) + 1, followers.end());
    once_[OnceKey(*heir)] = heir->id;
    return LookUpKey(*heir);
  }
}

}  // namespace kairos
