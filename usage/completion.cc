// SPDX-License-Identifier: Apache-2.0
// All three scripts walk the words before the cursor to find the command they belong to (`place`),
// leaving out flags and their values, and then offer what may stand there.
#include "usage/completion.h"

#include <functional>

#include "usage/command_tree.h"

namespace kairos {

namespace {

using Visit = std::function<void(const CommandText&)>;

void ForEach(const CommandText& command, const Visit& visit) {
  visit(command);
  for (const CommandText& inner : command.commands) ForEach(inner, visit);
}

// Inside single quotes of any of the shells.
std::string Quoted(const std::string& text, Shell shell) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += shell == Shell::kFish ? "\\'" : "'\\''";
    } else if (c == '\\' && shell == Shell::kFish) {
      out += "\\\\";
    } else {
      out.push_back(c);
    }
  }
  return out + "'";
}

std::string Joined(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

// Flags that may stand with the command: its own, and the program's.
std::vector<FlagText> FlagsOf(const CommandText& command, const CommandText& program) {
  std::vector<FlagText> flags = command.flags;
  if (command.path == program.path) return flags;
  for (const FlagText& flag : program.flags) {
    // Each command has a --help of its own.
    if (flag.names.back() != "--help") flags.push_back(flag);
  }
  return flags;
}

// `'kairosctl run --socket'` for each flag with a value that `wanted` likes: patterns of `case`.
std::string ValuePatterns(const CommandText& program, Shell shell, const char* between,
                          const std::function<bool(const FlagText&)>& wanted) {
  std::vector<std::string> patterns;
  ForEach(program, [&](const CommandText& command) {
    for (const FlagText& flag : FlagsOf(command, program)) {
      if (flag.value.empty() || !wanted(flag)) continue;
      for (const std::string& name : flag.names) {
        patterns.push_back(Quoted(command.path + " " + name, shell));
      }
    }
  });
  return Joined(patterns, between);
}

bool IsPath(const FlagText& flag) { return flag.value == "PATH"; }
bool IsId(const FlagText& flag) { return flag.value == "ID"; }
bool IsAny(const FlagText&) { return true; }

// What an operand of the command can be, for the shells that take plain words.
std::vector<std::string> OperandWords(const CommandText& command, const std::string& ids) {
  std::vector<std::string> words;
  for (const FlagText& operand : command.operands) {
    words.insert(words.end(), operand.choices.begin(), operand.choices.end());
    if (operand.value == "ID") words.push_back("$(" + ids + ")");
  }
  return words;
}

std::string PlacePatterns(const CommandText& program, Shell shell, const char* between) {
  std::vector<std::string> patterns;
  ForEach(program, [&](const CommandText& command) {
    if (command.path != program.path) patterns.push_back(Quoted(command.path, shell));
  });
  return Joined(patterns, between);
}

// `case` arms for flags with fixed words, each followed by `then` around the words.
std::string ChoiceArms(const CommandText& program, const char* before, const char* after) {
  std::string arms;
  ForEach(program, [&](const CommandText& command) {
    for (const FlagText& flag : FlagsOf(command, program)) {
      if (flag.choices.empty()) continue;
      for (const std::string& name : flag.names) {
        arms += "    " + Quoted(command.path + " " + name, Shell::kBash) + ") " + before +
                Joined(flag.choices, " ") + after + "\n";
      }
    }
  });
  return arms;
}

// The walk to the place, which bash and zsh write alike; `words` are those before the cursor.
std::string Walk(const CommandText& program, const char* words) {
  return "  local place=" + program.name + " skip= word\n  for word in " + words +
         "; do\n"
         "    if [ -n \"$skip\" ]; then skip=; continue; fi\n"
         "    case \"$place $word\" in\n"
         "      " +
         PlacePatterns(program, Shell::kBash, "|") +
         ") place=\"$place $word\" ;;\n"
         "      " +
         ValuePatterns(program, Shell::kBash, "|", IsAny) +
         ") skip=1 ;;\n"
         "    esac\n  done\n";
}

std::string Bash(const CommandText& program, const std::string& ids) {
  std::string out = "# bash completion of " + program.name + "\n_" + program.name +
                    "() {\n  local current=\"${COMP_WORDS[COMP_CWORD]}\" words=\n" +
                    Walk(program, "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\"") +
                    "  COMPREPLY=()\n  case \"$place ${COMP_WORDS[COMP_CWORD-1]}\" in\n    " +
                    ValuePatterns(program, Shell::kBash, "|", IsPath) +
                    ") COMPREPLY=($(compgen -f -- \"$current\")); return ;;\n    " +
                    ValuePatterns(program, Shell::kBash, "|", IsId) +
                    ") COMPREPLY=($(compgen -W \"$(" + ids + ")\" -- \"$current\")); return ;;\n" +
                    ChoiceArms(program, "COMPREPLY=($(compgen -W '",
                               "' -- \"$current\")); return ;;") +
                    "  esac\n  [ -z \"$skip\" ] || return\n  case \"$place\" in\n";
  ForEach(program, [&](const CommandText& command) {
    std::vector<std::string> words;
    for (const CommandText& inner : command.commands) words.push_back(inner.name);
    for (const FlagText& flag : FlagsOf(command, program)) {
      words.insert(words.end(), flag.names.begin(), flag.names.end());
    }
    for (const std::string& word : OperandWords(command, ids)) words.push_back(word);
    out += "    " + Quoted(command.path, Shell::kBash) + ") words=\"" + Joined(words, " ") +
           "\" ;;\n";
  });
  return out + "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n}\ncomplete -F _" +
         program.name + " " + program.name + "\n";
}

// A colon separates word and meaning for _describe.
std::string Described(const std::string& word, const std::string& help) {
  std::string text;
  for (const char c : word) text += c == ':' ? std::string("\\:") : std::string(1, c);
  return Quoted(text + ":" + help, Shell::kZsh);
}

std::string Zsh(const CommandText& program, const std::string& ids) {
  std::string out = "#compdef " + program.name + "\n_" + program.name + "() {\n" +
                    Walk(program, "\"${(@)words[2,CURRENT-1]}\"") +
                    "  local -a entries\n  case \"$place ${words[CURRENT-1]}\" in\n    " +
                    ValuePatterns(program, Shell::kZsh, "|", IsPath) +
                    ") _files; return ;;\n    " +
                    ValuePatterns(program, Shell::kZsh, "|", IsId) + ") compadd -- $(" + ids +
                    "); return ;;\n" + ChoiceArms(program, "compadd -- ", "; return ;;") +
                    "  esac\n  [ -z \"$skip\" ] || return\n  case \"$place\" in\n";
  ForEach(program, [&](const CommandText& command) {
    std::vector<std::string> entries;
    for (const CommandText& inner : command.commands) {
      entries.push_back(Described(inner.name, inner.help));
    }
    for (const FlagText& flag : FlagsOf(command, program)) {
      for (const std::string& name : flag.names) entries.push_back(Described(name, flag.help));
    }
    for (const std::string& word : OperandWords(command, ids)) entries.push_back(word);
    out += "    " + Quoted(command.path, Shell::kZsh) + ") entries=(" + Joined(entries, " ") +
           ") ;;\n";
  });
  return out + "  esac\n  _describe " + program.name +
         " entries\n}\n"
         "if [ \"$funcstack[1]\" = _" +
         program.name + " ]; then _" + program.name + " \"$@\"; else compdef _" + program.name +
         " " + program.name + "; fi\n";
}

std::string Fish(const CommandText& program, const std::string& ids) {
  const std::string place = "__" + program.name + "_place";
  std::string out = "# fish completion of " + program.name + "\nfunction " + place +
                    "\n  set -l place " + program.name +
                    "\n  set -l skip\n  for word in (commandline -opc)[2..-1]\n"
                    "    if set -q skip[1]; set skip; continue; end\n"
                    "    switch \"$place $word\"\n      case " +
                    PlacePatterns(program, Shell::kFish, " ") +
                    "\n        set place \"$place $word\"\n      case " +
                    ValuePatterns(program, Shell::kFish, " ", IsAny) +
                    "\n        set skip 1\n    end\n  end\n  echo $place\nend\ncomplete -c " +
                    program.name + " -f\n";
  ForEach(program, [&](const CommandText& command) {
    const std::string at = "complete -c " + program.name + " -n 'test (" + place + ") = \"" +
                           command.path + "\"'";
    for (const CommandText& inner : command.commands) {
      out += at + " -a " + inner.name + " -d " + Quoted(inner.help, Shell::kFish) + "\n";
    }
    for (const FlagText& operand : command.operands) {
      if (operand.value == "ID") out += at + " -a '(" + ids + ")'\n";
      if (!operand.choices.empty()) out += at + " -a '" + Joined(operand.choices, " ") + "'\n";
    }
    for (const FlagText& flag : FlagsOf(command, program)) {
      out += at;
      for (const std::string& name : flag.names) {
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!flag.value.empty()) out += IsPath(flag) ? " -r -F" : " -x";
      if (IsId(flag)) out += " -a '(" + ids + ")'";
      if (!flag.choices.empty()) out += " -a '" + Joined(flag.choices, " ") + "'";
      out += " -d " + Quoted(flag.help, Shell::kFish) + "\n";
    }
  });
  return out;
}

}  // namespace

std::string CompletionScript(Shell shell, const CLI::App& app, const std::string& ids) {
  const CommandText program = ReadCommand(app);
  switch (shell) {
    case Shell::kBash: return Bash(program, ids);
    case Shell::kZsh: return Zsh(program, ids);
    case Shell::kFish: break;
  }
  return Fish(program, ids);
}

}  // namespace kairos
