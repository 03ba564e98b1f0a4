#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules of docs/STYLE.md that a program can check, over the tree as it is.

  tidy.py [ROOT]

Known exceptions are lines of tools/tidy_exceptions.txt, `rule path detail`. The list may only
shrink: an entry that no longer excuses anything fails too.
"""
import pathlib
import re
import sys

CODE = {".h", ".hpp", ".c", ".cc", ".cu", ".cuh", ".inc"}
SCRIPTS = {".py", ".sh"}
SKIP = {"build", ".git", ".venv", "__pycache__"}
LINE_COLUMNS = 100
FILE_LINES = 800
FUNCTION_LINES = 70
PUBLIC_HEADER = "capi/include/kairos/kairos.h"
# The public header's continuation columns follow its table of declarations.
PUBLIC_HEADER_COLUMNS = 110
PUBLIC_HEADER_LINES = 400
BANNED = {"manager", "helper", "helpers", "util", "utils", "common", "misc", "base", "impl",
          "handler", "processor", "service", "info", "data", "wrapper", "new", "fast", "optimized",
          "simple", "v2"}
TYPE = re.compile(r"\b(?:class|struct|enum(?:\s+class)?|union|using|concept)\s+"
                  r"(?:\[\[\w+\]\]\s*|KAIROS_\w+(?:\([^)]*\))?\s+)*([A-Z]\w*)\b")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z0-9]+")
TODO = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))")
NOISE = re.compile(
    r'R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"'   # raw string
    r'|"(?:[^"\\\n]|\\.)*"'                           # string
    r"|(?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)+'"           # character, not a digit separator
    r"|//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/"             # comments
    r"|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*",                # preprocessor lines
    re.S | re.M)
SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum)\b|\bextern\s*\"\"\s*$")
FUNCTION = re.compile(r"\)\s*(?:(?:const|noexcept|override|final|mutable|volatile|&&?|try"
                      r"|KAIROS_\w+\s*(?:\([^()]*\))?)\s*|->[^{};]*)*$")


ACCESS = {"public", "private", "protected"}


def code_only(text):
    """The text with strings emptied, comments and preprocessor lines blanked, lines kept."""
    def blank(match):
        found = match.group(0)
        empty = '""' if found[0] in "\"'R" else " "
        return empty + "\n" * found.count("\n")
    return NOISE.sub(blank, text)


def functions(text):
    """Yields (name, first line, lines) of each function body outside other functions."""
    code = code_only(text)
    stack, head, line, head_line = [], "", 1, 1
    for char in code:
        if char == "\n":
            line += 1
        if char == "{":
            in_function = any(kind == "function" for kind, *_ in stack)
            kind, name = ("inner", "") if in_function else kind_of(head)
            stack.append((kind, name, head_line, head))
            head, head_line = "", line
        elif char == "}":
            if not stack:
                return  # unbalanced by the preprocessor: no verdict rather than a wrong one
            kind, name, first, before = stack.pop()
            if kind == "function":
                yield name, first, line - first + 1
            # A braced initialiser is part of the declaration around it.
            head = before + "()" if kind == "value" else ""
            head_line = first if kind == "value" else line
        elif char == ";" or char == ":" and head.strip() in ACCESS:
            head, head_line = "", line
        else:
            if not head.strip():
                head_line = line
            head += char


def kind_of(head):
    """What an opening brace after `head` opens at namespace or class scope, and its name."""
    head = re.sub(r"^\s*template\s*<.*?>\s*(?=\w)", "", head, flags=re.S)
    is_function = FUNCTION.search(head) or re.search(r"\)\s*:(?!:)[^;]*[)\s]\s*$", head)
    if SCOPE.search(head) and not re.search(r"\)\s*(?:const|noexcept|override)?\s*$", head):
        return "scope", ""
    if is_function:
        match = re.search(r"([\w:~]+|operator\S+)\s*\(", head)
        return "function", match.group(1) if match else "?"
    return "value", ""


def is_outside(path):
    """Built against an installed KAIROS, by a build file of its own."""
    return path.startswith(("examples/", "tests/install/consumer/"))


def words_of(name):
    return {word.lower() for word in WORD.findall(name)}


class Tidy:
    def __init__(self, root):
        self.root = root
        self.found = []  # (rule, path, detail, text)

    def report(self, rule, path, detail, text):
        self.found.append((rule, path, detail, text))

    def files(self):
        for file in sorted(self.root.rglob("*")):
            path = file.relative_to(self.root)
            if file.is_file() and not SKIP & set(path.parts):
                yield path.as_posix(), file

    def check(self):
        listed = (self.root / "CMakeLists.txt").read_text()
        for path, file in self.files():
            if file.suffix in CODE | SCRIPTS:
                text = file.read_text(errors="replace")
                self.check_text(path, text)
                if file.suffix in CODE:
                    self.check_code(path, text, listed)

    def check_text(self, path, text):
        lines = text.splitlines()
        columns = PUBLIC_HEADER_COLUMNS if path == PUBLIC_HEADER else LINE_COLUMNS
        limit = PUBLIC_HEADER_LINES if path == PUBLIC_HEADER else FILE_LINES
        for number, line in enumerate(lines, 1):
            if len(line) > columns:
                self.report("line-columns", path, "", f"{path}:{number}: {len(line)} columns, "
                                                      f"at most {columns}")
            if "\t" in line and pathlib.PurePath(path).suffix in CODE:
                self.report("tab", path, "", f"{path}:{number}: tab")
            if line != line.rstrip():
                self.report("space", path, "", f"{path}:{number}: space at the end of the line")
            if TODO.search(line) and path != "tools/tidy.py":
                self.report("todo", path, "", f"{path}:{number}: a note without an issue number")
        if len(lines) > limit:
            self.report("file-lines", path, "", f"{path}: {len(lines)} lines, at most {limit}")
        if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(lines[:3]):
            self.report("spdx", path, "", f"{path}:1: no SPDX line")
        banned = words_of(pathlib.PurePath(path).stem) & BANNED
        if banned:
            self.report("file-name", path, "", f"{path}: names a file {sorted(banned)}")

    def check_code(self, path, text, listed):
        if path.endswith((".h", ".hpp")) and path != PUBLIC_HEADER and "#pragma once" not in text:
            self.report("pragma-once", path, "", f"{path}: no #pragma once")
        for match in TYPE.finditer(code_only(text)):
            banned = words_of(match.group(1)) & BANNED
            if banned:
                number = text.count("\n", 0, text.find(match.group(1))) + 1
                self.report("type-name", path, match.group(1),
                            f"{path}:{number}: type {match.group(1)} says {sorted(banned)}")
        for name, first, length in functions(text):
            if length > FUNCTION_LINES:
                self.report("function-lines", path, name,
                            f"{path}:{first}: {name} has {length} lines, at most {FUNCTION_LINES}")
        if path.endswith((".c", ".cc", ".cu")) and path not in listed and not is_outside(path):
            self.report("not-built", path, "", f"{path}: no target in CMakeLists.txt builds it")


def read_exceptions(path):
    entries = set()
    for raw in path.read_text().splitlines():
        fields = raw.split("#")[0].split()
        if fields:
            entries.add((fields[0], fields[1], fields[2] if len(fields) > 2 else ""))
    return entries


def main():
    here = pathlib.Path(__file__).resolve().parent
    root = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else here.parent
    exceptions = read_exceptions(root / "tools/tidy_exceptions.txt")
    tidy = Tidy(root)
    tidy.check()
    problems = [text for rule, path, detail, text in tidy.found
                if (rule, path, detail) not in exceptions]
    used = {(rule, path, detail) for rule, path, detail, _ in tidy.found}
    for entry in sorted(exceptions - used):
        words = " ".join(entry).strip()
        problems.append(f"tools/tidy_exceptions.txt: `{words}` excuses nothing; remove it")
    print("\n".join(problems) if problems else "tidy: nothing found")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
