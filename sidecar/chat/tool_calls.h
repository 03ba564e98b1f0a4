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
// Whether a resent assistant message (its content, and its tool calls as a JSON array) says the
// same as this generated answer: equal calls in order, ids apart, and the text around them, or all
// of it, as content. Clients keep the calls that they were told, not the markup the model wrote.
bool AnswerHasCalls(std::string_view answer, std::string_view content, std::string_view calls_json);
// {"id", "name", "arguments"} as one JSON object.
std::string ToolCallJson(const ToolCall& call);

}  // namespace kairos
