#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/CONFIG.md has every key that kairosd knows, with its default, and the file it prints.

  config_document_test.py KAIROSD
"""
import pathlib
import re
import subprocess
import sys
import tomllib
import unittest

KAIROSD = sys.argv.pop()
DOCUMENT = pathlib.Path(__file__).resolve().parents[3] / "docs" / "CONFIG.md"


def printed() -> str:
    return subprocess.run([KAIROSD, "--print-default-config"], check=True, text=True,
                          capture_output=True).stdout


def defaults() -> dict[str, str]:
    keys = {}
    for name, value in tomllib.loads(printed()).items():
        if isinstance(value, dict):
            keys |= {f"{name}.{inner}": str(of_inner) for inner, of_inner in value.items()}
        else:
            keys[name] = str(value)
    return keys


class ConfigDocument(unittest.TestCase):
    def setUp(self) -> None:
        self.text = DOCUMENT.read_text()
        rows = re.findall(r"^\| `([a-z_.]+)` \| (?:`([^`]*)`)? *\|", self.text, re.M)
        self.rows = {key: default for key, default in rows}

    def test_table_has_every_key_with_its_default_and_no_other(self) -> None:
        self.assertEqual(self.rows, defaults())

    def test_says_of_every_key_whether_a_reload_takes_it(self) -> None:
        column = {key: words == "yes" for key, words in re.findall(
            r"^\| `([a-z_.]+)` \|[^|]*\|[^|]*\| (yes|no) \|", self.text, re.M)}
        taken, section = {}, ""
        for help_line, line in zip(printed().splitlines(), printed().splitlines()[1:]):
            if line.startswith("["):
                section = line.strip("[]") + "."
            elif not line.startswith("#") and help_line.startswith("#"):
                taken[section + line.split(" = ")[0]] = help_line.endswith("(reload)")
        self.assertEqual(column, taken)

    def test_shows_the_printed_file(self) -> None:
        block = re.search(r"^```toml kairosd\n(.*?)^```$", self.text, re.M | re.S)
        self.assertIsNotNone(block)
        self.assertEqual(block.group(1), printed())

    def test_flags_are_the_keys(self) -> None:
        shown = subprocess.run([KAIROSD, "--help"], check=True, text=True,
                               capture_output=True).stdout
        lines = " ".join(shown.split("Settings:")[1].split("Exit statuses:")[0].split())
        flags = dict(re.findall(r" --([a-z-]+) (\S+)", lines))
        self.assertEqual(set(flags), {key.replace(".", "-").replace("_", "-") for key in self.rows})
        self.assertEqual([flags[name] for name in ("kv-memory", "drain-timeout", "catalog-path",
                                                   "socket-mode", "engine-threads")],
                         ["SIZE", "TIME", "PATH", "0600|0660", "N"])
        self.assertIn("memory for KV blocks; 1MiB to 16TiB [1GiB]", lines)

    def test_checked_settings_have_the_units_of_the_printed_file(self) -> None:
        done = subprocess.run([KAIROSD, "--check-config"], text=True, capture_output=True,
                              env={"HOME": "/nonexistent"})
        self.assertEqual(done.returncode, 78)
        self.assertTrue(done.stderr.startswith("kairosd: model: no model is named\n"), done.stderr)
        checked = tomllib.loads(done.stdout)
        for name, value in tomllib.loads(printed()).items():
            if isinstance(value, dict):
                value.pop("path", None)  # filled in
                checked[name].pop("path", None)
                self.assertEqual(checked[name], value, name)


if __name__ == "__main__":
    unittest.main()
