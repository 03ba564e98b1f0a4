// SPDX-License-Identifier: Apache-2.0
#include "sidecar/state/task_context.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace kairos {
namespace {

std::string Normal(std::string_view json) {
  std::string normalised;
  std::string error;
  const Status status = CheckTaskContext(json, &normalised, &error);
  EXPECT_TRUE(status.ok()) << error;
  return normalised;
}

TEST(TaskContext, FillsInAbsentFieldsAndIsStable) {
  const std::string normal = Normal(" { \"goal\" : \"ship it\" } ");

  EXPECT_EQ(normal,
            "{\"done_steps\":[],\"entities\":[],\"extra\":{},\"facts\":[],\"goal\":\"ship it\","
            "\"pending_actions\":[]}");
  EXPECT_EQ(Normal(normal), normal);
  EXPECT_EQ(Normal("{}"), EmptyTaskContext());
}

TEST(TaskContext, KeepsUnknownFieldsUnderExtra) {
  const std::string normal = Normal("{\"mood\":[1,2],\"extra\":{\"a\":true}}");

  EXPECT_NE(normal.find("\"extra\":{\"a\":true,\"mood\":[1,2]}"), std::string::npos) << normal;
}

TEST(TaskContext, NamesTheFieldThatIsWrong) {
  const struct {
    std::string json;
    const char* words;
  } table[] = {
      {"", "not valid JSON"},
      {"[]", "must be a JSON object"},
      {"{\"goal\":1}", "goal must be a string"},
      {"{\"goal\":\"\xff\"}", "UTF-8"},
      {"{\"goal\":\"a\"} x", "not valid JSON"},
      {"{\"goal\":1e999}", "not valid JSON"},
      {"{\"entities\":{}}", "entities must be an array"},
      {"{\"entities\":[1]}", "entities[0] must be an object"},
      {"{\"entities\":[{}]}", "entities[0] lacks \"name\""},
      {"{\"facts\":[{\"text\":\"a\"},{\"text\":\"a\",\"source_message\":-1}]}",
       "facts[1].source_message must be a message index"},
      {"{\"facts\":[{\"text\":\"a\",\"colour\":1}]}", "facts[0] has a field that is not known"},
      {"{\"pending_actions\":[{\"tool\":[]}]}", "pending_actions[0].tool must be a string"},
      {"{\"extra\":[]}", "extra must be an object"},
      {"{\"a\":1,\"extra\":{\"a\":2}}", "given twice"},
      {"{\"a\":" + std::string(40, '[') + std::string(40, ']') + "}", "deeper than 32"},
      {"{\"goal\":\"" + std::string(kTaskContextBytesMax, 'a') + "\"}", "the limit is 262144"},
  };

  for (const auto& row : table) {
    std::string normalised;
    std::string error;
    const Status status = CheckTaskContext(row.json, &normalised, &error);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << row.words;
    EXPECT_NE(error.find(row.words), std::string::npos) << error << " / " << row.words;
    EXPECT_TRUE(normalised.empty());
  }
}

TEST(TaskContext, SurvivesNestingThatIsOnlyText) {
  const std::string text = "{\"goal\":\"" + std::string(1000, '[') + "\\\"{{\"}";

  EXPECT_NE(Normal(text).find("[[[["), std::string::npos);
}

TEST(TaskContext, TakesFirstSentenceAsGoal) {
  const struct {
    const char* message;
    const char* goal;
  } table[] = {
      {"Book a table for 2.5 hours. Then mail me.", "Book a table for 2.5 hours."},
      {"  \n Fix main.cc\nand then", "Fix main.cc"},
      {"\xe5\xb8\xae\xe6\x88\x91\xe8\xae\xa2\xe7\xa5\xa8\xe3\x80\x82\xe8\xb0\xa2\xe8\xb0\xa2",
       "\xe5\xb8\xae\xe6\x88\x91\xe8\xae\xa2\xe7\xa5\xa8\xe3\x80\x82"},
      {"Really? Yes", "Really?"},
      {"", ""},
  };

  for (const auto& row : table) {
    const auto context = nlohmann::json::parse(
        TaskContextFromFirstTurn(EmptyTaskContext(), row.message));
    EXPECT_EQ(context["goal"], row.goal);
  }
}

TEST(TaskContext, CutsLongGoalAtCharacterBoundary) {
  std::string message;
  for (int i = 0; i < 400; ++i) message += "\xe4\xb8\xad";

  const std::string context = TaskContextFromFirstTurn(EmptyTaskContext(), "a" + message);

  EXPECT_EQ(Normal(context), context);
  const std::string goal = nlohmann::json::parse(context)["goal"];
  EXPECT_EQ(goal.size(), 1 + 170 * 3u);
}

TEST(TaskContext, LooksAtTheBeginningOfALongMessageOnly) {
  std::string message = "see /etc/hosts ";
  while (message.size() < 5000) message += "\xe4\xb8\xad ";  // the cut falls inside one of these
  const std::string context =
      TaskContextFromFirstTurn(EmptyTaskContext(), message + "and /etc/passwd");

  EXPECT_EQ(Normal(context), context);
  const auto entities = nlohmann::json::parse(context)["entities"];
  ASSERT_EQ(entities.size(), 1u);
  EXPECT_EQ(entities[0]["name"], "/etc/hosts");
}

TEST(TaskContext, FindsEntitiesOfFirstSentence) {
  const auto context = nlohmann::json::parse(TaskContextFromFirstTurn(
      EmptyTaskContext(),
      "Read /etc/hosts, mail bob@example.org about \"the plan\" on https://example.org/a?b=1 "
      "and/or "
      "\xe3\x80\x8a\xe7\xba\xa2\xe6\xa5\xbc\xe6\xa2\xa6\xe3\x80\x8b."));

  std::vector<std::string> got;
  for (const auto& entity : context["entities"]) {
    got.push_back(std::string(entity["kind"]) + ":" + std::string(entity["name"]));
  }
  EXPECT_EQ(got, (std::vector<std::string>{"path:/etc/hosts", "email:bob@example.org",
                                           "url:https://example.org/a?b=1", "quoted:the plan",
                                           "quoted:\xe7\xba\xa2\xe6\xa5\xbc\xe6\xa2\xa6"}));
}

// The context after `result`, or the words of its refusal.
std::string After(std::string context, ChatMessage* result, uint64_t index,
                  ResultSource source = ResultSource::kTurn) {
  std::string error;
  const Status status = TaskContextAfterToolResult(source, index, result, &context, &error);
  EXPECT_TRUE(status.ok() || status.code() == Code::kInvalidArgument);
  return status.ok() ? context : error;
}

std::string After(const std::string& context, ChatMessage result, uint64_t index,
                  ResultSource source = ResultSource::kTurn) {
  return After(context, &result, index, source);
}

constexpr char kThreeCalls[] =
    R"([{"id":"c1","name":"lamp"},{"id":"c2","name":"door"},{"id":"c3","name":"lamp"}])";

TEST(TaskContext, TheFirstTurnFillsInOnlyWhatTheClientDidNotWrite) {
  const std::string written = Normal(
      R"({"goal":"Book a hotel","entities":[{"name":"Tom"}],"facts":[{"text":"vegetarian"}],)"
      R"("done_steps":[{"text":"paid"}],"pending_actions":[{"tool":"mail"}],"extra":{"id":4711}})");
  EXPECT_EQ(TaskContextFromFirstTurn(written, "See /etc/hosts."), written);

  const auto facts = nlohmann::json::parse(
      TaskContextFromFirstTurn(Normal(R"({"facts":[{"text":"x"}]})"), "See /etc/hosts."));
  EXPECT_EQ(facts["goal"], "See /etc/hosts.");
  EXPECT_EQ(facts["entities"][0]["name"], "/etc/hosts");
  EXPECT_EQ(facts["facts"][0]["text"], "x");
}

TEST(TaskContext, RefusesAKeyThatIsThereTwiceAndNamesItsPlace) {
  std::string normal;
  std::string error;
  const Status status =
      CheckTaskContext(R"({"facts":[{"text":"a","text":"b"}]})", &normal, &error);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(error, R"(task context.facts[0]: the key "text" is there twice)");
}

TEST(TaskContext, AFullContextStaysWholeInTheFirstTurn) {
  const std::string full =
      Normal("{\"big\":\"" + std::string(kTaskContextBytesMax - 120, 'x') + "\"}");
  EXPECT_EQ(TaskContextFromFirstTurn(full, std::string(500, 'y')), full);
}

TEST(TaskContext, MovesPendingActionToDoneStepsWhenItsResultComes) {
  std::string context = TaskContextFromFirstTurn(EmptyTaskContext(), "Weather?");
  context = TaskContextAfterToolCalls(
      context,
      "[{\"id\":\"c1\",\"name\":\"weather\"},"
      "{\"id\":\"c2\",\"function\":{\"name\":\"mail\"}}, 3]",
      2);
  auto parsed = nlohmann::json::parse(context);
  ASSERT_EQ(parsed["pending_actions"].size(), 2u);
  EXPECT_EQ(parsed["pending_actions"][1]["tool"], "mail");

  context = After(context, {"tool", "sent", "", "c2", ""}, 3);

  parsed = nlohmann::json::parse(context);
  ASSERT_EQ(parsed["pending_actions"].size(), 1u);
  EXPECT_EQ(parsed["pending_actions"][0]["tool"], "weather");
  EXPECT_EQ(parsed["done_steps"][0]["text"], "mail");
  EXPECT_EQ(parsed["facts"][0]["text"], "sent");
  EXPECT_EQ(parsed["facts"][0]["source_message"], 3);
  EXPECT_EQ(parsed["facts"][0]["tool"], "mail");
  EXPECT_EQ(Normal(context), context);
}

TEST(TaskContext, NotesResultThatNobodyWaitedForAsFactOnly) {
  const std::string context =
      After("not json", {"tool", "x", "f", "c9", ""}, 1);

  const auto parsed = nlohmann::json::parse(context);
  EXPECT_TRUE(parsed["done_steps"].empty());
  EXPECT_EQ(parsed["facts"].size(), 1u);
}

TEST(TaskContext, AResultWithoutIdAndNameAnswersTheOnlyCallThatIsWaitedFor) {
  std::string context =
      TaskContextAfterToolCalls(EmptyTaskContext(), R"([{"id":"c1","name":"lamp"}])", 1);
  const std::string given_up = TaskContextAfterToolTimeout(context, 5);
  for (const std::string& before : {context, given_up}) {
    ChatMessage result{"tool", "on", "", "", ""};
    const auto after = nlohmann::json::parse(After(before, &result, 2));
    EXPECT_TRUE(after["pending_actions"].empty());
    EXPECT_EQ(after["done_steps"][0]["text"], "lamp");
    EXPECT_EQ(after["facts"][0]["tool"], "lamp");
    EXPECT_EQ(result.name, "lamp");
    EXPECT_EQ(result.tool_call_id, "c1");
  }

  context = TaskContextAfterToolCalls(given_up, R"([{"id":"c2","name":"door"}])", 3);
  ChatMessage result{"tool", "open", "", "", ""};
  After(context, &result, 4);
  EXPECT_EQ(result.tool_call_id, "c2");
}

TEST(TaskContext, RefusesAResultThatAnswersNoneOrMayAnswerSeveral) {
  const std::string context = TaskContextAfterToolCalls(EmptyTaskContext(), kThreeCalls, 1);
  const char* pending = "pending: c1 (lamp), c2 (door), c3 (lamp)";
  const struct {
    ChatMessage result;
    std::string words;
  } table[] = {
      {{"tool", "x", "", "", ""},
       "tool_call_id: must be given, or name, since 3 calls are pending: c1 (lamp), c2 (door), "
       "c3 (lamp)"},
      {{"tool", "x", "", "c9", ""},
       std::string("tool_call_id: \"c9\" is of no pending call; ") + pending},
      {{"tool", "x", "lamp", "c9", ""},
       std::string("tool_call_id: \"c9\" is of no pending call; ") + pending},
      {{"tool", "x", "bell", "", ""},
       std::string("name: \"bell\" is of no pending call; ") + pending},
  };
  for (const auto& row : table) EXPECT_EQ(After(context, row.result, 2), row.words);

  ChatMessage result{"tool", "x", "lamp", "", ""};
  After(context, &result, 2);
  EXPECT_EQ(result.tool_call_id, "c1");
}

TEST(TaskContext, AResentResultMayHaveAnIdOfTheClientsOwn) {
  std::string context = TaskContextAfterToolCalls(EmptyTaskContext(), kThreeCalls, 1);
  ChatMessage named{"tool", "x", "door", "own-2", ""};
  context = After(context, &named, 2, ResultSource::kResent);
  EXPECT_EQ(named.tool_call_id, "own-2");
  EXPECT_EQ(context.find("\"tool\":\"door\",\"tool_call_id\""), std::string::npos) << context;
  const auto two = nlohmann::json::parse(
      After(context, {"tool", "x", "", "own-1", ""}, 3, ResultSource::kResent));
  EXPECT_EQ(two["pending_actions"].size(), 2u);  // it may be of either

  context = After(context, {"tool", "x", "", "c1", ""}, 3, ResultSource::kResent);
  const auto last = nlohmann::json::parse(
      After(context, {"tool", "x", "", "own-3", ""}, 4, ResultSource::kResent));
  EXPECT_TRUE(last["pending_actions"].empty());
  const auto told = nlohmann::json::parse(
      After(context, {"tool", "x", "", "", ""}, 4, ResultSource::kTold));
  EXPECT_EQ(told["pending_actions"].size(), 1u);
}

TEST(TaskContext, ACutTakesTheCallsAlongThatStoodBehindIt) {
  std::string context = Normal(R"({"pending_actions":[{"tool":"own"}]})");
  context = TaskContextAfterToolCalls(context, R"([{"id":"c1","name":"lamp"}])", 3);

  EXPECT_EQ(TaskContextAfterCut(context, 4), context);
  const auto cut = nlohmann::json::parse(TaskContextAfterCut(context, 3));
  ASSERT_EQ(cut["pending_actions"].size(), 1u);
  EXPECT_EQ(cut["pending_actions"][0]["tool"], "own");
}

TEST(TaskContext, StaysBoundedOverManyResultsAndCountsWhatItDropped) {
  std::string context = Normal("{\"big\":\"" + std::string(50'000, 'x') + "\"}");

  for (uint64_t i = 0; i < 300; ++i) {
    context = TaskContextAfterToolCalls(context, "[{\"id\":\"c\",\"name\":\"f\"}]", 2 * i);
    context = After(context, {"tool", std::string(5000, 'y'), "f", "c", ""}, 2 * i + 1);
    ASSERT_LE(context.size(), kTaskContextBytesMax);
  }

  const auto parsed = nlohmann::json::parse(context);
  EXPECT_EQ(parsed["facts"].size(), kTaskContextFactsKept);
  EXPECT_EQ(parsed["facts"].back()["source_message"], 599);
  EXPECT_EQ(parsed["done_steps"].size(), kTaskContextStepsKept);
  EXPECT_EQ(parsed["dropped"], 300 - 64 + 300 - 256);
  EXPECT_TRUE(parsed["pending_actions"].empty());
}

TEST(TaskContext, ATimeOutMarksPendingActionsOnceAndReadsBackFromAClient) {
  const std::string calls =
      TaskContextAfterToolCalls(EmptyTaskContext(), R"([{"id":"a","name":"clock"}])", 1);
  const std::string once = TaskContextAfterToolTimeout(calls, 60'000);
  EXPECT_NE(once.find(R"("timed_out_after_ms":60000)"), std::string::npos) << once;
  EXPECT_EQ(TaskContextAfterToolTimeout(once, 5), once);
  std::string normalised;
  std::string error;
  EXPECT_TRUE(CheckTaskContext(once, &normalised, &error).ok()) << error;
  EXPECT_EQ(normalised, once);
  const std::string wrong =
      R"({"pending_actions":[{"tool":"clock","timed_out_after_ms":"soon"}]})";
  EXPECT_FALSE(CheckTaskContext(wrong, &normalised, &error).ok());
  EXPECT_NE(error.find("timed_out_after_ms must be a count"), std::string::npos) << error;
}

}  // namespace
}  // namespace kairos
