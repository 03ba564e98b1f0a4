// SPDX-License-Identifier: Apache-2.0
// The sidecar's figures for Prometheus: GET /metrics on one local address. It asks for the figures
// when it is asked, so nothing is counted twice and no other thread does anything for it meanwhile.
// Owner: whoever made it; its threads are civetweb's, several, so that a peer which says nothing
// holds up nobody else. Fences prometheus-cpp, which throws, and civetweb (metrics_server.cc).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "sidecar/control/control_request.h"

namespace kairos {

class MetricsServer {
 public:
  // Listens at `address`, "127.0.0.1:9464". `read` is called on the server's threads, one call at a
  // time, may block, and returns false where there are no figures now: the scrape is then empty.
  // UNAVAILABLE where the address cannot be had; *error has words.
  static Result<std::unique_ptr<MetricsServer>> Create(const std::string& address,
                                                       std::function<bool(Figures*)> read,
                                                       std::string* error);
  // Ends the scrape that is under way.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

 private:
  struct Body;
  MetricsServer();
  std::unique_ptr<Body> body_;
};

}  // namespace kairos
