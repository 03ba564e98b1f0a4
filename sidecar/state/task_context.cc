// SPDX-License-Identifier: Apache-2.0
// nlohmann-json without exceptions: a wrong access would abort, so values are only reached through
// find() and checked types, and nesting is bounded before anything recursive sees it.
#include "sidecar/state/task_context.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/json_depth.h"
#include "base/repeated_key.h"

namespace kairos {

namespace {

using Json = nlohmann::json;

constexpr size_t kGoalBytesMax = 512;
// A first message's goal and entities are looked for in its beginning: the rest may be a document,
// and the conductor, which everybody waits for, is the one that looks.
constexpr size_t kFirstMessageBytesRead = 4096;
constexpr size_t kFactBytesMax = 1024;
constexpr size_t kEntitiesMax = 16;
constexpr size_t kEntityBytesMax = 200;
constexpr size_t kNameBytesMax = 128;

struct ItemField {
  const char* name;
  char type;  // 's' string, 'u' message index, 'n' count, 'o' object
  bool required;
};

struct ListField {
  const char* name;
  std::array<ItemField, 5> fields;
};

constexpr ListField kLists[] = {
    {"entities",
     {{{"name", 's', true}, {"kind", 's', false}, {"value", 's', false},
       {"source_message", 'u', false}, {"extra", 'o', false}}}},
    {"done_steps",
     {{{"text", 's', true}, {"source_message", 'u', false}, {"extra", 'o', false}, {}, {}}}},
    {"pending_actions",
     {{{"tool", 's', true}, {"tool_call_id", 's', false}, {"source_message", 'u', false},
       {"timed_out_after_ms", 'n', false}, {"extra", 'o', false}}}},
    {"facts",
     {{{"text", 's', true}, {"source_message", 'u', false}, {"tool", 's', false},
       {"extra", 'o', false}, {}}}},
};

Status Refuse(std::string* error, std::string words) {
  if (error != nullptr) *error = "task context: " + std::move(words);
  return {Code::kInvalidArgument, "task context is not valid"};
}

Json Parse(std::string_view json) {
  if (json.size() > kTaskContextBytesMax || !JsonNestsWithin(json, kTaskContextDepthMax)) {
    return Json(Json::value_t::discarded);
  }
  return Json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json Empty() {
  Json context = Json::object();
  context["goal"] = "";
  for (const ListField& list : kLists) context[list.name] = Json::array();
  context["extra"] = Json::object();
  return context;
}

bool HasType(const Json& value, char type) {
  if (type == 's') return value.is_string();
  if (type == 'u' || type == 'n') return value.is_number_unsigned();
  return value.is_object();
}

const char* TypeName(char type) {
  if (type == 's') return "a string";
  if (type == 'n') return "a count";
  return type == 'u' ? "a message index" : "an object";
}

Status CheckItem(const ListField& list, size_t index, const Json& item, std::string* error) {
  const std::string place = std::string(list.name) + "[" + std::to_string(index) + "]";
  if (!item.is_object()) return Refuse(error, place + " must be an object");
  for (const ItemField& field : list.fields) {
    if (field.name == nullptr) continue;
    const auto found = item.find(field.name);
    if (found == item.end()) {
      if (field.required) return Refuse(error, place + " lacks \"" + field.name + "\"");
    } else if (!HasType(*found, field.type)) {
      return Refuse(error, place + "." + field.name + " must be " + TypeName(field.type));
    }
  }
  for (const auto& [name, value] : item.items()) {
    const bool known = std::any_of(
        list.fields.begin(), list.fields.end(),
        [&](const ItemField& field) { return field.name != nullptr && name == field.name; });
    if (!known) {
      return Refuse(error, place + " has a field that is not known (own fields go into \"extra\")");
    }
  }
  return {};
}

Status CheckList(const ListField& list, const Json& value, std::string* error) {
  if (!value.is_array()) return Refuse(error, std::string(list.name) + " must be an array");
  if (value.size() > kTaskContextItemsMax) {
    return Refuse(error, std::string(list.name) + " has more than " +
                             std::to_string(kTaskContextItemsMax) + " items");
  }
  for (size_t i = 0; i < value.size(); ++i) {
    KAIROS_RETURN_IF_ERROR(CheckItem(list, i, value[i], error));
  }
  return {};
}

Status CheckField(const std::string& name, const Json& value, Json* out, std::string* error) {
  if (name == "goal") {
    if (!value.is_string()) return Refuse(error, "goal must be a string");
    (*out)["goal"] = value;
    return {};
  }
  if (name == "dropped") {
    if (!value.is_number_unsigned()) return Refuse(error, "dropped must be a count");
    (*out)["dropped"] = value;
    return {};
  }
  for (const ListField& list : kLists) {
    if (name != list.name) continue;
    KAIROS_RETURN_IF_ERROR(CheckList(list, value, error));
    (*out)[name] = value;
    return {};
  }
  // Fields that this version does not know are the client's own, and kept for it.
  Json& extra = (*out)["extra"];
  if (extra.contains(name)) return Refuse(error, "a field is given twice, at the top and in extra");
  extra[name] = value;
  return {};
}

// Cuts at a character boundary.
std::string Shorten(std::string_view text, size_t bytes_max, const char* mark) {
  if (text.size() <= bytes_max) return std::string(text);
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end)) + mark;
}

bool StartsWith(std::string_view text, size_t at, std::string_view prefix) {
  return text.substr(at, prefix.size()) == prefix;
}

std::string_view FirstSentence(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return {};
  text.remove_prefix(start);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') return text.substr(0, i);
    for (std::string_view mark : {"\u3002", "\uff01", "\uff1f"}) {
      if (StartsWith(text, i, mark)) return text.substr(0, i + mark.size());
    }
    // A full stop inside a number or a file name ends no sentence.
    const bool before_gap = i + 1 == text.size() || text[i + 1] == ' ' || text[i + 1] == '\n';
    if ((c == '.' || c == '!' || c == '?') && before_gap) return text.substr(0, i + 1);
  }
  return text;
}

