#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Settings that are read again while a kairosd serves: by SIGHUP and by `kairosctl reload`, good
ones, broken ones, ones that need a restart, and under load.

Environment beside that of live_daemon.py: KAIROSCTL.
"""
from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402

CTL = os.environ["KAIROSCTL"]


class Reload(unittest.TestCase):
    def setUp(self) -> None:
        self.daemon = live_daemon.LiveDaemon(extra=("--log-level", "info"))
        self.addCleanup(self.daemon.close)
        self.file = self.daemon.folder + "/kairosd.toml"
        self.daemon.extra += ("--config", self.file)
        self.write("[limits]\nmax_tokens_default = 3\n")
        self.daemon.start()

    def write(self, text: str) -> None:
        """Replaces the file as a whole, as an editor does."""
        with open(self.file + ".new", "w") as file:
            file.write(text)
        os.replace(self.file + ".new", self.file)

    def reload(self, code: int = 0) -> dict:
        done = subprocess.run([CTL, "--control", self.daemon.control, "--json", "reload"],
                              capture_output=True, text=True, timeout=live_daemon.WATCHDOG_S)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        record = json.loads(done.stdout)
        if code != 0:
            self.assertFalse(record["ok"])
            self.assertIn(record["error"], done.stderr)
        return record

    def reply_tokens(self) -> int:
        """Tokens of a turn that leaves their number to the sidecar."""
        with self.daemon.client() as client:
            turn = client.submit("Count.", generation=kairos.Generation(ignore_eos=True))
            turn.read()
            return turn.result.usage.generated_tokens

    def log_lines(self, event: str) -> list[str]:
        return [line for line in self.daemon.log_text().splitlines() if event in line]

    def test_holds_for_later_turns_and_names_what_changed(self) -> None:
        self.assertEqual(self.reply_tokens(), 3)
        self.write("[limits]\nmax_tokens_default = 5\n[catalog]\nversions_max = 2\n")
        self.assertEqual(self.reload()["changed"], [
            {"key": "catalog.versions_max", "before": 64, "after": 2},
            {"key": "limits.max_tokens_default", "before": 3, "after": 5}])
        self.assertEqual(self.reply_tokens(), 5)
        with self.daemon.client() as client:
            session = client.create_session()
            for number in range(4):
                session.turn(f"{number}", generation=kairos.Generation(max_tokens=1)).read()
            self.assertEqual(session.stat().oldest_version, 3)
        self.assertEqual(self.reload()["changed"], [])

    def test_by_signal(self) -> None:
        self.write("[limits]\nmax_tokens_default = 6\n")
        self.daemon.process.send_signal(signal.SIGHUP)
        self.daemon.wait_until("the reload", lambda: self.log_lines(" reloaded "))
        self.assertEqual(self.reply_tokens(), 6)

    def test_reaches_the_limits_of_clients_that_are_there(self) -> None:
        first = self.daemon.client()
        self.addCleanup(first.close)
        self.write("[limits]\nmax_tokens_default = 3\nin_flight_per_client = 1\nattachments = 1\n")
        self.reload()
        turn = first.submit("Count.",
                            generation=kairos.Generation(max_tokens=4000, ignore_eos=True))
        with self.assertRaisesRegex(kairos.KairosError, "at most 1"):
            while True:  # until ingress took the new limit
                first.submit("More.", generation=kairos.Generation(max_tokens=1)).read()
        with self.assertRaisesRegex(kairos.KairosError, r"at most 1 \(limits.attachments\)"):
            self.daemon.client().close()
        turn.cancel()
        turn.read()

    def test_broken_file_keeps_all_that_held(self) -> None:
        for text, words in (("[limits]\nmax_tokens_default = 9\nnot toml", "kairosd.toml:3"),
                            ("[limits]\nmax_tokens_default = 9\nattachments = 0\n",
                             "limits.attachments"),
                            ("[limits]\nmax_tokens_default = 9\nattachmnts = 5\n",
                             "limits.attachments")):
            with self.subTest(text):
                self.write(text)
                before = len(self.log_lines("reload_refused"))
                self.assertIn(words, self.reload(code=1)["error"])
                lines = self.log_lines("reload_refused")[before:]
                self.assertEqual(len(lines), 1, lines)
                self.assertIn(words, lines[0])
                self.assertEqual(self.reply_tokens(), 3)
        os.unlink(self.file)
        self.assertIn("kairosd.toml", self.reload(code=1)["error"])
        os.mkfifo(self.file)
        self.assertIn("kairosd.toml: is not a regular file", self.reload(code=1)["error"])
        self.assertEqual(self.reply_tokens(), 3)

    def test_restart_only_key_keeps_all_that_held(self) -> None:
        self.write("socket_mode = \"0660\"\n[limits]\nmax_tokens_default = 9\n"
                   "[engine]\nsequences_max = 2\n")
        refusal = self.reload(code=1)["error"]
        for words in ("socket_mode, engine.sequences_max", "restart"):
            self.assertIn(words, refusal)
        self.assertEqual(len(self.log_lines("reload_refused")), 1)
        self.assertEqual(self.reply_tokens(), 3)

    def test_flag_of_the_start_still_wins(self) -> None:
        # live_daemon gives kv.memory as a flag, so what the file says of it changes nothing.
        self.write("[limits]\nmax_tokens_default = 3\n[kv]\nmemory = \"1TiB\"\n")
        self.assertEqual(self.reload()["changed"], [])

    def test_phase_time_out_holds_for_sessions_that_wait_already(self) -> None:
        with self.daemon.client() as client:
            session = client.create_session()
            session.turn("Hello.").read()
            self.assertEqual(session.stat().phase, kairos.Phase.WAITING_USER)
            self.write("[limits]\nmax_tokens_default = 3\n[sessions]\nuser_timeout = \"1ms\"\n")
            self.reload()
            self.daemon.wait_until("the time-out",
                                   lambda: session.stat().phase == kairos.Phase.IDLE)
            self.assertEqual(session.stat().version, 1)

    def test_names_grants(self) -> None:
        grant = '[[grant]]\nuid = 4242\nnamespace = "team"\n'
        self.write("[limits]\nmax_tokens_default = 3\n" + grant)
        self.assertEqual(self.reload()["changed"],
                         [{"key": "grant", "before": "", "after": "4242 team"}])

    def test_under_load_no_turn_is_lost_or_wrong(self) -> None:
        stop = threading.Event()
        counts: list[int] = []
        faults: list[BaseException] = []

        def turns() -> None:
            try:
                with self.daemon.client() as client:
                    while not stop.is_set():
                        turn = client.submit("Count.",
                                             generation=kairos.Generation(ignore_eos=True))
                        turn.read()
                        counts.append(turn.result.usage.generated_tokens)
            except BaseException as fault:  # shown by the main thread
                faults.append(fault)

        threads = [threading.Thread(target=turns) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(20):
            self.write(f"[limits]\nmax_tokens_default = {2 + number % 2}\n"
                       f"attachments = {50 + number}\n[ingress]\nspin = \"{number}us\"\n")
            if number % 4 == 3:
                self.daemon.process.send_signal(signal.SIGHUP)
            self.reload()
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(faults, [])
        self.assertGreater(len(counts), 0)
        self.assertLessEqual(set(counts), {2, 3})


class WithoutFile(unittest.TestCase):
    def test_is_refused_and_a_closed_terminal_ends_nothing(self) -> None:
        daemon = live_daemon.LiveDaemon()
        self.addCleanup(daemon.close)
        daemon.start()
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_until("the refusal", lambda: "reload_refused" in daemon.log_text())
        self.assertIn("--config", daemon.log_text())
        self.assertTrue(daemon.alive())


if __name__ == "__main__":
    live_daemon.main()
