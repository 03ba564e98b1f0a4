// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/message_json.h"

#include <nlohmann/json.hpp>

namespace kairos {

std::string MessageJson(const ChatMessage& message, bool cancelled) {
  nlohmann::ordered_json json;
  json["role"] = message.role;
  json["content"] = message.content;
  if (!message.name.empty()) json["name"] = message.name;
  if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
  if (!message.tool_calls_json.empty()) {
    // Checked when it came in; text that is no JSON stays text.
    auto calls = nlohmann::ordered_json::parse(message.tool_calls_json, nullptr, false);
    json["tool_calls"] = calls.is_discarded() ? nlohmann::ordered_json(message.tool_calls_json)
                                              : std::move(calls);
  }
  if (cancelled) json["cancelled"] = true;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace kairos
