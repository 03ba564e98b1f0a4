// SPDX-License-Identifier: Apache-2.0
// A tool call as clients are told it.
#pragma once

#include <string>

namespace kairos {

struct ToolCall {
  std::string id;         // unique in the session
  std::string name;
  std::string arguments;  // JSON object, compact
};

}  // namespace kairos
