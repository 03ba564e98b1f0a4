// SPDX-License-Identifier: Apache-2.0
// A chat message as a JSON object. Pure; any thread.
#pragma once

#include <string>

#include "sidecar/chat/chat_renderer.h"

namespace kairos {

// {"role", "content"} and, where given, "name", "tool_call_id", "tool_calls", "cancelled": true.
// Invalid UTF-8 is replaced, so that the result is always JSON.
std::string MessageJson(const ChatMessage& message, bool cancelled);

}  // namespace kairos
