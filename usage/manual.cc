// SPDX-License-Identifier: Apache-2.0
#include "usage/manual.h"

#include "usage/command_tree.h"

namespace kairos {

namespace {

// Text that roff shows as it is: its escape, its hyphens, and control characters that begin a line.
std::string Plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (out.empty() || out.back() == '\n') {
      if (c == '.' || c == '\'') out += "\\&";
    }
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out.push_back(c);
    }
  }
  return out;
}

std::string Section(const std::string& name) { return ".SH " + name + "\n"; }

std::string Entry(const std::string& name, const std::string& text) {
  return ".TP\n.B " + Plain(name) + "\n" + Plain(text) + "\n";
}

std::string FlagName(const FlagText& flag) {
  std::string text;
  for (const std::string& name : flag.names) text += (text.empty() ? "" : ", ") + name;
  return flag.value.empty() ? text : text + " " + flag.value;
}

// One section for each group, in their order.
std::string Flags(const CommandText& command) {
  std::string text;
  std::string group;
  for (const FlagText& flag : command.flags) {
    if (flag.group != group) {
      group = flag.group;
      const size_t colon = group.find(": ");
      text += Section(group == "Options" ? "OPTIONS" : "\"" + group.substr(0, colon) + "\"");
      if (colon != std::string::npos) text += Plain(group.substr(colon + 2)) + ".\n";
    }
    text += Entry(FlagName(flag), flag.help);
  }
  return text;
}

// The commands at the ends of the tree, in its order.
std::string Commands(const CommandText& command) {
  std::string text;
  for (const CommandText& inner : command.commands) {
    if (!inner.commands.empty()) {
      text += Commands(inner);
      continue;
    }
    text += ".SS \"" + Plain(CommandSynopsis(inner)) + "\"\n" + Plain(inner.help) + ".\n";
    for (const FlagText& operand : inner.operands) {
      text += Entry(operand.value.empty() ? operand.names.front() : operand.value, operand.help);
    }
    for (const FlagText& flag : inner.flags) {
      if (flag.names.back() != "--help") text += Entry(FlagName(flag), flag.help);
    }
  }
  return text;
}

std::string Table(const char* section, const std::vector<NamedText>& rows) {
  if (rows.empty()) return "";
  std::string text = Section(section);
  for (const NamedText& row : rows) text += Entry(row.name, row.text);
  return text;
}

}  // namespace

std::string ManualPage(const Program& program, const CLI::App& app) {
  const CommandText command = ReadCommand(app);
  std::string title = program.name;
  for (char& c : title) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  std::string text = ".TH " + Plain(title) + " 1 \"\" \"kairos " + ProgramVersion() +
                     "\" \"KAIROS\"\n" + Section("NAME") + Plain(program.name) + " \\- " +
                     Plain(program.purpose) + "\n" + Section("SYNOPSIS") + ".B " +
                     Plain(program.name) + "\n[options]" +
                     (command.commands.empty() ? "" : " command [options]") + "\n" +
                     Section("DESCRIPTION") + Plain(program.description) + "\n";
  if (!command.commands.empty()) text += Section("COMMANDS") + Commands(command);
  text += Flags(command);
  text += Table("\"EXIT STATUS\"", program.exit_statuses);
  text += Table("ENVIRONMENT", program.variables);
  text += Table("FILES", program.files);
  return text + Section("\"SEE ALSO\"") + Plain(program.see_also) + "\n";
}

}  // namespace kairos