const char* KindOfWord(std::string_view word) {
  if (StartsWith(word, 0, "http://") || StartsWith(word, 0, "https://")) return "url";
  const size_t at = word.find('@');
  if (at != std::string_view::npos && at > 0 && word.find('.', at) != std::string_view::npos) {
    return "email";
  }
  const bool rooted = word.size() > 1 && (word[0] == '/' || StartsWith(word, 0, "./") ||
                                          StartsWith(word, 0, "~/"));
  return rooted && word.find_first_not_of("/.~") != std::string_view::npos ? "path" : nullptr;
}

void AddEntity(std::string_view name, const char* kind, Json* entities) {
  if (name.empty() || name.size() > kEntityBytesMax || entities->size() >= kEntitiesMax) return;
  for (const Json& entity : *entities) {
    const auto found = entity.find("name");
    if (found != entity.end() && *found == std::string(name)) return;
  }
  entities->push_back(Json{{"name", std::string(name)}, {"kind", kind}, {"source_message", 0u}});
}

void AddQuoted(std::string_view text, Json* entities) {
  constexpr std::string_view kQuotes[][2] = {{"\"", "\""},
                                             {"`", "`"},
                                             {"\u201c", "\u201d"},
                                             {"\u300c", "\u300d"},
                                             {"\u300a", "\u300b"}};
  for (size_t at = 0; at < text.size(); ++at) {
    for (const auto& quote : kQuotes) {
      if (!StartsWith(text, at, quote[0])) continue;
      const size_t start = at + quote[0].size();
      const size_t end = text.find(quote[1], start);
      if (end == std::string_view::npos || end - start > kEntityBytesMax) continue;
      const std::string_view name = text.substr(start, end - start);
      if (name.find('\n') != std::string_view::npos) continue;
      AddEntity(name, "quoted", entities);
      at = end + quote[1].size() - 1;
      break;
    }
  }
}

void AddWords(std::string_view text, Json* entities) {
  constexpr std::string_view kGaps = " \t\r\n\"'`()<>,;";
  size_t at = 0;
  while ((at = text.find_first_not_of(kGaps, at)) != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(kGaps, at), text.size());
    std::string_view word = text.substr(at, end - at);
    while (!word.empty() && (word.back() == '.' || word.back() == '?' || word.back() == '!' ||
                             word.back() == ':')) {
      word.remove_suffix(1);
    }
    const char* kind = KindOfWord(word);
    if (kind != nullptr) AddEntity(word, kind, entities);
    at = end;
  }
}

// What the sidecar continues is its own text; should it ever not be, a fresh context is safer than
// none.
Json Continue(const std::string& json) {
  Json context = Parse(json);
  if (!context.is_object()) return Empty();
  Json checked = Empty();
  const auto extra = context.find("extra");
  if (extra != context.end() && extra->is_object()) checked["extra"] = *extra;
  for (const auto& [name, value] : context.items()) {
    if (name != "extra" && !CheckField(name, value, &checked, nullptr).ok()) return Empty();
  }
  return checked;
}

