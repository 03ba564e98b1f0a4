// SPDX-License-Identifier: Apache-2.0
// A reply as its client was told it: text, reasoning and tool calls in order. What is kept of it
// under an idempotency key, so that whoever asks again is told the same.
// Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidecar/chat/calls/tool_stream.h"
#include "sidecar/ingress/reply.h"

namespace kairos {

struct ReplyPart {
  ReplyKind kind = ReplyKind::kText;  // or kReasoning, kToolCall
  int32_t detail = 0;                 // why text is a call that could not be read
  std::string text;
  std::string tool;                   // kToolCall: its name
};

// What clients are told of these events: not markup, nor calls before they are whole.
std::vector<ReplyPart> PartsOf(std::vector<ToolEvent>&& events);
// Appends; joins it with the last one where both are ordinary text, or both reasoning.
void KeepPart(ReplyPart&& part, std::vector<ReplyPart>* parts);

// Text alone is written as it is; otherwise the parts are a JSON text sequence (RFC 7464): each is
// 0x1E, an object with "text", "reasoning" or "tool_call", and a line feed. Text that begins with
// 0x1E is written as a sequence too.
std::string WriteParts(std::span<const ReplyPart> parts);
// The parts, less the names of tools. What is no such sequence is text.
std::vector<ReplyPart> ReadParts(std::string_view written);

}  // namespace kairos
