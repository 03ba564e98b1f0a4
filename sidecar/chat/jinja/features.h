// SPDX-License-Identifier: Apache-2.0
// What a template can do, found by rendering small conversations, and messages reshaped for what it
// cannot. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sidecar/chat/chat_renderer.h"
#include "sidecar/chat/jinja/conversation.h"

namespace kairos {

struct TemplateFeatures {
  bool tools = false;              // prints the tool schemas
  bool tool_calls = false;         // prints an assistant's calls, and tool results in its own way
  bool system = true;              // accepts a system message
  bool arguments_as_text = false;  // wants a call's arguments as JSON text
};

// False with *error when the template cannot render even a plain conversation.
bool ProbeTemplate(const JinjaTemplate& source, TemplateFeatures* features, std::string* error);

struct ShapedMessages {
  std::vector<TemplateMessage> messages;
  // For each original message, how many of `messages` exist once it and all before it are shaped.
  std::vector<size_t> counts;
  bool tools_in_text =
      false;  // the schemas are in a system message; the template must not see them
};

// The mark of message i of a conversation.
inline TextSource SourceOf(size_t index) { return static_cast<TextSource>(index + 1); }

// Messages [0, n) with what the template lacks written into their content: the tool list into the
// system message, calls as <tool_call> lines, results as a user's <tool_response>.
// False with *error for JSON that is not what it must be.
bool ShapeMessages(std::span<const ChatMessage> history, std::span<const ChatMessage> added,
                   const std::string& tools_json, const TemplateFeatures& features,
                   ShapedMessages* out, std::string* error);

}  // namespace kairos
