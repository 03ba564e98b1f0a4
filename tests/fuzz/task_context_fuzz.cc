// SPDX-License-Identifier: Apache-2.0
// Any bytes as a task context, as tool calls and as a tool result: what is accepted is stable.
#include <cstdlib>

#include "sidecar/state/task_context.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::string normal;
  std::string again;
  std::string error;
  if (kairos::CheckTaskContext(bytes, &normal, &error).ok()) {
    if (!kairos::CheckTaskContext(normal, &again, &error).ok() || again != normal) std::abort();
  } else {
    normal = kairos::EmptyTaskContext();
  }
  normal = kairos::TaskContextFromFirstTurn(normal, bytes);
  if (!kairos::CheckTaskContext(normal, &again, &error).ok()) std::abort();
  kairos::ChatMessage result;
  result.role = "tool";
  result.content = bytes;
  std::string next = kairos::TaskContextAfterToolCalls(normal, std::string(bytes), 1);
  next = kairos::TaskContextAfterCut(next, size % 3);
  const auto source = static_cast<kairos::ResultSource>(size % 3);
  if (!kairos::TaskContextAfterToolResult(source, 2, &result, &next, &error).ok() &&
      error.empty()) {
    std::abort();
  }
  if (!kairos::CheckTaskContext(next, &again, &error).ok()) std::abort();
  return 0;
}
