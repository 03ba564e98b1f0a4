// SPDX-License-Identifier: Apache-2.0
// One table of replies in every family's format. Each is read whole and compared with what is
// expected, then cut in many ways, which must change nothing.
#include "sidecar/chat/calls/tool_stream.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace kairos {
namespace {

using Kind = ToolEvent::Kind;

constexpr WireFamily kHermes = WireFamily::kHermes;
constexpr WireFamily kLlama3 = WireFamily::kLlama3;
constexpr WireFamily kChatMl = WireFamily::kChatMl;
constexpr WireFamily kGemma3 = WireFamily::kGemma3;
constexpr WireFamily kFunctionGemma = WireFamily::kFunctionGemma;

struct ReplyCase {
  WireFamily family;
  std::string reply;
  std::string seen;  // by Show()
};

const char* NameOf(CallFault fault) {
  switch (fault) {
    case CallFault::kNone: return "none";
    case CallFault::kMalformed: return "malformed";
    case CallFault::kNoName: return "no name";
    case CallFault::kNoArguments: return "no arguments";
    case CallFault::kTooDeep: return "too deep";
    case CallFault::kUnfinished: return "unfinished";
    case CallFault::kUnknownTool: return "unknown tool";
    case CallFault::kTooLarge: return "too large";
  }
  return "?";
}

// Text as it is, reasoning in (), calls in [], broken ones in {}.
std::string Show(const std::vector<ToolEvent>& events) {
  std::string shown;
  for (const ToolEvent& event : events) {
    switch (event.kind) {
      case Kind::kText: shown += event.text; break;
      case Kind::kReasoning: shown += "(" + event.text + ")"; break;
      case Kind::kCall:
        shown += "[" + event.call.id + " " + event.call.name + " " + event.call.arguments + "]";
        break;
      case Kind::kBrokenCall:
        shown += "{" + std::string(NameOf(event.fault)) + ": " + event.text + "}";
        break;
      case Kind::kMarkup:
      case Kind::kCallBegin:
      case Kind::kArguments: break;
    }
  }
  return shown;
}

// Everything of every event, neighbours that may be joined being joined.
std::string ShowAll(const std::vector<ToolEvent>& events) {
  std::string shown;
  Kind last = Kind::kCall;
  for (const ToolEvent& event : events) {
    const bool joins = event.kind == last && event.kind != Kind::kCall &&
                       event.kind != Kind::kCallBegin && event.kind != Kind::kBrokenCall;
    if (!joins) {
      shown += "\n" + std::to_string(static_cast<int>(event.kind)) + "," +
               std::to_string(event.index) + "," + std::to_string(static_cast<int>(event.fault)) +
               "," + event.call.id + "," + event.call.name + "," + event.call.arguments + ":";
    }
    shown += event.text;
    last = event.kind;
  }
  return shown;
}

std::string Source(const std::vector<ToolEvent>& events) {
  std::string source;
  for (const ToolEvent& event : events) {
    if (event.kind != Kind::kArguments) source += event.text;
  }
  return source;
}

// `cuts`: where a new Feed() begins, ascending.
std::vector<ToolEvent> Read(WireFamily family, std::string_view reply,
                            const std::vector<std::string>& tools = {},
                            const std::vector<size_t>& cuts = {}) {
  ToolStream stream(WireFormatOf(family), "c", tools);
  std::vector<ToolEvent> events;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    stream.Feed(reply.substr(begin, cut - begin), &events);
    begin = cut;
  }
  stream.Feed(reply.substr(begin), &events);
  stream.Finish(&events);
  return events;
}

