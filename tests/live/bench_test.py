#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kairos-bench: rows come as they are measured, and a folder of its own goes with it.

  bench_test.py KAIROS_BENCH
"""
from __future__ import annotations

import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

BENCH = sys.argv.pop()
CONVERSATION = live_daemon.ROOT / "examples" / "trip_planning.json"
INTERRUPTED = 128 + signal.SIGTERM


def descendants(pid: int) -> list[int]:
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


class Turns(unittest.TestCase):
    def start(self, *more: str, size: tuple[str, ...] = ("--quick",)) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [BENCH, "turns", "--model", live_daemon.model_path(), "--conversation",
             str(CONVERSATION), "--daemon", os.environ["KAIROSD"], "--json", *size, *more],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "KAIROS_TEST_MODEL": live_daemon.model_path()})
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stdout.close(),
                                 process.stderr.close()))
        return process

    def test_explains_what_it_measures_and_shows_that_a_long_turn_goes_on(self) -> None:
        shown, terminal = pty.openpty()
        process = subprocess.Popen(
            [BENCH, "turns", "--model", live_daemon.model_path(), "--conversation",
             str(CONVERSATION), "--daemon", os.environ["KAIROSD"]],
            stdout=subprocess.PIPE, stderr=terminal, text=True)
        os.close(terminal)
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stdout.close(),
                                 os.close(shown)))
        text = ""
        while not re.search(r"turn \d+ of 20, stateless: (0\.[1-9]|[1-9]\d*\.\d) s", text):
            text += os.read(shown, 4096).decode()  # fails when the bench is gone
        process.send_signal(signal.SIGTERM)
        while True:
            try:
                os.read(shown, 4096)
            except OSError:
                break
        head = process.stdout.read()
        self.assertEqual(process.wait(live_daemon.WATCHDOG_S), INTERRUPTED)
        self.assertIn("TTFT is the time to first token", " ".join(head.split()))

    def folder(self, process: subprocess.Popen[str]) -> pathlib.Path:
        """Where the kairosd that the bench started has its socket."""
        deadline = time.monotonic() + live_daemon.WATCHDOG_S
        while time.monotonic() < deadline and process.poll() is None:
            for pid in descendants(process.pid):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"--socket" in words:
                    return pathlib.Path(os.fsdecode(words[words.index(b"--socket") + 1])).parent
            time.sleep(0.01)
        raise AssertionError(f"no kairosd: {process.communicate()}")

    def test_first_row_comes_before_the_bench_ends_which_a_signal_does_cleanly(self) -> None:
        process = self.start()
        folder = self.folder(process)
        self.assertTrue(folder.is_dir())
        first = json.loads(process.stdout.readline())
        self.assertEqual((first["metric"], first["params"]["turn"]), ("turns.ttft_ms", 1))
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        self.assertEqual(process.wait(live_daemon.WATCHDOG_S), INTERRUPTED)
        self.assertNotIn("turns.resume_equal", rest)
        self.assertFalse(folder.exists())

    def test_turn_without_events_goes_on_while_the_sidecar_answers(self) -> None:
        # Prefill is long beside a silence of 10 ms, so pings come in between.
        process = self.start("--silence", "0.01")
        shown, complaints = process.communicate(timeout=live_daemon.WATCHDOG_S)
        self.assertEqual(process.returncode, 0, complaints)
        self.assertIn("turns.resume_equal", shown)

    def test_sidecar_that_answers_nothing_is_killed_and_the_session_goes_on(self) -> None:
        process = self.start("--silence", "2")
        self.folder(process)
        process.stdout.readline()
        daemon = next(pid for pid in descendants(process.pid)
                      if b"--socket" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(daemon, signal.SIGSTOP)
        rest, complaints = process.communicate(timeout=live_daemon.WATCHDOG_S)
        self.assertEqual(process.returncode, 1)  # a turn is missing
        self.assertIn("turn 2, ", complaints)
        self.assertIn("going on with kill -9 and the restart, after 1 of 2 turns", complaints)
        resumed = json.loads(rest.splitlines()[-1])
        self.assertEqual((resumed["metric"], resumed["value"]), ("turns.resume_equal", 0))
        self.assertGreater(resumed["params"]["tokens"], 0)

    def test_playing_ends_at_its_limit_and_the_rest_follows(self) -> None:
        # All twenty turns take minutes.
        process = self.start("--limit", "0.05", size=("--max-tokens", "8", "--sessions", "0"))
        shown, complaints = process.communicate(timeout=live_daemon.WATCHDOG_S)
        self.assertEqual(process.returncode, 1)
        self.assertIn("the time for playing is over", complaints)
        self.assertIn("turns.resume_equal", shown)

    def test_own_folder_is_gone_after_the_end(self) -> None:
        process = self.start()
        folder = self.folder(process)
        shown, complaints = process.communicate(timeout=live_daemon.WATCHDOG_S)
        self.assertEqual(process.returncode, 0, complaints)
        rows = [json.loads(line) for line in shown.splitlines()]
        self.assertEqual([row["metric"] for row in rows], ["turns.ttft_ms"] * 4 +
                         ["turns.overhead_share", "turns.resume_equal"])
        self.assertFalse(folder.exists())


if __name__ == "__main__":
    live_daemon.main()
