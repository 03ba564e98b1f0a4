// SPDX-License-Identifier: Apache-2.0
// The conductor: the one thread that owns sessions, turns and KV placement. It takes requests from
// ingress and control, and answers from the journal, the text thread and the engine, and lets the
// turn pipeline and the session operations act on them.
// Owner: conductor thread runs DoWork(); the queues are the only way in and out.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log_throttle.h"
#include "base/spsc_queue.h"
#include "base/waker.h"
#include "sidecar/control/control_request.h"
#include "sidecar/session/figures_desk.h"
#include "sidecar/session/model_host.h"
#include "sidecar/session/session_operations.h"
#include "sidecar/session/session_router.h"
#include "sidecar/session/turn_pipeline.h"
#include "sidecar/state/journal.h"

namespace kairos {

// What may change while the sidecar serves; the conductor hands the catalog's part on.
struct ConductorSettings {
  TurnLimits turns;
  RouterLimits router;
  std::vector<NamespaceGrant> grants;
  CatalogLimits catalog;
  PhaseLimits phases;
  uint64_t drain_timeout_ms = 0;  // the main thread's; told to who asks for a drain
};

// How a reading of the settings ended.
struct ReloadOutcome {
  std::vector<uint64_t> tickets;              // operators' requests that it answers
  int32_t code = 0;                           // KAIROS_*
  std::string text;                           // as ControlVerb::kReload, or why it was refused
  std::optional<ConductorSettings> settings;  // to hold from now on
};

struct ConductorOptions {
  TurnLimits turns;
  RouterLimits router;
  std::vector<NamespaceGrant> grants;
  PhaseLimits phases;
  uint64_t drain_timeout_ms = 0;
  std::vector<ModelParts> models;  // the default one first
};

class Conductor {
 public:
  struct Parts {
    Journal& journal;
    const ContextFilter& filter;
    SpscQueue<Request>& requests;                // from ingress
    SpscQueue<Reply>& replies;                   // to ingress
    Waker& ingress;
    SpscQueue<ControlRequest>& control_requests; // from control
    SpscQueue<ControlReply>& control_replies;    // to control
    Waker& control;
  };

  Conductor(Parts parts, const ConductorOptions& options, std::vector<SessionRecord> sessions);

  // One round over every queue; false when there was nothing to do.
  bool DoWork(uint64_t now_ns);
  // How long the thread may sleep when nothing wakes it: until the next deadline or expiry look.
  int SleepMs() const { return turns_open_.load(std::memory_order_relaxed) > 0 ? 20 : 500; }
  Waker& waker() { return waker_; }

  // Any thread: refuse new turns from now on.
  void RequestDrain() { drain_.store(true); waker_.Wake(); }
  // Any thread: cancel what is still open (drain time is over).
  void RequestCancelAll() { cancel_all_.store(true); waker_.Wake(); }
  // An operator asked for a drain over the control socket.
  bool drain_requested() const { return drain_requested_.load(); }
  // Then: how long open turns have, in ms. Any thread.
  uint64_t drain_timeout_ms() const { return drain_timeout_ms_.load(); }
  // Main thread only: the ticket of an operator's request to read the settings again.
  std::optional<uint64_t> TakeReloadRequest() { return reloads_asked_.TryPop(); }
  // Main thread only. HasRoom: the next outcome can be handed over.
  bool HasRoomForReload() { return reloads_.HasRoom(); }
  void FinishReload(ReloadOutcome&& outcome);
  // One thread beside those of the sidecar: the figures of `kairosctl stats`. Blocks for at most
  // limit_ms; nothing where the conductor does not answer.
  std::optional<Figures> ReadFigures(uint64_t limit_ms) {
    return figures_desk_.Read(waker_, limit_ms);
  }
  uint32_t turns_open() const { return turns_open_.load(std::memory_order_relaxed); }

 private:
  bool TakeRequests(uint64_t now_ns);
  bool TakeControl(uint64_t now_ns);
  bool TakeAnswers(uint64_t now_ns);
  bool TakeReloads();
  // A line for the operator where the catalog refuses or is damaged: clients only get codes.
  void LogCatalogFault(const JournalResult& result, uint64_t now_ns);
  bool FlushOutboxes();
  void Watch(const Request& request);
  bool TellWatchers();
  void OnRequest(Request&& request, uint64_t now_ns);
  void OnControl(ControlRequest&& request, uint64_t now_ns);
  std::string ModelsJson() const;
  Figures ModelStats() const;
  Figures Stats() const;

  Parts parts_;
  ConductorOptions options_;
  Waker waker_;
  SessionRouter router_;
  ModelHosts models_;
  Outbox<JournalCommand> journal_;
  Outbox<Reply> replies_;
  Outbox<ControlReply> control_replies_;
  TurnPipeline pipeline_;
  SessionOperations operations_;
  SpscQueue<uint64_t> reloads_asked_{64};   // to the main thread
  SpscQueue<ReloadOutcome> reloads_{4};     // from the main thread
  FiguresDesk figures_desk_;
  LogThrottle catalog_faults_;
  uint64_t looked_ns_ = 0;      // last look at deadlines and expiry
  std::atomic<bool> drain_{false};
  std::atomic<bool> cancel_all_{false};
  std::atomic<bool> drain_requested_{false};
  std::atomic<uint64_t> drain_timeout_ms_{0};
  std::atomic<uint32_t> turns_open_{0};
};

}  // namespace kairos
