#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The sidecar's own life: a second instance, SIGTERM, its death as clients see it, a full disk; and
the library's calls in the wrong order against a live sidecar."""
from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import AcceptedEvent, Finish, Generation, TextEvent  # noqa: E402
from kairos.native import lib  # noqa: E402

ENDLESS = Generation(max_tokens=1500, ignore_eos=True)
SHORT = Generation(max_tokens=4, ignore_eos=True)
ALREADY_RUNNING = 75
CANNOT_CREATE = 73
DETAIL_FORKED, DETAIL_SIDECAR_LOST, DETAIL_DRAINING, DETAIL_STORAGE = 1, 3, 7, 12


def wait_for(turn, kind):
    while not isinstance(event := turn.next(live_daemon.WATCHDOG_S), kind):
        pass
    return event


class SecondInstance(live_daemon.LiveTest):
    def test_on_the_same_socket_ends_with_75_and_harms_nothing(self) -> None:
        client = self.client()
        turn = client.submit("Count.", generation=ENDLESS)
        wait_for(turn, TextEvent)
        before = os.stat(self.daemon.socket)
        second = live_daemon.LiveDaemon(folder=self.daemon.folder,
                                        catalog=self.daemon.folder + "/other.db")
        second.log = self.daemon.folder + "/second.log"
        self.assertEqual(second.spawn().wait(live_daemon.WATCHDOG_S), ALREADY_RUNNING)
        self.assertIn(str(self.daemon.pid), second.log_text())
        after = os.stat(self.daemon.socket)
        self.assertEqual((before.st_ino, before.st_mode), (after.st_ino, after.st_mode))
        self.assertTrue(stat.S_ISSOCK(after.st_mode))
        turn.cancel()
        turn.read()
        self.assert_serves()

    def test_on_the_same_catalog_is_refused_and_harms_nothing(self) -> None:
        second = live_daemon.LiveDaemon(catalog=self.daemon.catalog)
        self.addCleanup(second.close)
        self.assertEqual(second.spawn().wait(live_daemon.WATCHDOG_S), CANNOT_CREATE)
        self.assertIn(self.daemon.catalog, second.log_text())
        self.assert_serves()


class Starting(unittest.TestCase):
    def test_interrupt_while_the_model_loads_ends_it_at_once(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                daemon = live_daemon.LiveDaemon(extra=("--log-level", "info"))
                self.addCleanup(daemon.close)
                daemon.process = daemon.spawn()
                daemon.wait_until("the catalog", lambda: "catalog_opened" in daemon.log_text())
                daemon.process.send_signal(number)
                self.assertEqual(daemon.wait(), 128 + number)
                self.assertIn("interrupted while starting", daemon.log_text())
                self.assertNotIn("model_loaded", daemon.log_text())

    def test_locked_catalog_is_told_before_the_model_is_loaded(self) -> None:
        daemon = live_daemon.LiveDaemon(extra=("--log-level", "info"))
        self.addCleanup(daemon.close)
        os.makedirs(os.path.dirname(daemon.catalog), exist_ok=True)
        with open(daemon.catalog, "w") as file:
            file.write("not a catalog")
        self.assertEqual(daemon.spawn().wait(live_daemon.WATCHDOG_S), CANNOT_CREATE)
        self.assertIn(daemon.catalog, daemon.log_text())
        self.assertNotIn("model_loaded", daemon.log_text())


class Recovering(unittest.TestCase):
    """Ended by signals while it starts on what `kill -9` left."""

    def test_any_moment_of_the_start_keeps_every_version(self) -> None:
        daemon = live_daemon.LiveDaemon(extra=("--log-level", "info"))
        self.addCleanup(daemon.close)
        daemon.start()
        with daemon.client() as client:
            session = client.create_session()
            for number in range(5):
                session.turn(f"Turn {number}.", generation=SHORT).read()
            messages = session.messages()
        daemon.kill()
        # A log that no orderly end has folded into the file is what there is to recover.
        self.assertGreater(os.path.getsize(daemon.catalog + "-wal"), 0)
        whole_start_s = 0.4
        codes = set()
        for number in range(16):
            with self.subTest(number):
                daemon.process = daemon.spawn()
                time.sleep(whole_start_s * number / 16)  # a moment of its own for each
                daemon.process.send_signal(signal.SIGTERM)
                codes.add(daemon.wait())
        # -15: not yet its own master; 143: while it starts; 0: served already.
        self.assertLessEqual(codes, {-signal.SIGTERM, 128 + signal.SIGTERM, 0})
        daemon.start()
        with daemon.client() as client:
            after = client.open_session(session.id)
            self.assertEqual(after.stat().version, 5)
            self.assertEqual(after.messages(), messages)
            after.turn("Go on.", generation=SHORT).read()

    def test_signal_after_the_catalog_was_opened_ends_it_with_143(self) -> None:
        daemon = live_daemon.LiveDaemon(extra=("--log-level", "info"))
        self.addCleanup(daemon.close)
        daemon.start()
        with daemon.client() as client:
            session = client.create_session()
            session.turn("One.", generation=SHORT).read()
        daemon.kill()
        pathlib.Path(daemon.log).unlink()
        daemon.process = daemon.spawn()
        daemon.wait_until("the catalog", lambda: "catalog_opened sessions=1" in daemon.log_text())
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 128 + signal.SIGTERM)
        daemon.start()
        with daemon.client() as client:
            self.assertEqual(client.open_session(session.id).stat().version, 1)


