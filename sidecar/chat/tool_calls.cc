// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/tool_calls.h"

#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json_depth.h"
#include "base/printable_text.h"
#include "sidecar/chat/calls/json_scanner.h"
#include "sidecar/chat/calls/tool_stream.h"

namespace kairos {
namespace {

using Json = nlohmann::json;

struct Answer {
  std::string text;
  std::vector<ToolCall> calls;
};

Answer ReadAnswer(const WireFormat& format, std::string_view answer,
                  std::vector<std::string> tools) {
  ToolStream stream(format, "", std::move(tools));
  std::vector<ToolEvent> events;
  stream.Feed(answer, &events);
  stream.Finish(&events);
  Answer read;
  for (ToolEvent& event : events) {
    if (event.kind == ToolEvent::Kind::kText || event.kind == ToolEvent::Kind::kBrokenCall) {
      read.text += event.text;
    } else if (event.kind == ToolEvent::Kind::kCall) {
      read.calls.push_back(std::move(event.call));
    }
  }
  return read;
}

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

Json ParseJson(std::string_view text) {
  if (!JsonNestsWithin(text, kCallDepthMax)) return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, false);
}

// The function of an entry of a list of tools or calls, flat or under "function".
const Json* FunctionOf(const Json& entry) {
  if (!entry.is_object()) return nullptr;
  const auto nested = entry.find("function");
  return nested != entry.end() && nested->is_object() ? &*nested : &entry;
}

const std::string* NameOf(const Json& tool) {
  const Json* body = FunctionOf(tool);
  if (body == nullptr) return nullptr;
  const auto name = body->find("name");
  return name != body->end() && name->is_string() ? name->get_ptr<const std::string*>() : nullptr;
}

// Arguments are an object, or its JSON as text.
bool SameCall(const ToolCall& call, const Json& entry) {
  const Json* body = FunctionOf(entry);
  if (body == nullptr) return false;
  const auto name = body->find("name");
  const auto arguments = body->find("arguments");
  if (name == body->end() || arguments == body->end() || *name != Json(call.name)) return false;
  const Json said = ParseJson(call.arguments);
  if (!arguments->is_string()) return *arguments == said;
  return ParseJson(arguments->get_ref<const std::string&>()) == said;
}

}  // namespace

std::string ToolCallJson(const ToolCall& call) {
  std::string json = "{\"id\":\"";
  AppendJsonEscaped(call.id, &json);
  json += "\",\"name\":\"";
  AppendJsonEscaped(call.name, &json);
  return json + "\",\"arguments\":" + call.arguments + "}";
}

std::vector<std::string> ToolNames(std::string_view tools_json) {
  std::vector<std::string> names;
  const Json tools = ParseJson(tools_json);
  if (!tools.is_array()) return names;
  for (const Json& tool : tools) {
    if (const std::string* name = NameOf(tool); name != nullptr) names.push_back(*name);
  }
  return names;
}

std::string RepeatedToolName(std::string_view tools_json) {
  const Json tools = ParseJson(tools_json);
  if (!tools.is_array()) return "";
  std::unordered_map<std::string_view, size_t> known;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string* name = NameOf(tools[i]);
    if (name == nullptr) continue;
    const auto [before, is_first] = known.emplace(*name, i);
    if (is_first) continue;
    return fmt::format("tools_json[{}].name: {} is the name of tools_json[{}], too", i,
                       QuotedText(*name), before->second);
  }
  return "";
}

bool AnswerSays(const WireFormat& format, std::string_view answer,
                std::span<const std::string> tools, std::string_view content,
                std::string_view calls_json) {
  const Json resent = calls_json.empty() ? Json::array() : ParseJson(calls_json);
  if (!resent.is_array()) return false;
  const auto says = [&](std::vector<std::string> known) {
    const Answer read = ReadAnswer(format, answer, std::move(known));
    if (read.calls.size() != resent.size() || read.text == answer) return false;
    for (size_t i = 0; i < read.calls.size(); ++i) {
      if (!SameCall(read.calls[i], resent[i])) return false;
    }
    return Trim(content) == Trim(answer) || Trim(content) == Trim(read.text);
  };
  return says({}) || (!tools.empty() && says({tools.begin(), tools.end()}));
}

}  // namespace kairos
