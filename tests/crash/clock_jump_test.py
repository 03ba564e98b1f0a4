#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wall clock of the sidecar is set forward and back while it serves: nothing times out early,
nothing waits for ever, and no session is taken for old.

  clock_jump_test.py LIBRARY     LIBRARY is built from tests/support/wall_clock_shift.c
"""
from __future__ import annotations

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import Finish, Generation, TextEvent  # noqa: E402

LIBRARY = sys.argv.pop()
CTL = os.environ["KAIROSCTL"]
YEAR_S = 366 * 86400
ENDLESS = Generation(max_tokens=7000, ignore_eos=True)


class ClockJump(unittest.TestCase):
    def setUp(self) -> None:
        self.daemon = live_daemon.LiveDaemon(extra=("--drain-timeout", "1s"))
        self.addCleanup(self.daemon.close)
        self.shift = self.daemon.folder + "/shift"
        self.jump(0)
        self.daemon.environment = {"LD_PRELOAD": LIBRARY, "WALL_CLOCK_SHIFT": self.shift}
        self.daemon.start()
        self.client = self.daemon.client()
        self.addCleanup(self.client.close)

    def jump(self, seconds: int) -> None:
        """From now on the wall clock is this far from the truth."""
        with open(self.shift, "r+b" if os.path.exists(self.shift) else "wb") as file:
            file.write(struct.pack("<q", seconds))

    def used_unix_ms(self, session) -> int:
        shown = subprocess.run([CTL, "--control", self.daemon.control, "--json", "session", "show",
                                f"{session.id:016x}"], capture_output=True, text=True, check=True)
        return json.loads(shown.stdout)["session"]["used_unix_ms"]

    def start_turn(self, **options: object):
        turn = self.client.submit("Count.", **{"generation": ENDLESS, **options})
        while not isinstance(turn.next(live_daemon.WATCHDOG_S), TextEvent):
            pass
        return turn

    def test_reaches_the_records_of_the_daemon(self) -> None:
        session = self.client.create_session()
        session.turn("One.", generation=Generation(max_tokens=1)).read()
        before = self.used_unix_ms(session)
        self.jump(YEAR_S)
        session.turn("Two.", generation=Generation(max_tokens=1)).read()
        self.assertGreaterEqual(self.used_unix_ms(session) - before, YEAR_S * 1000)

    def test_far_deadline_does_not_pass_early(self) -> None:
        for seconds in (YEAR_S, -YEAR_S):
            with self.subTest(seconds):
                self.jump(0)
                turn = self.start_turn(deadline_ms=3_600_000,
                                       generation=Generation(max_tokens=30, ignore_eos=True))
                self.jump(seconds)
                turn.read()
                self.assertEqual(turn.result.finish, Finish.LENGTH)

    def test_near_deadline_still_passes(self) -> None:
        for seconds in (-YEAR_S, YEAR_S):
            with self.subTest(seconds):
                self.jump(0)
                turn = self.start_turn(deadline_ms=1000)
                self.jump(seconds)
                turn.read()
                self.assertEqual(turn.result.finish, Finish.DEADLINE)

    def test_drain_ends_at_its_time_out(self) -> None:
        turn = self.start_turn()
        self.daemon.process.send_signal(signal.SIGTERM)
        self.jump(-YEAR_S)
        turn.read()
        self.assertEqual(turn.result.finish, Finish.CANCELLED)
        self.assertEqual(self.daemon.wait(), 0)

    def test_session_with_a_time_to_live_is_not_taken_for_old(self) -> None:
        session = self.client.create_session(ttl_seconds=3600)
        session.turn("Mine.", generation=Generation(max_tokens=1)).read()
        for seconds in (YEAR_S, -YEAR_S):
            self.jump(seconds)
            for _ in range(3):  # several looks at what is over lie between two turns
                self.client.submit("Other.", generation=Generation(max_tokens=8)).read()
            self.assertEqual(session.stat().version, 1)


if __name__ == "__main__":
    live_daemon.main()