class Ready(unittest.TestCase):
    def test_signal_at_the_moment_of_readiness_drains_and_exits_with_0(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT) * 4:
            daemon = live_daemon.LiveDaemon()
            self.addCleanup(daemon.close)
            daemon.start()
            daemon.process.send_signal(number)
            self.assertEqual(daemon.wait(), 0)
            self.assertFalse(os.path.exists(daemon.socket))


class Terminated(unittest.TestCase):
    def setUp(self) -> None:
        self.daemon = live_daemon.LiveDaemon(extra=("--drain-timeout", "1s"))
        self.addCleanup(self.daemon.close)
        self.daemon.start()

    def test_with_short_turns_open_lets_them_end_and_exits_with_0(self) -> None:
        self.daemon.close()
        self.daemon = live_daemon.LiveDaemon(extra=("--drain-timeout", "60s"))
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        with self.daemon.client() as client:
            turns = [client.submit(f"Say {i}.", generation=Generation(max_tokens=8))
                     for i in range(4)]
            for turn in turns:
                wait_for(turn, AcceptedEvent)
            self.daemon.process.send_signal(signal.SIGTERM)
            for turn in turns:
                turn.read()
                self.assertIn(turn.result.finish, (Finish.LENGTH, Finish.STOP))
        self.assertEqual(self.daemon.wait(), 0)
        self.assertFalse(os.path.exists(self.daemon.socket))

    def test_with_an_endless_turn_cancels_and_commits_it(self) -> None:
        client = self.daemon.client()
        self.addCleanup(client.close)
        session = client.create_session()
        turn = session.turn("Count.", generation=ENDLESS)
        wait_for(turn, TextEvent)
        self.daemon.process.send_signal(signal.SIGTERM)
        text = turn.read()
        self.assertEqual(turn.result.finish, Finish.CANCELLED)
        self.assertEqual(self.daemon.wait(), 0)
        self.daemon.start()
        with self.daemon.client() as after:
            messages = after.open_session(session.id).messages()
        self.assertEqual(len(messages), 2)
        self.assertTrue(messages[1]["content"].endswith(text))
        self.assertTrue(messages[1]["cancelled"])

    def test_refuses_new_turns_and_new_clients_while_it_drains(self) -> None:
        client = self.daemon.client()
        self.addCleanup(client.close)
        turn = client.submit("Count.", generation=ENDLESS)
        wait_for(turn, TextEvent)
        self.daemon.process.send_signal(signal.SIGTERM)
        refusal = None
        while refusal is None:  # until the signal was taken
            try:
                client.submit("More.", generation=Generation(max_tokens=1)).read()
            except kairos.Unavailable as fault:
                refusal = fault
        self.assertIn(refusal.detail, (DETAIL_DRAINING, DETAIL_SIDECAR_LOST))
        with self.assertRaises(kairos.Unavailable):
            self.daemon.client().close()
        self.assertEqual(self.daemon.wait(), 0)

    def test_by_two_signals_that_come_together_is_asked_once(self) -> None:
        self.daemon.close()
        self.daemon = live_daemon.LiveDaemon(extra=("--drain-timeout", "1h"))
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        client = self.daemon.client()
        self.addCleanup(client.close)
        turn = client.submit("Count.", generation=Generation(max_tokens=30, ignore_eos=True))
        wait_for(turn, TextEvent)
        # Of a process that stands still, so that it finds both.
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            self.daemon.process.send_signal(number)
        turn.read()
        self.assertEqual(turn.result.finish, Finish.LENGTH)
        self.assertEqual(self.daemon.wait(), 0)

    def test_twice_exits_with_0_at_once(self) -> None:
        self.daemon.close()
        self.daemon = live_daemon.LiveDaemon(extra=("--drain-timeout", "1h"))
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        client = self.daemon.client()
        self.addCleanup(client.close)
        session = client.create_session()
        session.turn("One.", generation=SHORT).read()
        messages = session.messages()
        turn = session.turn("Count.", generation=ENDLESS)
        wait_for(turn, TextEvent)
        self.daemon.process.send_signal(signal.SIGTERM)
        with self.assertRaises(kairos.Unavailable):
            while True:
                client.submit("More.", generation=Generation(max_tokens=1)).read()
        # Another kind of signal counts as the second one just as well, unless it comes at once.
        while self.daemon.alive():
            self.daemon.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.daemon.process.wait(0.05)
        self.assertEqual(self.daemon.wait(), 0)
        self.daemon.start()
        with self.daemon.client() as after:
            again = after.open_session(session.id)
            # The open turn was never acknowledged: it is there as a whole, or not at all.
            self.assertEqual(again.messages()[:2], messages)
            self.assertIn(again.stat().version, (1, 2))
            again.turn("Go on.", generation=SHORT).read()


