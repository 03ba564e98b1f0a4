// SPDX-License-Identifier: Apache-2.0
#include "sidecar/grammar/reply_grammar.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <vector>

#include "base/hash.h"
#include "base/json_depth.h"
#include "base/printable_text.h"
#include "sidecar/chat/tool_calls.h"
#include "sidecar/grammar/endless.h"
#include "base/repeated_key.h"
#include "sidecar/grammar/schema_limits.h"

namespace kairos {
namespace {

using Json = SchemaJson;

constexpr uint32_t kDepthMax = 64;

struct Tool {
  std::string name;
  Json schema;  // of its arguments
};

Status Bad(std::string* error, std::string words) {
  *error = std::move(words);
  return Status(Code::kInvalidArgument, "the rules of the reply cannot be used");
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A string as grammar text: the dialect quotes like JSON.
std::string Quote(std::string_view text) { return Dump(Json(std::string(text))); }

// Spacing as models are taught it. It is also what makes long runs of white space impossible.
void FixSpacing(Json* schema) {
  (*schema)["x-guidance"] = {
      {"whitespace_flexible", false}, {"item_separator", ", "}, {"key_separator", ": "}};
}

std::string ToolLabel(std::string_view name) {
  return fmt::format("tools_json: parameters of tool \"{}\"", name);
}

Status ReadSchema(std::string_view what, Json* schema, std::string* error) {
  if (!schema->is_object()) return Bad(error, fmt::format("{}: must be a JSON object", what));
  if (schema->contains("x-guidance")) {
    return Bad(error, fmt::format("{}: \"x-guidance\" is not supported", what));
  }
  std::string fault = ReadInItsDraft(schema);
  if (fault.empty()) fault = SchemaFault(*schema);
  if (!fault.empty()) return Bad(error, fmt::format("{}: {}", what, fault));
  return Status();
}

// Whether the schema lists every property that an object may need, and says nothing of others.
bool DeclaresAll(const Json& schema) {
  const auto properties = schema.find("properties");
  if (properties == schema.end() || !properties->is_object()) return false;
  for (const char* key : {"additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf",
                          "$ref", "minProperties"}) {
    if (schema.contains(key)) return false;
  }
  const auto required = schema.find("required");
  if (required == schema.end() || !required->is_array()) return true;
  return std::all_of(required->begin(), required->end(), [&](const Json& name) {
    return name.is_string() && properties->contains(name.get_ref<const std::string&>());
  });
}

Status ReadTool(size_t index, const Json& entry, Tool* tool, std::string* error) {
  const auto nested = entry.is_object() ? entry.find("function") : entry.end();
  const Json& body = entry.is_object() && nested != entry.end() ? *nested : entry;
  const auto name = body.is_object() ? body.find("name") : body.end();
  if (!body.is_object() || name == body.end() || !name->is_string() ||
      name->get_ref<const std::string&>().empty()) {
    return Bad(error, fmt::format("tools_json: tool {} has no name", index));
  }
  tool->name = name->get<std::string>();
  const auto parameters = body.find("parameters");
  if (parameters == body.end() || parameters->is_null()) {
    tool->schema = {{"type", "object"}, {"additionalProperties", false}};
  } else {
    tool->schema = *parameters;
  }
  const std::string what = ToolLabel(tool->name);
  KAIROS_RETURN_IF_ERROR(ReadSchema(what, &tool->schema, error));
  const auto type = tool->schema.find("type");
  if (type == tool->schema.end()) {
    tool->schema["type"] = "object";
  } else if (*type != "object") {
    return Bad(error, what + ": \"type\" must be \"object\"");
  }
  // A call has the arguments that its tool declares, and no others.
  if (DeclaresAll(tool->schema)) tool->schema["additionalProperties"] = false;
  if (const std::string fault = EndlessFault(tool->schema); !fault.empty()) {
    return Bad(error, fmt::format("{}: {}", what, fault));
  }
  BoundNumbers(&tool->schema);
  FixSpacing(&tool->schema);
  return Status();
}

Status ReadTools(std::string_view tools_json, std::vector<Tool>* tools, std::string* error) {
  if (tools_json.empty()) return Status();
  if (!JsonNestsWithin(tools_json, kDepthMax)) {
    return Bad(error, fmt::format("tools_json: nested deeper than {}", kDepthMax));
  }
  const Json list = Json::parse(tools_json.begin(), tools_json.end(), nullptr, false);
  if (!list.is_array()) return Bad(error, "tools_json: must be a JSON array");
  if (list.size() > kConstrainedToolsMax) {
    return Bad(error, fmt::format("tools_json: {} tools; at most {} can be enforced", list.size(),
                                  kConstrainedToolsMax));
  }
  std::string fault = RepeatedKeyFault(tools_json, "tools_json");
  if (!fault.empty()) return Bad(error, std::move(fault));
  for (size_t i = 0; i < list.size(); ++i) {
    Tool tool;
    KAIROS_RETURN_IF_ERROR(ReadTool(i, list[i], &tool, error));
    tools->push_back(std::move(tool));
  }
  return Status();
}

// Between slashes: a slash would end it, and a line cannot end inside.
std::string RegexLiteral(std::string_view regex) {
  std::string out = "/";
  for (size_t i = 0; i < regex.size(); ++i) {
    if (regex[i] == '\\' && i + 1 < regex.size()) {
      out += regex.substr(i++, 2);
    } else if (regex[i] == '/') {
      out += "\\/";
    } else if (regex[i] == '\n') {
      out += "\\n";
    } else {
      out += regex[i];
    }
  }
  return out + "/";
}

// Writes the rules into one grammar; schemas and the client's grammar stand beside it under names
// of their own, so that nothing in them can reach the others.
class GrammarWriter {
 public:
  GrammarWriter(const WireFormat& format, const ReplyRules& rules, std::string_view tools_json,
                const MarkerKindOf& kind_of)
      : format_(format),
        suffix_(fmt::format("{:016x}{:016x}",
                            HashBytes(rules.constraint.data(), rules.constraint.size()),
                            HashBytes(tools_json.data(), tools_json.size()))),
        in_reasoning_(rules.in_reasoning),
        kind_of_(kind_of) {}

  Status AddText(const ReplyRules& rules, std::string* error) {
    if (rules.kind == ConstraintKind::kNone) return Status();
    has_text_ = true;
    if (rules.kind == ConstraintKind::kJsonSchema) {
      if (!JsonNestsWithin(rules.constraint, kDepthMax)) {
        return Bad(error, fmt::format("constraint: nested deeper than {}", kDepthMax));
      }
      Json schema = Json::parse(rules.constraint, nullptr, false);
      if (schema.is_discarded()) return Bad(error, "constraint: the schema is not JSON");
      std::string fault = RepeatedKeyFault(rules.constraint, "constraint");
      if (!fault.empty()) return Bad(error, std::move(fault));
      if (schema == Json(false)) return Bad(error, "constraint: nothing matches the schema false");
      if (schema.is_boolean()) schema = Json::object();
      KAIROS_RETURN_IF_ERROR(ReadSchema("constraint", &schema, error));
      fault = EndlessFault(schema);
      if (!fault.empty()) return Bad(error, "constraint: " + fault);
      BoundNumbers(&schema);
      FixSpacing(&schema);
      AddBeside("constraint", {{"name", NameOf("text")}, {"json_schema", std::move(schema)}});
    } else if (rules.kind == ConstraintKind::kRegex) {
      if (const std::string fault = RegexFault(rules.constraint); !fault.empty()) {
        return Bad(error, "constraint: " + fault);
      }
      AddBeside("constraint",
                {{"name", NameOf("text")},
                 {"lark_grammar", "start: " + RegexLiteral(rules.constraint)}});
    } else {
      if (const std::string fault = LarkFault(rules.constraint); !fault.empty()) {
        return Bad(error, "constraint: " + fault);
      }
      AddBeside("constraint", {{"name", NameOf("text")}, {"lark_grammar", rules.constraint}});
    }
    return Status();
  }

  void AddTools(const std::vector<Tool>& tools, std::string_view only) {
    for (size_t i = 0; i < tools.size(); ++i) {
      if (!only.empty() && tools[i].name != only) continue;
      const std::string name = NameOf(fmt::format("tool_{}", i));
      AddBeside(ToolLabel(tools[i].name),
                {{"name", name}, {"json_schema", tools[i].schema}});
      const std::string begin = fmt::format("{{\"{}\": {}, \"{}\": ", format_.name_key,
                                            Quote(tools[i].name), format_.arguments_keys.front());
      call_names_ += fmt::format("{}call_{}", call_names_.empty() ? "" : " | ", i);
      rules_ += fmt::format("call_{}: {} @{} \"}}\"\n", i, Quote(begin), name);
    }
    const CallBlock& block = format_.blocks.front();
    rules_ += "call: " + call_names_ + "\n";
    const std::string gap = format_.gap.empty() ? "" : Quote(format_.gap);
    const std::string close = block.close.empty() ? "" : gap + " " + Marker(block.close);
    rules_ += fmt::format("inside: {} call {}\n", block.open.empty() ? "" : gap, close);
    rules_ += fmt::format("block: {} inside\n", block.open.empty() ? "" : Marker(block.open));
  }

  ReplyGrammar WriteCalls(bool one) {
    const bool several = !one && (marked() || !format_.separator.empty());
    std::string between = marked() ? Quote("\n") : Quote(format_.separator);
    const std::string more = More(between + " block", several ? kReplyCallsMax - 1 : 0);
    return Finish(Reasoning() + "block" + more);
  }

  ReplyGrammar WriteAuto(int calls_max) {
    if (has_text_) {
      return Finish("block" + More(Quote("\n") + " block", calls_max - 1) + " | @" +
                    NameOf("text"));
    }
    is_prose_ = true;
    // A reply whose first character begins a bare call is one.
    bool bare = false;
    for (const CallBlock& block : format_.blocks) {
      bare |= block.open.empty() && block.style == CallStyle::kJson;
    }
    const std::string first = bare ? R"((\s*[^{\s](.|\n)*)?)" : R"((.|\n)*)";
    if (!marked()) return Finish("block | FIRST", "FIRST: /" + first + "/\n");
    const CallBlock& block = format_.blocks.front();
    rules_ += "FIRST: /" + first + "/\nTEXT: /(.|\\n)*/\n";
    if (IsControl(block.open)) {
      rules_ += fmt::format("opened_first: FIRST {0}\nopened: TEXT {0}\n", block.open);
    } else {
      const std::string open = Quote(block.open);
      rules_ += fmt::format("opened_first[lazy]: FIRST {0}\nopened[lazy]: TEXT {0}\n", open);
    }
    const std::string start =
        "FIRST | opened_first inside" + More("opened inside", calls_max - 1) + " TEXT";
    return Finish(bare ? "call | " + start : start);
  }

  ReplyGrammar WriteNone() {
    if (has_text_) return Finish("@" + NameOf("text"));
    is_prose_ = true;
    std::string banned;
    for (const CallBlock& block : format_.blocks) {
      // Control tokens are out of reach of text anyhow.
      if (block.open.empty() || IsControl(block.open)) continue;
      banned += fmt::format(" & ~(/(.|\\n)*/ {} /(.|\\n)*/)", Quote(block.open));
    }
    return Finish("TEXT", "TEXT: /(.|\\n)*/" + banned + "\n");
  }

  ReplyGrammar WriteText() { return Finish(Reasoning() + "@" + NameOf("text")); }

 private:
  // At most `most` times more.
  static std::string More(const std::string& what, int most) {
    return most <= 0 ? "" : fmt::format(" ({}){{0,{}}}", what, most);
  }

  void AddBeside(std::string label, Json grammar) {
    parts_.push_back({std::move(label), Dump(Json{{"grammars", {grammar}}})});
    beside_.push_back(std::move(grammar));
  }

  bool IsControl(std::string_view marker) const {
    return kind_of_(marker) == MarkerKind::kControlToken;
  }

  bool marked() const { return !format_.blocks.front().open.empty(); }

  std::string Marker(std::string_view text) const {
    return IsControl(text) ? std::string(text) : Quote(text);
  }

  // Models that reason may do so before what is enforced.
  std::string Reasoning() {
    // Where the opening is no token, the model was not trained to.
    const std::string_view open = format_.reasoning_open;
    if (open.empty() || (!in_reasoning_ && kind_of_(open) == MarkerKind::kText)) return "";
    rules_ += "THOUGHT: /(.|\\n)*/\nSPACE: /[ \\n]*/\n";
    if (IsControl(format_.reasoning_close)) {
      rules_ += fmt::format("thought: THOUGHT {}\n", format_.reasoning_close);
    } else {
      rules_ += fmt::format("thought[lazy]: THOUGHT {}\n", Quote(format_.reasoning_close));
    }
    if (in_reasoning_) return "thought SPACE ";
    return fmt::format("({} thought SPACE)? ", Marker(format_.reasoning_open));
  }

  ReplyGrammar Finish(const std::string& start, const std::string& more = "") {
    Json all = Json::array();
    all.push_back({{"name", NameOf("reply")},
                   {"lark_grammar", "start: " + start + "\n" + rules_ + more}});
    for (Json& grammar : beside_) all.push_back(std::move(grammar));
    return {Dump(Json{{"grammars", std::move(all)}}), is_prose_, std::move(parts_)};
  }

  // Follows from all that the client wrote, so that its grammar cannot name the ones beside it.
  std::string NameOf(std::string_view what) const { return fmt::format("{}_{}", what, suffix_); }

  const WireFormat& format_;
  const std::string suffix_;
  const bool in_reasoning_;
  const MarkerKindOf& kind_of_;
  std::string rules_;
  std::string call_names_;
  std::vector<Json> beside_;
  std::vector<ReplyGrammar::Part> parts_;
  bool has_text_ = false;
  bool is_prose_ = false;
};

}  // namespace

Result<ReplyGrammar> WriteReplyGrammar(const WireFormat& format, const ReplyRules& rules,
                                       std::string_view tools_json, const MarkerKindOf& kind_of,
                                       std::string* error) {
  // Whatever is enforced: a call could not say which of the two it means.
  if (std::string fault = RepeatedToolName(tools_json); !fault.empty()) {
    return Bad(error, std::move(fault));
  }
  GrammarWriter writer(format, rules, tools_json, kind_of);
  KAIROS_RETURN_IF_ERROR(writer.AddText(rules, error));
  const bool has_text = rules.kind != ConstraintKind::kNone;
  std::vector<Tool> tools;
  if (rules.tool_choice != ToolChoice::kFree && rules.tool_choice != ToolChoice::kNone) {
    KAIROS_RETURN_IF_ERROR(ReadTools(tools_json, &tools, error));
  }
  const bool must_call =
      rules.tool_choice == ToolChoice::kRequired || rules.tool_choice == ToolChoice::kNamed;
  if (must_call && tools.empty()) return Bad(error, "tool_choice: asks for a call, without tools");
  if (must_call && has_text) {
    return Bad(error, "constraint: cannot be met where tool_choice asks for a call");
  }
  if (rules.tool_choice == ToolChoice::kNamed) {
    bool known = false;
    std::string names;
    for (const Tool& tool : tools) {
      known |= tool.name == rules.tool_name;
      names += (names.empty() ? "" : ", ") + tool.name;
    }
    if (!known) {
      return Bad(error, fmt::format("tool_choice: no tool is called \"{}\"; there are: {}",
                                    rules.tool_name, names));
    }
  }
  if (rules.tool_choice == ToolChoice::kNone && !tools_json.empty()) return writer.WriteNone();
  if (tools.empty()) return has_text ? writer.WriteText() : ReplyGrammar();
  if (format.blocks.front().style != CallStyle::kJson) {
    *error = fmt::format("tool_choice: calls in the format \"{}\" cannot be enforced; use free",
                         format.name);
    return Status(Code::kUnimplemented, "the call format cannot be enforced");
  }
  writer.AddTools(tools, must_call ? rules.tool_name : "");
  const bool one_call = rules.one_call || rules.tool_choice == ToolChoice::kNamed;
  return must_call ? writer.WriteCalls(one_call) : writer.WriteAuto(one_call ? 1 : kReplyCallsMax);
}

}  // namespace kairos
