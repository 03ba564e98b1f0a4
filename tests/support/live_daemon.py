# SPDX-License-Identifier: Apache-2.0
"""A real kairosd for tests: started, asked, killed, looked at from outside.

Environment: KAIROSD (the binary), KAIROS_LIBRARY (libkairos), KAIROS_CONTROL_STATS (the tool that
prints figures as JSON), KAIROS_TEST_MODEL (optional). Readiness is the daemon's own notification,
never a guess. Exit code 77 of a test program means skipped.
"""
from __future__ import annotations

import ctypes
import json
import os
import pathlib
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings" / "python"))

SKIPPED = 77
WATCHDOG_S = 300.0  # a wait this long is a hang, also on a loaded machine


def model_path() -> str | None:
    """The test model, or None where it is not there."""
    given = os.environ.get("KAIROS_TEST_MODEL")
    if given:
        return given if os.path.exists(given) else None
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = os.path.join(cache, "kairos", "models", "smollm2-135m.gguf")
    return path if os.path.exists(path) else None


def missing() -> str | None:
    """What a live test lacks, in words."""
    for name in ("KAIROSD", "KAIROS_LIBRARY"):
        if not os.environ.get(name):
            return f"{name} is not set"
    if model_path() is None:
        return "no test model: run `tools/model fetch smollm2-135m` or set KAIROS_TEST_MODEL"
    return None


def require_live() -> None:
    """Ends the program as skipped, visibly, where no daemon can be started."""
    reason = missing()
    if reason:
        print(f"SKIPPED: {reason}", flush=True)
        sys.exit(SKIPPED)


def _prepare(limits: dict[int, int], user: tuple[int, int] | None) -> None:
    """In the child, before kairosd begins."""
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))
    if user is not None:
        uid, gid = user
        os.setgroups(())
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    # After the change of user, which takes the wish back.
    _die_with_parent()


def _die_with_parent() -> None:
    # A shell that runs the tests in the background has them ignore it, and so their children.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def children_of(pid: int) -> list[int]:
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


@dataclass(frozen=True)
class Usage:
    """What a process holds, read from /proc."""

    descriptors: int
    segments: int  # mappings of attachments
    # Resident, without huge pages: those are of the device memory for weights and KV, whose bound
    # is a setting, and the system makes them in the background, of memory that nobody touched.
    rss_bytes: int


