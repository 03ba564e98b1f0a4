// SPDX-License-Identifier: Apache-2.0
// Messages as a template sees them, and a parsed template that renders them.
// JinjaTemplate is immutable after Parse; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "sidecar/chat/jinja/syntax_tree.h"
#include "sidecar/chat/jinja/value.h"

namespace kairos {

inline constexpr TextSource kToolsSource = UINT32_MAX;

struct TemplateMessage {
  std::string role;
  MarkedText content;
  std::string name;
  std::string tool_call_id;
  std::string tool_calls_json;
  TextSource source = kTemplateSource;  // mark of name, id and tool calls
};

struct TemplateInput {
  std::span<const TemplateMessage> messages;
  std::string tools_json;  // empty: the template sees none
  bool add_generation_prompt = false;
  bool arguments_as_text = false;  // tool-call arguments as a JSON string instead of a mapping
  int64_t now_unix_s = 0;
};

class JinjaTemplate {
 public:
  bool Parse(const std::string& source, const std::string& bos, const std::string& eos,
             std::string* error);
  // False with *error when the input is not JSON where it must be, or the template fails.
  bool Render(const TemplateInput& input, MarkedText* out, std::string* error) const;

 private:
  JinjaBody body_;
  std::string bos_;
  std::string eos_;
};

// Tool schemas one a line, and tool calls as <tool_call> lines, for templates that know neither.
// False with *error when the text is not a JSON array of objects.
bool AppendToolSchemas(const std::string& tools_json, MarkedText* out, std::string* error);
bool AppendToolCallLines(const std::string& calls_json, TextSource source, MarkedText* out,
                         std::string* error);

}  // namespace kairos
