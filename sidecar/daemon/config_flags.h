// SPDX-License-Identifier: Apache-2.0
// The settings as flags of a command: --config, and one for each key (--engine-threads). Owner: the
// command line's. Whoever includes this is built with exceptions, because CLI11 throws.
#pragma once

#include <string>
#include <vector>

#include "sidecar/daemon/config.h"
#include "usage/program.h"

namespace kairos {

class ConfigOptions {
 public:
  // Adds the flags to `app`, which must outlive this and be parsed before Given() is asked.
  explicit ConfigOptions(CLI::App* app);
  ConfigOptions(const ConfigOptions&) = delete;
  ConfigOptions& operator=(const ConfigOptions&) = delete;

  // The file and the keys that were given.
  ConfigFlags Given() const;

 private:
  std::string file_;
  std::vector<std::string> values_;     // in the order of ConfigKeys()
  std::vector<CLI::Option*> options_;
};

}  // namespace kairos
