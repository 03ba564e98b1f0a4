// SPDX-License-Identifier: Apache-2.0
// A scripted conversation: what the user and the tools say; the model answers live.
// Format: examples/README.md.
#pragma once

#include <string>
#include <vector>

namespace kairos {

struct ScriptedMessage {
  std::string role;
  std::string name;
  std::string content;
};

struct Conversation {
  std::string system;
  std::string tools_json;
  std::vector<ScriptedMessage> turns;
};

// `where` is FILE or FILE:N (line N, from 1, of a .jsonl file). False with *error in words.
bool LoadConversation(const std::string& where, Conversation* out, std::string* error);

}  // namespace kairos
