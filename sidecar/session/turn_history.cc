// SPDX-License-Identifier: Apache-2.0
#include "sidecar/session/turn_history.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kairos {

namespace {

// Names of rules are ours: letters and underscores, so nothing is escaped.
std::string EntryJson(const kairos_final_t& f, uint64_t finished_unix_ms) {
  return fmt::format(
      R"({{"finished_unix_ms":{},"finish":{},"version":{},"prompt_tokens":{},"new_tokens":{},)"
      R"("reused_tokens":{},"shared_tokens":{},"recomputed_tokens":{},"generated_tokens":{},)"
      R"("recomputed_by":[{}],"stage_ns":[{}],"ttft_ns":{},"total_ns":{},"model_ns":{},)"
      R"("first_difference":{},"plan":{},"label":{},"phase":{},"rule":"{}"}})",
      finished_unix_ms, f.finish, f.version, f.prompt_tokens, f.new_tokens, f.reused_tokens,
      f.shared_tokens, f.recomputed_tokens, f.generated_tokens,
      fmt::join(std::span(f.recomputed_by), ","), fmt::join(std::span(f.stage_ns), ","), f.ttft_ns,
      f.total_ns, f.model_ns, f.first_difference, f.plan, f.label, f.phase,
      std::string_view(f.rule, strnlen(f.rule, sizeof(f.rule))));
}

}  // namespace

void TurnHistory::Add(const kairos_final_t& final, uint64_t finished_unix_ms) {
  if (turns_.size() == kTurnsMax) turns_.pop_front();
  turns_.push_back({final, finished_unix_ms});
}

void TurnHistory::Forget(SessionId session) {
  std::erase_if(turns_,
                [&](const Entry& entry) { return entry.final.session_id == session.value; });
}

std::string TurnHistory::Json(SessionId session) const {
  std::string json = "[";
  for (const Entry& entry : turns_) {
    if (entry.final.session_id != session.value) continue;
    if (json.size() > 1) json += ',';
    json += EntryJson(entry.final, entry.finished_unix_ms);
  }
  return json + "]";
}

}  // namespace kairos
