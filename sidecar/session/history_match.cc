// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/history_match.h"

#include <algorithm>
#include <optional>

#include "sidecar/chat/tool_calls.h"

namespace kairos {

namespace {

// An answer is stored as the text that the model wrote; it may come back as the events that clients
// were told: calls as data, and no reasoning.
bool MayBeSameAnswer(const ChatMessage& stored, const ChatMessage& resent) {
  return stored.role == "assistant" && resent.role == "assistant" &&
         stored.tool_calls_json.empty();
}

// A result's id and name are stored also where the client left them out.
bool IsSameResult(const ChatMessage& stored, ChatMessage resent) {
  if (stored.role != "tool") return false;
  if (resent.name.empty()) resent.name = stored.name;
  if (resent.tool_call_id.empty()) resent.tool_call_id = stored.tool_call_id;
  return stored == resent;
}

}  // namespace

HistoryMatch MatchHistory(const StateVersion& stored, std::span<const ChatMessage> resent,
                          const WireFormat& format) {
  std::optional<std::vector<std::string>> tools;  // read only where they are needed
  const auto same = [&](const ChatMessage& kept, const ChatMessage& sent) {
    if (kept == sent || IsSameResult(kept, sent)) return true;
    if (!MayBeSameAnswer(kept, sent)) return false;
    if (!tools) tools = ToolNames(stored.tools_json);
    return AnswerSays(format, kept.content, *tools, sent.content, sent.tool_calls_json);
  };
  HistoryMatch match;
  const size_t comparable = std::min(stored.messages.size(), resent.size());
  size_t equal = 0;
  while (equal < comparable && same(stored.messages[equal].message, resent[equal])) ++equal;
  if (equal < comparable) match.first_difference = static_cast<int64_t>(equal);
  // A resent history that ends inside the stored one asks for another answer to its last message,
  // which is appended again so that the generation prompt follows it.
  if (equal == resent.size() && equal > 0) {
    --equal;
    match.first_difference = static_cast<int64_t>(equal);
  }
  match.kept_messages = static_cast<uint32_t>(equal);
  match.kept_tokens = equal == 0 ? 0 : stored.messages[equal - 1].token_end;
  match.added_begin = equal;
  return match;
}

HistoryMatch KeepSystemOnly(const StateVersion& stored) {
  HistoryMatch match;
  for (const MessageRecord& record : stored.messages) {
    if (record.message.role != "system") break;
    ++match.kept_messages;
    match.kept_tokens = record.token_end;
  }
  return match;
}

}  // namespace kairos
