// SPDX-License-Identifier: Apache-2.0
// One request of an operator to the control socket, and how its failures are told.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/words.h"
#include "sidecar/control/control_client.h"

namespace kairos {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUnavailable = 69;

// What the command line names: whom to ask, for which session, and how to print.
struct Target {
  std::string control_socket;  // empty: beside the clients' socket
  bool json = false;
  std::string session;         // hex
  uint64_t version = 0;        // 0: the newest
};

// Says why not: in words on stderr and, where the target wants JSON, also as an object on stdout.
// `what` stands before the words.
void Complain(const Target& target, const Fault& fault, const std::string& what = "");

// The control socket that is meant: `given`, else the one beside `client_socket` or, where that is
// empty too, beside the default one. Empty where there is no default.
std::string ControlPath(const std::string& given, const std::string& client_socket = "");

// What to do where this user may not connect to the socket at `path`; empty where that is not so.
std::string AdviceForDenied(const std::string& path);

// The session that the target names, if any. False, after the reason was printed, where that is no
// id.
bool ReadSession(const Target& target, SessionId* session);

// Connects; null with the exit status in *status after the reason was printed.
std::unique_ptr<ControlClient> Connect(const Target& target, int* status);

// Sends `request`. 0 with *reply, or the exit status with *fault. Blocks for `limit_ms` at most.
int Ask(ControlClient& client, const ControlRequest& request, ControlReply* reply, Fault* fault,
        int limit_ms = 5000);

// Sends `request`, to which session and version of the target are added. 0 with *reply, or the exit
// status after the reason was printed. `client` may be null: one is opened.
int Call(const Target& target, ControlRequest request, ControlReply* reply,
         ControlClient* client = nullptr);

// Wall clock, in ms.
uint64_t NowUnixMs();

}  // namespace kairos
