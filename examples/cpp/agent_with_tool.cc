// SPDX-License-Identifier: Apache-2.0
//
// The loop of an agent: ask, run the tool that the model calls, give it the result, ask again. The
// task context of the session keeps what the agent is after.
//
// The tool is real: a look-up in this program's table. The first turn must call it, so that also a
// small model does; its arguments match the tool's schema. The second must not, so that it answers.
#include <map>
#include <optional>
#include <string_view>

#include "examples/cpp/show.h"

namespace {

constexpr char kTools[] = R"([{"type":"function","function":{"name":"get_weather",
  "description":"The weather of a city now","parameters":{"type":"object",
  "properties":{"city":{"enum":["Oslo","Lisbon","Nairobi"]}},"required":["city"]}}}])";

std::string GetWeather(const std::string& city) {
  static const std::map<std::string, std::string> kWeather = {
      {"Oslo", R"({"city": "Oslo", "celsius": -3, "sky": "snow"})"},
      {"Lisbon", R"({"city": "Lisbon", "celsius": 18, "sky": "clear"})"},
      {"Nairobi", R"({"city": "Nairobi", "celsius": 24, "sky": "cloudy"})"},
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
  std::string id;
  std::string city;
};

// The call that the turn brings.
Call ReadCall(kairos::Turn& turn) {
  std::string made;
  for (const kairos::Event& event : turn) {
    ShowText(event);
    if (event.type() == kairos::EventType::kToolCall) made = event.text();
  }
  ShowFigures(turn);
  return {JsonText(made, "id").value_or(""), JsonText(made, "city").value_or("")};
}

}  // namespace

int main(int argc, char** argv) {
  return RunExample(argc, argv, [](kairos::Client& client) {
    kairos::Session session = CreateSession(client, "weather agent");
    // A call takes some 32 tokens. When few are left, the shortest way to close it decides, no more
    // the model, and that might name another city.
    kairos::TurnOptions question = Question("What is the weather in Oslo?", 128);
    question.messages.insert(
        question.messages.begin(),
        {"system", "You help with questions about the weather. Use the tool.", "", "", ""});
    question.tools_json = kTools;
    question.tool_choice = KAIROS_TOOL_CHOICE_REQUIRED;
    question.flags = KAIROS_TURN_ONE_CALL;
    kairos::Turn asked = session.Submit(question);
    const Call call = ReadCall(asked);

    const std::string result = GetWeather(call.city);
    std::printf("  [get_weather(%s) = %s]\n", call.city.c_str(), result.c_str());
    kairos::TurnOptions answer;
    answer.messages.push_back({"tool", result, "get_weather", call.id, ""});
    answer.tool_choice = KAIROS_TOOL_CHOICE_NONE;
    answer.generation.emplace();
    answer.generation->max_tokens = 48;
    Show(session.Submit(answer));

    std::printf("  [task context: %s]\n", session.Context().c_str());
    session.Delete();
    return 0;
  });
}
