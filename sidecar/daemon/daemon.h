// SPDX-License-Identifier: Apache-2.0
// Builds every object of the sidecar, owns its threads, ends them in order. Nothing else: no turn,
// no record, no message passes through here.
// Owner: the main thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "sidecar/engine/engine.h"
#include "sidecar/ingress/ring_ingress.h"
#include "sidecar/preflight/model_check.h"
#include "sidecar/session/conductor.h"
#include "sidecar/state/catalog.h"

namespace kairos {

struct DaemonOptions {
  std::vector<ModelToServe> models;  // the default one first
  std::string control_endpoint;  // path of the control socket; empty: none
  std::string metrics_listen;    // "127.0.0.1:9464"; empty: none
  uint64_t drain_timeout_ms = 10'000;
  IngressOptions ingress;
  EngineOptions engine;  // `threads` 0: measured for each model
  CatalogOptions catalog;
  TurnLimits turns;
  RouterLimits router;
  std::vector<NamespaceGrant> grants;
  PhaseLimits phases;
};

// Looks at host, sockets, metrics port, catalog and models as Start() does, and makes nothing. What
// a kairosd with this socket has open is no fault. 0, or the exit status that Start() would end
// with and *error in words for people. Blocks on the disk; any thread.
int JudgeStart(const DaemonOptions& options, std::string* error);

class Daemon {
 public:
  Daemon();
  ~Daemon();

  // Takes the lock, loads the models, opens the catalog and the sockets, starts the threads. On
  // failure returns an exit code with *error in words for people; 0 when it serves. Blocks for
  // seconds.
  int Start(const DaemonOptions& options, std::string* error);
  // Refuses new turns, lets open ones end, cancels them when the time-out is over, then stops every
  // thread. `now` skips the waiting. Blocks.
  void Stop(bool now);
  // Every 50 ms or so while it serves: tells the service manager that no thread hangs.
  void LookAfterThreads();
  // An operator asked for it.
  bool drain_requested() const;

  // An operator asked for the settings to be read again; true until FinishReload().
  bool reload_requested();
  // FinishReload() may be called; false where a thread has not taken the last one yet.
  bool CanFinishReload();
  // Tells the operators that asked how it ended, and, where `changed` is not null, hands what may
  // change at run time to the threads that own it. The rest of *changed is as it was at the start.
  void FinishReload(const DaemonOptions* changed, const Status& status, std::string text);

 private:
  struct Body;
  // On the metrics thread.
  static bool ReadFigures(Body& body, Figures* out);
  int OpenModels(std::vector<CheckedModel> checked, std::string* error);
  int OpenState(const DaemonOptions& options, std::string* error);
  int OpenSockets(const DaemonOptions& options, std::string* error);
  // What the conductor may be given anew.
  static ConductorSettings SettingsOf(const DaemonOptions& options);
  int StartThreads(std::string* error);
  // Those that were started; all have ended when it returns.
  void EndThreads();

  std::unique_ptr<Body> body_;
};

}  // namespace kairos
