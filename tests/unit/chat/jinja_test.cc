// SPDX-License-Identifier: Apache-2.0
// The template language: equality with the reference over goldens, marks, and refusal of hostile
// templates within their budgets.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "sidecar/chat/jinja/conversation.h"

namespace kairos {
namespace {

constexpr const char* kFolder = "tests/goldens/templates/";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::vector<TemplateMessage> MessagesOf(const nlohmann::ordered_json& conversation) {
  std::vector<TemplateMessage> messages;
  for (const auto& entry : conversation["messages"]) {
    TemplateMessage message;
    message.source = static_cast<TextSource>(messages.size() + 1);
    message.role = entry["role"];
    message.content.Append(entry["content"].get<std::string>(), message.source);
    message.name = entry.value("name", "");
    message.tool_call_id = entry.value("tool_call_id", "");
    if (entry.contains("tool_calls")) message.tool_calls_json = entry["tool_calls"].dump();
    messages.push_back(std::move(message));
  }
  return messages;
}

bool RenderSource(const std::string& source, std::span<const TemplateMessage> messages,
                  MarkedText* out, std::string* error) {
  JinjaTemplate parsed;
  if (!parsed.Parse(source, "<s>", "</s>", error)) return false;
  TemplateInput input;
  input.messages = messages;
  return parsed.Render(input, out, error);
}

std::string RenderText(const std::string& source) {
  MarkedText out;
  std::string error;
  return RenderSource(source, {}, &out, &error) ? out.text() : "refused: " + error;
}

TEST(Jinja, EqualsReferenceByteForByteOverGoldens) {
  const auto goldens =
      nlohmann::ordered_json::parse(ReadAll(std::string(kFolder) + "expected.json"));
  ASSERT_GT(goldens["cases"].size(), 60u);
  for (const auto& entry : goldens["cases"]) {
    const std::string file = entry["template"];
    const auto& conversation = goldens["conversations"][entry["conversation"].get<std::string>()];
    SCOPED_TRACE(file + " over " + entry["conversation"].get<std::string>());
    const std::vector<TemplateMessage> messages = MessagesOf(conversation);
    TemplateInput input;
    input.messages = messages;
    if (conversation.contains("tools")) input.tools_json = conversation["tools"].dump();
    input.add_generation_prompt = conversation["prompt"];
    input.now_unix_s = goldens["now"];
    JinjaTemplate parsed;
    MarkedText out;
    std::string error;

    const bool rendered = parsed.Parse(ReadAll(kFolder + file), "<s>", "</s>", &error) &&
                          parsed.Render(input, &out, &error);

    if (entry.contains("refused")) {
      EXPECT_FALSE(rendered) << "the reference refuses: " << entry["refused"] << "\n" << out.text();
    } else {
      EXPECT_TRUE(rendered) << error;
      EXPECT_EQ(out.text(), entry["text"].get<std::string>());
    }
  }
}

struct HostileCase {
  const char* name;
  std::string source;
  const char* reason;
};

std::string Repeated(std::string_view piece, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += piece;
  return out;
}

TEST(Jinja, RefusesHostileTemplatesWithTheLimitInWords) {
  const std::string doubling = "{% set ns = namespace(s='aa') %}{% for i in range(99) %}";
  const HostileCase cases[] = {
      {"nested parentheses", "{{ " + Repeated("(", 50000) + "1" + Repeated(")", 50000) + " }}",
       "nested deeper"},
      {"nested lists", "{{ " + Repeated("[", 5000) + Repeated("]", 5000) + " }}", "nested deeper"},
      {"nested statements", Repeated("{% if 1 %}", 5000), "nested deeper"},
      {"nested nots", "{{ " + Repeated("not ", 50000) + "1 }}", "nested deeper"},
      {"nested signs", "{{ " + Repeated("-", 50000) + "1 }}", "nested deeper"},
      {"elif chain", "{% if 0 %}" + Repeated("{% elif 0 %}", 5000) + "{% endif %}",
       "nested deeper"},
      {"long sum", "{{ 1" + Repeated(" + 1", 50000) + " }}", "nested deeper"},
      {"long member chain", "{{ a" + Repeated(".a", 50000) + " }}", "nested deeper"},
      {"long filter chain", "{{ 1" + Repeated("|abs", 50000) + " }}", "nested deeper"},
      {"nested targets", "{% for " + Repeated("(", 5000) + "a" + Repeated(")", 5000) + " in x %}",
       "nested deeper"},
      {"endless macro", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested deeper"},
      {"endless loop", "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested deeper"},
      {"huge range", "{{ range(10 ** 15)|list }}", "range is limited"},
      {"nested ranges",
       "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
       "more than"},
      {"huge repeat", "{{ 'a' * 10 ** 12 }}", "repetition"},
      {"huge list repeat", "{{ ([1] * 10 ** 12)|length }}", "repetition"},
      {"doubling text", doubling + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "more than"},
      {"doubling replace", doubling + "{% set ns.s = ns.s|replace('a', 'aa') %}{% endfor %}",
       "more than"},
      {"doubling list",
       "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}"
       "{% set ns.s = ns.s + ns.s %}{% endfor %}",
       "more than"},
      {"endless output", "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}", "more than"},
      {"deep value",
       "{% set ns = namespace(v=[]) %}{% for i in range(50000) %}"
       "{% set ns.v = [ns.v] %}{% endfor %}{{ ns.v }}",
       "nested too deep"},
      {"deep JSON",
       "{% set ns = namespace(v=[]) %}{% for i in range(50000) %}"
       "{% set ns.v = [ns.v] %}{% endfor %}{{ ns.v|tojson }}",
       "nested too deep"},
      {"wide format", "{{ '%999999999d' % 1 }}", "width is limited"},
      {"integer overflow", "{{ 9223372036854775807 + 1 }}", "64 bits"},
      {"smallest divided", "{{ (-9223372036854775807 - 1) // -1 }}", "64 bits"},
      {"open comment", "{# x", "not closed"},
      {"bad operator", "{{ 1 ! 2 }}", "unexpected character"},
  };
  for (const HostileCase& hostile : cases) {
    SCOPED_TRACE(hostile.name);
    MarkedText out;
    std::string error;

    EXPECT_FALSE(RenderSource(hostile.source, {}, &out, &error));
    EXPECT_NE(error.find(hostile.reason), std::string::npos) << error;
    EXPECT_LT(error.size(), 300u);
  }
}

TEST(Jinja, NamesTheLineOfAFault) {
  EXPECT_EQ(RenderText("a\nb\n{{ x + 1 }}"), "refused: chat template, line 3: 'x' is undefined");
  EXPECT_EQ(RenderText("a\n{% if %}"), "refused: line 2: expected an expression, found '%}'");
}

TEST(Jinja, KeepsMarksThroughTextOperations) {
  TemplateMessage message;
  message.role = "user";
  message.source = 7;
  message.content = MarkedText(" Secret,Text ", 7);
  const char* const expressions[] = {"m.content",
                                     "m.content|trim",
                                     "m.content|upper|lower",
                                     "m.content[::-1]",
                                     "m.content[2:5]",
                                     "m.content.split(',')|join('')",
                                     "m.content|replace('e', m.content)",
                                     "'%s' % m.content",
                                     "'{}'.format(m.content)",
                                     "m.content ~ ''",
                                     "(m.content + '')|title",
                                     "m.content|list|join",
                                     "[m.content]|first|string",
                                     "m.content.strip().capitalize()"};
  for (const char* expression : expressions) {
    SCOPED_TRACE(expression);
    MarkedText out;
    std::string error;

    ASSERT_TRUE(
        RenderSource("{% for m in messages %}<{{ " + std::string(expression) + " }}>{% endfor %}",
                     std::span(&message, 1), &out, &error))
        << error;

    ASSERT_EQ(out.runs().size(), 3u) << out.text();
    EXPECT_EQ(out.runs()[0], (MarkedText::Run{1, kTemplateSource}));
    EXPECT_EQ(out.runs()[1], (MarkedText::Run{out.size() - 1, 7}));
  }
}

TEST(Jinja, KeepsEscapesOfMarkedTextMarked) {
  TemplateMessage message;
  message.role = "user";
  message.source = 7;
  message.content = MarkedText("\"\n\"", 7);
  MarkedText out;
  std::string error;

  ASSERT_TRUE(
      RenderSource("{{ messages[0].content|tojson }}", std::span(&message, 1), &out, &error));

  EXPECT_EQ(out.text(), "\"\\\"\\n\\\"\"");
  EXPECT_EQ(out.runs(), (std::vector<MarkedText::Run>{{1, 0}, {7, 7}, {8, 0}}));
}

}  // namespace
}  // namespace kairos
