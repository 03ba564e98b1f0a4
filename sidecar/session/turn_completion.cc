// SPDX-License-Identifier: Apache-2.0
// The second half of TurnPipeline: Generate to Reply, and every way a turn can end.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
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

constexpr std::string_view kWhiteSpace = " \t\r\n";

bool IsCut(FinishCause cause) {
  return cause == FinishCause::kCancelled || cause == FinishCause::kDeadline;
}

// JSON has no infinities; a banned token's logprob is null.
std::string LogprobJson(float logprob) {
  return std::isfinite(logprob) ? fmt::format("{:.6g}", logprob) : "null";
}

std::string LogprobsJson(const EngineEvent& event) {
  std::string json = fmt::format("{{\"token\":{},\"logprob\":{},\"top\":[", event.token,
                                 LogprobJson(event.logprob));
  for (size_t i = 0; i < event.alternatives.size(); ++i) {
    json += fmt::format("{}{{\"token\":{},\"logprob\":{}}}", i == 0 ? "" : ",",
                        event.alternatives[i].token, LogprobJson(event.alternatives[i].logprob));
  }
  return json + "]}";
}

// Whether the last tokens are this text and white space.
bool EndsWith(const Tokenizer& tokenizer, std::span<const TokenId> tokens, std::string_view text) {
  std::string end;
  const size_t most = std::min<size_t>(tokens.size(), text.size() + 4);
  for (const TokenId token : tokens.last(most)) end += tokenizer.TokenBytes(token, true);
  end.resize(end.find_last_not_of(kWhiteSpace) + 1);
  return end.ends_with(text);
}

}  // namespace

BlockKey TurnPipeline::RootKey(const ModelHost& host, const Session& session) {
  // Everything that makes equal tokens mean different KV, or that must not be shared, is in the
  // root.
  const std::string text =
      fmt::format("{}\n{}\n{}\n{}", host.parts.fingerprint, session.record.fidelity,
                  session.record.uid, session.record.name_space);
  return HashBytes128(text.data(), text.size());
}

// ---- Generate ----------------------------------------------------------------------------------

void TurnPipeline::Generate(Turn& turn, Session& session) {
  StageHook("generate");
  const auto prompt = static_cast<uint32_t>(turn.tokens.size());
  turn.final.prompt_tokens = prompt;
  if (prompt == 0) return Fail(turn, Code::kInvalidArgument, 0, "the turn has no tokens");
  if (turn.cancel) {
    turn.cause = turn.deadline_passed ? FinishCause::kDeadline : FinishCause::kCancelled;
    return CommitOrDiscard(turn, session);
  }
  const bool generate = (turn.ask().flags & KAIROS_TURN_NO_GENERATE) == 0;
  const uint32_t context_tokens = turn.host->parts.context_tokens;
  if (prompt + (generate ? 1 : 0) > context_tokens) {
    return Fail(turn, Code::kInvalidArgument, KAIROS_DETAIL_CONTEXT_FULL,
                fmt::format("the prompt has {} tokens; the model's context is {}", prompt,
                            context_tokens));
  }
  Submit(turn, session, NewTokensMax(turn));
}

// Of a turn whose prompt fits the context.
uint32_t TurnPipeline::NewTokensMax(const Turn& turn) const {
  if ((turn.ask().flags & KAIROS_TURN_NO_GENERATE) != 0) return 0;
  uint32_t max_new = turn.ask().max_tokens;
  if ((turn.ask().generation_flags & KAIROS_AUTO_MAX_TOKENS) && turn.verdict.max_tokens > 0) {
    max_new = turn.verdict.max_tokens;
  }
  if (max_new == 0) max_new = limits_.max_tokens_default;
  return std::min(max_new,
                  turn.host->parts.context_tokens - static_cast<uint32_t>(turn.tokens.size()));
}

