// SPDX-License-Identifier: Apache-2.0
// Admit to Render. Generate is in turn_generation.cc, what follows in turn_completion.cc.
#include "sidecar/session/turn_pipeline.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "sidecar/session/stage_hook.h"
#include "sidecar/state/task_context.h"

namespace kairos {
namespace {

bool HasRawTokens(const StateVersion& version) {
  return std::any_of(version.messages.begin(), version.messages.end(),
                     [](const MessageRecord& record) { return record.message.role == "raw"; });
}

}  // namespace

Turn* TurnPipeline::FindTurn(uint64_t id) {
  const auto found = turns_.find(id);
  return found == turns_.end() ? nullptr : found->second.get();
}

Session& TurnPipeline::SessionOf(const Turn& turn) {
  // A session with turns is never erased, only marked.
  Session* session = parts_.router.FindEvenDeleting(turn.session);
  KAIROS_CHECK(session != nullptr);
  return *session;
}

std::string TurnPipeline::OnceKey(const Turn& turn) {
  return std::to_string(turn.request.uid) + '/' + turn.request.name_space + '/' +
         turn.ask().idempotency_key;
}

Reply TurnPipeline::MakeReply(const Turn& turn, ReplyKind kind) const {
  Reply reply;
  reply.kind = kind;
  reply.attachment = turn.request.attachment;
  reply.id = turn.request.id;
  reply.session = turn.session;
  return reply;
}

// ---- Admit -------------------------------------------------------------------------------------

void TurnPipeline::Admit(Request&& request, uint64_t now_ns) {
  now_ns_ = now_ns;
  StageHook("admit");
  auto owned = std::make_unique<Turn>();
  Turn& turn = *owned;
  turn.id = next_turn_++;
  turn.request = std::move(request);
  turn.session = turn.request.session;
  // Ingress may have stamped it after the conductor read the clock for this round.
  turn.started_ns = turn.marked_ns = std::min(turn.request.received_ns, now_ns);
  turn.final.struct_size = sizeof(turn.final);
  turn.final.first_difference = -1;
  turns_.emplace(turn.id, std::move(owned));
  turn.Mark(KAIROS_STAGE_ADMIT, now_ns);

  if (draining_) {
    Fail(turn, Code::kUnavailable, KAIROS_DETAIL_DRAINING, kDrainingWords);
  } else if (turns_.size() > limits_.turns_max) {
    Fail(turn, Code::kResourceExhausted, KAIROS_DETAIL_QUOTA,
         fmt::format("more than {} turns are open", limits_.turns_max));
  } else if (turn.ask().idempotency_key.empty()) {
    Route(turn);
  } else if (const auto [at, first] = once_.emplace(OnceKey(turn), turn.id); !first) {
    turns_.at(at->second)->followers.push_back(turn.id);
  } else {
    LookUpKey(turn);
  }
}

// Whether the turn was done before; the answer leads to Replay or Route.
void TurnPipeline::LookUpKey(const Turn& turn) {
  JournalCommand command;
  command.verb = JournalVerb::kFindReply;
  command.ticket = turn.id;
  command.record.uid = turn.request.uid;
  command.record.name_space = turn.request.name_space;
  command.key = turn.ask().idempotency_key;
  parts_.journal.Send(std::move(command));
}

void TurnPipeline::OnJournal(JournalResult&& result, uint64_t now_ns) {
  now_ns_ = now_ns;
  Turn* turn = FindTurn(result.ticket);
  if (turn == nullptr) return;  // cancelled meanwhile
  switch (result.verb) {
    case JournalVerb::kFindReply:
      if (!result.status.ok()) {
        Fail(*turn, result.status);
      } else if (result.reply) {
        Replay(*turn, *result.reply);
      } else {
        Route(*turn);
      }
      break;
    case JournalVerb::kLoadVersion: {
      Session& session = SessionOf(*turn);
      if (!result.status.ok()) {
        Fail(*turn, result.status);
        break;
      }
      session.head = std::move(result.version);
      turn->Mark(KAIROS_STAGE_RESTORE, now_ns);
      Filter(*turn, session);
      break;
    }
    case JournalVerb::kCommit:
      OnCommitted(*turn, result);
      break;
    default:
      break;
  }
}

// ---- Route -------------------------------------------------------------------------------------

void TurnPipeline::Route(Turn& turn) {
  StageHook("route");
  Session* session = nullptr;
  if (turn.session.value == 0) {
    ModelHost* host = parts_.models.Named(turn.ask().model);
    if (host == nullptr) {
      return Fail(turn, Code::kNotFound, 0, parts_.models.UnknownWords(turn.ask().model));
    }
    Result<Session*> created = parts_.router.Create(turn.request.uid, turn.request.name_space);
    if (!created.ok()) return Fail(turn, created.status());
    session = *created;
    Bind(*session, *host);
    turn.session = session->record.id;
    turn.creates_session = true;
  } else {
    session = parts_.router.Find(turn.session, turn.request.uid, turn.request.name_space);
    if (session == nullptr) return Fail(turn, Code::kNotFound, 0, "no such session");
    if (session->waiting.size() >= limits_.waiting_per_session) {
      return Fail(turn, Code::kResourceExhausted, KAIROS_DETAIL_QUOTA,
                  fmt::format("{} turns of this session are waiting", session->waiting.size()));
    }
  }
  turn.phase = TurnPhase::kQueued;
  if (parts_.router.Open(*session, turn.id)) Start(turn);
}

// The turn is its session's open one from here.
void TurnPipeline::Start(Turn& turn) {
  turn.Mark(KAIROS_STAGE_ROUTE, now_ns_);
  turn.phase = TurnPhase::kRestoring;
  Session& session = SessionOf(turn);
  turn.base = session.record.head;
  const int64_t wanted = turn.request.if_version;
  if (wanted != KAIROS_VERSION_ANY && static_cast<uint64_t>(wanted) != turn.base.value) {
    return Fail(turn, Code::kFailedPrecondition, KAIROS_DETAIL_STALE_VERSION,
                fmt::format("if_version is {} but the head is {}", wanted, turn.base.value));
  }
  if (!ChooseModel(turn, session)) return;
  turn.accepted = true;
  parts_.router.Announce(session);
  Reply accepted = MakeReply(turn, ReplyKind::kAccepted);
  accepted.version = turn.base.value;
  parts_.replies.Send(std::move(accepted));
  Restore(turn, session);
}

// False where the turn is refused. Before its time has come, an earlier turn may still move the
// session.
bool TurnPipeline::ChooseModel(Turn& turn, const Session& session) {
  const std::string& name = turn.ask().model;
  turn.host = name.empty() ? session.host : parts_.models.Named(name);
  turn.moves_model = turn.host != session.host;
  if (turn.host == nullptr && name.empty()) {
    Fail(turn, Code::kFailedPrecondition, KAIROS_DETAIL_OTHER_MODEL,
         parts_.models.AbsentWords(session.record));
  } else if (turn.host == nullptr) {
    Fail(turn, Code::kNotFound, 0, parts_.models.UnknownWords(name));
  } else if (turn.moves_model && (turn.ask().flags & KAIROS_TURN_MOVE_MODEL) == 0) {
    Fail(turn, Code::kFailedPrecondition, KAIROS_DETAIL_OTHER_MODEL,
         parts_.models.OtherWords(session.record, name));
  } else if (turn.moves_model && !turn.ask().tokens.empty()) {
    Fail(turn, Code::kInvalidArgument, 0,
         "KAIROS_TURN_MOVE_MODEL: a turn of raw tokens cannot move its session");
  } else {
    return true;
  }
  return false;
}

// ---- Restore -----------------------------------------------------------------------------------

void TurnPipeline::Restore(Turn& turn, Session& session) {
  StageHook("restore");
  if (session.head || session.record.head.value == 0) {
    if (!session.head) {
      session.head.emplace();
      session.head->context_json = EmptyTaskContext();
    }
    turn.Mark(KAIROS_STAGE_RESTORE, now_ns_);
    return Filter(turn, session);
  }
  JournalCommand command;
  command.verb = JournalVerb::kLoadVersion;
  command.ticket = turn.id;
  command.session = session.record.id;
  command.version = session.record.head;
  parts_.journal.Send(std::move(command));
}

// ---- Filter ------------------------------------------------------------------------------------

void TurnPipeline::Filter(Turn& turn, Session& session) {
  StageHook("filter");
  const StateVersion& head = *session.head;
  if (turn.moves_model && HasRawTokens(head)) {
    return Fail(turn, Code::kFailedPrecondition, KAIROS_DETAIL_OTHER_MODEL,
                "the session has turns of raw tokens, which mean nothing to another model");
  }
  FilterInput input;
  if (!turn.ask().messages.empty()) {
    input.role = turn.ask().messages.back().role;
    input.text = turn.ask().messages.back().content;
  }
  input.first_turn = head.messages.empty();
  input.phase = head.phase;
  const uint64_t now_ms = UnixMs();
  input.idle_ms =
      now_ms > session.record.used_unix_ms ? now_ms - session.record.used_unix_ms : 0;
  turn.verdict = parts_.filter.Classify(input);

  ChooseKept(turn, session);
  turn.context_json = head.context_json;
  if (head.messages.empty()) {
    for (const ChatMessage& message : turn.added) {
      if (message.role != "user") continue;
      turn.context_json = TaskContextFromFirstTurn(head.context_json, message.content);
      break;
    }
  }
  std::string error;
  if (const Status status = TakeToolResults(turn, head, &error); !status.ok()) {
    return Fail(turn, status.code(), status.detail(), error);
  }
  turn.final.plan = turn.verdict.plan;
  turn.final.label = turn.verdict.label;
  const std::string_view rule = turn.verdict.rule;
  rule.copy(turn.final.rule, sizeof(turn.final.rule) - 1);
  turn.Mark(KAIROS_STAGE_FILTER, now_ns_);
  Render(turn, session);
}

// The results that the turn itself brings; stored messages that are rendered again were taken when
// they came.
Status TurnPipeline::TakeToolResults(Turn& turn, const StateVersion& head, std::string* error) {
  const size_t own_begin =
      turn.added.size() - (turn.ask().messages.size() - turn.match.added_begin);
  const uint64_t kept = turn.match.kept_messages + own_begin;
  if (kept < head.messages.size()) {
    turn.context_json = TaskContextAfterCut(turn.context_json, kept);
  }
  ResultSource source = (turn.ask().flags & KAIROS_TURN_WHOLE_HISTORY) != 0
                            ? ResultSource::kResent
                            : ResultSource::kTurn;
  for (size_t i = own_begin; i < turn.added.size(); ++i) {
    ChatMessage& message = turn.added[i];
    if (message.role == "assistant") source = ResultSource::kTold;
    if (message.role != "tool") continue;
    const Status status = TaskContextAfterToolResult(source, turn.match.kept_messages + i, &message,
                                                     &turn.context_json, error);
    if (status.ok()) continue;
    *error = fmt::format("messages[{}].{}", turn.match.added_begin + i - own_begin, *error);
    return status;
  }
  return {};
}

// What of the stored log stays and which messages are appended.
void TurnPipeline::ChooseKept(Turn& turn, Session& session) {
  const StateVersion& head = *session.head;
  const std::vector<ChatMessage>& messages = turn.ask().messages;
  turn.match = {};
  turn.match.kept_messages = static_cast<uint32_t>(head.messages.size());
  turn.match.kept_tokens = static_cast<uint32_t>(head.tokens.size());
  turn.tools_json = turn.ask().has_tools ? turn.ask().tools_json : head.tools_json;
  turn.tools_changed = !head.messages.empty() && turn.tools_json != head.tools_json;

  if (turn.ask().flags & KAIROS_TURN_WHOLE_HISTORY) {
    // The stored answers are in the notation of the model that gave them.
    const ModelHost& author = session.host == nullptr ? *turn.host : *session.host;
    turn.match = MatchHistory(head, messages, author.parts.format);
    turn.final.first_difference = turn.match.first_difference;
  } else if (turn.verdict.wants_reset &&
             (turn.ask().generation_flags & KAIROS_AUTO_CONTEXT) != 0) {
    turn.match = KeepSystemOnly(head);
    turn.reset = true;
  }
  turn.added.assign(messages.begin() + static_cast<ptrdiff_t>(turn.match.added_begin),
                    messages.end());
  if (turn.tools_changed || turn.moves_model) {
    // The schemas stand before the dialogue, and another model has other tokens: everything is
    // rendered again.
    std::vector<ChatMessage> whole;
    for (uint32_t i = 0; i < turn.match.kept_messages; ++i) {
      whole.push_back(head.messages[i].message);
    }
    whole.insert(whole.end(), turn.added.begin(), turn.added.end());
    turn.added = std::move(whole);
    turn.match.kept_messages = turn.match.kept_tokens = 0;
  }
}

// ---- Render ------------------------------------------------------------------------------------

void TurnPipeline::Render(Turn& turn, Session& session) {
  StageHook("render");
  turn.phase = TurnPhase::kRendering;
  if (!turn.ask().tokens.empty()) {
    const std::vector<TokenId>& tokens = turn.ask().tokens;
    const Tokenizer& tokenizer = turn.host->parts.tokenizer;
    for (const TokenId token : tokens) {
      if (token >= 0 && static_cast<uint32_t>(token) < tokenizer.vocabulary_size()) continue;
      return Fail(turn, Code::kInvalidArgument, 0,
                  fmt::format("tokens: id {} is outside 0..{}", token,
                              tokenizer.vocabulary_size() - 1));
    }
    ChatMessage message;
    message.role = "raw";
    message.content = tokenizer.Decode(
        tokens, turn.match.kept_tokens == 0 ? TextPlace::kStart : TextPlace::kPrompt);
    turn.added.push_back(std::move(message));
    if (turn.ask().constraint_kind == KAIROS_CONSTRAINT_NONE) {
      return ComposeRaw(turn, session);
    }
    TextJob job;
    job.ticket = turn.id;
    job.rules = RulesOf(turn);
    return turn.host->text.Send(std::move(job));
  }
  // Rendering a text that cannot fit would keep others' texts waiting, only to be refused.
  uint64_t bytes = 0;
  for (const ChatMessage& message : turn.added) bytes += message.content.size();
  const uint32_t token_bytes = turn.host->parts.text.token_bytes_max();
  const uint32_t context_tokens = turn.host->parts.context_tokens;
  if (bytes > uint64_t{token_bytes} * context_tokens) {
    return Fail(turn, Code::kInvalidArgument, KAIROS_DETAIL_CONTEXT_FULL,
                fmt::format("the messages have {} bytes; the model's context is {} tokens of {} "
                            "bytes at most",
                            bytes, context_tokens, token_bytes));
  }
  TextJob job;
  job.ticket = turn.id;
  job.rules = RulesOf(turn);
  for (uint32_t i = 0; i < turn.match.kept_messages; ++i) {
    const ChatMessage& message = session.head->messages[i].message;
    // Raw-token turns have no place in a template; their tokens stay in the log.
    if (message.role != "raw") job.history.push_back(message);
  }
  job.added = turn.added;
  job.tools_json = turn.tools_json;
  job.add_generation_prompt = (turn.ask().flags & KAIROS_TURN_NO_GENERATE) == 0;
  job.now_unix_s = static_cast<int64_t>(session.record.created_unix_ms / 1000);
  turn.host->text.Send(std::move(job));
}

void TurnPipeline::OnText(TextResult&& result, uint64_t now_ns) {
  now_ns_ = now_ns;
  Turn* turn = FindTurn(result.ticket);
  if (turn == nullptr) return;
  if (!result.status.ok()) {
    return Fail(*turn, result.status.code(), result.status.detail(),
                result.error.empty() ? result.status.message() : result.error);
  }
  turn->constraint = std::move(result.constraint);
  turn->to_compile = std::move(result.to_compile);
  if (!turn->ask().tokens.empty()) return ComposeRaw(*turn, SessionOf(*turn));
  turn->tool_names = std::move(result.tool_names);
  Compose(*turn, SessionOf(*turn), result);
}

void TurnPipeline::ComposeRaw(Turn& turn, Session& session) {
  TextResult raw;
  raw.tokens = turn.ask().tokens;
  raw.message_ends.push_back(static_cast<uint32_t>(raw.tokens.size()));
  Compose(turn, session, raw);
}

ReplyRules TurnPipeline::RulesOf(const Turn& turn) {
  const TurnRequest& ask = turn.ask();
  ReplyRules rules;
  rules.tool_choice = static_cast<ToolChoice>(ask.tool_choice);
  rules.tool_name = ask.tool_name;
  rules.one_call = (ask.flags & KAIROS_TURN_ONE_CALL) != 0;
  rules.kind = static_cast<ConstraintKind>(ask.constraint_kind);
  rules.constraint = ask.constraint;
  // Without an end there is nothing that could be enforced.
  const bool endless = (ask.generation_flags & KAIROS_IGNORE_EOS) != 0;
  if (endless || (ask.flags & KAIROS_TURN_NO_GENERATE)) rules.tool_choice = ToolChoice::kFree;
  return rules;
}

// Joins the kept log and what was rendered.
void TurnPipeline::Compose(Turn& turn, Session& session, TextResult& rendered) {
  const StateVersion& head = *session.head;
  const Tokenizer& tokenizer = turn.host->parts.tokenizer;
  turn.tokens.assign(head.tokens.begin(), head.tokens.begin() + turn.match.kept_tokens);
  std::vector<TokenId>& added = rendered.tokens;
  uint32_t skipped = 0;
  const bool after_assistant = turn.match.kept_messages > 0 &&
      head.messages[turn.match.kept_messages - 1].message.role == "assistant";
  if (after_assistant && !added.empty() && tokenizer.IsControl(added[0])) {
    // A rendered delta begins by closing the answer before it; the model may have done so itself.
    // Only a control token can tell, since message text never becomes one.
    const size_t most = std::min<size_t>({added.size(), turn.tokens.size(), 8});
    for (size_t run = most; run > 0 && skipped == 0; --run) {
      if (std::equal(added.begin(), added.begin() + static_cast<ptrdiff_t>(run),
                     turn.tokens.end() - static_cast<ptrdiff_t>(run))) {
        skipped = static_cast<uint32_t>(run);
      }
    }
  }
  uint32_t offset = turn.match.kept_tokens;
  if (turn.tokens.empty() && tokenizer.adds_bos() &&
      (added.empty() || added[0] != tokenizer.bos())) {
    turn.tokens.push_back(tokenizer.bos());
    ++offset;
  }
  turn.tokens.insert(turn.tokens.end(), added.begin() + skipped, added.end());
  for (const uint32_t end : rendered.message_ends) {
    turn.added_ends.push_back(offset + std::max(end, skipped) - skipped);
  }
  if (turn.to_compile.grammar.empty() || turn.cancel) return EndRender(turn, session);
  turn.phase = TurnPhase::kCompiling;
  turn.host->grammar.Send({turn.id, turn.request.attachment, std::move(turn.to_compile)});
}

void TurnPipeline::OnGrammar(GrammarResult&& result, uint64_t now_ns) {
  now_ns_ = now_ns;
  Turn* turn = FindTurn(result.ticket);
  // It may have been cancelled while the grammar was compiled.
  if (turn == nullptr || turn->phase != TurnPhase::kCompiling) return;
  if (!result.status.ok()) {
    return Fail(*turn, result.status.code(), result.status.detail(),
                result.error.empty() ? result.status.message() : result.error);
  }
  turn->constraint = std::move(result.constraint);
  EndRender(*turn, SessionOf(*turn));
}

void TurnPipeline::EndRender(Turn& turn, Session& session) {
  turn.Mark(KAIROS_STAGE_RENDER, now_ns_);
  Generate(turn, session);
}

}  // namespace kairos
