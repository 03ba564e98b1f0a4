// SPDX-License-Identifier: Apache-2.0
// Prints a sidecar's figures as one JSON object, for tests that look at it from outside.
//
//   control_stats CONTROL_SOCKET
#include <cstdio>
#include <string>

#include "sidecar/control/control_client.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: control_stats CONTROL_SOCKET\n");
    return 2;
  }
  std::string error;
  auto client = kairos::ControlClient::Open(argv[1], &error);
  if (!client.ok()) {
    std::fprintf(stderr, "control_stats: %s\n", error.c_str());
    return 1;
  }
  kairos::ControlRequest request;
  request.verb = kairos::ControlVerb::kStats;
  kairos::ControlReply reply;
  if (const kairos::Status status = (*client)->Call(request, 10'000, &reply);
      !status.ok() || reply.code != 0) {
    std::fprintf(stderr, "control_stats: %s %s\n", status.message(), reply.text.c_str());
    return 1;
  }
  std::printf("{");
  const char* comma = "";
  for (const auto& [name, value] : reply.stats) {
    std::printf("%s\"%s\":%.17g", comma, name.c_str(), value);
    comma = ",";
  }
  std::printf("}\n");
  return 0;
}