std::string Nested(size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

const std::vector<ReplyCase> kCases = {
    // Hermes
    {kHermes, "", ""},
    {kHermes, "plain text, 1 < 2, <tool>, \xE4\xBD\xA0\xE5\xA5\xBD",
     "plain text, 1 < 2, <tool>, \xE4\xBD\xA0\xE5\xA5\xBD"},
    {kHermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
     "[c0 f {\"a\":1}]"},
    {kHermes, "Look: <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n\ndone",
     "Look: [c0 f {}]done"},
    {kHermes,
     "<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n</tool_call>\n"
     "<tool_call>\n{\"name\":\"g\",\"arguments\":{\"x\":[1,2]}}\n</tool_call>",
     "[c0 f {}][c1 g {\"x\":[1,2]}]"},
    {kHermes, "<tool_call>{\"arguments\":{\"a\":\"b c\"},\"id\":7,\"name\":\"f\"}</tool_call>",
     "[c0 f {\"a\":\"b c\"}]"},
    {kHermes, "<tool_call>{\"name\":\"f\",\"parameters\":{}}</tool_call>", "[c0 f {}]"},
    {kHermes,
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"t\":\"</tool_call> \\\" }\"}}</tool_call>",
     "[c0 f {\"t\":\"</tool_call> \\\" }\"}]"},
    {kHermes,
     "<tool_call>{\"name\":\"\\u0066\\u00e9\",\"arguments\":{\"n\":12345678901234567890123}}",
     "[c0 f\xC3\xA9 {\"n\":12345678901234567890123}]"},
    {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":\"\xE4\xBD\xA0\"}}</tool_",
     "[c0 f {\"x\":\"\xE4\xBD\xA0\"}]"},
    {kHermes, "<think>\nHm, <tool_call>?\n</think>\n\nYes.", "(Hm, <tool_call>?\n)Yes."},
    {kHermes, " \n<think>a</think><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
     " \n(a)[c0 f {}]"},
    {kHermes, "<think>never </thin", "(never </thin)"},
    {kHermes, "No <think>tag</think> here.", "No <think>tag</think> here."},
    {kHermes, "<think>a</think>b<think>c</think>", "(a)b<think>c</think>"},
    {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call><think>a</think>",
     "[c0 f {}]<think>a</think>"},
    {kHermes, "<tool_call>oops</tool_call>", "{malformed: <tool_call>}oops</tool_call>"},
    {kHermes, "<tool_call>{'name':'f'}", "{malformed: <tool_call>{}'name':'f'}"},
    {kHermes, "<tool_call>{\"arguments\":{}}</tool_call>",
     "{no name: <tool_call>{\"arguments\":{}}}</tool_call>"},
    {kHermes, "<tool_call>{\"name\":\"\",\"arguments\":{}}</tool_call>",
     "{no name: <tool_call>{\"name\":\"}\",\"arguments\":{}}</tool_call>"},
    {kHermes, "<tool_call>{\"name\":5}", "{no name: <tool_call>{\"name\":}5}"},
    {kHermes, "<tool_call>{\"name\":\"f\"}</tool_call>",
     "{no arguments: <tool_call>{\"name\":\"f\"}}</tool_call>"},
    {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":[1]}",
     "{no arguments: <tool_call>{\"name\":\"f\",\"arguments\":}[1]}"},
    {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":\"{}\"}",
     "{no arguments: <tool_call>{\"name\":\"f\",\"arguments\":}\"{}\"}"},
    {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":",
     "{unfinished: <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":}"},
    {kHermes, "<tool_call>", "{unfinished: <tool_call>}"},
    {kHermes, "<tool_cal", "<tool_cal"},
    {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":01}}",
     "{malformed: <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":0}1}}"},
    {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\\ud800\"}}</tool_call>",
     "{malformed: <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\\ud800\"}}}</tool_call>"},
    {kHermes, "<tool_call>{\"name\":\"f\",\"name\":\"g\",\"arguments\":{}}</tool_call>",
     "{malformed: <tool_call>{\"name\":\"f\",\"name}\":\"g\",\"arguments\":{}}</tool_call>"},
    {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{}} and</tool_call>",
     "{malformed: <tool_call>{\"name\":\"f\",\"arguments\":{}} }and</tool_call>"},
    {kHermes, "<tool_call>x<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
     "{malformed: <tool_call>}x[c0 f {}]"},
    {kHermes,
     "<tool_call>{\"name\":\"f\",\"arguments\":{}}"
     "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>",
     "{malformed: <tool_call>{\"name\":\"f\",\"arguments\":{}}}[c0 g {}]"},
    {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":" + Nested(62) + "}}</tool_call>",
     "[c0 f {\"a\":" + Nested(62) + "}]"},
    {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":" + Nested(63) + "}}",
     "{too deep: <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":" + std::string(62, '[') + "}[" +
         std::string(63, ']') + "}}"},
    {kHermes, "{\"name\":\"f\",\"arguments\":{}}", "{\"name\":\"f\",\"arguments\":{}}"},
    {kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\xFF\"}}</tool_call>\xFF",
     "{malformed: <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\xFF\"}}}</tool_call>\xFF"},
    // ChatML
    {kChatMl, "{\"name\": \"f\", \"arguments\": {\"a\": true}}\n", "[c0 f {\"a\":true}]"},
    {kChatMl, "\n {\"type\":\"function\",\"name\":\"f\",\"parameters\":{}}", "\n [c0 f {}]"},
    {kChatMl, "<think>x</think>\n{\"name\":\"f\",\"arguments\":{}}", "(x)[c0 f {}]"},
    {kChatMl, "{\"city\": \"Rome\", \"name\": 1}", "{\"city\": \"Rome\", \"name\": 1}"},
    {kChatMl, "{\"name\": \"Ada\", \"born\": 1815}", "{\"name\": \"Ada\", \"born\": 1815}"},
    {kChatMl, "{\"name\": \"Ada\"", "{\"name\": \"Ada\""},
    {kChatMl, "{\"name\":\"f\",\"arguments\":{}} is it.",
     "{malformed: {\"name\":\"f\",\"arguments\":{}} }is it."},
    {kChatMl, "So: {\"name\":\"f\",\"arguments\":{}}", "So: {\"name\":\"f\",\"arguments\":{}}"},
    {kChatMl, "{\"name\":\"f\",\"arguments\":{\"a\"",
     "{unfinished: {\"name\":\"f\",\"arguments\":{\"a\"}"},
    {kChatMl,
     "<tool_call>[{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"g\",\"arguments\":{\"a\":null}}]"
     "</tool_call>",
     "[c0 f {}][c1 g {\"a\":null}]"},
    {kChatMl, "<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n{\"name\":\"g\",\"arguments\":{}}\n",
     "[c0 f {}][c1 g {}]"},
    {kChatMl, "<tool_call>[]</tool_call>", "{malformed: <tool_call>[}]</tool_call>"},
    {kChatMl, "<tool_call>[{\"name\":\"f\",\"arguments\":{}}, 5]",
     "{malformed: <tool_call>[{\"name\":\"f\",\"arguments\":{}}, }5]"},
    {kChatMl, "<tool_call>[{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"g\"}]</tool_call>",
     "{no arguments: <tool_call>[{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"g\"}}]"
     "</tool_call>"},
    // Llama 3
    {kLlama3, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "[c0 f {\"a\":1}]"},
    {kLlama3, "Let me see.\n  {\"name\":\"f\",\"parameters\":{}}\nThere.",
     "Let me see.\n  [c0 f {}]There."},
    {kLlama3, "{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{}}",
     "[c0 f {}][c1 g {}]"},
    {kLlama3, "{\"name\":\"f\",\"arguments\":{}}\n{\"name\":\"g\",\"parameters\":{}}; bye; now",
     "[c0 f {}][c1 g {}]bye; now"},
    {kLlama3, "A set {1, 2} and {\"name\":\"f\",\"parameters\":{}}",
     "A set {1, 2} and {\"name\":\"f\",\"parameters\":{}}"},
    {kLlama3, "int f()\n{\n  return 1;\n}", "int f()\n{\n  return 1;\n}"},
    {kLlama3, "<|python_tag|>brave_search.call(query=\"new \\\"york\\\"\")",
     "[c0 brave_search {\"query\":\"new \\\"york\\\"\"}]"},
    {kLlama3, "<|python_tag|>print(\"hi\")\nx = {1: 2}\n",
     "[c0 code_interpreter {\"code\":\"print(\\\"hi\\\")\\nx = {1: 2}\"}]"},
    {kLlama3,
     "<|python_tag|>{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{}}",
     "[c0 f {}][c1 g {}]"},
    {kLlama3, "<|python_tag|>{\"name\":\"f\"}", "{no arguments: <|python_tag|>{\"name\":\"f\"}}"},
    {kLlama3, "<|python_tag|> ", "{unfinished: <|python_tag|> }"},
    {kLlama3, "<|python_tag|>\xFF", "{malformed: <|python_tag|>\xFF}"},
    // Gemma 3
    {kGemma3, "{\"name\": \"f\", \"parameters\": {}}", "[c0 f {}]"},
    {kGemma3, "```json\n{\"name\": \"f\", \"parameters\": {}}\n```", "[c0 f {}]"},
    {kGemma3, "Data:\n```json\n{\"a\": 1}\n```\n", "Data:\n```json\n{\"a\": 1}\n```\n"},
    {kGemma3, "[f(a=1, b='x\\'y', c=[True, None, -2.5e3], d={\"k\": \"v\", 'l': {}})]",
     "[c0 f {\"a\":1,\"b\":\"x'y\",\"c\":[true,null,-2.5e3],\"d\":{\"k\":\"v\",\"l\":{}}}]"},
    {kGemma3, "[f(), g.h( x = \"\\x41\\u00e9\\q\" , ) ]\n",
     "[c0 f {}][c1 g.h {\"x\":\"\\u0041\\u00e9\\\\q\"}]"},
    {kGemma3, "I will.\n```tool_code\nf(a=1)\ng(b=\"2\")\n```\nDone.",
     "I will.\n[c0 f {\"a\":1}][c1 g {\"b\":\"2\"}]Done."},
    {kGemma3, "```tool_code\nf(1)\n```", "{no arguments: ```tool_code\nf(}1)\n```"},
    {kGemma3, "```tool_code\nf(a=b)\n```", "{malformed: ```tool_code\nf(a=b})\n```"},
    {kGemma3, "```tool_code\nf(a=1", "{unfinished: ```tool_code\nf(a=1}"},
    {kGemma3, "```python\nf(a=1)\n```", "```python\nf(a=1)\n```"},
    {kGemma3, "[link](http://x) and [1, 2]", "[link](http://x) and [1, 2]"},
    {kGemma3, "[f(a=1)] is what I call", "{malformed: [f(a=1)] }is what I call"},
    {kGemma3, "[f(a=1)", "{unfinished: [f(a=1)}"},
    {kGemma3, "[f(a=" + std::string(63, '[') + "[",
     "{too deep: [f(a=" + std::string(63, '[') + "}["},
    // FunctionGemma
    {kFunctionGemma,
     "<start_function_call>call:get_weather{city:<escape>New \"York\"\n<escape>,days:3}"
     "<end_function_call>",
     "[c0 get_weather {\"city\":\"New \\\"York\\\"\\n\",\"days\":3}]"},
    {kFunctionGemma,
     "<start_function_call>call:f{o:{a:true,l:[<escape><esc<escape>,null]},n:-1}"
     "<end_function_call><start_function_call>call:g-2{}<end_function_call>",
     "[c0 f {\"o\":{\"a\":true,\"l\":[\"<esc\",null]},\"n\":-1}][c1 g-2 {}]"},
    {kFunctionGemma, "Sure. <start_function_call>call:f{}", "Sure. [c0 f {}]"},
    {kFunctionGemma,
     "<start_function_call>call:f{}<end_function_call><start_function_response>", "[c0 f {}]"},
    {kFunctionGemma, "<start_function_resp", "<start_function_resp"},
    {kFunctionGemma, "<start_function_call>f{}<end_function_call>",
     "{malformed: <start_function_call>}f{}<end_function_call>"},
    {kFunctionGemma, "<start_function_call>call:{}<end_function_call>",
     "{no name: <start_function_call>call:}{}<end_function_call>"},
    {kFunctionGemma, "<start_function_call>call:f{a:<escape>b",
     "{unfinished: <start_function_call>call:f{a:<escape>b}"},
    {kFunctionGemma, "<start_function_call>call:f{a:b}",
     "{malformed: <start_function_call>call:f{a:b}}"},
};

