// SPDX-License-Identifier: Apache-2.0
#include "usage/program.h"

#include <charconv>
#include <cstdio>
#include <limits>

#include <fmt/format.h>

#include "base/edit_distance.h"
#include "base/printable_text.h"
#include "usage/manual.h"

namespace kairos {

namespace {

// "kairosctl session show": the program and the commands that were found before the fault.
std::string CommandPath(const CLI::App* app) {
  const std::vector<CLI::App*> chosen = app->get_subcommands();
  return app->get_name() + (chosen.empty() ? "" : " " + CommandPath(chosen.front()));
}

// What the program understands where the word stands: flags of the commands that were found, or
// the commands below the last of them.
std::vector<std::string> WordsThere(const CLI::App* app, bool flags) {
  std::vector<std::string> words;
  const std::vector<CLI::App*> chosen = app->get_subcommands();
  if (!chosen.empty()) words = WordsThere(chosen.front(), flags);
  if (flags) {
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_group().empty()) continue;  // hidden
      for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
    }
  } else if (chosen.empty()) {
    for (const CLI::App* inner : app->get_subcommands({})) words.push_back(inner->get_name());
  }
  return words;
}

// "unknown command "sesion", did you mean "session"?"; empty where no word is left over.
std::string UnknownWord(const CLI::App* app) {
  const std::vector<std::string> left_over = app->remaining(true);
  if (left_over.empty()) return "";
  const bool is_flag = left_over.front().starts_with("-");
  const size_t end = std::min<size_t>(100, left_over.front().find('='));
  const std::string word = left_over.front().substr(0, end);
  const std::vector<std::string> known = WordsThere(app, is_flag);
  std::string nearest;
  size_t nearest_distance = std::numeric_limits<size_t>::max();
  for (const std::string& one : known) {
    const size_t distance = EditDistance(word, one);
    if (!IsSlip(word, distance) || distance >= nearest_distance) continue;
    nearest = one;
    nearest_distance = distance;
  }
  if (nearest_distance == 0) {
    return fmt::format("{} stands before the command that it belongs to", QuotedText(word));
  }
  const char* kind = known.empty() ? "one word too many:"
                     : is_flag     ? "unknown flag"
                                   : "unknown command";
  std::string words = fmt::format("{} {}", kind, QuotedText(word));
  if (!nearest.empty()) words += fmt::format(", did you mean \"{}\"?", nearest);
  return words;
}

// "--control: given twice, may be given once"; empty where no option was given too often.
std::string RepeatedOption(const CLI::App* app) {
  for (const CLI::Option* option : app->get_options()) {
    // Flags take no value and may be repeated.
    if (option->get_items_expected_max() != 1 || option->count() < 2) continue;
    const std::string often =
        option->count() == 2 ? "twice" : fmt::format("{} times", option->count());
    return fmt::format("{}: given {}, may be given once", option->get_name(), often);
  }
  const std::vector<CLI::App*> chosen = app->get_subcommands();
  return chosen.empty() ? "" : RepeatedOption(chosen.front());
}

std::string Complaint(const CLI::App* app, const CLI::Error& fault) {
  const std::string path = CommandPath(app);
  std::string words;
  // A command that is missing is most often one that was misspelt.
  const auto code = static_cast<CLI::ExitCodes>(fault.get_exit_code());
  if (code == CLI::ExitCodes::ExtrasError || code == CLI::ExitCodes::RequiredError) {
    words = UnknownWord(app);
  } else if (code == CLI::ExitCodes::ArgumentMismatch) {
    words = RepeatedOption(app);
  }
  if (words.empty()) words = PrintableLines(fault.what(), "  ");
  return path + ": " + words + "\n  see " + path + " --help\n";
}

}  // namespace

const char* ProgramVersion() { return KAIROS_VERSION_TEXT; }

void DescribeProgram(const Program& program, CLI::App* app) {
  app->set_version_flag("--version", program.name + " " + ProgramVersion(), "print the version");
  std::string footer = "Exit statuses:";
  for (const NamedText& status : program.exit_statuses) {
    footer += "\n  " + std::string(status.name.size() < 2 ? 2 - status.name.size() : 0, ' ') +
              status.name + "  " + status.text;
  }
  app->footer(footer);
  const auto print = [&program, app] { throw CLI::CallForVersion(ManualPage(program, *app), 0); };
  app->add_flag_callback("--man", print)->group("");
  app->failure_message(Complaint);
}

CLI::Validator NumberBetween(double min, double max) {
  const auto check = [min, max](const std::string& text) {
    double value = 0;
    // The comparison is false for nan.
    const bool is_number = CLI::detail::lexical_cast(text, value) && value >= min && value <= max;
    return is_number ? std::string()
                     : fmt::format("{} is not a number from {} to {}", QuotedText(text), min, max);
  };
  return CLI::Validator(check, "", "");
}

CLI::Validator WholeNumber(uint64_t min, uint64_t max) {
  const auto check = [min, max](const std::string& text) {
    uint64_t value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = fault == std::errc() && end == text.data() + text.size();
    if (is_number && value >= min && value <= max) return std::string();
    return fmt::format("{} is not a whole number from {} to {}", QuotedText(text), min, max);
  };
  return CLI::Validator(check, "", "");
}

bool ParseCommandLine(CLI::App* app, int argc, const char* const* argv, int* exit_code) {
  try {
    app->parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& fault) {
    // CLI11 has codes of its own; ours are 0 for help and 2 for usage.
    *exit_code = app->exit(fault) == 0 ? 0 : kExitUsage;
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "%s: %s\n", app->get_name().c_str(), fault.what());
    *exit_code = kExitUsage;
  }
  return false;
}

}  // namespace kairos
