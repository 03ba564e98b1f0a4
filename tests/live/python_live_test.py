#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The live tests of the Python bindings, against a kairosd of this test."""
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from live_daemon import LiveDaemon, require_live  # noqa: E402


def main() -> int:
    with LiveDaemon() as daemon:
        os.environ["KAIROS_SOCKET"] = daemon.socket  # read when the tests are imported
        suite = unittest.defaultTestLoader.loadTestsFromName("tests.test_live")
        result = unittest.TextTestRunner(verbosity=2).run(suite)
        served = daemon.terminate() == 0
    done = result.testsRun > 0 and not result.skipped
    return 0 if served and done and result.wasSuccessful() else 1


if __name__ == "__main__":
    require_live()
    sys.exit(main())