class Lost(unittest.TestCase):
    """The sidecar is killed: what a client in any call hears, and how it comes back."""

    def setUp(self) -> None:
        self.daemon = live_daemon.LiveDaemon()
        self.addCleanup(self.daemon.close)
        self.daemon.start()

    def test_is_told_to_every_call_and_the_session_survives(self) -> None:
        client = self.daemon.client()
        self.addCleanup(client.close)
        session = client.create_session()
        text = session.turn("Say something.", generation=Generation(max_tokens=8)).read()
        turn = session.turn("Count.", generation=ENDLESS)
        wait_for(turn, TextEvent)
        self.daemon.kill()
        with self.assertRaises(kairos.SidecarLost):
            turn.read()
        for act in (lambda: session.turn("More."), session.stat, session.messages,
                    client.create_session, lambda: client.ping(8)):
            with self.assertRaises(kairos.SidecarLost) as caught:
                act()
            self.assertEqual(caught.exception.detail, DETAIL_SIDECAR_LOST)
        with self.assertRaises(kairos.Unavailable):
            self.daemon.client().close()
        self.daemon.start()
        with self.daemon.client() as again:
            messages = again.open_session(session.id).messages()
            self.assertEqual(len(messages), 2)
            self.assertEqual(messages[1]["content"], text)
            following = kairos.Session(again, session.id).turn("Go on.", generation=SHORT)
            following.read()
            self.assertEqual(following.result.version, 2)
            recomputed = following.result.usage.recomputed_by
            self.assertEqual(list(recomputed), [kairos.Reason.RESTART])

    def test_wakes_a_thread_that_waits(self) -> None:
        client = self.daemon.client()
        self.addCleanup(client.close)
        turn = client.submit("Count.", generation=ENDLESS)
        wait_for(turn, AcceptedEvent)
        caught: list[BaseException] = []

        def wait() -> None:
            try:
                turn.read()
            except BaseException as fault:
                caught.append(fault)

        thread = threading.Thread(target=wait)
        thread.start()
        self.daemon.kill()
        thread.join(live_daemon.WATCHDOG_S)
        self.assertFalse(thread.is_alive(), "the client hangs")
        self.assertIsInstance(caught[0], kairos.SidecarLost)


class Stopped(live_daemon.LiveTest):
    def test_client_holds_up_nobody_and_goes_on_later(self) -> None:
        ready, done = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                client = self.daemon.client()
                turn = client.submit("Count.", generation=Generation(max_tokens=60,
                                                                     ignore_eos=True))
                wait_for(turn, TextEvent)
                os.write(done, b"running\n")
                turn.read()
                os.write(done, f"finish {turn.result.finish}\n".encode())
            finally:
                os._exit(0)
        os.close(done)
        with os.fdopen(ready) as told:
            self.assertEqual(told.readline(), "running\n")
            os.kill(pid, signal.SIGSTOP)
            for _ in range(3):
                self.assert_serves()
            os.kill(pid, signal.SIGCONT)
            self.assertEqual(told.readline(), f"finish {int(Finish.LENGTH)}\n")
        os.waitpid(pid, 0)


