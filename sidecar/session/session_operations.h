// SPDX-License-Identifier: Apache-2.0
// What clients and operators do to sessions besides turns: create, open, fork, rewind, release,
// delete, list, stat, messages, task context.
// Owner: conductor. Never blocks: what needs the catalog answers when the journal has.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sidecar/ingress/reply.h"
#include "sidecar/ingress/request.h"
#include "sidecar/session/model_host.h"
#include "sidecar/session/outbox.h"
#include "sidecar/session/session_router.h"
#include "sidecar/session/turn_pipeline.h"
#include "sidecar/state/journal.h"

namespace kairos {

// An outcome, for whoever asked (a client's ring, or the control socket).
struct OperationResult {
  int32_t code = 0;
  int32_t detail = 0;
  std::string text;                     // error words, or JSON
  bool not_changed = false;             // no text: it is that of Request::known_version
  SessionId session;
  uint64_t version = 0;
  std::vector<kairos_session_t> sessions;
};
using OperationReply = std::function<void(OperationResult&&)>;

// How long a session may stay in a phase; 0: for ever.
struct PhaseLimits {
  uint64_t tool_ms = 0;  // waiting for a tool, then for the user
  uint64_t user_ms = 0;  // waiting for the user, then idle
};

class SessionOperations {
 public:
  struct Parts {
    SessionRouter& router;
    ModelHosts& models;
    TurnPipeline& pipeline;
    Outbox<JournalCommand>& journal;
  };
  explicit SessionOperations(Parts parts) : parts_(parts) {}

  // `operator_view`: uid and namespace are not checked (control socket, already authorised).
  void Run(Request&& request, bool operator_view, uint64_t now_ns, OperationReply reply);
  // A journal result whose ticket is one of ours.
  static bool IsTicket(uint64_t ticket) { return (ticket & kTicketBit) != 0; }
  void OnJournal(JournalResult&& result, uint64_t now_ns);

  // Drops an attachment's holds.
  void Detach(AttachmentId attachment);
  void DeleteExpired(uint64_t now_ns);
  void SetPhaseLimits(const PhaseLimits& limits) { phase_limits_ = limits; }
  // Gives up waiting where it has lasted too long. For a tool, that is a new version whose pending
  // actions say so; a user's absence is no news, and makes the session the first to leave memory.
  void TimeOutPhases(uint64_t now_ns);
  uint64_t tool_timeouts() const { return tool_timeouts_; }
  // Reads of what the client had already, answered without reading or sending it.
  uint64_t reads_not_changed() const { return reads_not_changed_; }
  // The session as clients are told of it.
  kairos_session_t Describe(const Session& session) const;
  // The last turn of a session marked for deletion has ended.
  void DeleteIdle(SessionId session);

 private:
  static constexpr uint64_t kTicketBit = 1ull << 63;

  struct Pending {
    RequestKind kind{};
    SessionId session;
    SessionId child;                    // fork
    uint64_t version = 0;
    std::string json;                   // context write
    uint32_t attachment = 0;
    bool cancelled_fork = false;
    bool tool_timeout = false;          // context write: made here from what the head has
    int32_t phase = 0;                  // context write: of the new version
    std::string waiting_for;
    OperationReply reply;
  };

  // What came while another operation changes the session.
  struct Held {
    Request request;
    OperationReply reply;
  };

  Session* Find(const Request& request, bool operator_view);
  // Rewinds the session or writes its context: at once, or behind the operation that changes it.
  void Change(Request&& request, Session& session, OperationReply reply);
  void EndChange(Session& session, uint64_t ticket);
  void Create(Request& request, OperationReply reply);
  void Fork(Request& request, Session& session, OperationReply reply);
  void Rewind(Request& request, Session& session, OperationReply reply);
  void Delete(Session& session, uint64_t now_ns, OperationReply reply);
  void Release(Request& request, Session& session, OperationReply reply);
  void List(const Request& request, bool operator_view, OperationReply reply);
  void ReadVersion(Request& request, Session& session, OperationReply reply);
  void WriteContext(Request& request, Session& session, OperationReply reply);
  void ChangeContext(Session& session, Pending&& pending);
  void CommitContext(Session& session, Pending&& pending);
  static void ShareKv(const Session& source, Session* child);
  void OnForked(Pending& pending, JournalResult& result);
  void OnRewound(Pending& pending, Session& session, JournalResult& result, uint64_t ticket);
  void OnContextWritten(Pending& pending, Session& session, JournalResult& result);
  uint64_t Remember(Pending&& pending);

  Parts parts_;
  std::unordered_map<uint64_t, Pending> pending_;
  std::unordered_map<SessionId, std::deque<Held>> held_;
  std::unordered_map<SessionId, OperationReply> deletes_;  // waiting for the last turn to end
  uint64_t next_ticket_ = 1;
  PhaseLimits phase_limits_;
  uint64_t tool_timeouts_ = 0;
  uint64_t reads_not_changed_ = 0;
};

// {"role": ..., "content": ...} of each message as a JSON array.
std::string MessagesJson(const StateVersion& version);

}  // namespace kairos
