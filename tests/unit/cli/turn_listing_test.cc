// SPDX-License-Identifier: Apache-2.0
#include "cli/turn_listing.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/listing.h"
#include "cli/words.h"
#include "sidecar/session/turn_history.h"

namespace kairos {
namespace {

kairos_final_t Final(uint64_t session, uint64_t version) {
  kairos_final_t final{};
  final.struct_size = sizeof(final);
  final.session_id = session;
  final.version = version;
  final.finish = KAIROS_FINISH_STOP;
  final.prompt_tokens = 100;
  final.reused_tokens = 60;
  final.recomputed_tokens = 30;
  final.new_tokens = 10;
  final.recomputed_by[KAIROS_REASON_EVICTED] = 20;
  final.recomputed_by[KAIROS_REASON_RESTART] = 10;
  final.stage_ns[KAIROS_STAGE_PREFILL] = 12'300'000;
  final.first_difference = -1;
  final.label = KAIROS_LABEL_CLARIFICATION;
  final.plan = KAIROS_PLAN_LIGHTWEIGHT_REFINE;
  std::string("say_again").copy(final.rule, sizeof(final.rule) - 1);
  return final;
}

TEST(TurnHistory, TellsASessionsTurnsToTheTool) {
  TurnHistory history;
  history.Add(Final(7, 1), 1000);
  history.Add(Final(8, 1), 1500);
  history.Add(Final(7, 2), 2000);

  const std::string text = TurnParagraphs(history.Json(SessionId{7}), 5000);
  const auto json = nlohmann::json::parse(TurnsJson(history.Json(SessionId{7})));

  for (const char* words :
       {"version 2, 3 s ago, ended by stop", "version 1, 4 s ago", "100 tokens: 60 reused",
        "20 evicted: other sessions needed the memory", "10 restart: kairosd started anew",
        "clarification, plan lightweight_refine, by rule say_again", "prefill 12.3 ms"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  EXPECT_LT(text.find("version 2"), text.find("version 1")) << "the newest comes first";
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["version"], 1);
  EXPECT_EQ(json[1]["recomputed_by"], (nlohmann::json{{"evicted", 20}, {"restart", 10}}));
  EXPECT_EQ(json[1]["finished_unix_ms"], 2000);
}

TEST(TurnHistory, KeepsTheNewestTurnsAndForgetsDeletedSessions) {
  TurnHistory history;
  for (uint64_t i = 0; i < TurnHistory::kTurnsMax + 5; ++i) history.Add(Final(7, i + 1), i);
  history.Add(Final(8, 1), 1);

  const auto rows = nlohmann::json::parse(history.Json(SessionId{7}));
  ASSERT_EQ(rows.size(), TurnHistory::kTurnsMax - 1);
  EXPECT_EQ(rows[0]["version"], 7);

  history.Forget(SessionId{7});
  EXPECT_EQ(history.Json(SessionId{7}), "[]");
  EXPECT_EQ(nlohmann::json::parse(history.Json(SessionId{8})).size(), 1u);
}

TEST(TurnListing, SaysSoWhereThereIsNoTurn) {
  EXPECT_NE(TurnParagraphs("[]", 0).find("no turn of this session is remembered"),
            std::string::npos);
  EXPECT_EQ(TurnsJson("not JSON"), "[]");
}

TEST(Words, HaveAnEntryForEveryNumberOfTheHeader) {
  for (uint32_t reason = 0; reason <= KAIROS_REASON_OTHER_FORMAT; ++reason) {
    EXPECT_STRNE(ReasonText(reason), "unknown") << reason;
    EXPECT_STRNE(ReasonWords(reason), "unknown") << reason;
  }
  for (uint32_t stage = 0; stage <= KAIROS_STAGE_COMMIT; ++stage) {
    EXPECT_STRNE(StageText(stage), "unknown") << stage;
  }
  for (int32_t label = KAIROS_LABEL_NEW_TOPIC; label <= KAIROS_LABEL_TOOL_RETURN; ++label) {
    EXPECT_STRNE(LabelText(label), "unknown") << label;
  }
}

TEST(Listing, ShowsWhatOfATaskContextIsFilledIn) {
  const std::string text = ContextParagraph(
      R"({"goal":"Go to Rome","entities":[{"name":"Rome","kind":"quoted","source_message":0}],)"
      R"("done_steps":[],"pending_actions":[{"tool":"book","tool_call_id":"call_1"}],)"
      R"("facts":[{"text":"It is\u001b[2J far"}],"extra":{}})");

  EXPECT_EQ(text,
            "goal       Go to Rome\nentity     quoted Rome (message 0)\npending    book call_1\n"
            "fact       It is\\x1b[2J far\n");
  EXPECT_EQ(ContextParagraph("{}"), "");
}

TEST(Listing, QuotesMessagesInMarkdownSoThatTheyCannotMakeHeadings) {
  kairos_session_t session{};
  session.id = 7;

  const std::string text = SessionMarkdown(
      session, "", "{}", {R"({"version":1,"parent":0,"created_unix_ms":0,"token_count":5,)"
                          R"("message_count":1,"phase":3,"waiting_for":""})"},
      R"([{"role":"user","content":"one\n# two"}])");

  EXPECT_NE(text.find("# Session 0000000000000007\n"), std::string::npos) << text;
  EXPECT_NE(text.find("| 1 | 0 | 1970-01-01T00:00:00Z | 5 | 1 | waiting_user |\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("### user\n\n> one\n> # two\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace kairos
