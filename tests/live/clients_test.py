#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What programs do through the bindings, on a live kairosd: many at once, and each feature that a
turn can ask for. What the model says is compared with itself, never judged."""
from __future__ import annotations

import math
import os
import pathlib
import select
import signal
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import Finish, Generation, Message, Plan, Reason, TurnLabel  # noqa: E402

SHORT = Generation(max_tokens=6, temperature=0)
DETAIL_QUOTA = 10
CLIENTS, TURNS = 64, 2
SEGMENTS_OF_ONE = 2  # mappings of an attachment


def user_texts(messages) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "user"]


class Hoarders(live_daemon.LiveTest):
    EXTRA = ("--limits-attachments", "7")

    def setUp(self) -> None:
        super().setUp()
        self.hoarders: list[int] = []

    def hoard(self) -> tuple[int, str]:
        """A process that opens clients until it is refused, and keeps them: its id, its report."""
        told_read, told_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            held = []
            try:
                while True:
                    held.append(self.daemon.client())
            except kairos.KairosError as error:
                os.write(told_write, f"{len(held)}: {error.detail}: {error}\n".encode())
                signal.pause()
            finally:
                os._exit(1)
        self.hoarders.append(pid)
        self.addCleanup(self.end, pid)
        os.close(told_write)
        with open(told_read) as told:
            return pid, told.readline()

    def end(self, pid: int) -> None:
        if pid in self.hoarders:
            self.hoarders.remove(pid)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def test_one_process_leaves_room_for_others_and_gives_back_what_it_held(self) -> None:
        first, report = self.hoard()
        self.assertRegex(report, rf"^4: {DETAIL_QUOTA}: .*of this process: at most 4 "
                                 r"\(limits\.attachments_per_process\)")
        _, report = self.hoard()
        self.assertRegex(report, rf"^3: {DETAIL_QUOTA}: .*at most 7 \(limits\.attachments\)")
        with self.assertRaisesRegex(kairos.KairosError, "at most 7"):
            self.daemon.client()
        self.end(first)
        self.daemon.wait_until("the first hoarder's end",
                               lambda: self.daemon.usage().segments == 3 * SEGMENTS_OF_ONE)
        self.assert_serves()


class Together(live_daemon.LiveTest):
    def test_sixty_four_processes_at_once_are_isolated_and_batched(self) -> None:
        begin_read, begin_write = os.pipe()
        told_read, told_write = os.pipe()
        children = []
        for index in range(CLIENTS):
            pid = os.fork()
            if pid == 0:
                os.close(begin_write)
                os._exit(self.play(index, begin_read, told_write))
            children.append(pid)
        os.close(begin_read)
        os.close(told_write)
        attached = 0
        while attached < CLIENTS:
            ready, _, _ = select.select([told_read], [], [], 0.2)
            if ready:
                attached += len(os.read(told_read, CLIENTS))
                continue
            gone, status = os.waitpid(-1, os.WNOHANG)
            if gone in children:
                self.fail(f"client {children.index(gone)} ended with {status} before all attached")
        before = self.daemon.stats()
        os.close(begin_write)  # all begin now
        most = 0.0
        left = set(children)
        while left:
            most = max(most, self.daemon.stats()["engine_sequences_running"])
            for pid in list(left):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    left.remove(pid)
                    self.assertEqual(status, 0, f"client {children.index(pid)}")
        os.close(told_read)
        after = self.daemon.stats()
        made = after["tokens_generated_total"] - before["tokens_generated_total"]
        steps = after["engine_steps_total"] - before["engine_steps_total"]
        self.assertEqual(after["turns_done_total"] - before["turns_done_total"], CLIENTS * TURNS)
        self.assertEqual(made, CLIENTS * TURNS * 6)
        self.assertLess(steps * 4, made, "sequences were not decoded together")
        self.assertGreaterEqual(most, 32)

    def play(self, index: int, begin: int, told: int) -> int:
        """One client process: 0 when all was right."""
        try:
            with self.daemon.client(timeout=live_daemon.WATCHDOG_S * 2) as client:
                session = client.create_session(label=f"client {index}")
                os.write(told, b"r")
                os.read(begin, 1)
                texts, replies = [], []
                for number in range(TURNS):
                    texts.append(f"Client {index * 7919}, turn {number}: say a word.")
                    turn = session.turn(texts[-1], generation=Generation(
                        max_tokens=6, temperature=0, ignore_eos=True))
                    replies.append(turn.read())
                    assert turn.session_id == session.id
                    assert turn.result.version == number + 1
                messages = session.messages()
                assert user_texts(messages) == texts, messages
                said = [m["content"] for m in messages if m["role"] == "assistant"]
                assert [s.strip() for s in said] == [r.strip() for r in replies], (said, replies)
            return 0
        except BaseException as fault:
            print(f"client {index}: {fault!r}", file=sys.stderr, flush=True)
            return 1

    def test_a_reply_does_not_depend_on_who_else_is_served(self) -> None:
        client = self.client()
        ask = Generation(max_tokens=8, temperature=0, logits_hash=True)
        prompts = [f"Tell me about the number {n}." for n in range(32)]

        def one(prompt: str) -> tuple[str, int]:
            turn = client.submit(prompt, generation=ask, reuse=False)
            return turn.read(), turn.result.logits_hash

        alone = one(prompts[5])
        got: dict[int, tuple[str, int]] = {}
        threads = [threading.Thread(target=lambda i=i: got.update({i: one(prompts[i])}))
                   for i in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(live_daemon.WATCHDOG_S)
        self.assertEqual(len(got), 32)
        self.assertEqual(got[5], alone)
        self.assertNotEqual(alone[1], 0)
        self.assertEqual(len({hashed for _, hashed in got.values()}), 32)


class Sessions(live_daemon.LiveTest):
    EXTRA = ("--limits-sessions-per-uid", "40")

    def setUp(self) -> None:
        super().setUp()
        self.sidecar = self.client()

    def new(self, **options) -> kairos.Session:
        session = self.sidecar.create_session(**options)
        self.addCleanup(self.forget, session)
        return session

    @staticmethod
    def forget(session: kairos.Session) -> None:
        try:
            session.delete()
        except kairos.NotFound:
            pass

    def ask(self, session: kairos.Session, text, generation=SHORT, **options):
        turn = session.turn(text, generation=generation, **options)
        return turn.read(), turn.result

    def test_a_session_ends_after_its_time_to_live(self) -> None:
        kept, gone = self.new(), self.new(ttl_seconds=1)
        self.ask(gone, "Hello.")

        def expired() -> bool:
            return gone.id not in {session.id for session in self.sidecar.sessions()}

        self.daemon.wait_until("the session expires", expired)
        with self.assertRaises(kairos.NotFound):
            gone.messages()
        self.assertEqual(kept.stat().version, 0)

    def test_the_session_limit_names_its_key_and_frees_up(self) -> None:
        made = []
        with self.assertRaises(kairos.ResourceExhausted) as caught:
            for _ in range(41):
                made.append(self.new())
        self.assertEqual(caught.exception.detail, DETAIL_QUOTA)
        self.assertIn("limits.sessions_per_uid", str(caught.exception))
        with self.assertRaises(kairos.ResourceExhausted):
            made[0].fork()
        made[0].delete()
        self.new()

    def test_fork_and_rewind_repeat_what_was_said(self) -> None:
        session = self.new()
        self.ask(session, "Remember the word harbour, and the colour blue.")
        said, _ = self.ask(session, "Which word?")
        fork = session.fork(1)
        self.addCleanup(fork.delete)
        again, result = self.ask(fork, "Which word?")
        self.assertEqual(again, said)
        self.assertGreater(result.usage.reused_tokens, 0)
        self.assertEqual(fork.stat().parent_id, session.id)
        session.rewind(1)
        again, result = self.ask(session, "Which word?")
        self.assertEqual((again, result.version), (said, 3))
        self.assertEqual(user_texts(session.messages(2)), user_texts(session.messages(3)))

    def test_whole_history_reuses_what_is_equal_and_reports_the_first_difference(self) -> None:
        session = self.new()
        history = [{"role": "system", "content": "You are brief. " * 10}]
        for text in ("One?", "Two?", "Three?"):
            history.append({"role": "user", "content": text})
            said, result = self.ask(session, history, whole_history=True)
            history.append({"role": "assistant", "content": said})
        self.assertIsNone(result.first_difference)
        self.assertEqual(result.usage.recomputed_tokens, 0)
        self.assertGreater(result.usage.reused_tokens, result.usage.new_tokens)
        changed = [dict(message) for message in history]
        changed[3]["content"] = "Two, in other words?"
        changed.append({"role": "user", "content": "Four?"})
        _, result = self.ask(session, changed, whole_history=True)
        self.assertEqual(result.first_difference, 3)
        self.assertEqual(user_texts(session.messages()),
                         ["One?", "Two, in other words?", "Three?", "Four?"])

    def test_if_version_lets_one_of_two_writers_win(self) -> None:
        session = self.new()
        self.ask(session, "Hello.", if_version=0)
        turns = [session.turn(f"Writer {n}.", generation=SHORT, if_version=1) for n in range(2)]
        turns[0].read()
        with self.assertRaises(kairos.StaleVersion):
            turns[1].read()
        self.assertEqual(user_texts(session.messages()), ["Hello.", "Writer 0."])

    def test_task_context_has_versions(self) -> None:
        session = self.new()
        self.ask(session, "Book a table for two at eight. Thank you.")
        first = session.context()
        self.assertEqual(first["goal"], "Book a table for two at eight.")
        version = session.set_context({**first, "goal": "Book a room."}, if_version=1)
        self.assertEqual(version, 2)
        with self.assertRaises(kairos.StaleVersion):
            session.set_context({}, if_version=1)
        self.assertEqual(session.context()["goal"], "Book a room.")
        self.assertEqual(session.context(1), first)
        _, result = self.ask(session, "And now?")
        self.assertEqual(result.version, 3)
        self.assertEqual(session.context(3)["goal"], "Book a room.")
        session.rewind(1)
        self.assertEqual(session.context(), first)

    def test_namespaces_are_apart_and_share_no_blocks(self) -> None:
        text = "A manual that two tenants both have. " * 20
        own = self.new()
        self.ask(own, text)
        with self.daemon.client(name_space="tenant-b") as other:
            session = other.create_session()
            turn = session.turn(text, generation=SHORT)
            turn.read()
            self.assertEqual(turn.result.usage.reused_tokens, 0)
            self.assertEqual([s.id for s in other.sessions()], [session.id])
            with self.assertRaises(kairos.NotFound):
                other.open_session(own.id)
            session.delete()
        _, result = self.ask(self.new(), text)
        self.assertGreater(result.usage.shared_tokens, 0)

    def test_an_exact_session_says_so_and_repeats_itself(self) -> None:
        text = "Once upon a time there was a lighthouse keeper. " * 12
        plain, exact, twin = self.new(), self.new(exact=True), self.new(exact=True)
        self.assertEqual((plain.stat().fidelity, exact.stat().fidelity), (0, 1))
        ask = Generation(max_tokens=8, temperature=0, logits_hash=True)
        _, ordinary = self.ask(plain, text, ask)
        _, first = self.ask(exact, text, ask)
        self.assertEqual(first.usage.reused_tokens, 0, "INT8 blocks are not exact ones")
        said, second = self.ask(exact, "Go on.", ask)
        self.assertGreater(second.usage.reused_tokens, 0)
        self.ask(twin, text, ask)
        repeated, result = self.ask(twin, "Go on.", ask, reuse=False)
        self.assertEqual((repeated, result.logits_hash), (said, second.logits_hash))
        self.assertNotEqual(first.logits_hash, ordinary.logits_hash)

    def test_forcing_rules_are_in_the_reply(self) -> None:
        session = self.new()
        auto = Generation(max_tokens=4, temperature="auto", auto_context=True)
        _, first = self.ask(session, "Tell me about boats.", auto)
        self.assertEqual((first.rule, first.label, first.plan),
                         ("first_turn", TurnLabel.NEW_TOPIC, Plan.FULL_COMPUTE))
        for text, rule, label, plan in (
                ("Could you say that again, please?", "say_again", TurnLabel.CLARIFICATION,
                 Plan.LIGHTWEIGHT_REFINE),
                ("再说一遍", "say_again", TurnLabel.CLARIFICATION, Plan.LIGHTWEIGHT_REFINE),
                ("What about the one above?", "the_one_above", TurnLabel.CLARIFICATION,
                 Plan.CONTINUATION),
                ("上面那个是什么？", "the_one_above", TurnLabel.CLARIFICATION, Plan.CONTINUATION),
                ("Let's change the subject.", "new_topic", TurnLabel.NEW_TOPIC, Plan.CONTINUATION),
                ("我们换个话题吧", "new_topic", TurnLabel.NEW_TOPIC, Plan.CONTINUATION),
                ("How long is one?", "", TurnLabel.UNKNOWN, Plan.CONTINUATION)):
            with self.subTest(text):
                _, result = self.ask(session, text, auto)
                self.assertEqual((result.rule, result.label, result.plan), (rule, label, plan))

    def test_start_over_resets_only_where_the_client_said_auto(self) -> None:
        for text in ("Let's start over.", "我们重新开始吧"):
            session = self.new()
            with_system = [Message("system", "Be brief."), Message("user", "About boats.")]
            self.ask(session, with_system)
            _, kept = self.ask(session, text)
            self.assertEqual((kept.rule, kept.plan), ("start_over", Plan.FULL_COMPUTE))
            self.assertEqual(user_texts(session.messages()), ["About boats.", text])
            _, reset = self.ask(session, text, Generation(max_tokens=4, auto_context=True))
            self.assertEqual(reset.rule, "start_over")
            self.assertEqual([m["content"] for m in session.messages()][:2], ["Be brief.", text])
            session.rewind(kept.version)
            self.assertEqual(user_texts(session.messages()), ["About boats.", text])


class Generating(live_daemon.LiveTest):
    def setUp(self) -> None:
        super().setUp()
        self.sidecar = self.client()

    def events(self, prompt="Count: one two three four", **settings):
        options = settings.pop("options", {})
        turn = self.sidecar.submit(prompt, generation=Generation(**settings), **options)
        return list(turn), turn.result

    @staticmethod
    def text(events) -> str:
        return "".join(e.text for e in events if isinstance(e, kairos.TextEvent))

    @staticmethod
    def tokens(events) -> list[int]:
        return [t for e in events if isinstance(e, (kairos.TextEvent, kairos.FinalEvent))
                for t in e.tokens]

    def test_logprobs_hold_the_token_and_its_alternatives_in_order(self) -> None:
        events, result = self.events(max_tokens=6, temperature=0, ignore_eos=True, logprobs=3)
        rows = [e for e in events if isinstance(e, kairos.LogprobsEvent)]
        self.assertEqual(len(rows), result.usage.generated_tokens, rows)
        for row, token in zip(rows, self.tokens(events)):
            self.assertEqual(row.token, token)
            self.assertLessEqual(row.logprob, 0)
            self.assertEqual(len(row.top), 3)
            self.assertEqual(row.top[0], kairos.TokenLogprob(token, row.logprob),
                             "greedy takes the first")
            values = [choice.logprob for choice in row.top]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertLessEqual(sum(map(math.exp, values)), 1.0001)

    def test_a_stop_string_ends_the_text_before_it(self) -> None:
        events, _ = self.events(max_tokens=12, temperature=0, ignore_eos=True)
        whole = self.text(events)
        stop = whole[len(whole) // 2:][:3]
        events, result = self.events(max_tokens=12, temperature=0, ignore_eos=True, stop=[stop])
        self.assertEqual(self.text(events), whole[:whole.index(stop)])
        self.assertEqual(result.finish, Finish.STRING)

    def test_a_banned_token_does_not_come(self) -> None:
        events, _ = self.events(max_tokens=6, temperature=0, ignore_eos=True)
        banned = self.tokens(events)[0]
        events, _ = self.events(max_tokens=6, temperature=0, ignore_eos=True,
                                logit_bias={banned: -math.inf})
        self.assertNotIn(banned, self.tokens(events))

    def test_a_seed_repeats_its_choices_also_after_a_restart(self) -> None:
        def sample(seed: int) -> list[int]:
            events, _ = self.events(max_tokens=10, temperature=1.2, top_k=50, top_p=0.95,
                                    ignore_eos=True, seed=seed)
            return self.tokens(events)

        first = sample(7)
        self.assertEqual(sample(7), first)
        self.assertTrue(any(sample(seed) != first for seed in (8, 9, 10)))
        self.assertEqual(self.daemon.terminate(), 0)
        self.daemon.start()
        self.sidecar = self.client()
        self.assertEqual(sample(7), first)

    def test_raw_tokens_are_taken_as_they_are(self) -> None:
        session = self.sidecar.create_session()
        prompt = [504, 1743, 253, 655, 282]
        turn = session.turn(tokens=prompt, generation=Generation(max_tokens=5, temperature=0))
        turn.read()
        self.assertEqual(turn.result.usage.prompt_tokens, len(prompt))
        turn = session.turn(tokens=[30, 31], generation=Generation(max_tokens=5, temperature=0))
        turn.read()
        # No step had computed the last sampled token, so it counts with the two new ones.
        usage = turn.result.usage
        self.assertEqual((usage.prompt_tokens, usage.new_tokens, usage.reused_tokens), (12, 3, 9))

    def test_a_turn_without_generation_only_appends(self) -> None:
        session = self.sidecar.create_session()
        document = "The ferry leaves at nine. " * 12
        turn = session.turn(document, generate=False)
        self.assertEqual(turn.read(), "")
        self.assertEqual(turn.result.finish, Finish.NONE)
        self.assertEqual(turn.result.usage.generated_tokens, 0)
        self.assertEqual([m["role"] for m in session.messages()], ["user"])
        turn = session.turn("When does it leave?", generation=SHORT)
        turn.read()
        self.assertGreater(turn.result.usage.reused_tokens, turn.result.usage.new_tokens)

    def test_reuse_off_says_so_and_changes_no_bit(self) -> None:
        session = self.sidecar.create_session()
        session.turn("A story of a bridge. " * 10, generation=SHORT).read()
        ask = Generation(max_tokens=6, temperature=0, logits_hash=True)
        fresh, reused = session.fork(), session.fork()
        turns = [fresh.turn("Go on.", generation=ask, reuse=False),
                 reused.turn("Go on.", generation=ask)]
        texts = [turn.read() for turn in turns]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(turns[0].result.logits_hash, turns[1].result.logits_hash)
        usage = turns[0].result.usage
        self.assertEqual(usage.recomputed_by, {Reason.REUSE_OFF: usage.recomputed_tokens})
        self.assertEqual(usage.reused_tokens, 0)
        self.assertGreater(turns[1].result.usage.reused_tokens, 0)


if __name__ == "__main__":
    live_daemon.main()
