#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every example runs against a live kairosd on the real model and shows what it is there to show.

  examples_test.py CC BUILD_FOLDER
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

CC, BUILD = sys.argv[1:3]
# What must stand in the output beside exit status 0: each example's own point.
SHOWS = {
    "hello_turn": r"version 2: \d+ new, [1-9]\d* reused .* 0 recomputed",
    "agent_with_tool": r"get_weather",
    "shared_manual": r"[1-9]\d* shared",
    "two_agents": r"[1-9]\d* shared",
    "fork_session": r"fork reused [1-9]\d* tokens",
    "cancel_turn": r"version 2: \d+ new, [1-9]\d* reused",
    "async_turns": r"version 1: .* generated",
}


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = LiveDaemon().start()
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.close()
        cls.folder.cleanup()

    def check(self, name, command):
        environment = {**os.environ, "KAIROS_SOCKET": self.daemon.socket, "LD_LIBRARY_PATH": BUILD,
                       "PYTHONPATH": str(ROOT / "bindings" / "python"),
                       "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, f"{name}: {done.stdout}\n{done.stderr}")
        self.assertRegex(done.stdout, re.compile(SHOWS[name]), name)

    def test_python(self):
        for path in sorted((ROOT / "examples" / "python").glob("*.py")):
            if path.stem == "show":  # shared by the others
                continue
            with self.subTest(path.stem):
                self.check(path.stem, [sys.executable, str(path)])

    def test_c(self):
        for path in sorted((ROOT / "examples" / "c").glob("*.c")):
            with self.subTest(path.stem):
                program = pathlib.Path(self.folder.name) / path.stem
                subprocess.run([CC, "-std=c11", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT),
                                "-I", str(ROOT / "capi" / "include"), "-o", str(program), str(path),
                                "-L", BUILD, "-lkairos"], check=True)
                self.check(path.stem, [str(program)])

    def test_an_example_says_when_there_is_no_sidecar(self):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "bindings" / "python")}
        done = subprocess.run([sys.executable, str(ROOT / "examples" / "python" / "hello_turn.py"),
                               "--socket", "/nonexistent/kairos.sock"], env=environment,
                              capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    require_live()
    unittest.main(argv=[sys.argv[0], "-v"])
