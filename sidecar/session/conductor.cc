// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/conductor.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace kairos {
namespace {

constexpr uint64_t kLookIntervalNs = 20'000'000;
constexpr int kNewsPerRound = 64;

template <typename T>
std::function<bool(T&&)> PushAndWake(SpscQueue<T>& queue, Waker& waker) {
  return [&queue, &waker](T&& value) {
    if (!queue.TryPush(std::move(value))) return false;
    waker.Wake();
    return true;
  };
}

}  // namespace

Conductor::Conductor(Parts parts, const ConductorOptions& options,
                     std::vector<SessionRecord> sessions)
    : parts_(parts),
      router_(options.router, options.grants),
      models_(options.models,
              [this](ModelHost& host) {
                Session* coldest = router_.ColdestTail(&host);
                if (coldest != nullptr) host.kv.ReleaseTail(&coldest->tail);
                return coldest != nullptr;
              }),
      journal_([this](JournalCommand&& c) { return parts_.journal.Submit(std::move(c)); }),
      replies_(PushAndWake(parts.replies, parts.ingress)),
      control_replies_(PushAndWake(parts.control_replies, parts.control)),
      pipeline_({router_, models_, parts.filter, journal_, replies_}, options.turns),
      operations_({router_, models_, pipeline_, journal_}) {
  operations_.SetPhaseLimits(options.phases);
  drain_timeout_ms_.store(options.drain_timeout_ms);
  pipeline_.SetDeleteWhenIdle([this](SessionId id) { operations_.DeleteIdle(id); });
  for (SessionRecord& record : sessions) {
    ModelHost* host = models_.OfFingerprint(record.model);
    router_.Adopt(std::move(record), host);
  }
  parts_.journal.SetResultWaker(&waker_);
  for (ModelHost& host : models_) {
    host.parts.text.SetResultWaker(&waker_);
    host.parts.grammar.SetResultWaker(&waker_);
    host.parts.engine.SetEventWaker(&waker_);
  }
}

bool Conductor::DoWork(uint64_t now_ns) {
  if (drain_.exchange(false)) pipeline_.Drain();
  if (cancel_all_.exchange(false)) pipeline_.CancelAll(now_ns);
  bool worked = FlushOutboxes();
  // Answers before requests: what frees memory and sessions comes first.
  worked |= TakeAnswers(now_ns);
  worked |= TakeRequests(now_ns);
  worked |= TakeControl(now_ns);
  worked |= TakeReloads();
  worked |= TellWatchers();
  if (now_ns - looked_ns_ >= kLookIntervalNs) {
    looked_ns_ = now_ns;
    pipeline_.ExpireDeadlines(now_ns);
    operations_.DeleteExpired(now_ns);
    operations_.TimeOutPhases(now_ns);
    router_.TrimHeads();
  }
  turns_open_.store(static_cast<uint32_t>(pipeline_.turns_open()), std::memory_order_relaxed);
  return worked;
}

bool Conductor::FlushOutboxes() {
  bool sent = journal_.Flush();
  for (ModelHost& host : models_) {
    sent |= host.text.Flush();
    sent |= host.grammar.Flush();
    sent |= host.engine.Flush();
  }
  sent |= replies_.Flush();
  sent |= control_replies_.Flush();
  return sent;
}

bool Conductor::TakeAnswers(uint64_t now_ns) {
  bool worked = false;
  for (ModelHost& host : models_) {
    while (std::optional<EngineEvent> event = host.parts.engine.PollEvent()) {
      pipeline_.OnEngine(std::move(*event), now_ns);
      worked = true;
    }
    while (std::optional<TextResult> result = host.parts.text.Poll()) {
      pipeline_.OnText(std::move(*result), now_ns);
      worked = true;
    }
    while (std::optional<GrammarResult> result = host.parts.grammar.Poll()) {
      // Also where its turn has ended: others may come with it.
      if (result->compiled != nullptr) {
        host.parts.text.Keep({std::move(result->grammar), std::move(result->compiled)});
      }
      pipeline_.OnGrammar(std::move(*result), now_ns);
      worked = true;
    }
  }
  bool journal_drained = false;
  while (std::optional<JournalResult> result = parts_.journal.Poll()) {
    journal_drained = true;
    LogCatalogFault(*result, now_ns);
    if (result->verb == JournalVerb::kSetLimits) {
      // Nobody waits for it.
    } else if (SessionOperations::IsTicket(result->ticket)) {
      operations_.OnJournal(std::move(*result), now_ns);
    } else {
      pipeline_.OnJournal(std::move(*result), now_ns);
    }
    worked = true;
  }
  // The journal may hold a result back for want of room.
  if (journal_drained) parts_.journal.waker().Wake();
  return worked;
}

