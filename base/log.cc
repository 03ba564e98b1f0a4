// SPDX-License-Identifier: Apache-2.0
// Fences spdlog: the only file that includes it.
#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

#include "base/printable_text.h"

namespace kairos {
namespace {

std::atomic<int> log_level{static_cast<int>(LogLevel::kInfo)};

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err};
  return kLevels[static_cast<int>(level)];
}

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("kairos",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("ts=%Y-%m-%dT%H:%M:%S.%e%z level=%l %v");
    made->set_level(spdlog::level::debug);
    return made;
  }();
  return *logger;
}

}  // namespace

void SetLogLevel(LogLevel level) { log_level.store(static_cast<int>(level)); }

bool ParseLogLevel(std::string_view name, LogLevel* level) {
  constexpr std::string_view kNames[] = {"debug", "info", "warn", "error"};
  for (int i = 0; i < 4; ++i) {
    if (kNames[i] != name) continue;
    *level = static_cast<LogLevel>(i);
    return true;
  }
  return false;
}

bool LogEnabled(LogLevel level) { return static_cast<int>(level) >= log_level.load(); }

std::string LogValue(std::string_view text) {
  std::string quoted = QuotedText(text);
  const bool plain = !text.empty() && quoted.size() == text.size() + 2 &&
                     text.find_first_of(" =") == std::string_view::npos;
  return plain ? std::string(text) : quoted;
}

void LogLine(LogLevel level, const char* subsystem, std::string_view text) {
  Logger().log(ToSpdlog(level), "sub={} {}", subsystem, text);
}

}  // namespace kairos
