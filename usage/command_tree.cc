// SPDX-License-Identifier: Apache-2.0
#include "usage/command_tree.h"

#include <CLI/CLI.hpp>

#include <algorithm>

namespace kairos {

namespace {

// The words between bars that are not names of kinds: "auto" of "auto|TIME".
std::vector<std::string> Choices(const std::string& value) {
  std::vector<std::string> choices;
  if (value.find('|') == std::string::npos) return choices;
  for (const std::string& word : CLI::detail::split(value, '|')) {
    if (std::none_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; })) {
      choices.push_back(word);
    }
  }
  return choices;
}

FlagText ReadFlag(const CLI::Option& option) {
  FlagText flag;
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  if (flag.names.empty()) flag.names.push_back(option.get_name());
  // Behind the colon are what CLI11 says of its checks.
  const std::string kind = option.get_type_name();
  if (option.get_items_expected_max() > 0) flag.value = kind.substr(0, kind.find(':'));
  flag.choices = Choices(flag.value);
  flag.help = option.get_description();
  flag.group = option.get_group();
  flag.required = option.get_required();
  return flag;
}

CommandText Read(const CLI::App& app, const std::string& above) {
  CommandText command;
  command.name = app.get_name();
  command.path = above.empty() ? command.name : above + " " + command.name;
  command.help = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    (option->nonpositional() ? command.flags : command.operands).push_back(ReadFlag(*option));
  }
  for (const CLI::App* inner : app.get_subcommands({})) {
    if (!inner->get_group().empty()) command.commands.push_back(Read(*inner, command.path));
  }
  return command;
}

}  // namespace

CommandText ReadCommand(const CLI::App& app) { return Read(app, ""); }

std::string CommandSynopsis(const CommandText& command) {
  const size_t program = command.path.find(' ');
  std::string text = program == std::string::npos ? "" : command.path.substr(program + 1);
  for (const FlagText& operand : command.operands) {
    const std::string& word = operand.value.empty() ? operand.names.front() : operand.value;
    text += operand.required ? " " + word : " [" + word + "]";
  }
  return text;
}

}  // namespace kairos
