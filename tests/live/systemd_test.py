#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kairosd under a service manager: what it tells of its start, its threads and its end, and the
unit file. The test is the manager.

  systemd_test.py UNIT     UNIT is the configured kairos.service
"""
from __future__ import annotations

import ctypes
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()

UNIT = pathlib.Path(sys.argv.pop())
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WAIT_ALL_THREADS = 0x40000000  # __WALL


class HeldThread:
    """Stops one thread of another process while the others run on."""

    def __init__(self, pid: int, name: str) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self.thread = next(
            int(task.name) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
            if (task / "comm").read_text().strip() == name)

    def __enter__(self) -> HeldThread:
        if self.libc.ptrace(PTRACE_SEIZE, self.thread, None, None) != 0:
            raise unittest.SkipTest(f"ptrace: {os.strerror(ctypes.get_errno())}")
        self.libc.ptrace(PTRACE_INTERRUPT, self.thread, None, None)
        os.waitpid(self.thread, WAIT_ALL_THREADS)
        return self

    def __exit__(self, *_: object) -> None:
        self.libc.ptrace(PTRACE_DETACH, self.thread, None, None)


class Manager(unittest.TestCase):
    PERIOD_S = 1.5

    def setUp(self) -> None:
        self.daemon = live_daemon.LiveDaemon()
        self.addCleanup(self.daemon.close)
        path = self.daemon.folder + "/manager"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.bind(path)
        self.daemon.process = self.daemon.spawn(
            NOTIFY_SOCKET=path, WATCHDOG_USEC=str(int(self.PERIOD_S * 1e6)))
        self.told: list[str] = []

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + live_daemon.WATCHDOG_S
        while True:
            ready, _, _ = select.select([self.socket], [], [],
                                        max(0.0, deadline - time.monotonic()))
            self.assertTrue(ready, f"{words} did not come after {self.told}")
            self.told.append(self.socket.recv(4096).decode())
            if words in self.told[-1].splitlines():
                return

    def drain(self) -> None:
        while select.select([self.socket], [], [], 0)[0]:
            self.socket.recv(4096)

    def test_hears_of_loading_readiness_and_the_end_in_order(self) -> None:
        self.wait_for("READY=1")
        with self.daemon.client() as client:  # the socket is served when it says so
            self.assertGreater(client.ping(8), 0)
        before = "\n".join(self.told)
        self.assertRegex(before, r"STATUS=loading model, \d+ %")
        self.assertIn("EXTEND_TIMEOUT_USEC=", before)
        self.assertEqual(self.daemon.process.send_signal(signal.SIGTERM), None)
        self.wait_for("STOPPING=1")
        self.assertEqual(self.daemon.wait(), 0)

    def test_hears_that_it_lives_until_a_thread_hangs(self) -> None:
        self.wait_for("READY=1")
        for _ in range(3):
            self.wait_for("WATCHDOG=1")
        for thread in ("kairos-conduct", "kairos-engine"):
            with self.subTest(thread):
                line = f"thread_hangs thread={thread[7:11]}"
                before = self.daemon.log_text().count(line)
                with HeldThread(self.daemon.pid, thread):
                    self.daemon.wait_until(
                        "the log line", lambda: self.daemon.log_text().count(line) > before)
                    self.drain()
                    # Two periods of silence: a manager would have ended it.
                    self.assertEqual(
                        select.select([self.socket], [], [], 2 * self.PERIOD_S)[0], [])
                self.wait_for("WATCHDOG=1")


class Unit(unittest.TestCase):
    def setUp(self) -> None:
        self.text = UNIT.read_text()

    def value(self, key: str) -> str:
        found = re.findall(rf"^{key}=(.*)$", self.text, re.M)
        self.assertEqual(len(found), 1, key)
        return found[0]

    def test_manager_accepts_it(self) -> None:
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze")
        folder = tempfile.mkdtemp(prefix="kairos-unit-")
        self.addCleanup(shutil.rmtree, folder)
        text = self.text
        for program, built in (("kairosd", "KAIROSD"), ("kairosctl", "KAIROSCTL")):
            text = re.sub(rf"=\S*/{program}(?= )", "=" + os.environ[built], text)
        file = pathlib.Path(folder) / "kairos.service"
        file.write_text(text)
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", "--generators=no",
                               str(file)], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager",
                               "--threshold=30", str(file)],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout[-500:] + done.stderr)

    def test_fits_what_the_daemon_does(self) -> None:
        self.assertEqual(self.value("Type"), "notify")
        self.assertRegex(self.value("ExecStart"), r"^/\S+/kairosd --config /etc/kairos/")
        self.assertRegex(self.value("ExecReload"), r"^/\S+/kairosctl .* reload$")
        self.assertGreaterEqual(int(self.value("WatchdogSec")), 10)
        # Would show every client's uid as nobody's.
        self.assertNotRegex(self.text, r"(?m)^PrivateUsers=")
        # Statuses that a new start cannot heal; 73 and 71 may.
        self.assertEqual(set(self.value("RestartPreventExitStatus").split()),
                         {"2", "66", "75", "78"})


if __name__ == "__main__":
    live_daemon.main()
