// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/jinja/features.h"

namespace kairos {

namespace {

constexpr const char* kProbeTools =
    R"([{"type":"function","function":{"name":"probe_tool","description":"d","parameters":)"
    R"({"type":"object","properties":{"city":{"type":"string","description":"c"}},)"
    R"("required":["city"]}}}])";
// Nine letters: templates of one family insist on ids of that length.
constexpr const char* kProbeCalls =
    R"([{"id":"probecall","type":"function","function":{"name":"probe_tool",)"
    R"("arguments":{"city":"probe_value"}}}])";

TemplateMessage Plain(std::string role, std::string_view content, TextSource source) {
  TemplateMessage message;
  message.role = std::move(role);
  message.content.Append(content, source);
  message.source = source;
  return message;
}

bool Contains(const MarkedText& text, TextSource source) {
  size_t begin;
  size_t end;
  text.Extent(source, &begin, &end);
  return end != 0;
}

bool ContainsText(const MarkedText& text, TextSource source, std::string_view what) {
  size_t begin = 0;
  for (const MarkedText::Run& run : text.runs()) {
    const std::string_view piece = std::string_view(text.text()).substr(begin, run.end - begin);
    if (run.source == source && piece.find(what) != std::string_view::npos) return true;
    begin = run.end;
  }
  return false;
}

void ProbeTools(const JinjaTemplate& source, TemplateFeatures* features) {
  const TemplateMessage messages[] = {Plain("user", "question", 1)};
  TemplateInput input;
  input.messages = messages;
  input.tools_json = kProbeTools;
  input.add_generation_prompt = true;
  MarkedText out;
  std::string ignored;
  features->tools = source.Render(input, &out, &ignored) && Contains(out, kToolsSource);
}

void ProbeToolCalls(const JinjaTemplate& source, TemplateFeatures* features) {
  TemplateMessage messages[] = {Plain("user", "question", 1), Plain("assistant", "", 2),
                                Plain("tool", "result", 3)};
  messages[1].tool_calls_json = kProbeCalls;
  messages[2].tool_call_id = "probecall";
  messages[2].name = "probe_tool";
  TemplateInput input;
  input.messages = messages;
  if (features->tools) input.tools_json = kProbeTools;
  input.add_generation_prompt = true;
  for (const bool as_text : {false, true}) {
    MarkedText out;
    std::string ignored;
    input.arguments_as_text = as_text;
    if (!source.Render(input, &out, &ignored)) continue;
    if (!ContainsText(out, 2, "probe_value") || !ContainsText(out, 3, "result")) continue;
    features->tool_calls = true;
    features->arguments_as_text = as_text;
    return;
  }
}

MarkedText ToolsBlock(const std::string& tools_json, std::string* error) {
  MarkedText text("You can call these functions. Each line is the JSON schema of one.\n<tools>\n",
                  kTemplateSource);
  if (!AppendToolSchemas(tools_json, &text, error)) return {};
  text.Append(
      "</tools>\nTo call a function, answer with one line per call, nothing else in it:\n"
      "<tool_call>{\"name\": \"function name\", \"arguments\": {\"parameter\": \"value\"}}"
      "</tool_call>\nThe result comes back inside <tool_response></tool_response>.",
      kTemplateSource);
  return text;
}

class Shaper {
 public:
  Shaper(const TemplateFeatures& features, ShapedMessages* out) : features_(features), out_(out) {}

  // Before the first message; the block joins a system message if that is first.
  void SetToolsBlock(MarkedText block) { block_ = std::move(block); }

  bool Add(const ChatMessage& message, size_t index, std::string* error) {
    TemplateMessage shaped = Plain(message.role, message.content, SourceOf(index));
    shaped.name = message.name;
    shaped.tool_call_id = message.tool_call_id;
    shaped.tool_calls_json = message.tool_calls_json;
    if (!features_.tool_calls && !message.tool_calls_json.empty()) {
      if (!AppendToolCallLines(message.tool_calls_json, shaped.source, &shaped.content, error)) {
        *error = "messages[" + std::to_string(index) + "]." + *error;
        return false;
      }
      shaped.tool_calls_json.clear();
    }
    if (!features_.tool_calls && message.role == "tool") WrapResult(&shaped);
    AddSystem(&shaped);
    if (!held_back_) out_->messages.push_back(std::move(shaped));
    held_back_ = false;
    out_->counts.push_back(out_->messages.size());
    return true;
  }

 private:
  static void WrapResult(TemplateMessage* message) {
    MarkedText wrapped("<tool_response>\n", kTemplateSource);
    wrapped.Append(message->content);
    wrapped.Append("\n</tool_response>", kTemplateSource);
    message->role = "user";
    message->content = std::move(wrapped);
  }

  // The tool block and, where the template has no system role, system text travel to the next turn
  // that can carry them.
  void AddSystem(TemplateMessage* message) {
    if (message->role == "system") {
      if (!block_.empty()) {
        if (!message->content.empty()) message->content.Append("\n\n", kTemplateSource);
        message->content.Append(block_);
        block_ = MarkedText();
      }
      if (features_.system) return;
      if (!carried_.empty()) carried_.Append("\n\n", kTemplateSource);
      carried_.Append(message->content);
      held_back_ = true;
      return;
    }
    if (!block_.empty() && features_.system) {
      TemplateMessage system = Plain("system", "", kTemplateSource);
      system.content = std::move(block_);
      out_->messages.push_back(std::move(system));
    } else if (!block_.empty()) {
      carried_.Append(block_);
    }
    block_ = MarkedText();
    if (carried_.empty() || message->role != "user") return;
    carried_.Append("\n\n", kTemplateSource);
    carried_.Append(message->content);
    message->content = std::move(carried_);
    carried_ = MarkedText();
  }

  const TemplateFeatures& features_;
  ShapedMessages* out_;
  MarkedText block_;
  MarkedText carried_;
  bool held_back_ = false;
};

}  // namespace

bool ProbeTemplate(const JinjaTemplate& source, TemplateFeatures* features, std::string* error) {
  const TemplateMessage messages[] = {Plain("system", "rules", 1), Plain("user", "question", 2),
                                      Plain("assistant", "answer", 3), Plain("user", "more", 4)};
  TemplateInput input;
  input.add_generation_prompt = true;
  input.messages = messages;
  MarkedText out;
  features->system = source.Render(input, &out, error) && ContainsText(out, 1, "rules");
  if (!features->system) {
    input.messages = std::span(messages).subspan(1);
    if (!source.Render(input, &out, error)) return false;
  }
  if (!ContainsText(out, 2, "question") || !ContainsText(out, 4, "more")) {
    *error = "chat template prints no user message";
    return false;
  }
  ProbeTools(source, features);
  ProbeToolCalls(source, features);
  return true;
}

bool ShapeMessages(std::span<const ChatMessage> history, std::span<const ChatMessage> added,
                   const std::string& tools_json, const TemplateFeatures& features,
                   ShapedMessages* out, std::string* error) {
  *out = ShapedMessages();
  Shaper shaper(features, out);
  if (!tools_json.empty() && !features.tools) {
    MarkedText block = ToolsBlock(tools_json, error);
    if (block.empty()) return false;
    shaper.SetToolsBlock(std::move(block));
    out->tools_in_text = true;
  }
  for (size_t i = 0; i < history.size() + added.size(); ++i) {
    const ChatMessage& message = i < history.size() ? history[i] : added[i - history.size()];
    if (!shaper.Add(message, i, error)) return false;
  }
  return true;
}

}  // namespace kairos
