// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/reply_parts.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "sidecar/chat/tool_calls.h"

namespace kairos {
namespace {

using Json = nlohmann::json;

constexpr char kRecordSeparator = '\x1e';

struct KindName {
  ReplyKind kind;
  const char* name;
};
constexpr KindName kKinds[] = {{ReplyKind::kText, "text"},
                               {ReplyKind::kReasoning, "reasoning"},
                               {ReplyKind::kToolCall, "tool_call"}};

bool ReadPart(std::string_view line, ReplyPart* part) {
  const Json json = Json::parse(line.begin(), line.end(), nullptr, false);
  if (!json.is_object()) return false;
  const auto detail = json.find("detail");
  if (detail != json.end() && detail->is_number_integer()) part->detail = detail->get<int32_t>();
  for (const KindName& one : kKinds) {
    const auto text = json.find(one.name);
    if (text == json.end() || !text->is_string()) continue;
    part->kind = one.kind;
    part->text = text->get<std::string>();
    return true;
  }
  return false;
}

}  // namespace

std::vector<ReplyPart> PartsOf(std::vector<ToolEvent>&& events) {
  std::vector<ReplyPart> parts;
  for (ToolEvent& event : events) {
    switch (event.kind) {
      case ToolEvent::Kind::kText:
        parts.push_back({ReplyKind::kText, 0, std::move(event.text), {}});
        break;
      case ToolEvent::Kind::kBrokenCall:
        parts.push_back({ReplyKind::kText, static_cast<int32_t>(event.fault),
                         std::move(event.text), {}});
        break;
      case ToolEvent::Kind::kReasoning:
        parts.push_back({ReplyKind::kReasoning, 0, std::move(event.text), {}});
        break;
      case ToolEvent::Kind::kCall:
        parts.push_back({ReplyKind::kToolCall, 0, ToolCallJson(event.call),
                         std::move(event.call.name)});
        break;
      case ToolEvent::Kind::kMarkup:
      case ToolEvent::Kind::kCallBegin:
      case ToolEvent::Kind::kArguments:
        break;
    }
  }
  return parts;
}

void KeepPart(ReplyPart&& part, std::vector<ReplyPart>* parts) {
  if (part.text.empty()) return;
  const bool joins = !parts->empty() && parts->back().kind == part.kind &&
                     part.kind != ReplyKind::kToolCall && parts->back().detail == 0 &&
                     part.detail == 0;
  if (joins) {
    parts->back().text += part.text;
  } else {
    parts->push_back(std::move(part));
  }
}

std::string WriteParts(std::span<const ReplyPart> parts) {
  if (parts.empty()) return {};
  const ReplyPart& first = parts.front();
  if (parts.size() == 1 && first.kind == ReplyKind::kText && first.detail == 0 &&
      first.text.front() != kRecordSeparator) {
    return first.text;
  }
  std::string written;
  for (const ReplyPart& part : parts) {
    Json json;
    for (const KindName& one : kKinds) {
      if (one.kind == part.kind) json[one.name] = part.text;
    }
    if (part.detail != 0) json["detail"] = part.detail;
    written += kRecordSeparator;
    written += json.dump(-1, ' ', false, Json::error_handler_t::replace);
    written += '\n';
  }
  return written;
}

std::vector<ReplyPart> ReadParts(std::string_view written) {
  std::vector<ReplyPart> parts;
  std::string_view left = written;
  while (!left.empty() && left.front() == kRecordSeparator) {
    const size_t end = left.find('\n');  // JSON on one line has none inside
    ReplyPart part;
    if (end == std::string_view::npos || !ReadPart(left.substr(1, end - 1), &part)) break;
    parts.push_back(std::move(part));
    left.remove_prefix(end + 1);
  }
  if (left.empty()) return parts;
  parts.clear();
  parts.push_back({ReplyKind::kText, 0, std::string(written), {}});
  return parts;
}

}  // namespace kairos