class Misuse(live_daemon.LiveTest):
    """Calls in the wrong order, with the sidecar at work."""

    def test_close_while_a_thread_waits_ends_the_wait(self) -> None:
        client = self.client()
        turn = client.submit("Count.", generation=ENDLESS)
        wait_for(turn, AcceptedEvent)
        caught: list[BaseException] = []
        waiting = threading.Event()

        def wait() -> None:
            waiting.set()
            try:
                turn.read()
            except BaseException as fault:
                caught.append(fault)

        thread = threading.Thread(target=wait)
        thread.start()
        waiting.wait(live_daemon.WATCHDOG_S)
        client.close()
        thread.join(live_daemon.WATCHDOG_S)
        self.assertFalse(thread.is_alive(), "close left a thread waiting")
        # The thread may have been between two waits; then the handle is no client any more.
        self.assertIsInstance(caught[0], (kairos.Cancelled, kairos.InvalidArgument))

    def test_cancel_from_another_thread_ends_the_turn(self) -> None:
        client = self.client()
        turn = client.submit("Count.", generation=ENDLESS)
        wait_for(turn, AcceptedEvent)
        thread = threading.Thread(target=turn.cancel)
        thread.start()
        turn.read()
        thread.join()
        self.assertEqual(turn.result.finish, Finish.CANCELLED)

    def test_closing_twice_and_using_after_close_are_errors_not_crashes(self) -> None:
        client = self.client()
        session = client.create_session()
        client.close()
        client.close()
        for act in (lambda: client.ping(8), lambda: client.submit("Hi."), client.create_session,
                    session.stat, client.fileno, lambda: client._read(0)):
            with self.assertRaises(kairos.KairosError):
                act()

    def test_null_everywhere_is_refused(self) -> None:
        client = self.client()
        handle, none = client._handle, None
        for result in (lib.kairos_client_open(none, none),
                       lib.kairos_client_fd(none),
                       lib.kairos_client_ping(none, 8, 0, 100),
                       lib.kairos_session_create(handle, none, none, 1000),
                       lib.kairos_session_create(none, none, ctypes.byref(ctypes.c_uint64()), 10),
                       lib.kairos_session_list(handle, 0, none, 4, 1000),
                       lib.kairos_session_stat(handle, 1, none, 1000),
                       lib.kairos_session_messages(handle, 1, 0, none, 1000),
                       lib.kairos_turn_submit(handle, none, none),
                       lib.kairos_turn_cancel(none, 1),
                       lib.kairos_event_next(handle, 0, none)):
            self.assertLess(result, 0)
        lib.kairos_client_close(none)
        lib.kairos_event_release(none)
        self.assertGreater(client.ping(8), 0)

    def test_a_forked_child_gets_an_error_and_its_parent_goes_on(self) -> None:
        client = self.client()
        turn = client.submit("Count.", generation=Generation(max_tokens=30, ignore_eos=True))
        wait_for(turn, AcceptedEvent)
        pid = os.fork()
        if pid == 0:
            try:
                bad = 0
                for act in (lambda: client.ping(8), lambda: client.submit("Hi."),
                            client.create_session, lambda: client._read(0), turn.cancel):
                    try:
                        act()
                        bad += 1
                    except kairos.ForkedError as fault:
                        bad += fault.detail != DETAIL_FORKED
                client.close()
                with self.daemon.client() as own:
                    own.submit("Hi.", generation=SHORT).read()
                os._exit(bad)
            except BaseException:
                os._exit(99)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        turn.read()
        self.assertEqual(turn.result.finish, Finish.LENGTH)


class FullDisk(unittest.TestCase):
    def test_refuses_the_turn_and_serves_on_once_there_is_space(self) -> None:
        if os.getuid() != 0:
            self.skipTest("needs root to mount a small file system")
        folder = tempfile.mkdtemp(prefix="kairos-full-")
        self.addCleanup(os.rmdir, folder)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", folder]).returncode:
            self.skipTest("cannot mount a tmpfs here")
        self.addCleanup(subprocess.run, ["umount", "-l", folder])
        daemon = live_daemon.LiveDaemon(catalog=folder + "/catalog.db")
        self.addCleanup(daemon.close)
        daemon.start()
        client = daemon.client()
        self.addCleanup(client.close)
        session = client.create_session()
        first = session.turn("First.", generation=SHORT).read()
        ballast = folder + "/ballast"
        with open(ballast, "wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                pass
        refused = None
        for number in range(400):  # until the space inside the catalog's own files is used up
            try:
                session.turn(f"{number} " + "some words " * 200,
                             generation=Generation(max_tokens=1)).read()
            except kairos.KairosError as fault:
                refused = fault
                break
        self.assertIsNotNone(refused, "the disk never filled up")
        self.assertEqual(refused.detail, DETAIL_STORAGE, refused)
        self.assertTrue(daemon.alive())
        head = session.stat()
        messages = session.messages()
        self.assertEqual(len(messages), head.message_count)
        self.assertEqual(messages[1]["content"], first)
        # Reading, and refusing again, work for as long as the disk is full.
        with self.assertRaises(kairos.KairosError) as again:
            for _ in range(50):
                session.turn("more words " * 300, generation=Generation(max_tokens=1)).read()
        self.assertEqual(again.exception.detail, DETAIL_STORAGE)
        version = session.stat().version
        os.unlink(ballast)
        turn = session.turn("Space again.", generation=SHORT)
        text = turn.read()
        self.assertEqual(turn.result.version, version + 1)
        self.assertEqual(session.messages()[-1]["content"], text)
        daemon.kill()
        daemon.start()
        with daemon.client() as after:
            self.assertEqual(after.open_session(session.id).messages()[-1]["content"], text)


if __name__ == "__main__":
    live_daemon.main()
