#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may attach, who may look into the memory of an attachment, and clients that live in another
pid namespace. Needs root, which becomes other users; skipped otherwise."""
from __future__ import annotations

import ctypes
import os
import pathlib
import signal
import sys
import unittest
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
if os.getuid() != 0:
    print("SKIPPED: needs root to become other users", flush=True)
    sys.exit(live_daemon.SKIPPED)
import kairos  # noqa: E402
from kairos import Generation  # noqa: E402

NOBODY = 65534
OWNER, OTHER, OWNER_GROUP, OTHER_GROUP = 61_001, 61_002, 62_001, 62_002
SHORT = Generation(max_tokens=4)
CLONE_NEWPID = 0x20000000


def in_child(act: Callable[[], str], *, uid: int = 0, gid: int = 0,
             groups: tuple[int, ...] = ()) -> str:
    """What `act` returns in a child process of that user, or the error it ends with."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if (uid, gid) != (0, 0):
                os.setgroups(groups)
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
            os.write(write_end, act().encode())
        except BaseException as fault:
            os.write(write_end, f"{type(fault).__name__}: {fault}".encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as told:
        text = told.read()
    os.waitpid(pid, 0)
    return text


class Users(live_daemon.LiveTest):
    """A sidecar of its own user whose socket is open to a group."""

    EXTRA = ("--socket-mode", "0660")

    @classmethod
    def setUpClass(cls) -> None:
        cls.daemon = live_daemon.LiveDaemon(extra=cls.EXTRA, user=(OWNER, OWNER_GROUP))
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.start()

    def attach(self) -> str:
        with self.daemon.client() as client:
            return "attached" if client.ping() > 0 else "no echo"

    def test_attach_where_the_socket_lets_them(self) -> None:
        self.assertEqual(in_child(self.attach, uid=OWNER, gid=OWNER_GROUP), "attached")
        self.assertEqual(in_child(self.attach, uid=OTHER, gid=OWNER_GROUP), "attached")
        self.assertEqual(in_child(self.attach, uid=OTHER, gid=OTHER_GROUP,
                                  groups=(OWNER_GROUP,)), "attached")

    def test_of_another_group_are_kept_out(self) -> None:
        said = in_child(self.attach, uid=OTHER, gid=OTHER_GROUP)
        self.assertIn("Unavailable", said)
        self.assertIn("permission denied", said)
        self.assertIn("permission denied", in_child(self.attach, uid=NOBODY, gid=NOBODY))

    def test_of_the_group_see_no_sessions_of_each_other(self) -> None:
        def make() -> str:
            with self.daemon.client() as client:
                return str(client.create_session().id)
        session = int(in_child(make, uid=OWNER, gid=OWNER_GROUP))

        def look() -> str:
            with self.daemon.client() as client:
                client.open_session(session)
                return "opened"
        self.assertIn("NotFound", in_child(look, uid=OTHER, gid=OWNER_GROUP))
        self.assertEqual(in_child(look, uid=OWNER, gid=OWNER_GROUP), "opened")

    def test_of_the_same_user_cannot_open_anothers_segment_through_procfs(self) -> None:
        holder = self.daemon.client()
        self.addCleanup(holder.close)
        self.assertGreater(self.daemon.usage().segments, 0)
        pid = self.daemon.pid
        for path in (f"/proc/{pid}/fd", f"/proc/{pid}/map_files", f"/proc/{pid}/maps",
                     f"/proc/{pid}/mem", f"/proc/{pid}/environ"):
            def look(path: str = path) -> str:
                try:
                    if os.path.isdir(path):
                        names = os.listdir(path)
                        return f"listed {len(names)}"
                    with open(path, "rb") as file:
                        return f"opened, {len(file.read(16))} bytes"
                except OSError as fault:
                    return fault.strerror or ""
            for uid, gid in ((OWNER, OWNER_GROUP), (OTHER, OWNER_GROUP)):
                self.assertEqual(in_child(look, uid=uid, gid=gid), "Permission denied", path)

    def test_of_the_same_user_cannot_trace_it(self) -> None:
        def trace() -> str:
            libc = ctypes.CDLL(None, use_errno=True)
            attach = 16
            if libc.ptrace(attach, self.daemon.pid, None, None) == 0:
                return "traced"
            return os.strerror(ctypes.get_errno())
        self.assertEqual(in_child(trace, uid=OWNER, gid=OWNER_GROUP), "Operation not permitted")

    def test_of_another_user_do_not_reach_the_control_socket(self) -> None:
        self.assertEqual(os.stat(self.daemon.control).st_mode & 0o777, 0o600)
        os.chmod(self.daemon.control, 0o666)
        self.addCleanup(os.chmod, self.daemon.control, 0o600)

        def look() -> str:
            return "answered" if "sessions" in self.daemon.stats() else "nothing"
        self.assertEqual(in_child(look, uid=OWNER, gid=OWNER_GROUP), "answered")
        self.assertIn("AssertionError", in_child(look, uid=OTHER, gid=OWNER_GROUP))
        self.assertEqual(look(), "answered", "root")


def new_pid_namespace() -> None:
    """Children of this process are in one of their own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWPID) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


class PidNamespace(unittest.TestCase):
    def setUp(self) -> None:
        said = in_child(lambda: new_pid_namespace() or "can")
        if said != "can":
            self.skipTest(f"no pid namespaces here: {said}")

    def check(self, daemon: live_daemon.LiveDaemon, *, client_apart: bool) -> None:
        """A client with an open turn dies; the sidecar takes back all of it."""
        read_end, write_end = os.pipe()
        outer = os.fork()
        if outer == 0:
            os.close(read_end)
            if client_apart:
                new_pid_namespace()
            inner = os.fork()
            if inner == 0:
                client = daemon.client()
                turn = client.submit("Count.", generation=Generation(max_tokens=2000,
                                                                     ignore_eos=True))
                for event in turn:
                    if isinstance(event, kairos.TextEvent):
                        os.write(write_end, f"pid {os.getpid()}\n".encode())
                        signal.pause()
            os.close(write_end)
            signal.pause()
        os.close(write_end)
        with os.fdopen(read_end) as told:
            line = told.readline()
            self.assertRegex(line, r"pid \d+")
            self.assertEqual(client_apart, line == "pid 1\n")
            self.assertEqual(daemon.usage().segments, 2)
            for child in live_daemon.children_of(outer):
                os.kill(child, signal.SIGKILL)
            self.assertEqual(told.read(), "")
        daemon.wait_until("the client is gone", lambda: daemon.usage().segments == 0)
        daemon.wait_until("its turn is over", lambda: daemon.stats()["turns_open"] == 0)
        self.assertEqual(daemon.stats()["turns_cancelled_total"], 1)
        os.kill(outer, signal.SIGKILL)
        os.waitpid(outer, 0)

    def test_of_the_client_is_no_hindrance(self) -> None:
        with live_daemon.LiveDaemon() as daemon:
            self.check(daemon, client_apart=True)

    def test_of_the_sidecar_hides_the_client_and_the_end_of_file_is_enough(self) -> None:
        with live_daemon.LiveDaemon(own_pid_namespace=True) as daemon:
            self.check(daemon, client_apart=False)


if __name__ == "__main__":
    live_daemon.main()
