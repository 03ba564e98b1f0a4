// SPDX-License-Identifier: Apache-2.0
// One line per event on stderr in logfmt, levelled. What others can bring about at will goes
// through a LogThrottle (log_throttle.h) first.
// Prompts, tokens and secrets never go through here; ids and numbers do.
// Any thread; may block on stderr.
#pragma once

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

namespace kairos {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarn = 2, kError = 3 };

void SetLogLevel(LogLevel level);
bool ParseLogLevel(std::string_view name, LogLevel* level);
bool LogEnabled(LogLevel level);
// `subsystem` is the folder's noun; `text` is "event key=value key=value".
void LogLine(LogLevel level, const char* subsystem, std::string_view text);

template <typename... Args>
void Log(LogLevel level, const char* subsystem, fmt::format_string<Args...> format,
         Args&&... args) {
  if (!LogEnabled(level)) return;
  LogLine(level, subsystem, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void LogInfo(const char* subsystem, fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kInfo, subsystem, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogWarn(const char* subsystem, fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kWarn, subsystem, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogError(const char* subsystem, fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kError, subsystem, format, std::forward<Args>(args)...);
}

}  // namespace kairos
