// SPDX-License-Identifier: Apache-2.0
// The fake sidecar as a program, for tests of bindings: `fake_sidecar PATH` serves until its
// standard input ends. A line "drop" on it closes every attachment; each line read is answered with
// "ok".
#include <cstdio>
#include <iostream>
#include <string>

#include "tests/unit/capi/fake_sidecar.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fake_sidecar PATH\n");
    return 2;
  }
  kairos::FakeSidecar sidecar(argv[1]);
  std::puts("ready");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "drop") sidecar.DropClients();
    if (line == "pause") sidecar.Pause();
    if (line == "resume") sidecar.Resume();
    std::puts("ok");
    std::fflush(stdout);
  }
  return 0;
}