void TurnPipeline::Submit(Turn& turn, Session& session, uint32_t max_new) {
  ModelHost& host = *turn.host;
  const auto fidelity = static_cast<Fidelity>(session.record.fidelity);
  const auto total = static_cast<uint32_t>(turn.tokens.size()) + max_new;
  if (KvLeaser::SlotsNeeded(total, fidelity) > host.kv.slots_total()) {
    return Fail(turn, Code::kResourceExhausted, KAIROS_DETAIL_KV_FULL,
                fmt::format("{} tokens need {} KV slots; the KV memory of {} holds {}", total,
                            KvLeaser::SlotsNeeded(total, fidelity), host.parts.name,
                            host.kv.slots_total()));
  }
  if (session.kv_host != &host) {
    DropKv(session, false);
    session.kv_host = &host;
  }
  if (turn.phase != TurnPhase::kWaitingKv) {
    // Also where there is room: whoever waits comes first.
    turn.phase = TurnPhase::kWaitingKv;
    host.waiting_kv.Push(turn.request.attachment, turn.id);
    return RetryWaitingKv();
  }
  KvLeaser::Ask ask;
  ask.root = RootKey(host, session);
  ask.tokens = turn.tokens;
  ask.total_tokens = total;
  ask.fidelity = fidelity;
  ask.reuse = (turn.ask().flags & KAIROS_TURN_NO_REUSE) == 0;
  std::optional<KvLease> lease = host.kv.Acquire(ask, &session.tail);
  if (!lease) return;
  turn.lease = std::move(*lease);
  NoteHeld(turn, true);
  AccountReuse(turn, session);

  SequenceSpec spec;
  spec.id = SequenceId{turn.id};
  spec.tokens = turn.tokens;
  spec.max_new_tokens = max_new;
  spec.sampling = turn.ask().sampling;
  if (!turn.ask().temperature_given) spec.sampling.temperature = limits_.temperature_default;
  if (!turn.ask().top_p_given) spec.sampling.top_p = limits_.top_p_default;
  if (!turn.ask().top_k_given) spec.sampling.top_k = limits_.top_k_default;
  if ((turn.ask().generation_flags & KAIROS_AUTO_TEMPERATURE) && turn.verdict.temperature >= 0) {
    spec.sampling.temperature = turn.verdict.temperature;
  }
  spec.constraint = std::move(turn.constraint);
  spec.priority = session.record.priority + turn.ask().priority;
  spec.deadline_ns = turn.ask().deadline_ns;
  host.kv.FillSpec(turn.lease, &spec);
  OpenStreams(turn, session, spec.sampling.stops);
  turn.phase = TurnPhase::kGenerating;
  turn.Mark(KAIROS_STAGE_QUEUE, now_ns_);
  host.engine.Send(EngineOrder{std::move(spec)});
}

void TurnPipeline::OpenStreams(Turn& turn, const Session& session,
                               std::vector<std::string> stops) {
  const ModelHost& host = *turn.host;
  turn.stream =
      std::make_unique<TextStream>(host.parts.tokenizer, std::move(stops), host.marker_tokens);
  // The version that this turn will make, so that ids are unique in the session.
  // Text that a constraint shapes is no call where there is nothing to be called.
  const bool shaped = turn.ask().constraint_kind != KAIROS_CONSTRAINT_NONE;
  const bool calls = turn.ask().tool_choice != KAIROS_TOOL_CHOICE_NONE &&
                     !(shaped && turn.tool_names.empty());
  turn.calls = std::make_unique<ToolStream>(
      calls ? host.parts.format : host.callless_format,
      fmt::format("call_{}_", session.record.newest.value + 1), turn.tool_names);
  // Some templates open the reasoning in the prompt. The opening then counts as the answer's, for
  // whoever reads the answer without its prompt.
  const std::string_view open = host.parts.format.reasoning_open;
  if (open.empty() || !EndsWith(host.parts.tokenizer, turn.tokens, open)) return;
  turn.text = open;
  std::vector<ToolEvent> markup;
  turn.calls->Feed(open, &markup);
}