TEST(ToolStream, FindsTextReasoningAndCallsOfEveryFamily) {
  for (const ReplyCase& one : kCases) {
    SCOPED_TRACE(std::string(WireFormatOf(one.family).name) + " " + one.reply);
    EXPECT_EQ(Show(Read(one.family, one.reply)), one.seen);
  }
}

TEST(ToolStream, LosesNoByteInAnyFamily) {
  for (const ReplyCase& one : kCases) {
    for (const WireFormat& format : WireFormats()) {
      SCOPED_TRACE(std::string(format.name) + " " + one.reply);
      EXPECT_EQ(Source(Read(format.family, one.reply)), one.reply);
    }
  }
}

TEST(ToolStream, SaysTheSameHoweverTheBytesAreCut) {
  constexpr uint32_t kSeed = 20240817;
  std::mt19937 random(kSeed);
  for (const ReplyCase& one : kCases) {
    for (const WireFormat& format : WireFormats()) {
      SCOPED_TRACE(std::string(format.name) + " seed " + std::to_string(kSeed) + " " + one.reply);
      const std::string whole = ShowAll(Read(format.family, one.reply));
      std::vector<size_t> every;
      for (size_t i = 1; i < one.reply.size(); ++i) {
        every.push_back(i);
        ASSERT_EQ(ShowAll(Read(format.family, one.reply, {}, {i})), whole) << i;
      }
      ASSERT_EQ(ShowAll(Read(format.family, one.reply, {}, every)), whole);
      for (int round = 0; round < 10; ++round) {
        std::vector<size_t> some;
        for (const size_t cut : every) {
          if (random() % 4 == 0) some.push_back(cut);
        }
        ASSERT_EQ(ShowAll(Read(format.family, one.reply, {}, some)), whole);
      }
    }
  }
}

