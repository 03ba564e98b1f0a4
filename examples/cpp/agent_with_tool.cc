// SPDX-License-Identifier: Apache-2.0
//
// The loop of an agent: ask, run the tool that the model calls, give it the result, ask again. The
// task context of the session keeps what the agent is after.
//
// The tool is real: a look-up in this program's table. Whether the model calls it depends on the
// model. A small one often does not; then this program writes the call that a larger model would
// have made into the dialogue itself, says so, and the rest of the loop is the same.
#include <map>
#include <optional>
#include <string_view>

#include "examples/cpp/show.h"

namespace {

constexpr char kTools[] = R"([{"type":"function","function":{"name":"get_weather",
  "description":"The weather of a city now","parameters":{"type":"object",
  "properties":{"city":{"type":"string"}},"required":["city"]}}}])";

std::string GetWeather(const std::string& city) {
  static const std::map<std::string, std::string> kWeather = {
      {"Oslo", R"({"city":"Oslo","celsius":-3,"sky":"snow"})"},
      {"Lisbon", R"({"city":"Lisbon","celsius":18,"sky":"clear"})"},
      {"Nairobi", R"({"city":"Nairobi","celsius":24,"sky":"cloudy"})"},
  };
  const auto found = kWeather.find(city);
  return found == kWeather.end() ? R"({"error":"unknown city"})" : found->second;
}

// The text value of `key` in JSON; enough for this tool's two fields.
std::optional<std::string> JsonText(std::string_view json, const std::string& key) {
  std::size_t at = json.find("\"" + key + "\"");
  if (at == std::string_view::npos) return std::nullopt;
  at = json.find_first_not_of(" :\\", at + key.size() + 2);
  if (at == std::string_view::npos || json[at] != '"') return std::nullopt;
  const std::size_t end = json.find_first_of("\"\\", at + 1);
  if (end == std::string_view::npos || end == at + 1) return std::nullopt;
  return std::string(json.substr(at + 1, end - at - 1));
}

struct Call {
  std::string id = "call_1";
  std::string city = "Oslo";
  bool scripted = true;  // the model made none
};

// The call as an event, or as the model wrote it into its text.
Call FindCall(kairos::Turn& turn) {
  std::string text;
  std::string made;
  for (const kairos::Event& event : turn) {
    ShowText(event);
    if (event.type() == kairos::EventType::kText) text += event.text();
    if (event.type() == kairos::EventType::kToolCall) made = event.text();
  }
  ShowFigures(turn);
  if (made.empty() && text.find("<tool_call>") != std::string::npos) {
    made = text.substr(text.find("<tool_call>"));
  }
  Call call;
  if (made.find("get_weather") == std::string::npos) return call;
  const std::optional<std::string> city = JsonText(made, "city");
  if (!city) return call;
  call.city = *city;
  call.id = JsonText(made, "id").value_or(call.id);
  call.scripted = false;
  return call;
}

// Gives the tool's result back; after the call itself where the model did not make it.
kairos::TurnOptions ResultOf(const Call& call, const std::string& result) {
  kairos::TurnOptions options;
  if (call.scripted) {
    options.messages.push_back(
        {"assistant", "", "", "",
         R"([{"id":"call_1","type":"function","function":{"name":"get_weather",)"
         R"("arguments":"{\"city\":\"Oslo\"}"}}])"});
  }
  options.messages.push_back({"tool", result, "get_weather", call.id, ""});
  options.generation.emplace();
  options.generation->max_tokens = 48;
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  return RunExample(argc, argv, [](kairos::Client& client) {
    kairos::Session session = CreateSession(client, "weather agent");
    kairos::TurnOptions options = Question("What is the weather in Oslo?", 64);
    options.messages.insert(
        options.messages.begin(),
        {"system", "You help with questions about the weather. Use the tool.", "", "", ""});
    options.tools_json = kTools;

    kairos::Turn asked = session.Submit(options);
    const Call call = FindCall(asked);
    std::printf("  [the model %s]\n", call.scripted
                                          ? "did not call the tool; the call is scripted"
                                          : "called the tool");
    const std::string result = GetWeather(call.city);
    std::printf("  [get_weather(%s) = %s]\n", call.city.c_str(), result.c_str());
    Show(session.Submit(ResultOf(call, result)));

    std::printf("  [task context: %s]\n", session.Context().c_str());
    session.Delete();
    return 0;
  });
}
