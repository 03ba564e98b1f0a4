#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The log of a live kairosd at its most talkative: nothing that a client said is in it, and what a
client can provoke at will does not fill it.

Environment beside that of live_daemon.py: KAIROSCTL.
"""
from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import Generation  # noqa: E402

MARKER = "zebra4711quagga"
SHORT = Generation(max_tokens=3, ignore_eos=True)


class Log(live_daemon.LiveTest):
    EXTRA = ("--log-level", "debug", "--catalog-bytes-max", "4MiB")

    def refused(self, act) -> None:
        with self.assertRaises(kairos.KairosError):
            act()

    def test_has_nothing_that_a_client_said(self) -> None:
        client = self.client(name_space=MARKER)
        session = client.create_session(label=MARKER)
        call = [{"id": MARKER, "name": MARKER, "arguments": {}}]
        session.turn([{"role": "system", "content": MARKER},
                      {"role": "user", "content": MARKER}], generation=SHORT,
                     idempotency_key=MARKER).read()
        session.turn([{"role": "assistant", "content": MARKER, "tool_calls": call},
                      {"role": "tool", "name": MARKER, "content": MARKER}],
                     generation=SHORT).read()
        session.set_context({"goal": MARKER, "facts": [{"text": MARKER}]})
        self.refused(lambda: session.set_context({"facts": MARKER}))
        self.refused(lambda: session.turn(MARKER, tools="{" + MARKER, generation=SHORT).read())
        self.refused(lambda: session.turn(MARKER, if_version=99, generation=SHORT).read())
        self.refused(lambda: session.turn(MARKER * 20000, generation=SHORT).read())
        self.refused(lambda: session.turn([{"role": MARKER, "content": MARKER}],
                                          generation=SHORT).read())
        turn = session.turn(MARKER, generation=Generation(max_tokens=500, ignore_eos=True,
                                                          stop=[MARKER]))
        turn.cancel()
        turn.read()
        session.fork().delete()
        subprocess.run([os.environ["KAIROSCTL"], "--control", self.daemon.control, "session",
                        "show", f"{session.id:016x}"], check=True, stdout=subprocess.DEVNULL)
        text = self.daemon.log_text()
        self.assertIn("level=info", text)  # there is a log to look at
        self.assertNotIn(MARKER, text)
        self.assertNotIn(MARKER[:5], text)

    def test_repeated_fault_is_one_line_with_a_count(self) -> None:
        client = self.client()
        large = {"extra": {"notes": "words " * 30000}}
        refused = 0
        while refused < 200:
            try:
                client.create_session().set_context(large)
            except kairos.ResourceExhausted:
                refused += 1
        lines = re.findall(r"^.*catalog_refused.*$", self.daemon.log_text(), re.M)
        self.assertIn(len(lines), range(1, 6), lines[:6])
        self.assertRegex(lines[0], r"level=error sub=state catalog_refused verb=\d+ code=8 "
                                   r"detail=\d+ left_out=0 reason=")

    def test_levels_leave_out_what_is_below(self) -> None:
        daemon = live_daemon.LiveDaemon(extra=("--log-level", "error"))
        self.addCleanup(daemon.close)
        daemon.start()
        self.assertEqual(daemon.terminate(), 0)
        self.assertNotRegex(daemon.log_text(), "level=(debug|info|warn)")


if __name__ == "__main__":
    live_daemon.main()