class LiveDaemon:
    """One kairosd with a folder of its own. `close()` ends it and removes the folder."""

    def __init__(self, *, model: str | None = None, extra: tuple[str, ...] = (),
                 environment: dict[str, str] | None = None, catalog: str | None = None,
                 folder: str | None = None, limits: dict[int, int] | None = None,
                 user: tuple[int, int] | None = None, own_pid_namespace: bool = False) -> None:
        """`limits`: RLIMIT_* of the process, soft and hard. `user`: uid and gid to run as."""
        self._own_folder = folder is None
        self.folder = folder or tempfile.mkdtemp(prefix="kairos-live-")
        self.model = model or model_path()
        self.socket = self.folder + "/kairos.sock"
        self.control = self.folder + "/control.sock"
        self.catalog = catalog or self.folder + "/catalog.db"
        self.log = self.folder + "/log"
        self.extra = extra
        self.environment = environment or {}
        self.limits = limits or {}
        self.user = user
        self.prefix = ("unshare", "--pid", "--fork", "--kill-child") if own_pid_namespace else ()
        if user is not None:
            self._give_to(*user)
        self.process: subprocess.Popen[bytes] | None = None

    def _give_to(self, uid: int, gid: int) -> None:
        """The folder with a model in it; others may pass through to the sockets."""
        model = self.folder + "/model.gguf"
        try:
            os.link(str(self.model), model)
        except OSError:
            shutil.copyfile(str(self.model), model)
        self.model = model
        os.chmod(self.folder, 0o711)
        os.chown(self.folder, uid, gid)

    def __enter__(self) -> LiveDaemon:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        assert self.process is not None
        if not self.prefix:
            return self.process.pid
        return children_of(self.process.pid)[0]

    def arguments(self) -> list[str]:
        return [*self.prefix, os.environ["KAIROSD"], "--model", str(self.model),
                "--socket", self.socket,
                "--control-socket", self.control, "--catalog-path", self.catalog,
                *([] if "--log-level" in self.extra else ["--log-level", "warn"]),
                *([] if "--kv-memory" in self.extra else ["--kv-memory", "256MiB"]), *self.extra]

    def spawn(self, **environment: str) -> subprocess.Popen[bytes]:
        """Starts the process without waiting for it."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("KAIROS")}
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                self.arguments(), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={**clean, **self.environment, **environment},
                preexec_fn=lambda: _prepare(self.limits, self.user))

    def start(self, **environment: str) -> LiveDaemon:
        """Starts it and returns when it says that it serves."""
        path = self.folder + "/notify"
        if os.path.exists(path):
            os.unlink(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(path)
            os.chmod(path, 0o777)  # also for a kairosd of another user
            self.process = self.spawn(NOTIFY_SOCKET=path, **environment)
            end = os.pidfd_open(self.process.pid)
            try:
                deadline = time.monotonic() + WATCHDOG_S
                while True:
                    left = deadline - time.monotonic()
                    ready, _, _ = select.select([notify, end], [], [], max(0.0, left))
                    if notify in ready:
                        if b"READY=1" in notify.recv(4096):
                            return self
                    elif ready:
                        raise AssertionError(f"kairosd ended with {self.process.wait()}: "
                                             f"{self.log_text()}")
                    else:
                        raise AssertionError("kairosd was not ready in time")
            finally:
                os.close(end)

    def log_text(self) -> str:
        try:
            return pathlib.Path(self.log).read_text(errors="replace")
        except OSError:
            return ""

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(WATCHDOG_S)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(WATCHDOG_S)

    def terminate(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        if self.alive():
            self.kill()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def client(self, **options: object):
        import kairos
        return kairos.Client(self.socket,
                             **{"timeout": WATCHDOG_S, **options})  # type: ignore[arg-type]

    def usage(self) -> Usage:
        folder = f"/proc/{self.pid}"
        with open(folder + "/maps") as maps:
            segments = sum("memfd:kairos" in line for line in maps)
        with open(folder + "/smaps_rollup") as rollup:
            kilobytes = dict(re.findall(r"^(\w+): +(\d+) kB$", rollup.read(), re.M))
        resident = int(kilobytes["Rss"]) - int(kilobytes["AnonHugePages"])
        return Usage(len(os.listdir(folder + "/fd")), segments, resident * 1024)

    def stats(self) -> dict[str, float]:
        """The figures of the control socket."""
        tool = os.environ["KAIROS_CONTROL_STATS"]
        done = subprocess.run([tool, self.control], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise AssertionError(f"control stats: {done.stderr}")
        return json.loads(done.stdout)

    def wait_until(self, what: str, condition) -> None:
        """Polls a condition of the daemon that has no event to wait for."""
        deadline = time.monotonic() + WATCHDOG_S
        while not condition():
            if not self.alive():
                raise AssertionError(f"{what}: kairosd died: {self.log_text()[-2000:]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {WATCHDOG_S} s; usage {self.usage()}")
            time.sleep(0.005)


class LiveTest(unittest.TestCase):
    """Shares one daemon among the tests of a class; each test ends with it alive."""

    EXTRA: tuple[str, ...] = ()
    ENVIRONMENT: dict[str, str] = {}
    daemon: LiveDaemon

    @classmethod
    def setUpClass(cls) -> None:
        cls.daemon = LiveDaemon(extra=cls.EXTRA, environment=cls.ENVIRONMENT)
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.start()

    def setUp(self) -> None:
        self.addCleanup(lambda: self.assertTrue(self.daemon.alive(), self.daemon.log_text()))

    def client(self, **options: object):
        client = self.daemon.client(**options)
        self.addCleanup(client.close)
        return client

    def assert_serves(self) -> None:
        """A client that comes now gets its turn done."""
        import kairos
        with self.daemon.client() as client:
            turn = client.submit("Say one word.", generation=kairos.Generation(max_tokens=4))
            turn.read()
            self.assertIsNotNone(turn.result)
            self.assertGreater(turn.result.usage.generated_tokens, 0)


def main() -> None:
    """Runs the tests of the calling program."""
    require_live()
    unittest.main(module="__main__", verbosity=2)
