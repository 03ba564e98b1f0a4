// SPDX-License-Identifier: Apache-2.0
#include "cli/turn_listing.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/printable_text.h"
#include "cli/words.h"

namespace kairos {

namespace {

using Json = nlohmann::json;

struct FinishedTurn {
  kairos_final_t final{};
  uint64_t finished_unix_ms = 0;
};

// A number, or 0 where the sidecar is of a version that does not give it.
template <typename Number>
void Take(const Json& object, const char* name, Number* out) {
  const auto found = object.find(name);
  if (found != object.end() && found->is_number()) *out = found->get<Number>();
}

template <size_t kCount>
void Take(const Json& object, const char* name, uint64_t (*out)[kCount]) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array()) return;
  for (size_t i = 0; i < std::min(kCount, found->size()); ++i) {
    if ((*found)[i].is_number()) (*out)[i] = (*found)[i].get<uint64_t>();
  }
}

std::vector<FinishedTurn> ReadTurns(std::string_view text) {
  std::vector<FinishedTurn> turns;
  const Json rows = Json::parse(text, nullptr, false);
  if (!rows.is_array()) return turns;
  for (const Json& row : rows) {
    if (!row.is_object()) continue;
    FinishedTurn& turn = turns.emplace_back();
    kairos_final_t& final = turn.final;
    Take(row, "finished_unix_ms", &turn.finished_unix_ms);
    Take(row, "finish", &final.finish);
    Take(row, "version", &final.version);
    Take(row, "prompt_tokens", &final.prompt_tokens);
    Take(row, "new_tokens", &final.new_tokens);
    Take(row, "reused_tokens", &final.reused_tokens);
    Take(row, "shared_tokens", &final.shared_tokens);
    Take(row, "recomputed_tokens", &final.recomputed_tokens);
    Take(row, "generated_tokens", &final.generated_tokens);
    Take(row, "recomputed_by", &final.recomputed_by);
    Take(row, "stage_ns", &final.stage_ns);
    Take(row, "ttft_ns", &final.ttft_ns);
    Take(row, "total_ns", &final.total_ns);
    Take(row, "model_ns", &final.model_ns);
    Take(row, "first_difference", &final.first_difference);
    Take(row, "plan", &final.plan);
    Take(row, "label", &final.label);
    Take(row, "phase", &final.phase);
    const std::string rule = row.contains("rule") && row["rule"].is_string() ? row["rule"] : "";
    rule.copy(final.rule, sizeof(final.rule) - 1);
  }
  return turns;
}

double Ms(uint64_t ns) { return static_cast<double>(ns) * 1e-6; }

std::string MsText(uint64_t ns) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.1f ms", Ms(ns));
  return text;
}

std::string StagesText(const kairos_final_t& final) {
  std::string text;
  for (uint32_t i = 0; i <= KAIROS_STAGE_COMMIT; ++i) {
    text += (text.empty() ? "" : ", ") + std::string(StageText(i)) + " " +
            MsText(final.stage_ns[i]);
  }
  return text;
}

std::string Paragraph(const FinishedTurn& turn, uint64_t now_unix_ms) {
  const kairos_final_t& final = turn.final;
  const auto tokens = [](uint64_t count) { return std::to_string(count); };
  std::string text = "version " + tokens(final.version) + ", " +
                     AgeText(turn.finished_unix_ms, now_unix_ms) + " ago, ended by " +
                     FinishText(final.finish) + "\n";
  text += "  prompt      " + tokens(final.prompt_tokens) + " tokens: " +
          tokens(final.reused_tokens) + " reused";
  if (final.shared_tokens > 0) {
    text += " (" + tokens(final.shared_tokens) + " of them in other sessions' blocks)";
  }
  text += ", " + tokens(final.recomputed_tokens) + " recomputed, " + tokens(final.new_tokens) +
          " new; then " + tokens(final.generated_tokens) + " generated\n";
  for (uint32_t i = 0; i < KAIROS_REASON_COUNT; ++i) {
    if (final.recomputed_by[i] == 0) continue;
    text += "  recomputed  " + tokens(final.recomputed_by[i]) + " " + ReasonText(i) + ": " +
            ReasonWords(i) + "\n";
  }
  if (final.first_difference >= 0) {
    text += "  history     differs from what is stored at message " +
            std::to_string(final.first_difference) + " of those sent\n";
  }
  text += std::string("  filter      ") + LabelText(final.label) + ", plan " +
          PlanText(final.plan);
  if (final.rule[0] != '\0') text += ", by rule " + Printable(final.rule);
  return text + "\n  time        first token " + MsText(final.ttft_ns) + ", all " +
         MsText(final.total_ns) + ", in the model's steps " + MsText(final.model_ns) +
         "\n  stages      " + StagesText(final) + "\n";
}

}  // namespace

std::string ReasonsText(const kairos_final_t& final) {
  std::string text;
  for (uint32_t i = 0; i < KAIROS_REASON_COUNT; ++i) {
    if (final.recomputed_by[i] == 0) continue;
    text +=
        (text.empty() ? "" : ", ") + std::to_string(final.recomputed_by[i]) + " " + ReasonText(i);
  }
  return text;
}

nlohmann::ordered_json FinalJson(const kairos_final_t& final) {
  nlohmann::ordered_json reasons = nlohmann::ordered_json::object();
  for (uint32_t i = 0; i < KAIROS_REASON_COUNT; ++i) {
    if (final.recomputed_by[i] > 0) reasons[ReasonText(i)] = final.recomputed_by[i];
  }
  nlohmann::ordered_json stages = nlohmann::ordered_json::object();
  for (uint32_t i = 0; i <= KAIROS_STAGE_COMMIT; ++i) {
    stages[StageText(i)] = Ms(final.stage_ns[i]);
  }
  return {
      {"version", final.version},
      {"finish", FinishText(final.finish)},
      {"prompt_tokens", final.prompt_tokens},
      {"new_tokens", final.new_tokens},
      {"reused_tokens", final.reused_tokens},
      {"shared_tokens", final.shared_tokens},
      {"recomputed_tokens", final.recomputed_tokens},
      {"recomputed_by", reasons},
      {"generated_tokens", final.generated_tokens},
      {"first_difference", final.first_difference},
      {"label", LabelText(final.label)},
      {"plan", PlanText(final.plan)},
      {"rule", std::string(final.rule, strnlen(final.rule, sizeof(final.rule)))},
      {"ttft_ms", Ms(final.ttft_ns)},
      {"total_ms", Ms(final.total_ns)},
      {"model_ms", Ms(final.model_ns)},
      {"stages_ms", stages},
  };
}

std::string TurnParagraphs(std::string_view turns_json, uint64_t now_unix_ms) {
  const std::vector<FinishedTurn> turns = ReadTurns(turns_json);
  if (turns.empty()) {
    return "no turn of this session is remembered: kairosd keeps the newest 1024 of all sessions, "
           "in memory, since it started\n";
  }
  std::string text;
  for (size_t i = turns.size(); i-- > 0;) {
    text += (text.empty() ? "" : "\n") + Paragraph(turns[i], now_unix_ms);
  }
  return text;
}

std::string TurnsJson(std::string_view turns_json) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const FinishedTurn& turn : ReadTurns(turns_json)) {
    nlohmann::ordered_json row = FinalJson(turn.final);
    row["finished_unix_ms"] = turn.finished_unix_ms;
    rows.push_back(std::move(row));
  }
  return rows.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace kairos
