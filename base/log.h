// SPDX-License-Identifier: Apache-2.0
// One line per event on stderr in logfmt, levelled. What others can bring about at will goes
// through a LogThrottle (log_throttle.h) first.
// Prompts, tokens and secrets never go through here; ids and numbers do.
// Any thread; may block on stderr.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace kairos {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarn = 2, kError = 3 };

void SetLogLevel(LogLevel level);
bool ParseLogLevel(std::string_view name, LogLevel* level);
bool LogEnabled(LogLevel level);
// `subsystem` is the folder's noun; `text` is "event key=value key=value".
void LogLine(LogLevel level, const char* subsystem, std::string_view text);

// A text as the value of a key: between quotes, with escapes (printable_text.h), where it is empty
// or holds anything that would end it or look like another key; else as it is.
std::string LogValue(std::string_view text);
// Numbers and the like.
template <typename Value>
  requires(!std::is_convertible_v<const Value&, std::string_view>)
const Value& LogValue(const Value& value) {
  return value;
}

// "event key={} key={}"; values that are texts are quoted where they have to be.
template <typename... Args>
void Log(LogLevel level, const char* subsystem, fmt::format_string<Args...> format,
         Args&&... args) {
  if (!LogEnabled(level)) return;
  const auto write = [&](const auto&... values) {
    LogLine(level, subsystem, fmt::vformat(format, fmt::make_format_args(values...)));
  };
  write(LogValue(args)...);
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
