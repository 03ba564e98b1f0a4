#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Help, manual and completions of the programs say the same, and shells can load the completions.

  usage_test.py KAIROSCTL PROGRAM...
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = sys.argv[1:]
CTL = PROGRAMS[0]
del sys.argv[1:]


def said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def flags_of_help(text: str) -> set[str]:
    """Long flags that begin a line of the help; --help itself is everywhere."""
    return set(re.findall(r"^ +(?:-\w,)?(--[a-z-]+)", text, re.M)) - {"--help"}


def commands_of_help(text: str) -> list[str]:
    part = text.split("\nSubcommands:\n")
    lines = part[1].split("\n\n")[0].splitlines() if len(part) == 2 else []
    return [match[1] for match in map(re.compile(r"  ([a-z]+)\b").match, lines) if match]


def leaves(program: str, *path: str) -> list[tuple[str, ...]]:
    """Paths of the commands that have no commands below them."""
    below = commands_of_help(said(program, *path, "--help"))
    return [leaf for name in below for leaf in leaves(program, *path, name)] or [path]


def completed(*words: str) -> list[str]:
    """What bash offers for the last of the words."""
    script = ('eval "$(' + CTL + ' completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
              '_kairosctl; printf "%s\\n" "${COMPREPLY[@]}"')
    return said("bash", "--norc", "-c", script, "bash", "kairosctl", *words).split()


class Manual(unittest.TestCase):
    def test_has_every_flag_and_command_of_the_help_and_no_other(self) -> None:
        for program in PROGRAMS:
            page = said(program, "--man").replace("\\-", "-")
            shown = flags_of_help(said(program, "--help"))
            commands = [leaf for leaf in leaves(program) if leaf]
            for leaf in commands:
                shown |= flags_of_help(said(program, *leaf, "--help"))
            written = set(re.findall(r"^\.B (?:-\w, )?(--[a-z-]+)", page, re.M)) - {"--help"}
            self.assertEqual(written, shown, program)
            headings = re.findall(r'^\.SS "([a-z ]+?)(?: \[?[A-Z]| \[?bash\||")', page, re.M)
            self.assertEqual(sorted(headings), sorted(" ".join(leaf) for leaf in commands), program)

    def test_has_every_exit_status_of_the_help(self) -> None:
        for program in PROGRAMS:
            page = said(program, "--man").split(".SH \"EXIT STATUS\"")[1].split(".SH")[0]
            footer = said(program, "--help").split("Exit statuses:")[1]
            self.assertEqual(re.findall(r"^\.B (\d+)$", page, re.M),
                             re.findall(r"^ +(\d+)  ", footer, re.M), program)

    @unittest.skipUnless(shutil.which("groff"), "no groff")
    def test_formats_without_a_warning(self) -> None:
        for program in PROGRAMS:
            done = subprocess.run(["groff", "-man", "-ww", "-Tascii"], input=said(program, "--man"),
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""), program)


class Complaints(unittest.TestCase):
    def test_name_the_flag_that_was_given_twice(self) -> None:
        for program, *words in (("kairosctl", "run", "--model"), ("kairosctl", "doctor", "--model"),
                                ("kairosd", "--model"), ("kairos-bench", "turns", "--model")):
            [path] = [one for one in PROGRAMS if pathlib.Path(one).name == program]
            done = subprocess.run([path, *words, "a", words[-1], "b"], capture_output=True,
                                  text=True, timeout=60)
            named = " ".join((program, *words[:-1]))
            self.assertEqual(done.stderr, f"{named}: --model: given twice, may be given once\n"
                                          f"  see {named} --help\n")
            self.assertEqual(done.returncode, 2)


class Completion(unittest.TestCase):
    def test_bash_completes_commands_flags_words_and_files(self) -> None:
        for words, wanted in (
                (("sess",), ["session"]), (("session", "sh"), ["show"]),
                (("--control", "/x", "session", "rew"), ["rewind"]),
                (("session", "show", "--js"), ["--json"]),
                (("run", "--max"), ["--max-tokens"]), (("run", "--max-tokens", ""), []),
                (("completion", "z"), ["zsh"]), (("doctor", "--log-level", "w"), ["warn"]),
                (("doctor", "--config", "/etc/passw"), ["/etc/passwd"])):
            found = completed(*words)
            self.assertEqual([word for word in found if word in wanted], wanted, (words, found))
            if words[-1] != "/etc/passw":
                self.assertEqual(found, wanted, words)

    def test_bash_offers_every_command(self) -> None:
        for path in ((), ("session",)):
            offered = {word for word in completed(*path, "") if not word.startswith("-")}
            self.assertEqual(offered, set(commands_of_help(said(CTL, *path, "--help"))), path)

    def test_other_shells_can_read_theirs(self) -> None:
        tried = 0
        with tempfile.TemporaryDirectory() as folder:
            for shell in filter(shutil.which, ("bash", "zsh", "fish")):
                script = pathlib.Path(folder, shell)
                script.write_text(said(CTL, "completion", shell))
                said(shell, "-n", str(script))
                tried += 1
        self.assertGreaterEqual(tried, 1)

    @unittest.skipUnless(shutil.which("fish"), "no fish")
    def test_fish_completes_a_subcommand(self) -> None:
        script = f"{CTL} completion fish | source; complete -C 'kairosctl session sh'"
        self.assertEqual(said("fish", "-N", "-c", script).split("\t")[0], "show")


if __name__ == "__main__":
    unittest.main()
