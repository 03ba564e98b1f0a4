// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/session_operations.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "sidecar/chat/message_json.h"
#include "sidecar/state/task_context.h"

namespace kairos {
namespace {

OperationResult Refusal(Code code, int64_t detail, std::string text) {
  OperationResult result;
  result.code = static_cast<int32_t>(code);
  result.detail = static_cast<int32_t>(detail);
  result.text = std::move(text);
  return result;
}

OperationResult Refusal(const Status& status) {
  return Refusal(status.code(), status.detail(), status.message());
}

OperationResult Done(const Session& session) {
  OperationResult result;
  result.session = session.record.id;
  result.version = session.record.head.value;
  return result;
}

// Slots hold the same bytes for every block, so a session's KV bytes follow from its tokens.
void CopyText(const std::string& text, char* out, size_t capacity) {
  std::memcpy(out, text.data(), std::min(text.size(), capacity));
}

// Nobody waits for it: its tail goes first when memory is needed, and its log leaves memory.
void CoolDown(Session* session) {
  session->idle_since_ns = 0;
  if (session->persisted) session->head.reset();
}

std::string SummaryJson(const StateVersion& version) {
  const nlohmann::ordered_json json = {
      {"version", version.version.value},
      {"parent", version.parent.value},
      {"created_unix_ms", version.created_unix_ms},
      {"token_count", version.tokens.size()},
      {"message_count", version.messages.size()},
      {"phase", version.phase},
      {"waiting_for", version.waiting_for},
  };
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// What a request that reads a version is answered.
std::string ReadText(RequestKind kind, const StateVersion& version) {
  if (kind == RequestKind::kSessionMessages) return MessagesJson(version);
  return kind == RequestKind::kVersionRead ? SummaryJson(version) : version.context_json;
}

}  // namespace

std::string MessagesJson(const StateVersion& version) {
  std::string json = "[";
  for (const MessageRecord& record : version.messages) {
    if (json.size() > 1) json += ',';
    json += MessageJson(record.message, record.cancelled);
  }
  return json + "]";
}

// The child's KV is the source's, until one of them goes on.
void SessionOperations::ShareKv(const Session& source, Session* child) {
  child->kv_host = source.kv_host;
  if (source.kv_host == nullptr) return;
  child->tail = source.kv_host->kv.ShareTail(source.tail);
  child->chain = source.chain;
  for (const BlockKey& key : child->chain) source.kv_host->device.index().AddOwner(key);
}

Session* SessionOperations::Find(const Request& request, bool operator_view) {
  if (operator_view) return parts_.router.FindAny(request.session);
  return parts_.router.Find(request.session, request.uid, request.name_space);
}

uint64_t SessionOperations::Remember(Pending&& pending) {
  const uint64_t ticket = kTicketBit | next_ticket_++;
  pending_.emplace(ticket, std::move(pending));
  return ticket;
}

void SessionOperations::Run(Request&& request, bool operator_view, uint64_t now_ns,
                            OperationReply reply) {
  if (request.kind == RequestKind::kSessionCreate) return Create(request, std::move(reply));
  if (request.kind == RequestKind::kSessionList) {
    return List(request, operator_view, std::move(reply));
  }
  Session* session = Find(request, operator_view);
  if (session == nullptr) {
    return reply(Refusal(Code::kNotFound, 0, "no such session"));
  }
  switch (request.kind) {
    case RequestKind::kSessionOpen:
      if (session->host == nullptr) {
        return reply(Refusal(Code::kFailedPrecondition, KAIROS_DETAIL_OTHER_MODEL,
                             parts_.models.AbsentWords(session->record)));
      }
      session->holders.insert(request.attachment.value);
      [[fallthrough]];
    case RequestKind::kSessionStat: {
      OperationResult result = Done(*session);
      result.sessions.push_back(Describe(*session));
      return reply(std::move(result));
    }
    case RequestKind::kSessionFork:
      return Fork(request, *session, std::move(reply));
    case RequestKind::kSessionRelease:
      return Release(request, *session, std::move(reply));
    case RequestKind::kSessionDelete:
      return Delete(*session, now_ns, std::move(reply));
    case RequestKind::kSessionMessages:
    case RequestKind::kContextRead:
    case RequestKind::kVersionRead:
      return ReadVersion(request, *session, std::move(reply));
    case RequestKind::kSessionRewind:
    case RequestKind::kContextWrite:
      return Change(std::move(request), *session, std::move(reply));
    default:
      return reply(Refusal(Code::kUnimplemented, 0, "unknown request"));
  }
}

void SessionOperations::Create(Request& request, OperationReply reply) {
  ModelHost* host = parts_.models.Named(request.model);
  if (host == nullptr) {
    return reply(Refusal(Code::kNotFound, 0, parts_.models.UnknownWords(request.model)));
  }
  Result<Session*> created = parts_.router.Create(request.uid, request.name_space);
  if (!created.ok()) return reply(Refusal(created.status()));
  Session& session = **created;
  Bind(session, *host);
  session.record.label = std::move(request.label);
  session.record.flags = request.session_flags;
  session.record.fidelity = request.fidelity;
  session.record.priority = request.priority;
  session.record.ttl_seconds = request.ttl_seconds;
  session.record.phase = KAIROS_PHASE_IDLE;
  session.holders.insert(request.attachment.value);
  // Known to the catalog before the id is given out, so no turn can overtake it.
  session.persisted = true;
  session.deleting = true;  // hidden until the catalog has it
  JournalCommand command;
  command.verb = JournalVerb::kCreate;
  command.record = session.record;
  Pending pending;
  pending.kind = RequestKind::kSessionCreate;
  pending.session = session.record.id;
  pending.reply = std::move(reply);
  command.ticket = Remember(std::move(pending));
  parts_.journal.Send(std::move(command));
}

void SessionOperations::Fork(Request& request, Session& session, OperationReply reply) {
  const uint64_t version = request.version == 0 ? session.record.head.value : request.version;
  Result<Session*> created =
      parts_.router.Create(session.record.uid, session.record.name_space);
  if (!created.ok()) return reply(Refusal(created.status()));
  Session& child = **created;
  child.host = session.host;
  SessionRecord& record = child.record;
  record.model = session.record.model;
  record.model_name = session.record.model_name;
  record.label = session.record.label;
  record.flags = session.record.flags;
  record.fidelity = session.record.fidelity;
  record.priority = session.record.priority;
  record.ttl_seconds = session.record.ttl_seconds;
  record.parent = session.record.id;
  child.persisted = true;
  child.deleting = true;  // hidden until the catalog has it
  JournalCommand command;
  command.verb = version == 0 ? JournalVerb::kCreate : JournalVerb::kFork;
  command.session = session.record.id;
  command.version = Version{version};
  if (version != 0) record.head = record.oldest = record.newest = Version{1};
  command.record = record;
  Pending pending;
  pending.kind = RequestKind::kSessionFork;
  pending.session = session.record.id;
  pending.child = record.id;
  pending.version = version;
  pending.attachment = request.attachment.value;
  pending.reply = std::move(reply);
  command.ticket = Remember(std::move(pending));
  parts_.journal.Send(std::move(command));
}

void SessionOperations::OnForked(Pending& pending, JournalResult& result) {
  Session* child = parts_.router.FindEvenDeleting(pending.child);
  KAIROS_CHECK(child != nullptr);
  if (!result.status.ok()) {
    parts_.router.Erase(pending.child);
    return pending.reply(Refusal(result.status));
  }
  child->deleting = false;
  child->holders.insert(pending.attachment);
  child->record.token_count = result.summary.token_count;
  child->record.message_count = result.summary.message_count;
  child->record.phase = result.summary.phase;
  child->record.waiting_for = std::move(result.summary.waiting_for);
  Session* source = parts_.router.FindAny(pending.session);
  if (source != nullptr) {
    const bool same = source->record.head.value == pending.version;
    child->computed_here = source->computed_here;
    child->computed_tokens = source->computed_tokens;
    child->truncated = !same || source->truncated;
    ShareKv(*source, child);
    if (same && source->head) {
      child->head = source->head;
      child->head->version = child->record.head;
      child->head->parent = Version{0};
    }
  }
  parts_.router.Announce(*child);
  OperationResult done = Done(*child);
  pending.reply(std::move(done));
}

void SessionOperations::Rewind(Request& request, Session& session, OperationReply reply) {
  if (session.open_turn != 0) {
    return reply(Refusal(Code::kFailedPrecondition, 0, "a turn of the session is open"));
  }
  if (request.version == 0 || request.version < session.record.oldest.value ||
      request.version > session.record.newest.value) {
    return reply(Refusal(Code::kNotFound, 0,
                         "version " + std::to_string(request.version) + " is not one of " +
                             std::to_string(session.record.oldest.value) + ".." +
                             std::to_string(session.record.newest.value)));
  }
  // Read first: a version that cannot be read must not become the head.
  JournalCommand command;
  command.verb = JournalVerb::kLoadVersion;
  command.session = session.record.id;
  command.version = Version{request.version};
  Pending pending;
  pending.kind = RequestKind::kSessionRewind;
  pending.session = session.record.id;
  pending.version = request.version;
  pending.reply = std::move(reply);
  command.ticket = Remember(std::move(pending));
  // Turns that arrive meanwhile wait behind the rewind.
  session.open_turn = command.ticket;
  parts_.journal.Send(std::move(command));
}

void SessionOperations::OnRewound(Pending& pending, Session& session, JournalResult& result,
                                  uint64_t ticket) {
  if (result.status.ok() && result.verb == JournalVerb::kLoadVersion) {
    session.head = std::move(result.version);
    JournalCommand command;
    command.verb = JournalVerb::kSetHead;
    command.session = session.record.id;
    command.version = Version{pending.version};
    command.ticket = ticket;
    pending_.emplace(ticket, std::move(pending));
    return parts_.journal.Send(std::move(command));
  }
  if (result.status.ok()) {
    SessionRecord& record = session.record;
    record.head = Version{pending.version};
    record.token_count = session.head->tokens.size();
    record.message_count = session.head->messages.size();
    record.phase = session.head->phase;
    record.waiting_for = session.head->waiting_for;
    session.in_phase.Restart();
    session.truncated = true;
    pending.reply(Done(session));
  } else {
    session.head.reset();
    pending.reply(Refusal(result.status));
  }
  EndChange(session, ticket);
}

void SessionOperations::Change(Request&& request, Session& session, OperationReply reply) {
  if (IsTicket(session.open_turn)) {
    held_[session.record.id].push_back({std::move(request), std::move(reply)});
  } else if (request.kind == RequestKind::kSessionRewind) {
    Rewind(request, session, std::move(reply));
  } else {
    WriteContext(request, session, std::move(reply));
  }
}

// Changes that were asked for meanwhile come before the turns that wait: whoever sent both waited
// for the change.
void SessionOperations::EndChange(Session& session, uint64_t ticket) {
  const auto found = held_.find(session.record.id);
  while (found != held_.end() && !found->second.empty()) {
    Held next = std::move(found->second.front());
    found->second.pop_front();
    if (session.deleting) {
      next.reply(Refusal(Code::kNotFound, 0, "no such session"));
      continue;
    }
    session.open_turn = 0;
    Change(std::move(next.request), session, std::move(next.reply));
    if (session.open_turn != 0) return;  // its end brings the next one
    session.open_turn = ticket;
  }
  if (found != held_.end()) held_.erase(found);
  parts_.pipeline.EndOperation(session, ticket);
}

void SessionOperations::Release(Request& request, Session& session, OperationReply reply) {
  session.holders.erase(request.attachment.value);
  if (session.holders.empty() && session.open_turn == 0) CoolDown(&session);
  reply(Done(session));
}

void SessionOperations::Delete(Session& session, uint64_t now_ns, OperationReply reply) {
  const SessionId id = session.record.id;
  session.deleting = true;
  deletes_.emplace(id, std::move(reply));
  if (session.open_turn == 0) return DeleteIdle(id);
  parts_.pipeline.CancelSession(session, now_ns);
}

void SessionOperations::DeleteIdle(SessionId id) {
  Session* session = parts_.router.FindEvenDeleting(id);
  KAIROS_CHECK(session != nullptr);
  parts_.pipeline.DropKv(*session, true);
  parts_.pipeline.history().Forget(id);
  Pending pending;
  pending.kind = RequestKind::kSessionDelete;
  pending.session = id;
  if (const auto found = deletes_.find(id); found != deletes_.end()) {
    pending.reply = std::move(found->second);
    deletes_.erase(found);
  } else {
    pending.reply = [](OperationResult&&) {};
  }
  JournalCommand command;
  command.verb = JournalVerb::kDelete;
  command.session = id;
  command.ticket = Remember(std::move(pending));
  parts_.journal.Send(std::move(command));
}

void SessionOperations::DeleteExpired(uint64_t now_ns) {
  for (const SessionId id : parts_.router.Expired(now_ns)) {
    Delete(*parts_.router.FindAny(id), now_ns, [](OperationResult&&) {});
  }
}

void SessionOperations::TimeOutPhases(uint64_t now_ns) {
  parts_.router.ForEach([&](Session& session) {
    if (session.open_turn != 0 || session.deleting) return;
    const auto over = [&](int32_t phase, uint64_t limit_ms) {
      return session.record.phase == phase && limit_ms != 0 &&
             session.in_phase.Ms(now_ns) >= limit_ms;
    };
    if (over(KAIROS_PHASE_WAITING_TOOL, phase_limits_.tool_ms)) {
      // Should the catalog refuse, the next try comes after the same time.
      session.in_phase.Restart();
      Pending pending;
      pending.tool_timeout = true;
      pending.reply = [](OperationResult&&) {};
      ChangeContext(session, std::move(pending));
    } else if (over(KAIROS_PHASE_WAITING_USER, phase_limits_.user_ms)) {
      session.record.phase = KAIROS_PHASE_IDLE;
      parts_.router.Announce(session);
      CoolDown(&session);
    }
  });
}

void SessionOperations::Detach(AttachmentId attachment) {
  parts_.router.ForEach([&](Session& session) { session.holders.erase(attachment.value); });
}

void SessionOperations::List(const Request& request, bool operator_view, OperationReply reply) {
  OperationResult result;
  const int64_t uid = operator_view ? -1 : static_cast<int64_t>(request.uid);
  const auto ids =
      parts_.router.List(uid, request.name_space, request.after, request.list_max);
  for (const SessionId id : ids) result.sessions.push_back(Describe(*parts_.router.FindAny(id)));
  reply(std::move(result));
}

void SessionOperations::ReadVersion(Request& request, Session& session, OperationReply reply) {
  const uint64_t version = request.version == 0 ? session.record.head.value : request.version;
  // Only of the head, which surely is there: versions between it and the newest may be gone.
  if (version != 0 && version == request.known_version && version == session.record.head.value) {
    OperationResult result = Done(session);
    result.not_changed = true;
    ++reads_not_changed_;
    return reply(std::move(result));
  }
  if (version == 0 || (session.head && session.head->version.value == version)) {
    OperationResult result = Done(session);
    result.version = version;
    StateVersion before_first;
    before_first.context_json = EmptyTaskContext();
    result.text = ReadText(request.kind, version == 0 ? before_first : *session.head);
    return reply(std::move(result));
  }
  JournalCommand command;
  command.verb = JournalVerb::kLoadVersion;
  command.session = session.record.id;
  command.version = Version{version};
  Pending pending;
  pending.kind = request.kind;
  pending.session = session.record.id;
  pending.version = version;
  pending.reply = std::move(reply);
  command.ticket = Remember(std::move(pending));
  parts_.journal.Send(std::move(command));
}

void SessionOperations::WriteContext(Request& request, Session& session, OperationReply reply) {
  if (session.open_turn != 0) {
    return reply(Refusal(Code::kFailedPrecondition, 0, "a turn of the session is open"));
  }
  if (request.if_version >= 0 &&
      static_cast<uint64_t>(request.if_version) != session.record.head.value) {
    return reply(Refusal(Code::kFailedPrecondition, KAIROS_DETAIL_STALE_VERSION,
                         "if_version is " + std::to_string(request.if_version) +
                             " but the head is " + std::to_string(session.record.head.value)));
  }
  Pending pending;
  std::string error;
  if (const Status status = CheckTaskContext(request.json, &pending.json, &error); !status.ok()) {
    return reply(Refusal(status.code(), status.detail(), error));
  }
  pending.reply = std::move(reply);
  ChangeContext(session, std::move(pending));
}

void SessionOperations::ChangeContext(Session& session, Pending&& pending) {
  pending.kind = RequestKind::kContextWrite;
  pending.session = session.record.id;
  if (session.head || session.record.head.value == 0) {
    if (!session.head) session.head.emplace();
    return CommitContext(session, std::move(pending));
  }
  JournalCommand command;
  command.verb = JournalVerb::kLoadVersion;
  command.session = session.record.id;
  command.version = session.record.head;
  command.ticket = Remember(std::move(pending));
  session.open_turn = command.ticket;
  parts_.journal.Send(std::move(command));
}

void SessionOperations::CommitContext(Session& session, Pending&& pending) {
  const StateVersion& head = *session.head;
  pending.phase = head.phase;
  pending.waiting_for = head.waiting_for;
  if (pending.tool_timeout) {
    pending.json = TaskContextAfterToolTimeout(head.context_json, phase_limits_.tool_ms);
    pending.phase = KAIROS_PHASE_WAITING_USER;
    pending.waiting_for.clear();
  }
  JournalCommand command;
  command.verb = JournalVerb::kCommit;
  command.create = !session.persisted;
  VersionDelta& delta = command.delta;
  delta.version = Version{session.record.newest.value + 1};
  delta.parent = session.record.head;
  delta.kept_tokens = static_cast<uint32_t>(head.tokens.size());
  delta.kept_messages = static_cast<uint32_t>(head.messages.size());
  delta.tools_json = head.tools_json;
  delta.context_json = pending.json;
  delta.phase = pending.phase;
  delta.waiting_for = pending.waiting_for;
  delta.created_unix_ms = UnixMs();
  delta.token_count = head.tokens.size();
  delta.message_count = head.messages.size();
  command.record = session.record;
  command.record.head = command.record.newest = delta.version;
  pending.version = delta.version.value;
  command.ticket = Remember(std::move(pending));
  session.open_turn = command.ticket;
  parts_.journal.Send(std::move(command));
}

void SessionOperations::OnContextWritten(Pending& pending, Session& session,
                                         JournalResult& result) {
  const uint64_t ticket = result.ticket;
  if (result.status.ok() && result.verb == JournalVerb::kLoadVersion) {
    session.head = std::move(result.version);
    return CommitContext(session, std::move(pending));
  }
  if (result.status.ok()) {
    StateVersion& head = *session.head;
    head.parent = head.version;
    head.version = session.record.head = session.record.newest = Version{pending.version};
    session.record.oldest = result.oldest;
    head.context_json = std::move(pending.json);
    // A write alone does not end the waiting, or begin it anew.
    if (session.record.phase != pending.phase) session.in_phase.Restart();
    head.phase = session.record.phase = pending.phase;
    head.waiting_for = session.record.waiting_for = std::move(pending.waiting_for);
    if (pending.tool_timeout) ++tool_timeouts_;
    pending.reply(Done(session));
  } else {
    pending.reply(Refusal(result.status));
  }
  EndChange(session, ticket);
}

void SessionOperations::OnJournal(JournalResult&& result, uint64_t now_ns) {
  const auto found = pending_.find(result.ticket);
  KAIROS_CHECK(found != pending_.end());
  Pending pending = std::move(found->second);
  pending_.erase(found);
  Session* session = parts_.router.FindEvenDeleting(pending.session);
  switch (pending.kind) {
    case RequestKind::kSessionCreate:
      if (!result.status.ok()) {
        parts_.router.Erase(pending.session);
        return pending.reply(Refusal(result.status));
      }
      session->deleting = false;
      parts_.router.Announce(*session);
      return pending.reply(Done(*session));
    case RequestKind::kSessionFork:
      return OnForked(pending, result);
    case RequestKind::kSessionRewind:
      return OnRewound(pending, *session, result, result.ticket);
    case RequestKind::kContextWrite:
      return OnContextWritten(pending, *session, result);
    case RequestKind::kSessionDelete:
      if (!result.status.ok()) {
        // Still in the catalog: it must not look deleted and come back after a restart.
        if (session != nullptr) {
          session->deleting = false;
          parts_.router.Announce(*session);
        }
        return pending.reply(Refusal(result.status));
      }
      parts_.router.Erase(pending.session);
      return pending.reply(OperationResult{});
    default:
      break;
  }
  if (!result.status.ok()) return pending.reply(Refusal(result.status));
  OperationResult done;
  done.session = pending.session;
  done.version = pending.version;
  done.text = ReadText(pending.kind, *result.version);
  pending.reply(std::move(done));
}

kairos_session_t SessionOperations::Describe(const Session& session) const {
  const SessionRecord& record = session.record;
  kairos_session_t out{};
  out.struct_size = sizeof(out);
  out.phase = session.phase();
  out.id = record.id.value;
  out.version = record.head.value;
  out.oldest_version = record.oldest.value;
  out.token_count = record.token_count;
  uint64_t blocks = 0;
  uint64_t slots = session.tail.slots.size();
  for (const BlockKey& key : session.chain) {
    const uint32_t held = session.kv_host->device.index().SlotsOf(key);
    if (held == 0) break;
    ++blocks;
    slots += held;
  }
  out.resident_tokens = blocks * kBlockTokens;
  if (blocks == session.chain.size()) out.resident_tokens += session.tail.tokens.size();
  out.resident_tokens = std::min<uint64_t>(out.resident_tokens, record.token_count);
  if (session.kv_host != nullptr) out.kv_bytes = slots * session.kv_host->device.slot_bytes();
  out.message_count = record.message_count;
  out.created_unix_ms = record.created_unix_ms;
  out.used_unix_ms = record.used_unix_ms;
  out.parent_id = record.parent.value;
  out.fidelity = record.fidelity;
  out.flags = record.flags;
  out.label_size = static_cast<uint32_t>(std::min(record.label.size(), sizeof(out.label)));
  CopyText(record.label, out.label, sizeof(out.label));
  if (out.phase == KAIROS_PHASE_WAITING_TOOL) {
    CopyText(record.waiting_for, out.waiting_for, sizeof(out.waiting_for) - 1);
  }
  if (session.host != nullptr) {
    CopyText(session.host->parts.name, out.model, sizeof(out.model) - 1);
  }
  return out;
}

}  // namespace kairos
