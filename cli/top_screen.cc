// SPDX-License-Identifier: Apache-2.0
#include "cli/top_screen.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/listing.h"
#include "cli/words.h"

namespace kairos {

namespace {

constexpr int32_t kPhases = KAIROS_PHASE_CLOSED + 1;

double Seconds(const TopLook& before, const TopLook& now) {
  const double ns = static_cast<double>(now.taken_ns - before.taken_ns);
  return now.taken_ns > before.taken_ns ? ns * 1e-9 : 0.0;
}

// Per second between the looks; 0 after a restart, which sets the counters back.
double Rate(const TopLook& before, const TopLook& now, const char* counter) {
  const double seconds = Seconds(before, now);
  return seconds <= 0 ? 0.0
                      : std::max(0.0, now.Figure(counter) - before.Figure(counter)) / seconds;
}

std::array<uint64_t, kPhases> CountPhases(const TopLook& look) {
  std::array<uint64_t, kPhases> counts{};
  for (const kairos_session_t& session : look.sessions) {
    if (session.phase >= 0 && session.phase < kPhases) {
      ++counts[static_cast<size_t>(session.phase)];
    }
  }
  return counts;
}

std::vector<kairos_session_t> Sorted(std::vector<kairos_session_t> sessions) {
  std::stable_sort(sessions.begin(), sessions.end(),
                   [](const kairos_session_t& a, const kairos_session_t& b) {
                     const bool a_runs = a.phase == KAIROS_PHASE_RUNNING;
                     const bool b_runs = b.phase == KAIROS_PHASE_RUNNING;
                     return a_runs != b_runs ? a_runs : a.used_unix_ms > b.used_unix_ms;
                   });
  return sessions;
}

std::string Count(double value) { return std::to_string(static_cast<uint64_t>(value)); }

std::string Decimal(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

// Whole characters only: a cut one would garble the terminal. Each counts as one column.
std::string Cut(const std::string& line, size_t columns) {
  size_t shown = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if ((static_cast<unsigned char>(line[i]) & 0xc0) == 0x80) continue;
    if (columns != 0 && shown == columns) return line.substr(0, i);
    ++shown;
  }
  return line;
}

std::string PhasesText(const TopLook& look) {
  std::string text;
  const auto counts = CountPhases(look);
  for (int32_t phase = 0; phase < kPhases; ++phase) {
    const uint64_t count = counts[static_cast<size_t>(phase)];
    if (count == 0) continue;
    text += (text.empty() ? " (" : ", ") + std::to_string(count) + " " + PhaseText(phase);
  }
  return text.empty() ? "" : text + ")";
}

}  // namespace

double TopLook::Figure(const char* name) const {
  for (const auto& [key, value] : stats) {
    if (key == name) return value;
  }
  return 0.0;
}

std::vector<std::string> TopLines(const TopLook& before, const TopLook& now, size_t lines,
                                  size_t columns) {
  const auto rate = [&](const char* counter) { return Decimal(Rate(before, now, counter)); };
  const double slots = now.Figure("kv_slots_total");
  std::vector<std::string> out = {
      "sessions   " + Count(now.Figure("sessions")) + PhasesText(now),
      "clients    " + Count(now.Figure("clients")) + ", with two rings each",
      "turns      " + Count(now.Figure("turns_open")) + " open, " +
          Count(now.Figure("engine_sequences_running")) + " computed now, " +
          Count(now.Figure("engine_sequences_waiting")) + " wait for the engine, " +
          Count(now.Figure("turns_done_total")) + " done",
      "tokens/s   " + rate("engine_decode_tokens_total") + " decoded, " +
          rate("engine_prefill_tokens_total") + " prefilled, " + rate("tokens_reused_total") +
          " reused, " + rate("tokens_recomputed_total") + " recomputed",
      "KV         " + BytesText(now.Figure("kv_device_bytes_used")) + " of " +
          BytesText(now.Figure("kv_device_bytes_total")) + ", " +
          Count(now.Figure("kv_blocks_indexed")) + " blocks to reuse, " +
          Count(now.Figure("kv_slots_cached")) + " of " + Count(slots) +
          " slots give way when needed",
      "catalog    " + BytesText(now.Figure("catalog_bytes")),
      "",
      SessionHeading(),
  };
  for (const kairos_session_t& session : Sorted(now.sessions)) {
    out.push_back(SessionLine(session, now.taken_unix_ms));
  }
  if (lines != 0 && out.size() > lines) out.resize(lines);
  for (std::string& line : out) line = Cut(line, columns);
  return out;
}

std::string TopJson(const TopLook& before, const TopLook& now) {
  nlohmann::ordered_json phases = nlohmann::ordered_json::object();
  const auto counts = CountPhases(now);
  for (int32_t phase = 0; phase < kPhases; ++phase) {
    phases[PhaseText(phase)] = counts[static_cast<size_t>(phase)];
  }
  nlohmann::ordered_json sessions = nlohmann::ordered_json::array();
  for (const kairos_session_t& session : Sorted(now.sessions)) {
    sessions.push_back(nlohmann::ordered_json::parse(SessionJson(session)));
  }
  nlohmann::ordered_json figures = nlohmann::ordered_json::object();
  for (const auto& [name, value] : now.stats) figures[name] = value;
  const nlohmann::ordered_json json = {
      {"interval_seconds", Seconds(before, now)},
      {"tokens_per_second",
       {{"decoded", Rate(before, now, "engine_decode_tokens_total")},
        {"prefilled", Rate(before, now, "engine_prefill_tokens_total")},
        {"reused", Rate(before, now, "tokens_reused_total")},
        {"recomputed", Rate(before, now, "tokens_recomputed_total")}}},
      {"phases", phases},
      {"figures", figures},
      {"sessions", sessions},
  };
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace kairos
