#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How turns end other than by being done: cancelled, late, repeated, or by their client's death."""
from __future__ import annotations

import os
import pathlib
import signal
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import AcceptedEvent, FinalEvent, Finish, Generation, TextEvent  # noqa: E402

ENDLESS = Generation(max_tokens=1500, ignore_eos=True)
SHORT = Generation(max_tokens=4, ignore_eos=True)


def wait_for(turn, kind):
    """Events until one of this class, which is returned."""
    while True:
        event = turn.next(live_daemon.WATCHDOG_S)
        if isinstance(event, kind):
            return event
        if isinstance(event, FinalEvent):
            raise AssertionError(f"final before a {kind.__name__}")


def words(count: int, name: str) -> str:
    """A prompt of a little more than `count` tokens; another name shares no prefix with it."""
    return name + " word" * count


class Cancel(live_daemon.LiveTest):
    def test_ends_a_running_turn_within_a_step_and_commits_it_marked(self) -> None:
        session = self.client().create_session()
        turn = session.turn("Count to ten thousand.", generation=ENDLESS)
        wait_for(turn, TextEvent)
        turn.cancel()
        later = [event for event in turn]
        self.assertEqual(turn.result.finish, Finish.CANCELLED)
        # Tokens that were on their way when the cancel came, not the rest of the answer.
        self.assertLess(len(later), 100)
        messages = session.messages()
        self.assertEqual([m["role"] for m in messages], ["user", "assistant"])
        self.assertTrue(messages[1].get("cancelled"), messages[1])
        self.assertEqual(turn.result.version, 1)

    def test_keeps_the_prefilled_part_for_the_next_turn(self) -> None:
        session = self.client().create_session()
        turn = session.turn(words(300, "reuse"), generation=ENDLESS)
        wait_for(turn, TextEvent)
        turn.cancel()
        turn.read()
        prompt = turn.result.usage.prompt_tokens
        following = session.turn("Go on.", generation=SHORT)
        following.read()
        self.assertGreaterEqual(following.result.usage.reused_tokens, prompt)

    def test_in_the_middle_of_a_prefill_ends_the_turn_early(self) -> None:
        session = self.client().create_session()
        turn = session.turn(words(2000, "prefill"), generation=SHORT)
        wait_for(turn, AcceptedEvent)
        self.daemon.wait_until("prefill begins", lambda: self.daemon.stats()[
            "engine_sequences_running"] > 0)
        turn.cancel()
        turn.read()
        self.assertEqual(turn.result.finish, Finish.CANCELLED)
        self.assertEqual(turn.result.usage.generated_tokens, 0)
        self.assertLess(turn.result.stage_ns["prefill"], turn.result.total_ns)
        following = session.turn("And now?", generation=SHORT)
        following.read()
        self.assertEqual(following.result.finish, Finish.LENGTH)

    def test_discard_leaves_the_session_as_it_was(self) -> None:
        session = self.client().create_session()
        session.turn("Remember the number 7.", generation=SHORT).read()
        before, messages = session.stat(), session.messages()
        turn = session.turn("Write a long story.", generation=ENDLESS, discard_on_cancel=True)
        wait_for(turn, TextEvent)
        turn.cancel()
        turn.read()
        self.assertEqual(turn.result.finish, Finish.CANCELLED)
        self.assertEqual(turn.result.version, before.version)
        after = session.stat()
        self.assertEqual((after.version, after.message_count, after.token_count),
                         (before.version, before.message_count, before.token_count))
        self.assertEqual(session.messages(), messages)
        following = session.turn("And?", generation=SHORT)
        following.read()
        self.assertEqual(following.result.version, before.version + 1)

    def test_discard_holds_however_early_the_cancel_comes(self) -> None:
        session = self.client().create_session()
        session.turn("Remember the number 7.", generation=SHORT).read()
        messages = session.messages()
        for round_number in range(20):
            # A long text is rendered for a while, and that is when this cancel comes.
            turn = session.turn(words(3000, "discard"), generation=SHORT, discard_on_cancel=True)
            turn.cancel()
            try:
                turn.read()
                self.assertEqual(turn.result.finish, Finish.CANCELLED, round_number)
            except kairos.Cancelled:
                pass  # it had not begun
            self.assertEqual(session.messages(), messages, round_number)

    def test_of_a_waiting_turn_takes_it_out_of_the_queue(self) -> None:
        session = self.client().create_session()
        first = session.turn("Count.", generation=ENDLESS)
        wait_for(first, TextEvent)
        second = session.turn("Second.", generation=SHORT)
        second.cancel()
        with self.assertRaises(kairos.Cancelled):
            second.read()
        first.cancel()
        first.read()
        self.assertEqual(len(session.messages()), 2)

    def test_of_a_finished_turn_is_no_error(self) -> None:
        client = self.client()
        turn = client.submit("Hi.", generation=SHORT)
        turn.read()
        turn.cancel()
        self.assertGreater(client.ping(8), 0)