void Conductor::LogCatalogFault(const JournalResult& result, uint64_t now_ns) {
  const Status& status = result.status;
  const bool worlds_fault =
      !status.ok() && (status.detail() == KAIROS_DETAIL_STORAGE ||
                       status.code() == Code::kDataLoss || result.verb == JournalVerb::kSetLimits);
  // A client can fill the catalog whenever it likes.
  uint64_t left_out = 0;
  if (!worlds_fault || !catalog_faults_.Admit(now_ns, &left_out)) return;
  LogError("state", "catalog_refused verb={} code={} detail={} left_out={} reason={}",
           static_cast<int>(result.verb), static_cast<int>(status.code()), status.detail(),
           left_out, status.message());
}

bool Conductor::TakeRequests(uint64_t now_ns) {
  bool worked = false;
  // Bounded, so that a flood of requests does not hold up tokens.
  for (int i = 0; i < 64; ++i) {
    std::optional<Request> request = parts_.requests.TryPop();
    if (!request) break;
    OnRequest(std::move(*request), now_ns);
    worked = true;
  }
  return worked;
}

void Conductor::OnRequest(Request&& request, uint64_t now_ns) {
  switch (request.kind) {
    case RequestKind::kAttach:
      return pipeline_.Attach(request.attachment);
    case RequestKind::kDetach:
      router_.watch().Unsubscribe(request.attachment);
      operations_.Detach(request.attachment);
      return pipeline_.Detach(request.attachment, now_ns);
    case RequestKind::kTurnSubmit:
      return pipeline_.Admit(std::move(request), now_ns);
    case RequestKind::kTurnCancel:
      return pipeline_.Cancel(request.attachment, request.target, now_ns);
    case RequestKind::kWatch:
      return Watch(request);
    default:
      break;
  }
  const AttachmentId attachment = request.attachment;
  const RequestId id = request.id;
  operations_.Run(std::move(request), false, now_ns,
                  [this, attachment, id](OperationResult&& done) {
                    Reply reply;
                    reply.kind = done.code == 0 ? ReplyKind::kResult : ReplyKind::kError;
                    reply.attachment = attachment;
                    reply.id = id;
                    reply.session = done.session;
                    reply.version = done.version;
                    reply.code = done.code;
                    reply.detail = done.detail;
                    reply.not_changed = done.not_changed;
                    reply.text = std::move(done.text);
                    reply.sessions = std::move(done.sessions);
                    replies_.Send(std::move(reply));
                  });
}

void Conductor::Watch(const Request& request) {
  if ((request.watch_flags & KAIROS_WATCH_SESSIONS) != 0) {
    router_.watch().Subscribe(request.attachment, request.uid, request.name_space);
  } else {
    router_.watch().Unsubscribe(request.attachment);
  }
  Reply reply;
  reply.kind = ReplyKind::kResult;
  reply.attachment = request.attachment;
  reply.id = request.id;
  replies_.Send(std::move(reply));
}

// A few in each round, and none while replies queue up: what clients asked for goes first, and
// changes that come faster than this are told as one.
bool Conductor::TellWatchers() {
  int told = 0;
  for (; told < kNewsPerRound && replies_.empty(); ++told) {
    const std::optional<SessionWatch::News> news = router_.watch().Next();
    if (!news) break;
    Reply reply;
    reply.kind = ReplyKind::kSession;
    reply.attachment = news->to;
    reply.session = news->session;
    if (news->skipped) reply.detail = KAIROS_DETAIL_SKIPPED;
    if (const Session* session = router_.FindEvenDeleting(news->session)) {
      reply.sessions.push_back(operations_.Describe(*session));
    } else if (news->session.value != 0) {
      kairos_session_t gone{};
      gone.struct_size = sizeof(gone);
      gone.id = news->session.value;
      gone.phase = KAIROS_PHASE_CLOSED;
      reply.sessions.push_back(gone);
    }
    replies_.Send(std::move(reply));
  }
  return told > 0;
}

}  // namespace kairos
