// SPDX-License-Identifier: Apache-2.0
#include "sidecar/chat/jinja/conversation.h"

#include "sidecar/chat/jinja/interpreter.h"
#include "sidecar/chat/jinja/json_reader.h"
#include "sidecar/chat/jinja/operators.h"
#include "sidecar/chat/jinja/parser.h"
#include "sidecar/chat/jinja/printer.h"

namespace kairos {

namespace {

void SetMember(JinjaHeap& heap, JinjaDict* dict, std::string_view key, const JinjaValue& value) {
  SetEntry(heap, dict, MakeText(heap, key), value);
}

// A JSON array of objects, or false.
bool ReadObjects(JinjaHeap& heap, const std::string& json, TextSource source, const char* what,
                 JinjaValue* value, std::string* error) {
  std::string reason;
  bool good = ReadJson(heap, json, source, value, &reason);
  if (good && !value->Is(JinjaKind::kList)) {
    good = false;
    reason = "not an array";
  }
  for (size_t i = 0; good && i < value->list->items.size(); ++i) {
    if (value->list->items[i].Is(JinjaKind::kDict)) continue;
    good = false;
    reason = "element " + std::to_string(i) + " is not an object";
  }
  if (!good) *error = std::string(what) + ": " + reason;
  return good;
}

// {"name": ...} and {"type": "function", "function": {"name": ...}} are both in use; templates
// expect the second.
JinjaValue AsFunctionEntry(JinjaHeap& heap, const JinjaValue& entry) {
  if (entry.dict->Find("function") != nullptr) return entry;
  JinjaDict* inner = heap.New<JinjaDict>();
  JinjaDict* outer = heap.New<JinjaDict>();
  SetMember(heap, outer, "type", MakeText(heap, "function"));
  SetMember(heap, outer, "function", JinjaValue::Of(inner));
  for (const auto& [key, value] : entry.dict->entries) {
    const std::string& name = TextOf(key).text();
    if (name == "type") continue;
    SetEntry(heap, name == "id" ? outer : inner, key, value);
  }
  return JinjaValue::Of(outer);
}

// The call with its arguments as a mapping or as JSON text, whichever the template reads.
JinjaValue WithArguments(JinjaHeap& heap, const JinjaValue& call, bool as_text, TextSource source) {
  const JinjaValue* function = call.dict->Find("function");
  if (!function->Is(JinjaKind::kDict)) return call;
  const JinjaValue* arguments = function->dict->Find("arguments");
  if (arguments == nullptr) return call;
  JinjaValue changed = *arguments;
  if (as_text && !arguments->Is(JinjaKind::kString)) {
    MarkedText text;
    AppendJson(heap, *arguments, JsonStyle(), &text);
    changed = MakeText(heap, text.text(), source);
  } else if (!as_text && arguments->Is(JinjaKind::kString)) {
    std::string reason;
    if (!ReadJson(heap, TextOf(*arguments).text(), source, &changed, &reason) ||
        !changed.Is(JinjaKind::kDict)) {
      changed = *arguments;
    }
  }
  JinjaDict* inner = heap.New<JinjaDict>();
  for (const auto& [key, value] : function->dict->entries) {
    SetEntry(heap, inner, key, TextOf(key).text() == "arguments" ? changed : value);
  }
  JinjaDict* outer = heap.New<JinjaDict>();
  for (const auto& [key, value] : call.dict->entries) {
    SetEntry(heap, outer, key, TextOf(key).text() == "function" ? JinjaValue::Of(inner) : value);
  }
  return JinjaValue::Of(outer);
}

bool ReadToolCalls(JinjaHeap& heap, const std::string& json, TextSource source, bool as_text,
                   JinjaValue* value, std::string* error) {
  if (!ReadObjects(heap, json, source, "tool_calls", value, error)) return false;
  for (JinjaValue& call : value->list->items) {
    call = WithArguments(heap, AsFunctionEntry(heap, call), as_text, source);
  }
  return true;
}

bool MessageValue(JinjaHeap& heap, const TemplateMessage& message, bool arguments_as_text,
                  JinjaValue* value, std::string* error) {
  JinjaDict* dict = heap.New<JinjaDict>();
  SetMember(heap, dict, "role", MakeText(heap, message.role));
  SetMember(heap, dict, "content", MakeText(heap, MarkedText(message.content)));
  if (!message.name.empty()) {
    SetMember(heap, dict, "name", MakeText(heap, message.name, message.source));
  }
  if (!message.tool_call_id.empty()) {
    SetMember(heap, dict, "tool_call_id", MakeText(heap, message.tool_call_id, message.source));
  }
  if (!message.tool_calls_json.empty()) {
    JinjaValue calls;
    if (!ReadToolCalls(heap, message.tool_calls_json, message.source, arguments_as_text, &calls,
                       error)) {
      return false;
    }
    if (!calls.list->items.empty()) SetMember(heap, dict, "tool_calls", calls);
  }
  *value = JinjaValue::Of(dict);
  return true;
}

}  // namespace

bool JinjaTemplate::Parse(const std::string& source, const std::string& bos, const std::string& eos,
                          std::string* error) {
  bos_ = bos;
  eos_ = eos;
  return ParseJinja(source, &body_, error);
}

bool JinjaTemplate::Render(const TemplateInput& input, MarkedText* out, std::string* error) const {
  JinjaHeap heap{JinjaLimits()};
  JinjaList* messages = MakeList(heap, JinjaListForm::kList, input.messages.size());
  for (size_t i = 0; i < input.messages.size(); ++i) {
    JinjaValue message;
    if (!MessageValue(heap, input.messages[i], input.arguments_as_text, &message, error)) {
      *error = "messages[" + std::to_string(i) + "]." + *error;
      return false;
    }
    messages->items.push_back(message);
  }
  JinjaValue tools = JinjaValue::None();
  if (!input.tools_json.empty()) {
    if (!ReadObjects(heap, input.tools_json, kToolsSource, "tools", &tools, error)) return false;
    for (JinjaValue& tool : tools.list->items) tool = AsFunctionEntry(heap, tool);
    if (tools.list->items.empty()) tools = JinjaValue::None();
  }
  const JinjaVariables variables = {
      {"messages", JinjaValue::Of(messages)},
      {"tools", tools},
      {"documents", JinjaValue::None()},
      {"add_generation_prompt", JinjaValue::Bool(input.add_generation_prompt)},
      {"bos_token", MakeText(heap, bos_)},
      {"eos_token", MakeText(heap, eos_)},
  };
  *out = MarkedText();
  if (JinjaInterpreter(heap, input.now_unix_s).Run(body_, variables, out)) return true;
  *error = "chat template, " + heap.error();
  return false;
}

bool AppendToolSchemas(const std::string& tools_json, MarkedText* out, std::string* error) {
  JinjaHeap heap{JinjaLimits()};
  JinjaValue tools;
  if (!ReadObjects(heap, tools_json, kToolsSource, "tools", &tools, error)) return false;
  for (const JinjaValue& tool : tools.list->items) {
    AppendJson(heap, AsFunctionEntry(heap, tool), JsonStyle(), out);
    out->Append("\n", kTemplateSource);
  }
  if (heap.failed()) *error = "tools: " + heap.error();
  return !heap.failed();
}

bool AppendToolCallLines(const std::string& calls_json, TextSource source, MarkedText* out,
                         std::string* error) {
  JinjaHeap heap{JinjaLimits()};
  JinjaValue calls;
  if (!ReadToolCalls(heap, calls_json, source, false, &calls, error)) return false;
  for (const JinjaValue& call : calls.list->items) {
    const JinjaValue* function = call.dict->Find("function");
    JinjaDict* line = heap.New<JinjaDict>();
    for (const std::string_view member : {"name", "arguments"}) {
      const JinjaValue* value =
          function->Is(JinjaKind::kDict) ? function->dict->Find(member) : nullptr;
      SetMember(heap, line, member, value != nullptr ? *value : JinjaValue::None());
    }
    if (!out->empty()) out->Append("\n", kTemplateSource);
    out->Append("<tool_call>", kTemplateSource);
    AppendJson(heap, JinjaValue::Of(line), JsonStyle(), out);
    out->Append("</tool_call>", kTemplateSource);
  }
  if (heap.failed()) *error = "tool_calls: " + heap.error();
  return !heap.failed();
}

}  // namespace kairos
