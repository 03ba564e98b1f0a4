// SPDX-License-Identifier: Apache-2.0
#include "cli/listing.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/json_text.h"
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

std::string Paragraph(const Json& message) {
  std::string text = TextOf(message, "role");
  const std::string name = TextOf(message, "name");
  if (!name.empty()) text += " " + name;
  if (message.value("cancelled", false)) text += " (cancelled)";
  text += ": " + TextOf(message, "content");
  const auto calls = message.find("tool_calls");
  if (calls != message.end() && calls->is_array()) {
    for (const Json& call : *calls) {
      if (call.is_object()) text += "\n  calls " + CallText(call);
    }
  }
  return text;
}

void AddFigure(std::string* out, const char* name, const std::string& value) {
  char line[48];
  std::snprintf(line, sizeof(line), "%-10s ", name);
  *out += line + value + "\n";
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
      {"waiting_for", WaitingFor(s)},
      {"label", LabelOf(s)},
  };
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string SessionHeading() {
  return "session           phase         version    tokens  resident          KV      used  label";
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
  std::string label = Printable(LabelOf(s));
  std::replace(label.begin(), label.end(), '\n', ' ');
  return line + label;
}

std::string SessionFigures(const kairos_session_t& s, uint64_t now_unix_ms) {
  std::string out;
  const auto ago = [&](uint64_t unix_ms) {
    return unix_ms == 0 ? std::string("never") : AgeText(unix_ms, now_unix_ms) + " ago";
  };
  AddFigure(&out, "session", SessionText(s.id));
  if (s.label_size > 0) AddFigure(&out, "label", Printable(LabelOf(s)));
  std::string phase = PhaseText(s.phase);
  if (!WaitingFor(s).empty()) phase += " for " + Printable(WaitingFor(s));
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
    out += (out.empty() ? "" : "\n") + Printable(Paragraph(message)) + "\n";
  }
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