TEST(ToolStream, GivesArgumentsInPiecesThatAreThoseOfTheCall) {
  size_t compared = 0;
  for (const ReplyCase& one : kCases) {
    SCOPED_TRACE(one.reply);
    std::map<uint32_t, std::string> pieces;
    std::map<uint32_t, std::string> names;
    for (const ToolEvent& event : Read(one.family, one.reply)) {
      if (event.kind == Kind::kCallBegin) names[event.index] = event.call.name;
      if (event.kind == Kind::kArguments) pieces[event.index] += event.text;
      if (event.kind == Kind::kBrokenCall) pieces.clear();
      if (event.kind != Kind::kCall) continue;
      EXPECT_EQ(names[event.index], event.call.name);
      EXPECT_EQ(CompactJson(pieces[event.index]), event.call.arguments);
      ++compared;
    }
  }
  EXPECT_GT(compared, 30u);
}

TEST(ToolStream, TellsACallAsSoonAsItsMarkerCloses) {
  ToolStream stream(WireFormatOf(kHermes), "call_7_", {});
  std::vector<ToolEvent> events;

  stream.Feed("<tool_call>{\"name\":\"f\",\"argu", &events);
  EXPECT_TRUE(events.empty());
  stream.Feed("ments\":{\"a\"", &events);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, Kind::kCallBegin);
  EXPECT_EQ(events[0].call.name, "f");
  EXPECT_EQ(events[1].kind, Kind::kArguments);
  EXPECT_EQ(events[1].text, "{\"a\"");
  stream.Feed(": 1}}</tool_call>", &events);

  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].text, "{\"a\": 1}");
  EXPECT_EQ(events[2].kind, Kind::kCall);
  EXPECT_EQ(events[2].call.id, "call_7_0");
  EXPECT_EQ(events[2].call.arguments, "{\"a\":1}");
}

