// SPDX-License-Identifier: Apache-2.0
#include "bench/conversation.h"

#include <unistd.h>

#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

namespace kairos {
namespace {

using Json = nlohmann::json;

std::string Text(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  return found->is_string() ? found->get<std::string>() : found->dump();
}

bool ReadText(const std::string& where, std::string* text, std::string* error) {
  std::string path = where;
  long line = 0;
  if (access(path.c_str(), R_OK) != 0) {
    const size_t colon = where.rfind(':');
    if (colon != std::string::npos) {
      path = where.substr(0, colon);
      line = std::atol(where.c_str() + colon + 1);
      if (line < 1) {
        *error = where + ": lines count from 1";
        return false;
      }
    }
  } else if (path.ends_with(".jsonl")) {
    line = 1;
  }
  std::ifstream file(path);
  if (!file) {
    *error = "cannot read " + path;
    return false;
  }
  if (line > 0) {
    for (long i = 0; i < line; ++i) {
      if (!std::getline(file, *text)) {
        *error = path + " has no line " + std::to_string(line);
        return false;
      }
    }
    return true;
  }
  std::ostringstream all;
  all << file.rdbuf();
  *text = all.str();
  return true;
}

}  // namespace

bool LoadConversation(const std::string& where, Conversation* out, std::string* error) {
  std::string text;
  if (!ReadText(where, &text, error)) return false;
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) {
    *error = where + " is not a JSON object";
    return false;
  }
  out->system = Text(json, "system");
  if (const auto tools = json.find("tools"); tools != json.end() && !tools->empty()) {
    out->tools_json = tools->dump();
  }
  const bool scripted = json.contains("turns");
  const auto list = json.find(scripted ? "turns" : "messages");
  if (list == json.end() || !list->is_array()) {
    *error = where + " has neither \"turns\" nor \"messages\"";
    return false;
  }
  for (const Json& entry : *list) {
    ScriptedMessage message{Text(entry, "role"), Text(entry, "name"), Text(entry, "content")};
    if (message.role == "system" && out->system.empty()) out->system = message.content;
    if (message.role == "user" || message.role == "tool") out->turns.push_back(std::move(message));
  }
  if (out->turns.empty()) {
    *error = where + " has no user or tool message";
    return false;
  }
  return true;
}

}  // namespace kairos
