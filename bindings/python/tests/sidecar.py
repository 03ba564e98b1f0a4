# SPDX-License-Identifier: Apache-2.0
"""Where the tests find a sidecar: the live one of $KAIROS_SOCKET, or the fake of
$KAIROS_FAKE_SIDECAR.

Tests that need neither always run once the library loads ($KAIROS_LIBRARY or the loader's path).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import unittest

FAKE = os.environ.get("KAIROS_FAKE_SIDECAR")
LIVE = os.environ.get("KAIROS_SOCKET")


class FakeSidecarTest(unittest.TestCase):
    """Starts one fake sidecar for each test."""

    def setUp(self) -> None:
        if not FAKE:
            self.skipTest("KAIROS_FAKE_SIDECAR is not set")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = folder.name + "/kairos.sock"
        self.process = subprocess.Popen([FAKE, self.path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.stop)
        self.assertEqual(self.process.stdout.readline(), "ready\n")

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()

    def order(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        self.assertEqual(self.process.stdout.readline(), "ok\n")


class LiveSidecarTest(unittest.TestCase):
    def setUp(self) -> None:
        if not LIVE:
            self.skipTest("KAIROS_SOCKET is not set: no live sidecar")
