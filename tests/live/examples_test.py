#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every example runs against a live kairosd on the real model and shows what it is there to show.
Those in C and C++ are built by Makefile.examples from an installed KAIROS.

  examples_test.py CC CXX BUILD_FOLDER CMAKE LIBDIR
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

CC, CXX, BUILD, CMAKE, LIBDIR = sys.argv[1:6]
# What must stand in the output beside exit status 0: each example's own point.
SHOWS = {
    "hello_turn": r"version 2: \d+ new, [1-9]\d* reused .* 0 recomputed",
    "agent_with_tool": r"get_weather\(Oslo\) = .*-3(?s:.*)Oslo.*snow",
    "shared_manual": r"[1-9]\d* shared",
    "two_agents": r"[1-9]\d* shared",
    "fork_session": r"fork reused [1-9]\d* tokens",
    "cancel_turn": r"version 2: \d+ new, [1-9]\d* reused",
    "watch_sessions": r"version 0, running(?s:.*)waiting_tool \(clock\)(?s:.*)closed",
    "async_turns": r"version 1: .* generated",
}


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = LiveDaemon().start()
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.prefix = pathlib.Path(cls.folder.name) / "prefix"
        cls.programs = pathlib.Path(cls.folder.name) / "programs"
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", str(cls.prefix)], check=True,
                       stdout=subprocess.DEVNULL)
        found = {**os.environ, "PKG_CONFIG_PATH": str(cls.prefix / LIBDIR / "pkgconfig")}
        subprocess.run(["make", "-C", str(ROOT), "-f", "Makefile.examples", f"CC={CC}",
                        f"CXX={CXX}", f"OUT={cls.programs}", "CFLAGS=-Wall -Wextra -Werror",
                        "CXXFLAGS=-Wall -Wextra -Werror"], check=True, env=found,
                       stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.daemon.close()

    def check(self, name, command):
        environment = {**os.environ, "KAIROS_SOCKET": self.daemon.socket,
                       "LD_LIBRARY_PATH": str(self.prefix / LIBDIR),
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

    def check_programs(self, folder, pattern):
        sources = sorted((ROOT / "examples" / folder).glob(pattern))
        self.assertGreater(len(sources), 0)
        for path in sources:
            with self.subTest(f"{folder}/{path.stem}"):
                self.check(path.stem, [str(self.programs / folder / path.stem)])

    def test_c(self):
        self.check_programs("c", "*.c")

    def test_cpp(self):
        self.check_programs("cpp", "*.cc")

    def test_an_example_says_when_there_is_no_sidecar(self):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "bindings" / "python")}
        done = subprocess.run([sys.executable, str(ROOT / "examples" / "python" / "hello_turn.py"),
                               "--socket", "/nonexistent/kairos.sock"], env=environment,
                              capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("Traceback", done.stderr)
        done = subprocess.run([str(self.programs / "cpp" / "hello_turn"), "--socket",
                               "/nonexistent/kairos.sock"], capture_output=True, text=True,
                              env={**os.environ, "LD_LIBRARY_PATH": str(self.prefix / LIBDIR)},
                              timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent/kairos.sock", done.stderr)


if __name__ == "__main__":
    require_live()
    unittest.main(argv=[sys.argv[0], "-v"])
