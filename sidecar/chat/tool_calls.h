// SPDX-License-Identifier: Apache-2.0
// Tool calls as clients see them: lists of tools, events, and messages that come back.
// Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidecar/chat/calls/tool_call.h"
#include "sidecar/chat/wire_format.h"

namespace kairos {

// {"id", "name", "arguments"} as one JSON object.
std::string ToolCallJson(const ToolCall& call);

// The names in a JSON array of function schemas, flat or under "function". Empty for anything else.
std::vector<std::string> ToolNames(std::string_view tools_json);
// Empty, or which two entries of such an array have one name: `tools_json[1].name: "x" is ...`.
std::string RepeatedToolName(std::string_view tools_json);

// Whether a resent assistant message (its content, and its tool calls as a JSON array or nothing)
// says the same as this generated answer, where the two are not the same text: equal calls in
// order, ids apart, and as content the answer's text without calls and reasoning, or all of it.
// Clients keep the events that they were told, not the markup that the model wrote. `tools` are
// those the session has now; the answer may have been made with others.
bool AnswerSays(const WireFormat& format, std::string_view answer,
                std::span<const std::string> tools, std::string_view content,
                std::string_view calls_json);

}  // namespace kairos