class Deadline(live_daemon.LiveTest):
    def test_ends_a_running_turn_and_commits_what_there_is(self) -> None:
        session = self.client().create_session()
        session.turn("Hi.", generation=SHORT).read()
        turn = session.turn("Count to ten thousand.", generation=ENDLESS, deadline_ms=1500)
        try:
            turn.read()
        except kairos.DeadlineExceeded:
            self.assertEqual(len(session.messages()), 2)  # it passed before the turn began
            return
        self.assertEqual(turn.result.finish, Finish.DEADLINE)
        self.assertLess(turn.result.usage.generated_tokens, ENDLESS.max_tokens)
        self.assertTrue(session.messages()[-1].get("cancelled"))

    def test_of_a_waiting_turn_is_an_error_and_changes_nothing(self) -> None:
        session = self.client().create_session()
        first = session.turn("Count.", generation=ENDLESS)
        wait_for(first, TextEvent)
        second = session.turn("Second.", generation=SHORT, deadline_ms=50)
        with self.assertRaises(kairos.DeadlineExceeded):
            second.read()
        first.cancel()
        first.read()
        self.assertEqual(len(session.messages()), 2)


class Idempotency(live_daemon.LiveTest):
    def test_the_same_key_twice_at_once_is_one_execution(self) -> None:
        a, b = self.client(), self.client()
        session = a.create_session()
        options = {"generation": Generation(max_tokens=40), "idempotency_key": "once"}
        turns = [session.turn("Tell me something.", **options),
                 b.submit("Tell me something.", session_id=session.id, **options)]
        texts: list[str] = ["", ""]

        def read(i: int) -> None:
            texts[i] = turns[i].read()

        threads = [threading.Thread(target=read, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(live_daemon.WATCHDOG_S)
        results = [turn.result for turn in turns]
        self.assertEqual(sorted(r.replayed for r in results), [False, True])
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(results[0].version, results[1].version)
        self.assertEqual(session.stat().message_count, 2)

    def test_a_cancelled_waiter_does_not_take_the_other_along(self) -> None:
        a, b = self.client(), self.client()
        session = a.create_session()
        options = {"generation": Generation(max_tokens=60, ignore_eos=True),
                   "idempotency_key": "pair"}
        first = session.turn("Tell me something.", **options)
        wait_for(first, AcceptedEvent)
        second = b.submit("Tell me something.", session_id=session.id, **options)
        second.cancel()
        with self.assertRaises(kairos.Cancelled):
            second.read()
        first.read()
        self.assertEqual(first.result.finish, Finish.LENGTH)
        again = b.submit("Tell me something.", session_id=session.id, **options)
        again.read()
        self.assertTrue(again.result.replayed)

    def test_a_cancelled_first_hands_over_to_the_one_that_waits_for_its_reply(self) -> None:
        a, b = self.client(), self.client()
        session = a.create_session()
        running = session.turn("Count.", generation=ENDLESS)
        wait_for(running, TextEvent)
        options = {"generation": SHORT, "idempotency_key": "heir"}
        first = session.turn("Tell me something.", **options)
        a.ping(8)  # the sidecar has read it, so it comes before the other
        second = b.submit("Tell me something.", session_id=session.id, **options)
        b.ping(8)
        first.cancel()
        with self.assertRaises(kairos.Cancelled):
            first.read()
        running.cancel()
        running.read()
        second.read()
        self.assertFalse(second.result.replayed)
        self.assertEqual(second.result.finish, Finish.LENGTH)
        self.assertEqual(session.stat().message_count, 4)

    def test_a_replay_after_the_end_has_the_same_text_and_version(self) -> None:
        session = self.client().create_session()
        options = {"generation": Generation(max_tokens=12), "idempotency_key": "later"}
        first = session.turn("Tell me something.", **options)
        text = first.read()
        second = session.turn("Tell me something.", **options)
        self.assertEqual(second.read(), text)
        self.assertTrue(second.result.replayed)
        self.assertEqual(second.result.version, first.result.version)
        self.assertEqual(session.stat().message_count, 2)


class DeadClient(live_daemon.LiveTest):
    """A client process dies with a turn at some point; its session and everybody else do not."""

    def in_child(self, act) -> int:
        """Forks a client that runs act(write) and waits for death; returns once it has written."""
        ready, done = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                act(lambda text: os.write(done, text.encode()))
                while True:
                    signal.pause()
            finally:
                os._exit(1)
        os.close(done)
        self.told = os.read(ready, 64).decode()
        os.close(ready)
        self.assertTrue(self.told, "the child failed")
        return pid

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def idle(self) -> bool:
        return self.daemon.stats()["turns_open"] == 0

    def settle(self, clients: int) -> live_daemon.Usage:
        """Waits until so many clients are attached and nothing runs; returns what is held then."""
        self.daemon.wait_until("clients of before are gone", lambda: (
            self.daemon.usage().segments == 2 * clients and self.idle()))
        return self.daemon.usage()

    def test_in_mid_turn_commits_the_turn_marked_cancelled(self) -> None:
        def act(write) -> None:
            client = self.daemon.client()
            session = client.create_session()
            turn = session.turn("Count to ten thousand.", generation=ENDLESS)
            wait_for(turn, TextEvent)
            write(str(session.id))

        pid = self.in_child(act)
        self.kill(pid)
        self.daemon.wait_until("the turn ends", self.idle)
        session = self.client().open_session(int(self.told))
        messages = session.messages()
        self.assertEqual(len(messages), 2)
        self.assertTrue(messages[1].get("cancelled"), messages[1])
        following = session.turn("Go on.", generation=SHORT)
        following.read()
        self.assertEqual(following.result.version, 2)
        self.assertGreater(following.result.usage.reused_tokens, 0)

    def test_while_a_neighbour_prefills_frees_everything(self) -> None:
        neighbour = self.client()
        neighbour.submit("Hi.", generation=SHORT).read()
        before = self.settle(1)

        def act(write) -> None:
            client = self.daemon.client()
            turn = client.submit("Count.", generation=ENDLESS)
            wait_for(turn, AcceptedEvent)
            write("running")

        pid = self.in_child(act)
        long_turn = neighbour.submit(words(4000, "neighbour"), generation=SHORT)
        wait_for(long_turn, AcceptedEvent)
        self.kill(pid)
        # The dead one's attachment goes while the prefill still runs.
        self.daemon.wait_until("descriptors are back", lambda: (
            self.daemon.usage().descriptors <= before.descriptors
            and self.daemon.usage().segments == before.segments))
        long_turn.read()
        self.assertEqual(long_turn.result.finish, Finish.LENGTH)
        self.assertGreater(long_turn.result.usage.prompt_tokens, 3000)
        self.daemon.wait_until("all turns end", self.idle)

    def test_a_hundred_times_leaves_no_descriptor_mapping_or_memory(self) -> None:
        neighbour = self.client()
        session = neighbour.create_session()

        def act(write) -> None:
            client = self.daemon.client()
            turn = client.submit("Count.", generation=ENDLESS)
            write("submitted")

        def round_of_death() -> None:
            self.kill(self.in_child(act))
            self.daemon.wait_until("the turn ends", self.idle)

        for _ in range(10):
            round_of_death()
        turn = session.turn("Hi.", generation=SHORT)
        turn.read()
        before = self.settle(1)
        for number in range(90):
            round_of_death()
            if number % 30 == 0:
                turn = session.turn(f"Hi {number}.", generation=SHORT)
                turn.read()
                self.assertEqual(turn.result.finish, Finish.LENGTH)
        self.daemon.wait_until("attachments end", lambda: (
            self.daemon.usage().descriptors <= before.descriptors))
        after = self.daemon.usage()
        # Of an operator's connection that is just being closed.
        self.assertLessEqual(after.descriptors, before.descriptors + 3)
        self.assertEqual(after.segments, before.segments)
        # 90 attachments of two 1 MiB rings would be 180 MiB.
        self.assertLess(after.rss_bytes - before.rss_bytes, 24 << 20)

    def test_with_a_forked_child_that_holds_the_socket_is_still_noticed(self) -> None:
        before = self.settle(0)

        def act(write) -> None:
            client = self.daemon.client()
            session = client.create_session()
            turn = session.turn("Count.", generation=ENDLESS)
            wait_for(turn, TextEvent)
            child = os.fork()
            if child == 0:
                try:
                    client.ping(8)
                    write("not forked")
                except kairos.ForkedError:
                    write(f"{os.getpid()} {session.id}")
                while True:
                    signal.pause()

        pid = self.in_child(act)
        self.assertNotEqual(self.told, "not forked", "the child could use its parent's client")
        grandchild, session_id = map(int, self.told.split())
        self.kill(pid)
        try:
            self.daemon.wait_until("the turn ends", self.idle)
            self.daemon.wait_until("the attachment ends", lambda: (
                self.daemon.usage().segments == before.segments))
            messages = self.client().open_session(session_id).messages()
            self.assertTrue(messages[1].get("cancelled"))
        finally:
            os.kill(grandchild, signal.SIGKILL)


if __name__ == "__main__":
    live_daemon.main()
