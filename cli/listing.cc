// SPDX-License-Identifier: Apache-2.0
#include "cli/listing.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/printable_text.h"
#include "cli/words.h"

namespace kairos {

namespace {

using Json = nlohmann::json;

std::string_view LabelOf(const kairos_session_t& session) {
  return {session.label, std::min<size_t>(session.label_size, sizeof(session.label))};
}

std::string_view WaitingFor(const kairos_session_t& session) {
  const char* end = std::find(std::begin(session.waiting_for), std::end(session.waiting_for), '\0');
  return {session.waiting_for, static_cast<size_t>(end - session.waiting_for)};
}

std::string_view ModelOf(const kairos_session_t& session) {
  return {session.model, strnlen(session.model, sizeof(session.model))};
}

std::string TextOf(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

// `name(arguments)` of a call in either of its usual forms.
std::string CallText(const Json& call) {
  const Json* body = &call;
  if (const auto inner = call.find("function"); inner != call.end() && inner->is_object()) {
    body = &*inner;
  }
  return TextOf(*body, "name") + "(" + TextOf(*body, "arguments") + ")";
}

// "tool search", "assistant (cancelled)".
std::string Speaker(const Json& message) {
  std::string text = TextOf(message, "role");
  const std::string name = TextOf(message, "name");
  if (!name.empty()) text += " " + name;
  return message.value("cancelled", false) ? text + " (cancelled)" : text;
}

// A line for each call, behind `start`.
std::string CallLines(const Json& message, std::string_view start) {
  std::string lines;
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return lines;
  for (const Json& call : *calls) {
    if (!call.is_object()) continue;
    lines += start;
    lines += "calls " + Printable(CallText(call)) + "\n";
  }
  return lines;
}

constexpr int kColumn = 10;
constexpr int kWideColumn = 18;
constexpr auto kReplace = Json::error_handler_t::replace;

// One line, whatever the value holds.
void AddFigure(std::string* out, const char* name, std::string_view value, int width = kColumn) {
  char line[48];
  std::snprintf(line, sizeof(line), "%-*s ", width, name);
  *out += line + Printable(value) + "\n";
}

// "read(file.txt), from message 3" of an item of a task context.
std::string ItemText(const Json& item) {
  std::string text;
  for (const char* name : {"kind", "name", "value", "tool", "tool_call_id", "text"}) {
    if (const std::string part = TextOf(item, name); !part.empty()) {
      text += (text.empty() ? "" : " ") + part;
    }
  }
  const std::string source = TextOf(item, "source_message");
  return source.empty() ? text : text + " (message " + source + ")";
}

std::string MadeAt(const Json& version) {
  char made[32] = "";
  const auto seconds = static_cast<time_t>(version.value("created_unix_ms", uint64_t{0}) / 1000);
  tm utc{};
  strftime(made, sizeof(made), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
  return made;
}

std::string VersionRow(const std::string& json) {
  const Json version = Json::parse(json, nullptr, false);
  if (!version.is_object()) return "";
  return "| " + TextOf(version, "version") + " | " + TextOf(version, "parent") + " | " +
         MadeAt(version) + " | " + TextOf(version, "token_count") + " | " +
         TextOf(version, "message_count") + " | " + PhaseText(version.value("phase", 0)) + " |\n";
}

std::string OneModelFigures(const nlohmann::ordered_json& model) {
  std::string out;
  for (const auto& [name, value] : model.items()) {
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (name.ends_with("_bytes") && value.is_number()) text = BytesText(value.get<double>());
    if (name.ends_with("_tokens") && value.is_number()) text += " tokens";
    if (value.is_object()) {
      const char* between = name.ends_with("_by_threads") ? " with " : " ";
      text.clear();
      for (const auto& [of, count] : value.items()) {
        text += (text.empty() ? "" : ", ") + count.dump() + between + of;
      }
    }
    AddFigure(&out, Printable(name).c_str(), text, kWideColumn);
  }
  return out;
}

// What becomes of it in the log.
const char* ReasoningText(const kairos_session_t& s) {
  return (s.flags & KAIROS_SESSION_DROP_REASONING) != 0 ? "dropped" : "kept";
}

}  // namespace

std::string SessionJson(const kairos_session_t& s) {
  nlohmann::ordered_json json = {
      {"id", SessionText(s.id)},
      {"phase", PhaseText(s.phase)},
      {"version", s.version},
      {"oldest_version", s.oldest_version},
      {"token_count", s.token_count},
      {"resident_tokens", s.resident_tokens},
      {"message_count", s.message_count},
      {"kv_bytes", s.kv_bytes},
      {"created_unix_ms", s.created_unix_ms},
      {"used_unix_ms", s.used_unix_ms},
      {"parent", SessionText(s.parent_id)},
      {"fidelity", s.fidelity == KAIROS_FIDELITY_EXACT ? "exact" : "default"},
      {"reasoning", ReasoningText(s)},
      {"waiting_for", WaitingFor(s)},
      {"model", ModelOf(s)},
      {"label", LabelOf(s)},
  };
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string SessionHeading() {
  return "session           phase         version    tokens  resident          KV      used  "
         "model             label";
}

std::string SessionLine(const kairos_session_t& s, uint64_t now_unix_ms) {
  char line[160];
  std::snprintf(line, sizeof(line), "%s  %-12s  %7llu  %8llu  %8llu  %10s  %8s  ",
                SessionText(s.id).c_str(), PhaseText(s.phase),
                static_cast<unsigned long long>(s.version),
                static_cast<unsigned long long>(s.token_count),
                static_cast<unsigned long long>(s.resident_tokens),
                BytesText(static_cast<double>(s.kv_bytes)).c_str(),
                AgeText(s.used_unix_ms, now_unix_ms).c_str());
  char model[24];
  std::snprintf(model, sizeof(model), "%-16.16s  ",
                ModelOf(s).empty() ? "-" : Printable(ModelOf(s)).c_str());
  return line + (model + Printable(LabelOf(s)));
}

std::string SessionFigures(const kairos_session_t& s, uint64_t now_unix_ms) {
  std::string out;
  const auto ago = [&](uint64_t unix_ms) {
    return unix_ms == 0 ? std::string("never") : AgeText(unix_ms, now_unix_ms) + " ago";
  };
  AddFigure(&out, "session", SessionText(s.id));
  if (s.label_size > 0) AddFigure(&out, "label", LabelOf(s));
  std::string phase = PhaseText(s.phase);
  if (!WaitingFor(s).empty()) phase += " for " + std::string(WaitingFor(s));
  AddFigure(&out, "model", ModelOf(s).empty() ? "not in memory" : ModelOf(s));
  AddFigure(&out, "phase", phase);
  AddFigure(&out, "version",
            std::to_string(s.version) +
                " (oldest that can be named: " + std::to_string(s.oldest_version) + ")");
  AddFigure(&out, "messages", std::to_string(s.message_count));
  AddFigure(
      &out, "tokens",
      std::to_string(s.token_count) + ", of these resident " + std::to_string(s.resident_tokens));
  AddFigure(&out, "KV", BytesText(static_cast<double>(s.kv_bytes)));
  AddFigure(&out, "fidelity", s.fidelity == KAIROS_FIDELITY_EXACT ? "exact" : "default");
  AddFigure(&out, "reasoning", ReasoningText(s));
  AddFigure(&out, "created", ago(s.created_unix_ms));
  AddFigure(&out, "last used", ago(s.used_unix_ms));
  if (s.parent_id != 0) AddFigure(&out, "forked from", SessionText(s.parent_id));
  return out;
}

std::string ReloadLines(std::string_view json) {
  const Json changes = Json::parse(json, nullptr, false);
  if (!changes.is_array()) return Printable(json) + "\n";
  if (changes.empty()) return "nothing changed\n";
  std::string lines;
  for (const Json& change : changes) {
    const auto field = [&](const char* name) {
      const auto found = change.find(name);
      if (found == change.end()) return std::string("?");
      return Printable(found->is_string() ? found->get<std::string>() : found->dump());
    };
    lines += field("key") + ": " + field("before") + " -> " + field("after") + "\n";
  }
  return lines;
}

std::string MessageParagraphs(std::string_view json) {
  const Json messages = Json::parse(json, nullptr, false);
  if (!messages.is_array()) return Printable(json);
  std::string out;
  for (const Json& message : messages) {
    if (!message.is_object()) continue;
    // Deeper than the lines of calls, which are ours.
    out += (out.empty() ? "" : "\n") + Printable(Speaker(message)) + ": " +
           PrintableLines(TextOf(message, "content"), "    ") + "\n" + CallLines(message, "  ");
  }
  return out;
}

std::string ContextParagraph(std::string_view json) {
  const Json context = Json::parse(json, nullptr, false);
  if (!context.is_object()) return Printable(json);
  std::string out;
  if (const std::string goal = TextOf(context, "goal"); !goal.empty()) {
    AddFigure(&out, "goal", goal);
  }
  constexpr std::pair<const char*, const char*> kLists[] = {{"entities", "entity"},
                                                            {"done_steps", "done"},
                                                            {"pending_actions", "pending"},
                                                            {"facts", "fact"}};
  for (const auto& [list, name] : kLists) {
    const auto items = context.find(list);
    if (items == context.end() || !items->is_array()) continue;
    for (const Json& item : *items) {
      if (item.is_object()) AddFigure(&out, name, ItemText(item));
    }
  }
  const auto extra = context.find("extra");
  if (extra != context.end() && extra->is_object() && !extra->empty()) {
    AddFigure(&out, "extra", extra->dump(-1, ' ', false, kReplace));
  }
  return out;
}

std::string ShownVersion(const kairos_session_t& session, std::string_view version_json) {
  const Json version = Json::parse(version_json, nullptr, false);
  if (!version.is_object() || version.value("version", uint64_t{0}) == session.version) return "";
  std::string out;
  AddFigure(&out, "shown",
            "version " + TextOf(version, "version") + ": " + TextOf(version, "message_count") +
                " messages, " + TextOf(version, "token_count") + " tokens, made " +
                MadeAt(version) + "; the figures above are of the session and its head");
  return out;
}

std::string SessionMarkdown(const kairos_session_t& session, const std::string& shown,
                            std::string_view context, const std::vector<std::string>& versions,
                            std::string_view messages) {
  std::string out = "# Session " + SessionText(session.id) + "\n\n";
  const auto block = [&](const std::string& text) {
    return "```\n" + text + (text.empty() || text.back() == '\n' ? "" : "\n") + "```\n";
  };
  out += block(SessionFigures(session, session.used_unix_ms) + shown) + "\n## Task context\n\n";
  const std::string filled = ContextParagraph(context);
  out += filled.empty() ? "Empty.\n" : block(filled);
  out += "\n## Versions\n\n| version | from | made | tokens | messages | phase |\n"
         "|---|---|---|---|---|---|\n";
  for (const std::string& version : versions) out += VersionRow(version);
  out += "\n## Messages\n";
  const Json list = Json::parse(messages, nullptr, false);
  if (!list.is_array()) return out;
  for (const Json& message : list) {
    if (!message.is_object()) continue;
    // A heading of our own; what the message holds is quoted, so that it cannot be one.
    out += "\n### " + Printable(Speaker(message)) + "\n\n> " +
           PrintableLines(TextOf(message, "content"), "> ") + "\n";
    if (const std::string calls = CallLines(message, "- "); !calls.empty()) out += "\n" + calls;
  }
  return out;
}

std::string TemplateNote(std::string_view json, std::string_view name) {
  const Json models = Json::parse(json, nullptr, false);
  if (!models.is_array()) return "";
  for (const Json& model : models) {
    const std::string own = TextOf(model, "name");
    if (name.empty() ? TextOf(model, "default") != "true" : own != name) continue;
    const std::string format = TextOf(model, "chat_template");
    if (!format.starts_with("built-in ")) return "";
    return "model " + own + " brings no chat template that can be used, so it may be a base model: "
           "answers may be poor (format: " + format + ")";
  }
  return "";
}

std::string ModelFigures(std::string_view json) {
  const auto models = nlohmann::ordered_json::parse(json, nullptr, false);
  if (!models.is_array()) return Printable(json) + "\n";
  std::string out;
  for (const auto& model : models) out += (out.empty() ? "" : "\n") + OneModelFigures(model);
  return out;
}

std::string StatLine(std::string_view name, double value) {
  const auto contains = [&](const char* part) { return name.find(part) != std::string_view::npos; };
  char number[64];
  if (contains("bytes")) {
    std::snprintf(number, sizeof(number), "%s", BytesText(value).c_str());
  } else if (contains("seconds")) {
    std::snprintf(number, sizeof(number), "%.3f s", value);
  } else if (contains("share")) {
    std::snprintf(number, sizeof(number), "%.2f %%", value * 100);
  } else if (value == std::floor(value)) {
    std::snprintf(number, sizeof(number), "%.0f%s", value, contains("tokens") ? " tokens" : "");
  } else {
    std::snprintf(number, sizeof(number), "%.6g", value);
  }
  char line[160];
  std::snprintf(line, sizeof(line), "%-32s %s", Printable(name).c_str(), number);
  return line;
}

}  // namespace kairos
