#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a test program against a live kairosd.

  with_daemon.py [NAME=VALUE...] PROGRAM [ARGUMENTS]

NAME=VALUE goes to the daemon's environment. The program finds the daemon by KAIROS_SOCKET and
KAIROS_SIDECAR_PID. Fails also where the daemon is dead afterwards or does not drain.
"""
import os
import subprocess
import sys

import live_daemon


def main() -> int:
    live_daemon.require_live()
    words = sys.argv[1:]
    environment = {}
    while words and "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    daemon = live_daemon.LiveDaemon(environment=environment)
    try:
        daemon.start()
        code = subprocess.run(words, env={
            **os.environ, "KAIROS_SOCKET": daemon.socket,
            "KAIROS_SIDECAR_PID": str(daemon.pid)}).returncode
        if not daemon.alive():
            print(f"kairosd is dead: exit {daemon.wait()}\n{daemon.log_text()[-4000:]}")
            return 1
        drained = daemon.terminate()
        if drained != 0:
            print(f"kairosd ended with {drained}\n{daemon.log_text()[-4000:]}")
            return 1
        return code
    finally:
        daemon.close()


if __name__ == "__main__":
    sys.exit(main())
