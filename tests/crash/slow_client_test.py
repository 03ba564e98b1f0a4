#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that are stopped or do not read hold up nobody. What they miss is kept for them while it
fits; after `limits.unread_replies` their turns are cancelled, and they go on."""
from __future__ import annotations

import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import Generation  # noqa: E402
from kairos.events import TextEvent  # noqa: E402

RING = 65_536
DETAIL_SLOW_CONSUMER = 4
# With alternatives for each token the smallest reply ring is full after a few dozen tokens.
WORDY = Generation(max_tokens=200, ignore_eos=True, logprobs=20)
PLAIN = Generation(max_tokens=12, ignore_eos=True)
PROMPT = "Count from one to a thousand."


class SlowClient(live_daemon.LiveTest):
    def neighbour_text(self) -> str:
        with self.daemon.client() as client:
            return client.submit(PROMPT, generation=PLAIN).read()

    def turns_cancelled(self) -> int:
        return int(self.daemon.stats()["turns_cancelled_total"])


class WithinTheLimit(SlowClient):
    EXTRA = ("--limits-unread-replies", "1h")

    def test_that_reads_late_gets_every_token_in_fewer_events(self) -> None:
        expected_text = self.neighbour_text()
        client = self.client(reply_ring_bytes=RING)
        generation = Generation(max_tokens=250, ignore_eos=True)
        turns = [client.submit(f"{PROMPT} Round {i}.", generation=generation) for i in range(6)]
        done = self.daemon.stats()["turns_done_total"]
        self.daemon.wait_until("all turns are done", lambda: self.daemon.stats()
                               ["turns_done_total"] >= done + len(turns))
        self.assertEqual(self.neighbour_text(), expected_text)

        events = 0
        for turn in turns:
            tokens = 0
            for event in turn:
                tokens += len(getattr(event, "tokens", ()))
                events += isinstance(event, TextEvent)
            self.assertEqual(tokens, 250)
            self.assertEqual(turn.result.usage.generated_tokens, 250)
        self.assertLess(events, 250 * len(turns), "text that waited came token by token")

    def test_that_is_stopped_goes_on_where_it_was(self) -> None:
        self.stop_and_go_on(PLAIN, "ok 12\n")

    def stop_and_go_on(self, generation: Generation, expected: str) -> None:
        expected_text = self.neighbour_text()
        child = Child(self, generation)
        done = self.daemon.stats()["turns_done_total"]
        child.stop()
        for _ in range(3):
            self.assertEqual(self.neighbour_text(), expected_text)
        self.daemon.wait_until("its turn is over", lambda: self.daemon.stats()
                               ["turns_done_total"] >= done + 4)
        self.assertEqual(child.go_on(), expected)


class OverTheLimit(SlowClient):
    EXTRA = ("--limits-unread-replies", "100ms")

    def test_that_never_reads_has_its_turn_cancelled_and_then_goes_on(self) -> None:
        expected_text = self.neighbour_text()
        before = self.turns_cancelled()
        client = self.client(reply_ring_bytes=RING)
        session = client.create_session()
        turn = session.turn(PROMPT, generation=Generation(
            max_tokens=2000, ignore_eos=True, logprobs=20))
        self.daemon.wait_until("its turn is cancelled", lambda: self.turns_cancelled() > before)
        self.assertEqual(self.neighbour_text(), expected_text)

        with self.assertRaises(kairos.Cancelled) as caught:
            turn.read()
        self.assertEqual(caught.exception.detail, DETAIL_SLOW_CONSUMER)
        self.assertIn("not read", str(caught.exception))
        self.assertTrue(session.turn("And now?", generation=PLAIN).read())

    def test_that_is_stopped_is_told_when_it_goes_on(self) -> None:
        expected_text = self.neighbour_text()
        before = self.turns_cancelled()
        child = Child(self, Generation(max_tokens=2000, ignore_eos=True, logprobs=20))
        child.stop()
        self.daemon.wait_until("its turn is cancelled", lambda: self.turns_cancelled() > before)
        self.assertEqual(self.neighbour_text(), expected_text)
        self.assertEqual(child.go_on(), f"cancelled {DETAIL_SLOW_CONSUMER}\n")


class Child:
    """A client process with one open turn, which it has read one event of."""

    def __init__(self, test: SlowClient, generation: Generation) -> None:
        read_end, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
                self.run(test, generation, write_end)
            except BaseException as fault:
                os.write(write_end, f"{fault!r}\n".encode())
            os._exit(0)
        os.close(write_end)
        self.told = os.fdopen(read_end)
        test.addCleanup(self.told.close)
        test.addCleanup(self.end)
        test.assertEqual(self.told.readline(), "running\n")

    @staticmethod
    def run(test: SlowClient, generation: Generation, told: int) -> None:
        client = test.daemon.client(reply_ring_bytes=RING)
        turn = client.submit(PROMPT, generation=generation)
        turn.next()
        os.write(told, b"running\n")
        signal.sigwait({signal.SIGUSR1})
        try:
            turn.read()
            os.write(told, f"ok {turn.result.usage.generated_tokens}\n".encode())
        except kairos.Cancelled as fault:
            os.write(told, f"cancelled {fault.detail}\n".encode())
        client.submit("And now?", generation=PLAIN).read()

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def go_on(self) -> str:
        os.kill(self.pid, signal.SIGUSR1)
        os.kill(self.pid, signal.SIGCONT)
        line = self.told.readline()
        os.waitpid(self.pid, 0)
        self.pid = 0
        return line

    def end(self) -> None:
        if self.pid != 0:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


if __name__ == "__main__":
    live_daemon.main()