void DropOldest(const char* list, size_t kept, Json* context) {
  Json& items = (*context)[list];
  if (items.size() <= kept) return;
  const size_t dropped = items.size() - kept;
  items.erase(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(dropped));
  const auto before = context->find("dropped");
  const uint64_t count = before != context->end() ? before->get<uint64_t>() : 0;
  (*context)["dropped"] = count + dropped;
}

// Bounded whatever the client wrote before: the newest items go in last and out last.
std::string DumpBounded(Json context, const std::string& before) {
  DropOldest("facts", kTaskContextFactsKept, &context);
  DropOldest("done_steps", kTaskContextStepsKept, &context);
  DropOldest("pending_actions", kTaskContextStepsKept, &context);
  std::string text = Dump(context);
  while (text.size() > kTaskContextBytesMax && !context["facts"].empty()) {
    DropOldest("facts", context["facts"].size() / 2, &context);
    text = Dump(context);
  }
  return text.size() <= kTaskContextBytesMax ? text : before;
}

std::string TextOf(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool IsPendingOf(const Json& action, const ChatMessage& result) {
  if (!result.tool_call_id.empty() && action.contains("tool_call_id")) {
    return action["tool_call_id"] == result.tool_call_id;
  }
  return !result.name.empty() && TextOf(action, "tool") == result.name;
}

// The one call that a result without a name can mean. One that was given up counts where no other
// is left.
Json::iterator OnlyPending(Json* pending) {
  for (const bool given_up : {false, true}) {
    const auto counts = [&](const Json& action) {
      return action.contains("timed_out_after_ms") == given_up;
    };
    const auto first = std::find_if(pending->begin(), pending->end(), counts);
    if (first == pending->end()) continue;
    return std::find_if(first + 1, pending->end(), counts) == pending->end() ? first
                                                                             : pending->end();
  }
  return pending->end();
}

Json::iterator FindPending(ResultSource source, const ChatMessage& result, Json* pending) {
  const auto named = std::find_if(pending->begin(), pending->end(), [&](const Json& action) {
    return IsPendingOf(action, result);
  });
  if (named != pending->end() || source == ResultSource::kTold) return named;
  const bool names_none = result.tool_call_id.empty() && result.name.empty();
  if (names_none) return OnlyPending(pending);
  if (source == ResultSource::kTurn) return named;
  const auto of_tool = std::find_if(pending->begin(), pending->end(), [&](const Json& action) {
    return TextOf(action, "tool") == result.name;
  });
  return of_tool != pending->end() || !result.name.empty() ? of_tool : OnlyPending(pending);
}

std::string WordsOfNoCall(const ChatMessage& result, const Json& pending) {
  constexpr size_t kNamedMax = 8;
  std::string words;
  if (result.tool_call_id.empty() && result.name.empty()) {
    words = "tool_call_id: must be given, or name, since " + std::to_string(pending.size()) +
            " calls are pending: ";
  } else {
    const bool by_id = !result.tool_call_id.empty();
    words = by_id ? "tool_call_id: \"" + result.tool_call_id : "name: \"" + result.name;
    words += "\" is of no pending call; pending: ";
  }
  for (size_t i = 0; i < std::min(pending.size(), kNamedMax); ++i) {
    const std::string id = TextOf(pending[i], "tool_call_id");
    const std::string tool = Shorten(TextOf(pending[i], "tool"), kNameBytesMax, "\u2026");
    words += i == 0 ? "" : ", ";
    words += id.empty() ? tool : Shorten(id, kNameBytesMax, "\u2026") + " (" + tool + ")";
  }
  if (pending.size() > kNamedMax) {
    words += " and " + std::to_string(pending.size() - kNamedMax) + " more";
  }
  return words;
}

// What was left out is as if given, unless a message could not say it.
void FillIn(const Json& action, const char* field, std::string* value) {
  std::string known = TextOf(action, field);
  if (value->empty() && known.size() <= kNameBytesMax) *value = std::move(known);
}

}  // namespace

std::string EmptyTaskContext() { return Dump(Empty()); }