// What was reused, what of the past is computed again, and why.
void TurnPipeline::AccountReuse(Turn& turn, const Session& session) {
  kairos_final_t& out = turn.final;
  const StateVersion& head = *session.head;
  const uint32_t reused = turn.lease.computed;
  const uint32_t kept = turn.match.kept_tokens;
  // Tokens of the kept log that once had KV. The last sampled one never does.
  uint32_t had_kv = kept;
  if (session.computed_here) {
    had_kv = std::min(kept, session.computed_tokens);
  } else if (kept == head.tokens.size() && kept > 0) {
    had_kv = kept - 1;
  }
  // Where the dialogue before this turn ends in the new prompt, when it is rendered again.
  uint32_t past = had_kv;
  int rewritten_reason = KAIROS_REASON_HISTORY_CHANGED;
  if (turn.moves_model || turn.tools_changed || turn.final.first_difference >= 0) {
    const size_t stored = head.messages.size() - turn.match.kept_messages;
    const size_t again = std::min(stored, turn.added_ends.empty() ? 0 : turn.added_ends.size() - 1);
    if (again > 0) past = std::max(past, turn.added_ends[again - 1]);
    if (turn.tools_changed) rewritten_reason = KAIROS_REASON_TOOLS_CHANGED;
    if (turn.moves_model) rewritten_reason = KAIROS_REASON_OTHER_FORMAT;
  }
  int structural = KAIROS_REASON_EVICTED;
  if (turn.ask().flags & KAIROS_TURN_NO_REUSE) {
    structural = rewritten_reason = KAIROS_REASON_REUSE_OFF;
  } else if (!session.computed_here) {
    structural = KAIROS_REASON_RESTART;
  } else if ((session.truncated || kept < head.tokens.size()) && had_kv > reused &&
             had_kv - reused < kBlockTokens) {
    structural = KAIROS_REASON_BLOCK_BOUNDARY;
  }
  if (had_kv > reused) out.recomputed_by[structural] += had_kv - reused;
  if (past > std::max(had_kv, reused)) {
    out.recomputed_by[rewritten_reason] += past - std::max(had_kv, reused);
  }
  out.reused_tokens = reused;
  out.recomputed_tokens = 0;
  for (const uint64_t tokens : out.recomputed_by) out.recomputed_tokens += tokens;
  out.new_tokens = out.prompt_tokens - out.reused_tokens - out.recomputed_tokens;
  uint64_t own = 0;
  for (size_t i = 0; i < turn.lease.pinned.size() && i < session.chain.size(); ++i) {
    if (!(turn.host->device.index().key(turn.lease.pinned[i]) == session.chain[i])) break;
    ++own;
  }
  out.shared_tokens = (turn.lease.pinned.size() - own) * kBlockTokens;
}

void TurnPipeline::RetryWaitingKv() {
  // A turn that ends in here comes back to this function; the outer loop goes on for it.
  if (retrying_kv_) return;
  retrying_kv_ = true;
  for (ModelHost& host : parts_.models) RetryWaitingKv(host);
  retrying_kv_ = false;
}

void TurnPipeline::RetryWaitingKv(ModelHost& host) {
  host.waiting_kv.Run([this](uint64_t id) {
    Turn* turn = FindTurn(id);
    if (turn == nullptr || turn->phase != TurnPhase::kWaitingKv) return TurnQueue::Outcome::kDone;
    Session& session = SessionOf(*turn);
    if (IsOverShare(*turn, session)) return TurnQueue::Outcome::kOverShare;
    Generate(*turn, session);
    turn = FindTurn(id);
    const bool waits = turn != nullptr && turn->phase == TurnPhase::kWaitingKv;
    return waits ? TurnQueue::Outcome::kNoRoom : TurnQueue::Outcome::kDone;
  });
}

bool TurnPipeline::IsOverShare(const Turn& turn, const Session& session) const {
  const ModelHost& host = *turn.host;
  const auto held = host.held.find(turn.request.attachment.value);
  if (held == host.held.end() || attached_.size() < 2) return false;
  const auto share_of = [](uint64_t all) { return all - all / 4; };
  const auto total = static_cast<uint32_t>(turn.tokens.size()) + NewTokensMax(turn);
  const uint64_t needed =
      KvLeaser::SlotsNeeded(total, static_cast<Fidelity>(session.record.fidelity));
  return held->second.turns + 1 > share_of(limits_.sequences_max) ||
         held->second.slots + needed > share_of(host.kv.slots_total());
}

void TurnPipeline::NoteHeld(const Turn& turn, bool begins) {
  const uint32_t client = turn.request.attachment.value;
  const uint64_t slots = turn.lease.fresh.size() + (turn.lease.open[0] == kNoSlot ? 0 : 2);
  KvHeld& held = turn.host->held[client];
  held.turns += begins ? 1 : -1;
  held.slots += begins ? slots : -slots;
  if (held.turns == 0) turn.host->held.erase(client);
}

void TurnPipeline::OnEngine(EngineEvent&& event, uint64_t now_ns) {
  now_ns_ = now_ns;
  Turn* turn = FindTurn(event.id.value);
  KAIROS_CHECK(turn != nullptr && turn->phase == TurnPhase::kGenerating);
  if (event.kind == EngineEvent::Kind::kToken) {
    OnToken(*turn, event);
  } else {
    OnFinished(*turn, event);
  }
}

// Sends what can be told by now. Tokens go with the first text, or alone with an empty one.
void TurnPipeline::Tell(Turn& turn, std::vector<ToolEvent>&& events,
                        std::vector<TokenId>&& tokens) {
  std::vector<ReplyPart> parts = PartsOf(std::move(events));
  const auto carries = [](const ReplyPart& part) { return part.kind != ReplyKind::kToolCall; };
  if (!tokens.empty() && std::none_of(parts.begin(), parts.end(), carries)) {
    parts.insert(parts.begin(), ReplyPart{});
  }
  for (ReplyPart& part : parts) {
    Reply reply = MakeReply(turn, part.kind);
    reply.detail = part.detail;
    reply.text = part.text;
    if (carries(part)) reply.tokens = std::exchange(tokens, {});
    parts_.replies.Send(std::move(reply));
    KeepPart(std::move(part), &turn.told);
  }
}

