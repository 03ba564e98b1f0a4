#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of README.md compile, and run against a live kairosd; its kairosctl commands exist.

  readme_test.py CC CXX BUILD_FOLDER
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from live_daemon import ROOT, LiveDaemon, require_live  # noqa: E402

CC, CXX, BUILD = sys.argv[1:4]
TEXT = (ROOT / "README.md").read_text()


def snippet(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.M | re.S)
    assert len(found) == 1, f"{len(found)} snippets of {language}"
    return found[0]


class Readme(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = LiveDaemon().start()
        cls.folder = tempfile.TemporaryDirectory()
        cls.environment = {**os.environ, "KAIROS_SOCKET": cls.daemon.socket,
                           "LD_LIBRARY_PATH": BUILD, "PYTHONDONTWRITEBYTECODE": "1",
                           "PYTHONPATH": str(ROOT / "bindings" / "python")}

    @classmethod
    def tearDownClass(cls):
        cls.daemon.close()
        cls.folder.cleanup()

    def run_program(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True,
                              timeout=240)
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        return done.stdout

    def test_c(self):
        source = pathlib.Path(self.folder.name) / "hello.c"
        program = source.with_suffix("")
        source.write_text(snippet("c"))
        subprocess.run([CC, "-std=c11", "-Wall", "-Wextra", "-Werror",
                        "-I", str(ROOT / "capi" / "include"), "-o", str(program), str(source),
                        "-L", BUILD, "-lkairos"], check=True)
        self.assertGreater(len(self.run_program(str(program))), 20)

    def test_cpp(self):
        source = pathlib.Path(self.folder.name) / "hello.cc"
        program = pathlib.Path(self.folder.name) / "hello_cpp"
        source.write_text(snippet("cpp"))
        subprocess.run([CXX, "-std=c++17", "-Wall", "-Wextra", "-Werror",
                        "-I", str(ROOT / "capi" / "include"), "-o", str(program), str(source),
                        "-L", BUILD, "-lkairos"], check=True)
        self.assertGreater(len(self.run_program(str(program))), 20)

    def test_python(self):
        source = pathlib.Path(self.folder.name) / "hello.py"
        source.write_text(snippet("python"))
        self.assertGreater(len(self.run_program(sys.executable, str(source))), 20)

    def test_kairosctl(self):
        tool = pathlib.Path(BUILD) / "kairosctl"
        rows = re.findall(r"^\| `kairosctl ([a-z ]+?)(?: [A-Z\[].*?)?` \|", TEXT, re.M)
        self.assertIn("session rewind", rows)
        for words in rows:
            with self.subTest(words):
                shown = self.run_program(str(tool), *words.split(), "--help")
                self.assertNotIn("Subcommands:", shown)
        self.assertIn("ok", self.run_program(str(tool), "ping"))


if __name__ == "__main__":
    require_live()
    unittest.main(argv=[sys.argv[0], "-v"])
