// SPDX-License-Identifier: Apache-2.0
#include "cli/top_screen.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/words.h"

namespace kairos {
namespace {

kairos_session_t Row(uint64_t id, int32_t phase, uint64_t used_unix_ms, const char* label) {
  kairos_session_t row{};
  row.struct_size = sizeof(row);
  row.id = id;
  row.phase = phase;
  row.used_unix_ms = used_unix_ms;
  row.label_size = static_cast<uint32_t>(std::strlen(label));
  std::memcpy(row.label, label, row.label_size);
  return row;
}

TopLook First() {
  TopLook look;
  look.taken_ns = 1'000'000'000;
  look.taken_unix_ms = 100'000;
  look.stats = {{"sessions", 3},      {"clients", 2},
                {"kv_slots_total", 8}, {"kv_device_bytes_total", 8 << 20},
                {"kv_device_bytes_used", 2 << 20}, {"engine_decode_tokens_total", 100},
                {"tokens_reused_total", 50}};
  look.sessions = {Row(1, KAIROS_PHASE_WAITING_USER, 90'000, "older"),
                   Row(2, KAIROS_PHASE_WAITING_USER, 99'000, "newer"),
                   Row(3, KAIROS_PHASE_RUNNING, 10'000, "runs")};
  return look;
}

// Two seconds and forty tokens later.
TopLook Second() {
  TopLook look = First();
  look.taken_ns += 2'000'000'000;
  look.stats[5].second += 40;
  return look;
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(TopScreen, ShowsRatesBetweenTheLooksAndMemoryWithUnits) {
  const std::string text = Joined(TopLines(First(), Second(), 0, 0));

  EXPECT_NE(text.find("tokens/s   20.0 decoded"), std::string::npos) << text;
  EXPECT_NE(text.find("KV         2.0 MiB of 8.0 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("sessions   3 (1 running, 2 waiting_user)"), std::string::npos) << text;
  EXPECT_NE(text.find("clients    2"), std::string::npos) << text;
}

TEST(TopScreen, PutsRunningSessionsFirstThenTheLastUsed) {
  const std::string text = Joined(TopLines(First(), Second(), 0, 0));

  const size_t runs = text.find(SessionText(3));
  const size_t newer = text.find(SessionText(2));
  const size_t older = text.find(SessionText(1));
  ASSERT_NE(older, std::string::npos) << text;
  EXPECT_LT(runs, newer);
  EXPECT_LT(newer, older);
}

TEST(TopScreen, KeepsToTheTerminalAndToWholeCharacters) {
  TopLook look = First();
  look.sessions = {Row(1, KAIROS_PHASE_IDLE, 0, "caf\xc3\xa9 caf\xc3\xa9")};
  const std::string whole = TopLines(look, look, 0, 0).back();
  size_t columns = 0;
  for (const char c : whole) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80;

  for (size_t width = 1; width <= columns; ++width) {
    const std::vector<std::string> lines = TopLines(look, look, 9, width);

    ASSERT_EQ(lines.size(), 9u);
    const std::string& cut = lines.back();
    size_t shown = 0;
    for (const char c : cut) shown += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    EXPECT_EQ(shown, width);
    EXPECT_EQ(whole.substr(0, cut.size()), cut);
    const auto next = static_cast<unsigned char>(whole.c_str()[cut.size()]);
    EXPECT_NE(next & 0xc0, 0x80) << cut;
  }
  EXPECT_EQ(TopLines(look, look, 4, 0).size(), 4u);
}

TEST(TopScreen, HasNoNegativeRateAfterARestart) {
  TopLook restarted = Second();
  restarted.stats[5].second = 0;

  const auto json = nlohmann::json::parse(TopJson(First(), restarted));

  EXPECT_EQ(json["tokens_per_second"]["decoded"], 0.0);
  EXPECT_EQ(json["interval_seconds"], 2.0);
  EXPECT_EQ(json["phases"]["running"], 1);
  EXPECT_EQ(json["sessions"].size(), 3u);
}

}  // namespace
}  // namespace kairos
