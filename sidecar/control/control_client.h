// SPDX-License-Identifier: Apache-2.0
// One connection of a tool to a sidecar's control socket; one request at a time.
// Owner: whoever opened it. Not for the sidecar itself.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "sidecar/control/control_messages.h"

namespace kairos {

class ControlClient {
 public:
  // UNAVAILABLE when nobody listens at `path`; *error has words.
  static Result<std::unique_ptr<ControlClient>> Open(const std::string& path, std::string* error);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  // Sends the request and waits for its reply. A refusal by the sidecar is an answer too: it is in
  // reply->code and reply->text. UNAVAILABLE when none came in time. Blocks up to timeout_ms.
  Status Call(const ControlRequest& request, int timeout_ms, ControlReply* reply);

 private:
  ControlClient() = default;

  void* context_ = nullptr;
  void* socket_ = nullptr;
  uint64_t next_request_id_ = 1;
};

}  // namespace kairos
