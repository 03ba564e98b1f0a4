// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/tool_calls.h"

#include <nlohmann/json.hpp>

namespace kairos {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";

// Nesting is bounded before the parser runs, because it recurses.
bool DepthWithin(std::string_view text, int depth_max) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > depth_max) return false;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return true;
}

bool ReadCall(std::string_view text, ToolCall* call) {
  if (!DepthWithin(text, 64)) return false;
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_object()) return false;
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return false;
  }
  auto arguments = json.find("arguments");
  if (arguments == json.end()) arguments = json.find("parameters");
  if (arguments == json.end()) return false;
  if (!arguments->is_object()) return false;
  call->name = name->get<std::string>();
  call->arguments = arguments->dump(-1, ' ', false, Json::error_handler_t::replace);
  return true;
}

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace

std::vector<ToolCall> ParseToolCalls(std::string_view text, std::string_view id_prefix) {
  std::vector<ToolCall> calls;
  const auto add = [&](std::string_view body) {
    ToolCall call;
    if (!ReadCall(Trim(body), &call)) return;
    call.id = std::string(id_prefix) + std::to_string(calls.size());
    calls.push_back(std::move(call));
  };
  size_t at = text.find(kOpen);
  if (at == std::string_view::npos) {
    if (const std::string_view whole = Trim(text); !whole.empty() && whole.front() == '{')
      add(whole);
    return calls;
  }
  while (at != std::string_view::npos && calls.size() < 64) {
    const size_t begin = at + kOpen.size();
    const size_t end = text.find(kClose, begin);
    add(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) break;
    at = text.find(kOpen, end);
  }
  return calls;
}

namespace {

// The answer without its <tool_call> blocks; nothing of a bare JSON answer.
std::string TextAround(std::string_view answer) {
  std::string rest;
  size_t at = 0;
  for (;;) {
    const size_t open = answer.find(kOpen, at);
    rest += answer.substr(at, open == std::string_view::npos ? open : open - at);
    if (open == std::string_view::npos) break;
    const size_t close = answer.find(kClose, open);
    if (close == std::string_view::npos) break;
    at = close + kClose.size();
  }
  return rest;
}

// One entry of a tool_calls array, flat or under "function", arguments as object or as JSON text.
bool SameCall(const ToolCall& call, const Json& entry) {
  if (!entry.is_object()) return false;
  const auto nested = entry.find("function");
  const Json& body = nested != entry.end() && nested->is_object() ? *nested : entry;
  const auto name = body.find("name");
  const auto arguments = body.find("arguments");
  if (name == body.end() || arguments == body.end() || *name != Json(call.name)) return false;
  const Json said = Json::parse(call.arguments, nullptr, false);
  if (!arguments->is_string()) return *arguments == said;
  const auto& text = arguments->get_ref<const std::string&>();
  return DepthWithin(text, 64) && Json::parse(text, nullptr, false) == said;
}

}  // namespace

bool AnswerHasCalls(std::string_view answer, std::string_view content,
                    std::string_view calls_json) {
  if (!DepthWithin(calls_json, 64)) return false;
  const Json resent = Json::parse(calls_json.begin(), calls_json.end(), nullptr, false);
  const std::vector<ToolCall> calls = ParseToolCalls(answer, "");
  if (!resent.is_array() || calls.empty() || resent.size() != calls.size()) return false;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!SameCall(calls[i], resent[i])) return false;
  }
  const std::string_view said = Trim(content);
  const bool bare = answer.find(kOpen) == std::string_view::npos;
  const std::string around = bare ? std::string() : TextAround(answer);
  return said == Trim(answer) || said == Trim(around);
}

std::string ToolCallJson(const ToolCall& call) {
  Json json;
  json["id"] = call.id;
  json["name"] = call.name;
  json["arguments"] = Json::parse(call.arguments, nullptr, false);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kairos
