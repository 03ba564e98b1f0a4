// SPDX-License-Identifier: Apache-2.0
#include "cli/words.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/printable_text.h"

namespace kairos {

namespace {

const char* AdviceFor(const Fault& fault) {
  const int32_t code = fault.code;
  switch (fault.detail) {
    case KAIROS_DETAIL_SIDECAR_LOST:
      return "committed versions are kept; when it runs again, go on with --session";
    case KAIROS_DETAIL_SLOW_CONSUMER:
      return "read replies as they come";
    case KAIROS_DETAIL_STALE_VERSION:
      return "somebody else changed the session: look at it first";
    case KAIROS_DETAIL_CONTEXT_FULL:
      return "rewind, or start a new session";
    case KAIROS_DETAIL_DRAINING:
      return "try again when it has restarted";
    case KAIROS_DETAIL_OTHER_MODEL:
      return "serve that model, or start a new session";
    case KAIROS_DETAIL_QUOTA:
      return "wait, delete sessions (session ls) or raise the limit";
    case KAIROS_DETAIL_STORAGE:
      if (code == KAIROS_DATA_LOSS || code == -KAIROS_DATA_LOSS) break;
      return "";  // the words say it, and which of disk and limit it is
    case KAIROS_DETAIL_PROTOCOL:
      return "kairosctl and kairosd are of different versions";
    case KAIROS_DETAIL_KV_FULL:
      return "lower --max-tokens or raise kv.memory";
    default:
      break;
  }
  switch (code < 0 ? -code : code) {
    case KAIROS_NOT_FOUND:
      if (fault.words.starts_with("model: ")) return "";  // the words list those there are
      return "`kairosctl session ls` lists the sessions, `session show ID` has the versions";
    case KAIROS_UNAVAILABLE:
      return "is kairosd running, and on this socket?";
    case KAIROS_DEADLINE_EXCEEDED:
      return "it may be stopped (SIGSTOP) or overloaded: `kairosctl doctor` looks at it";
    case KAIROS_DATA_LOSS:
      return "rewind to a version that can be read";
    default:
      return "";
  }
}

std::string CodeAndWords(const Fault& fault) {
  const std::string code = kairos_strerror(fault.code);
  return fault.words.empty() || fault.words == code ? code : code + ": " + fault.words;
}

}  // namespace

std::string BytesText(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  char text[48];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
  return text;
}

std::string AgeText(uint64_t unix_ms, uint64_t now_unix_ms) {
  if (unix_ms == 0) return "-";
  const uint64_t seconds = now_unix_ms > unix_ms ? (now_unix_ms - unix_ms) / 1000 : 0;
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 120 * 60) return std::to_string(seconds / 60) + " min";
  if (seconds < 48 * 3600) return std::to_string(seconds / 3600) + " h";
  return std::to_string(seconds / (24 * 3600)) + " d";
}

std::string SessionText(uint64_t id) {
  char text[32];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(id));
  return text;
}

bool ParseSessionText(std::string_view text, uint64_t* id) {
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, *id, 16);
  return fault == std::errc() && stop == end && text.size() <= 16 && *id != 0;
}

const char* PhaseText(int32_t phase) {
  constexpr const char* kNames[] = {"idle", "running", "waiting_tool", "waiting_user", "closed"};
  return phase >= 0 && phase < 5 ? kNames[phase] : "unknown";
}

const char* FinishText(int32_t finish) {
  constexpr const char* kNames[] = {"unknown",   "stop",      "length",   "string",
                                    "tool_call", "cancelled", "deadline", "none"};
  return finish >= 0 && finish < 8 ? kNames[finish] : "unknown";
}

const char* PlanText(int32_t plan) {
  constexpr const char* kNames[] = {"unknown", "full_compute", "continuation",
                                    "lightweight_refine"};
  return plan >= 0 && plan < 4 ? kNames[plan] : "unknown";
}

const char* ReasonText(uint32_t reason) {
  constexpr const char* kNames[] = {"block_boundary",  "restart",       "evicted",
                                    "history_changed", "tools_changed", "context_reset",
                                    "reuse_off",       "checksum",      "other_format"};
  return reason < 9 ? kNames[reason] : "unknown";
}

const char* LabelText(int32_t label) {
  constexpr const char* kNames[] = {"unknown", "new_topic", "continuation", "clarification",
                                    "tool_return"};
  return label >= 0 && label < 5 ? kNames[label] : "unknown";
}

const char* ReasonWords(uint32_t reason) {
  constexpr const char* kWords[] = {
      "a rewind, a fork or a resent history ended inside a sealed block",
      "kairosd started anew; KV is kept in memory only",
      "other sessions needed the memory (kv.memory)",
      "the resent history differs from what is stored",
      "the tool list changed, and stands before the dialogue",
      "the context was reset",
      "the turn asked for no reuse",
      "a stored block failed its checksum",
      "the blocks are held in another fidelity"};
  return reason < 9 ? kWords[reason] : "unknown";
}

const char* StageText(uint32_t stage) {
  constexpr const char* kNames[] = {"admit", "route", "restore", "filter", "render",
                                    "queue", "prefill", "decode", "commit"};
  return stage < 9 ? kNames[stage] : "unknown";
}

std::string FaultText(const Fault& fault) {
  const std::string advice =
      fault.advice.empty() ? AdviceFor(fault) : Printable(fault.advice);
  const std::string text = Printable(CodeAndWords(fault));
  return advice.empty() ? text : text + "\n  " + advice;
}

std::string FaultJson(const Fault& fault) {
  const nlohmann::ordered_json json = {{"ok", false},
                                       {"code", std::abs(fault.code)},
                                       {"detail", fault.detail},
                                       {"error", CodeAndWords(fault)}};
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace kairos
