// SPDX-License-Identifier: Apache-2.0
// Any bytes as a settings file; a refusal always says why.
#include <cstdlib>

#include "sidecar/daemon/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kairos::Config config = kairos::DefaultConfig();
  std::string error;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!kairos::ApplyConfigText(&config, text, "fuzz", &error).ok()) {
    if (error.empty()) std::abort();
  }
  return 0;
}
