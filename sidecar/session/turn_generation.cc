// SPDX-License-Identifier: Apache-2.0
// The stage Generate of TurnPipeline: KV for the turn, the order to the engine, and its tokens.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "sidecar/session/stage_hook.h"
#include "sidecar/session/turn_pipeline.h"

namespace kairos {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

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
  std::string end = tokenizer.Decode(tokens.last(std::min(tokens.size(), text.size() + 4)));
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
  if (host.kv.SlotsNeeded(total, fidelity) > host.kv.slots_total()) {
    return Fail(turn, Code::kResourceExhausted, KAIROS_DETAIL_KV_FULL,
                fmt::format("{} tokens need {} KV slots; the KV memory of {} holds {}", total,
                            host.kv.SlotsNeeded(total, fidelity), host.parts.name,
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
  const std::vector<PrefixIndex::Handle>& reused_blocks = turn.lease.pinned.blocks;
  for (size_t i = 0; i < reused_blocks.size() && i < session.chain.size(); ++i) {
    if (!(turn.host->device.index().key(reused_blocks[i]) == session.chain[i])) break;
    ++own;
  }
  out.shared_tokens = (reused_blocks.size() - own) * kBlockTokens;
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
      host.kv.SlotsNeeded(total, static_cast<Fidelity>(session.record.fidelity));
  return held->second.turns + 1 > share_of(limits_.sequences_max) ||
         held->second.slots + needed > share_of(host.kv.slots_total());
}

void TurnPipeline::NoteHeld(const Turn& turn, bool begins) {
  const uint32_t client = turn.request.attachment.value;
  const uint64_t slots = turn.lease.slots_taken();
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

// Sends what can be told by now. Tokens that are markup, or whose text is not certain yet, wait for
// the next record that tells something, at last for the final one.
void TurnPipeline::Tell(Turn& turn, std::vector<ToolEvent>&& events) {
  for (ReplyPart& part : PartsOf(std::move(events))) {
    if (part.text.empty()) continue;
    Reply reply = MakeReply(turn, part.kind);
    reply.detail = part.detail;
    reply.text = part.text;
    reply.tokens = std::exchange(turn.untold, {});
    parts_.replies.Send(std::move(reply));
    KeepPart(std::move(part), &turn.told);
  }
}

void TurnPipeline::OnToken(Turn& turn, EngineEvent& event) {
  StageHook("token");
  if (turn.generated.empty()) turn.final.ttft_ns = event.time_ns - turn.started_ns;
  turn.generated.push_back(event.token);
  turn.untold.push_back(event.token);
  const std::string text = turn.stream->Push(event.token);
  turn.text += text;
  std::vector<ToolEvent> events;
  turn.calls->Feed(text, &events);
  Tell(turn, std::move(events));
  if (turn.ask().sampling.want_logprobs) {
    Reply logprobs = MakeReply(turn, ReplyKind::kLogprobs);
    logprobs.text = LogprobsJson(event);
    parts_.replies.Send(std::move(logprobs));
  }
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
  const std::string bytes = tokenizer.Decode(turn.generated);
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

}  // namespace kairos
