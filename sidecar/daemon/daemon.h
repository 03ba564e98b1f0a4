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
  std::string model;             // path, or the name of a fetched model
  std::string control_endpoint;  // path of the control socket; empty: none
  uint64_t kv_bytes = 1ull << 30;
  uint64_t drain_timeout_ms = 10'000;
  IngressOptions ingress;
  EngineOptions engine;
  CatalogOptions catalog;
  TurnLimits turns;
  RouterLimits router;
  std::vector<NamespaceGrant> grants;
};

class Daemon {
 public:
  Daemon();
  ~Daemon();

  // Takes the lock, loads the model, opens the catalog and the sockets, starts the threads. On
  // failure returns an exit code with *error in words for people; 0 when ready. Blocks for seconds.
  int Start(const DaemonOptions& options, std::string* error);
  // Refuses new turns, lets open ones end, cancels them when the time-out is over, then stops every
  // thread. `now` skips the waiting. Blocks.
  void Stop(bool now);
  // An operator asked for it.
  bool drain_requested() const;

 private:
  struct Body;
  int OpenModel(const DaemonOptions& options, CheckedModel checked, std::string* error);
  // Reserves KV memory for the opened model and makes the engine over both.
  int OpenEngine(const DaemonOptions& options, std::vector<std::string> token_bytes,
                 std::string* error);
  int OpenState(const DaemonOptions& options, std::string* error);
  int OpenSockets(const DaemonOptions& options, std::string* error);
  void StartThreads();

  std::unique_ptr<Body> body_;
};

}  // namespace kairos
