// SPDX-License-Identifier: Apache-2.0
// A chat at the terminal through libkairos. One thread; blocks on the terminal and on the sidecar.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kairos {

struct ChatOptions {
  std::string socket;   // empty: the default
  std::string control_socket;  // asked about the model; empty: beside `socket`
  std::string session;  // hex; empty: a new one
  std::string system;
  std::string model;    // empty: the session's, or the default of a new one
  uint32_t max_tokens = 0;
  std::optional<float> temperature;
  bool json = false;  // one JSON object per turn on stdout instead of a stream
};

// Returns the exit code: 0 at the end of input, /quit or ^C at the prompt; 69 when there is no
// sidecar or it went away; where no terminal gives the input, 1 when a turn or command failed or
// was interrupted. ^C during a reply cancels it and keeps the session; twice,
// it does not wait for the sidecar and returns 1.
int RunChat(const ChatOptions& options);

}  // namespace kairos
