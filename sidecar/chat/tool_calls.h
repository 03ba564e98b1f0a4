// SPDX-License-Identifier: Apache-2.0
// Finds tool calls in a generated answer: <tool_call>{"name": ..., "arguments": {...}}</tool_call>
// blocks, or an answer that is one bare JSON object of that form.
// Pure; any thread. A broken call stays text; nothing is lost.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kairos {

struct ToolCall {
  std::string id;         // "call_" and the turn's own number, unique in the session
  std::string name;
  std::string arguments;  // JSON object, compact
};

// `id_prefix` makes ids unique across turns, e.g. "call_12_".
std::vector<ToolCall> ParseToolCalls(std::string_view text, std::string_view id_prefix);
// {"id", "name", "arguments"} as one JSON object.
std::string ToolCallJson(const ToolCall& call);

}  // namespace kairos