Status CheckTaskContext(std::string_view json, std::string* normalised, std::string* error) {
  if (json.size() > kTaskContextBytesMax) {
    return Refuse(error, "has " + std::to_string(json.size()) + " bytes, the limit is " +
                             std::to_string(kTaskContextBytesMax));
  }
  if (!JsonNestsWithin(json, kTaskContextDepthMax)) {
    return Refuse(error, "nests deeper than " + std::to_string(kTaskContextDepthMax));
  }
  const Json parsed = Parse(json);
  if (parsed.is_discarded()) return Refuse(error, "is not valid JSON in UTF-8");
  if (!parsed.is_object()) return Refuse(error, "must be a JSON object");
  std::string repeated = RepeatedKeyFault(json, "task context");
  if (!repeated.empty()) {
    if (error != nullptr) *error = std::move(repeated);
    return {Code::kInvalidArgument, "task context has a key twice"};
  }
  Json checked = Empty();
  const auto extra = parsed.find("extra");
  if (extra != parsed.end()) {
    if (!extra->is_object()) return Refuse(error, "extra must be an object");
    checked["extra"] = *extra;
  }
  for (const auto& [name, value] : parsed.items()) {
    if (name != "extra") KAIROS_RETURN_IF_ERROR(CheckField(name, value, &checked, error));
  }
  std::string text = Dump(checked);
  // Filling in absent fields may add a few bytes, and moving unknown ones may add a level.
  if (text.size() > kTaskContextBytesMax || !JsonNestsWithin(text, kTaskContextDepthMax)) {
    return Refuse(error, "in its normal form exceeds " + std::to_string(kTaskContextBytesMax) +
                             " bytes or " + std::to_string(kTaskContextDepthMax) + " levels");
  }
  *normalised = std::move(text);
  return {};
}

std::string TaskContextFromFirstTurn(const std::string& json,
                                     std::string_view first_user_message) {
  Json context = Continue(json);
  const std::string beginning = Shorten(first_user_message, kFirstMessageBytesRead, "");
  const std::string_view sentence = FirstSentence(beginning);
  if (context["goal"] == "") context["goal"] = Shorten(sentence, kGoalBytesMax, "");
  if (context["entities"].empty()) {
    AddWords(sentence, &context["entities"]);
    AddQuoted(sentence, &context["entities"]);
  }
  std::string text = Dump(context);
  return text.size() <= kTaskContextBytesMax ? text : json;
}

std::string TaskContextAfterToolCalls(const std::string& json, const std::string& tool_calls_json,
                                      uint64_t message_index) {
  const Json calls = Parse(tool_calls_json);
  if (!calls.is_array() || calls.empty()) return json;
  Json context = Continue(json);
  bool added = false;
  for (const Json& call : calls) {
    if (!call.is_object()) continue;
    std::string tool = TextOf(call, "name");
    const auto function = call.find("function");
    if (tool.empty() && function != call.end() && function->is_object()) {
      tool = TextOf(*function, "name");
    }
    if (tool.empty()) continue;
    Json action{{"tool", Shorten(tool, kNameBytesMax, "")}, {"source_message", message_index}};
    const std::string id = TextOf(call, "id");
    if (!id.empty()) action["tool_call_id"] = id;
    context["pending_actions"].push_back(std::move(action));
    added = true;
  }
  return added ? DumpBounded(std::move(context), json) : json;
}

Status TaskContextAfterToolResult(ResultSource source, uint64_t message_index,
                                  ChatMessage* result, std::string* json, std::string* error) {
  Json context = Continue(*json);
  Json& pending = context["pending_actions"];
  const auto action = FindPending(source, *result, &pending);
  std::string tool = result->name;
  if (action != pending.end()) {
    tool = TextOf(*action, "tool");
    FillIn(*action, "tool", &result->name);
    FillIn(*action, "tool_call_id", &result->tool_call_id);
    pending.erase(action);
    context["done_steps"].push_back(Json{{"text", tool}, {"source_message", message_index}});
  } else if (source == ResultSource::kTurn && !pending.empty()) {
    *error = WordsOfNoCall(*result, pending);
    return {Code::kInvalidArgument, "a tool's result is of no pending call"};
  }
  Json fact{{"text", Shorten(result->content, kFactBytesMax, "\u2026")},
            {"source_message", message_index}};
  if (!tool.empty()) fact["tool"] = tool;
  context["facts"].push_back(std::move(fact));
  *json = DumpBounded(std::move(context), *json);
  return {};
}

std::string TaskContextAfterCut(const std::string& json, uint64_t kept_messages) {
  Json context = Continue(json);
  Json& pending = context["pending_actions"];
  const size_t before = pending.size();
  pending.erase(std::remove_if(pending.begin(), pending.end(),
                               [&](const Json& action) {
                                 const auto at = action.find("source_message");
                                 return at != action.end() && *at >= kept_messages;
                               }),
                pending.end());
  return pending.size() == before ? json : DumpBounded(std::move(context), json);
}

std::string TaskContextAfterToolTimeout(const std::string& json, uint64_t timeout_ms) {
  Json context = Continue(json);
  for (Json& action : context["pending_actions"]) {
    if (!action.contains("timed_out_after_ms")) action["timed_out_after_ms"] = timeout_ms;
  }
  return DumpBounded(std::move(context), json);
}

}  // namespace kairos