TEST(ToolStream, HoldsTextBackOnlyWhileItMayBeginAMarker) {
  ToolStream stream(WireFormatOf(kChatMl), "", {});
  std::vector<ToolEvent> events;

  stream.Feed("a <tool", &events);
  EXPECT_EQ(Show(events), "a ");
  stream.Feed("s", &events);
  EXPECT_EQ(Show(events), "a <tools");

  ToolStream object(WireFormatOf(kChatMl), "", {});
  events.clear();
  object.Feed("{\"city", &events);
  EXPECT_EQ(Show(events), "");
  object.Feed("\"", &events);
  EXPECT_EQ(Show(events), "{\"city\"");
}

TEST(ToolStream, RefusesToolsThatAreNotInTheList) {
  const std::string known = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
  const std::string unknown = "<tool_call>{\"name\":\"g\",\"arguments\":{\"a\":1}}</tool_call>";

  EXPECT_EQ(Show(Read(kHermes, known, {"e", "f"})), "[c0 f {}]");
  EXPECT_EQ(Show(Read(kHermes, unknown + known, {"e", "f"})),
            "{unknown tool: <tool_call>{\"name\":\"g\",\"arguments\":{}\"a\":1}}</tool_call>"
            "[c0 f {}]");
  EXPECT_EQ(Show(Read(kLlama3, "<|python_tag|>print(1)", {"f"})),
            "{unknown tool: <|python_tag|>print(1)}");
  EXPECT_EQ(Source(Read(kHermes, unknown + known, {"f"})), unknown + known);
}