void TurnPipeline::OnToken(Turn& turn, EngineEvent& event) {
  StageHook("token");
  if (turn.generated.empty()) turn.final.ttft_ns = event.time_ns - turn.started_ns;
  turn.generated.push_back(event.token);
  const std::string text = turn.stream->Push(event.token);
  turn.text += text;
  std::vector<ToolEvent> events;
  turn.calls->Feed(text, &events);
  Tell(turn, std::move(events), {event.token});
  if (turn.ask().sampling.want_logprobs) {
    Reply logprobs = MakeReply(turn, ReplyKind::kLogprobs);
    logprobs.text = LogprobsJson(event);
    parts_.replies.Send(std::move(logprobs));
  }
}

void TurnPipeline::OnFinished(Turn& turn, EngineEvent& event) {
  StageHook("generated");
  Session& session = SessionOf(turn);
  turn.cause = event.cause;
  const std::string rest = turn.stream->Finish();
  turn.text += rest;
  std::vector<ToolEvent> events;
  turn.calls->Feed(rest, &events);
  turn.calls->Finish(&events);
  Tell(turn, std::move(events), {});
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
  Settle(turn, session, std::span(log).first(kept));
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

// Takes what the model thought out of what the log keeps of its answer; false where there is none.
// Where the prompt opened the reasoning, the log has both markers and nothing between them.
bool TurnPipeline::DropReasoning(Turn& turn) const {
  const ModelHost& host = *turn.host;
  const Tokenizer& tokenizer = host.parts.tokenizer;
  const std::string_view open = host.parts.format.reasoning_open;
  const std::string_view close = host.parts.format.reasoning_close;
  if (open.empty() || turn.generated.empty()) return false;
  const bool in_prompt = EndsWith(tokenizer, turn.tokens, open);
  std::string bytes;
  for (const TokenId token : turn.generated) bytes += tokenizer.TokenBytes(token, true);
  const size_t begin = std::min(bytes.find_first_not_of(kWhiteSpace), bytes.size());
  if (!in_prompt && !std::string_view(bytes).substr(begin).starts_with(open)) return false;
  size_t end = std::min(bytes.find(close), bytes.size());  // of it, in bytes
  if (!in_prompt && end < bytes.size()) {
    end = std::min(bytes.find_first_not_of(kWhiteSpace, end + close.size()), bytes.size());
  }
  // Where a token spans the end, what is behind it in that token becomes tokens of its own.
  size_t first = 0;
  size_t at = 0;
  while (at < end) at += tokenizer.TokenBytes(turn.generated[first++], true).size();
  turn.answer = tokenizer.Encode(std::string_view(bytes).substr(end, at - end), false).tokens;
  turn.answer.insert(turn.answer.end(), turn.generated.begin() + static_cast<ptrdiff_t>(first),
                     turn.generated.end());
  const size_t cut = std::min(turn.text.find(close), turn.text.size());
  if (in_prompt) {
    turn.text.replace(open.size(), cut - open.size(), "");
  } else {
    const size_t behind = cut < turn.text.size() ? cut + close.size() : cut;
    turn.text.erase(0, std::min(turn.text.find_first_not_of(kWhiteSpace, behind),
                                turn.text.size()));
  }
  return true;
}

// ---- Commit ------------------------------------------------------------------------------------

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
  const bool discard = IsCut(turn.cause) && turn.ask().on_cancel == KAIROS_ON_CANCEL_DISCARD;
  if (!discard && !session.deleting) return Commit(turn, session);
  ++counters_.turns_cancelled;
  ReplyFinal(turn, session, session.record.head);
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
    MessageRecord answer;
    answer.message.role = turn.ask().tokens.empty() ? "assistant" : "raw";
    answer.message.content = turn.text;
    answer.token_end = static_cast<uint32_t>(log_tokens);
    answer.cancelled = IsCut(turn.cause);
    delta.messages.push_back(std::move(answer));
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
    MessageRecord answer;
    answer.message.role = turn.ask().tokens.empty() ? "assistant" : "raw";
    answer.message.content = turn.text;
    answer.token_end = static_cast<uint32_t>(head.tokens.size());
    answer.cancelled = IsCut(turn.cause);
    head.messages.push_back(std::move(answer));
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

void TurnPipeline::Settle(Turn& turn, Session& session, std::span<const TokenId> tokens) {
  StageHook("settle");
  KvLeaser& kv = turn.host->kv;
  PrefixIndex& index = turn.host->device.index();
  OpenBlock tail;
  if (turn.lease.held) NoteHeld(turn, false);
  const std::vector<BlockKey> chain = kv.Settle(std::move(turn.lease), tokens, &tail);
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
  reply.final = final;
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

// A turn that ends before it began does not take those along who wait for its reply: the first of
// them runs in its place.
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

void TurnPipeline::CancelTurn(Turn& turn) {
  turn.cancel = true;
  switch (turn.phase) {
    case TurnPhase::kAdmitted:
    case TurnPhase::kQueued: {
      Session* session = parts_.router.FindEvenDeleting(turn.session);
      if (session != nullptr) parts_.router.RemoveWaiting(*session, turn.id);
      const bool late = turn.deadline_passed;
      HandOver(turn);
      return Fail(turn, late ? Code::kDeadlineExceeded : Code::kCancelled, 0,
                  late ? "the deadline passed before the turn began"
                       : "cancelled before the turn began");
    }
    case TurnPhase::kCompiling:
      turn.host->grammar.Send({turn.id, turn.request.attachment, {}});
      return EndRender(turn, SessionOf(turn));
    case TurnPhase::kWaitingKv:
      return Generate(turn, SessionOf(turn));
    case TurnPhase::kGenerating: {
      EngineOrder order;
      order.spec.id = SequenceId{turn.id};
      turn.host->engine.Send(std::move(order));
      return;
    }
    case TurnPhase::kRestoring:
    case TurnPhase::kRendering:
    case TurnPhase::kCommitting:
      return;  // seen at the next stage, or too late
  }
}

void TurnPipeline::Cancel(AttachmentId attachment, RequestId request, uint64_t now_ns) {
  now_ns_ = now_ns;
  for (auto& [id, turn] : turns_) {
    if (!(turn->request.attachment == attachment) || !(turn->request.id == request)) continue;
    return CancelTurn(*turn);
  }
}

void TurnPipeline::Detach(AttachmentId attachment, uint64_t now_ns) {
  now_ns_ = now_ns;
  detaching_.emplace(attachment.value, true);
  // Cancelling one turn can end others, so ids are collected first.
  std::vector<uint64_t> ids;
  size_t left = 0;
  for (auto& [id, turn] : turns_) {
    if (!(turn->request.attachment == attachment)) continue;
    ++left;
    if (!turn->client_gone) ids.push_back(id);
    turn->client_gone = true;
  }
  attached_.erase(attachment.value);
  if (left == 0) {
    detaching_.erase(attachment.value);
    Reply reply;
    reply.kind = ReplyKind::kDetached;
    reply.attachment = attachment;
    return parts_.replies.Send(std::move(reply));
  }
  for (const uint64_t id : ids) {
    if (Turn* turn = FindTurn(id)) CancelTurn(*turn);
  }
}

void TurnPipeline::ExpireDeadlines(uint64_t now_ns) {
  now_ns_ = now_ns;
  std::vector<uint64_t> late;
  for (auto& [id, turn] : turns_) {
    const bool waiting = turn->phase != TurnPhase::kGenerating &&
                         turn->phase != TurnPhase::kCommitting;
    if (waiting && turn->ask().deadline_ns != 0 && turn->ask().deadline_ns < now_ns) {
      late.push_back(id);
    }
  }
  for (const uint64_t id : late) {
    Turn* turn = FindTurn(id);
    if (turn == nullptr || turn->deadline_passed) continue;
    turn->deadline_passed = true;
    CancelTurn(*turn);
  }
}

void TurnPipeline::CancelSession(Session& session, uint64_t now_ns) {
  now_ns_ = now_ns;
  const std::deque<uint64_t> waiting = session.waiting;
  const uint64_t open = session.open_turn;
  for (const uint64_t id : waiting) {
    if (Turn* turn = FindTurn(id)) CancelTurn(*turn);
  }
  if (Turn* turn = FindTurn(open)) CancelTurn(*turn);
}

void TurnPipeline::CancelAll(uint64_t now_ns) {
  now_ns_ = now_ns;
  std::vector<uint64_t> ids;
  for (const auto& [id, turn] : turns_) ids.push_back(id);
  for (const uint64_t id : ids) {
    if (Turn* turn = FindTurn(id)) CancelTurn(*turn);
  }
}

}  // namespace kairos