TEST(ToolStream, GivesBackABlockThatGrowsTooLarge) {
  const std::string reply = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"" +
                            std::string(kCallBytesMax, 'x') + "\"}}</tool_call>";

  const std::vector<ToolEvent> events = Read(kHermes, reply);

  EXPECT_EQ(Source(events), reply);
  const auto broken = std::find_if(events.begin(), events.end(), [](const ToolEvent& event) {
    return event.kind == Kind::kBrokenCall;
  });
  ASSERT_NE(broken, events.end());
  EXPECT_EQ(broken->fault, CallFault::kTooLarge);
  EXPECT_EQ(broken->text.size(), kCallBytesMax);
}

TEST(ToolStream, GivesBackTheCallsBeyondTheMost) {
  const std::string call = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
  std::string reply;
  for (uint32_t i = 0; i <= kCallsMax; ++i) reply += call;

  const std::vector<ToolEvent> events = Read(kHermes, reply);

  size_t calls = 0;
  for (const ToolEvent& event : events) calls += event.kind == Kind::kCall ? 1 : 0;
  EXPECT_EQ(calls, kCallsMax);
  EXPECT_EQ(Source(events), reply);
  EXPECT_NE(Show(events).find("{too large: "), std::string::npos);
}

TEST(ToolStream, KeepsEachBytesOrderWhenAnUnfinishedCallFollowsText) {
  const std::string reply = "one <tool_call>{\"name\":\"f\",\"arguments\":{}";

  const std::vector<ToolEvent> events = Read(kHermes, reply);

  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].text, "one ");
  EXPECT_EQ(events[3].kind, Kind::kBrokenCall);
  EXPECT_EQ(events[3].text, "<tool_call>{\"name\":\"f\",\"arguments\":{}");
}

}  // namespace
}  // namespace kairos
