# SPDX-License-Identifier: Apache-2.0
"""The bindings on a fake sidecar, whose answers are known word for word."""

import asyncio
import ctypes.util
import math
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest

import kairos
from kairos.native import load
from tests.sidecar import FakeSidecarTest


class Sessions(FakeSidecarTest):
    def test_session_calls_do_what_they_say(self):
        with kairos.Client(self.path) as client:
            session = client.create_session(label="plänner", ttl_seconds=60)
            self.assertEqual(session.stat().label, "plänner")
            self.assertEqual(session.set_context({"goal": "ship"}, if_version=0), 1)
            self.assertEqual(session.context(), {"goal": "ship"})
            fork = session.fork()
            self.assertNotEqual(fork.id, session.id)
            self.assertEqual(fork.stat().parent_id, session.id)
            fork.rewind(5)
            self.assertEqual(fork.stat().version, 5)
            session.turn("hello").read()
            self.assertEqual(session.messages(), [{"role": "user", "content": "turn 2"}])
            session.release()
            self.assertEqual([s.id for s in client.sessions(page=1)], [session.id, fork.id])
            fork.delete()
            with self.assertRaises(kairos.NotFound):
                client.open_session(fork.id)

    def test_stale_version_has_its_own_error(self):
        with kairos.Client(self.path) as client:
            session = client.create_session()
            with self.assertRaises(kairos.StaleVersion) as caught:
                session.set_context({}, if_version=7)
            self.assertEqual(caught.exception.detail, 5)
            with self.assertRaises(kairos.StaleVersion):
                session.turn("x", if_version=7).read()


class Signals(FakeSidecarTest):
    # What follows "waits" sleeps in the library, without limit.
    TURN = """
import kairos, sys
with kairos.Client(sys.argv[1], timeout=None) as client:
    turn = client.submit("hang")
    turn.next()
    try:
        print("waits", flush=True)
        turn.read()
    except KeyboardInterrupt:
        turn.cancel()
        turn.read()
        print(turn.result.finish.name)
"""
    WATCH = """
import kairos, sys
with kairos.Client(sys.argv[1], timeout=None) as client:
    watch = client.watch()
    try:
        print("waits", flush=True)
        for event in watch:
            pass
    except KeyboardInterrupt:
        print("ended")
"""

    def test_an_interrupt_ends_the_waiting_and_the_client_is_of_use(self):
        for program, last in ((self.TURN, "CANCELLED"), (self.WATCH, "ended")):
            with self.subTest(last), subprocess.Popen(
                    [sys.executable, "-c", program, self.path], stdout=subprocess.PIPE, text=True,
                    preexec_fn=lambda: signal.signal(signal.SIGINT,
                                                     signal.default_int_handler)) as child:
                self.addCleanup(child.kill)
                self.assertEqual(child.stdout.readline(), "waits\n")
                stat = pathlib.Path(f"/proc/{child.pid}/stat")
                while stat.read_text().rpartition(") ")[2][0] != "S":
                    time.sleep(0.01)
                child.send_signal(signal.SIGINT)
                try:
                    self.assertEqual(child.communicate(timeout=60)[0], last + "\n")
                finally:
                    child.kill()


class Library(unittest.TestCase):
    def test_one_that_lacks_a_function_is_named_as_older(self):
        libc = ctypes.util.find_library("c")  # any library without our functions
        with self.assertRaisesRegex(
                ImportError, r"^libkairos at /.*/libc\.so\.6 is older than this package, which "
                             r"needs kairos_abi_version\(\); update it$"):
            load(libc)


class Turns(FakeSidecarTest):
    def setUp(self):
        super().setUp()
        self.client = kairos.Client(self.path)
        self.addCleanup(self.client.close)

    def test_turn_yields_its_events_and_numbers(self):
        turn = self.client.submit("häßlich")
        kinds = [type(event).__name__ for event in turn]
        self.assertEqual(kinds, ["AcceptedEvent", "TextEvent", "FinalEvent"])
        self.assertEqual(turn.result.finish, kairos.Finish.STOP)
        self.assertEqual(turn.result.usage.new_tokens, 3)
        self.assertIsNone(turn.result.first_difference)
        self.assertNotEqual(turn.session_id, 0)
        self.assertEqual(list(turn), [])

    def test_messages_in_all_their_forms(self):
        generation = kairos.Generation(max_tokens="auto", temperature=0.5, stop=["END"],
                                       logit_bias={5: -1.0}, seed=3)
        messages = [
            {"role": "system", "content": "s"}, kairos.Message("user", "u"),
            kairos.Message("assistant", tool_calls=[{"name": "f"}]),
            {"role": "tool", "content": "last", "name": "f", "tool_call_id": "1"},
        ]
        turn = self.client.submit(messages, generation=generation, tools=[], deadline_ms=5000,
                                  idempotency_key="k", whole_history=True)
        self.assertEqual(turn.read(), "last")
        self.assertEqual(self.client.submit(tokens=[1, 2, 3]).read(), "tokens 3")

    def test_tool_calls_and_logprobs_are_parsed(self):
        call = next(e for e in self.client.submit("tool") if isinstance(e, kairos.ToolCallEvent))
        self.assertEqual((call.id, call.name, call.arguments),
                         ("call_1", "weather", {"city": "Oslo"}))
        logprobs = next(e for e in self.client.submit("logprobs")
                        if isinstance(e, kairos.LogprobsEvent))
        self.assertEqual((logprobs.token, logprobs.logprob), (5, -0.5))
        self.assertEqual(logprobs.top, (kairos.TokenLogprob(5, -0.5),
                                        kairos.TokenLogprob(6, -math.inf)))

    def test_reasoning_and_broken_calls_are_told_apart_from_text(self):
        turn = self.client.submit("reasoning")
        thought, broken = [e for e in turn if hasattr(e, "text")]
        self.assertIsInstance(thought, kairos.ReasoningEvent)
        self.assertEqual(thought.text, "hm")
        self.assertIsInstance(broken, kairos.TextEvent)
        self.assertEqual((broken.text, broken.detail), ("<tool_call>{", 20))
        self.assertEqual(self.client.submit("reasoning").read(), "<tool_call>{")

    def test_failed_turn_raises_its_error(self):
        with self.assertRaises(kairos.ResourceExhausted) as caught:
            self.client.submit("fail").read()
        self.assertEqual(str(caught.exception), "quota: turns")
        self.assertEqual(caught.exception.detail, 10)

    def test_interleaved_turns_keep_their_own_events(self):
        turns = [self.client.submit(f"turn {i}") for i in range(20)]
        for i in reversed(range(20)):
            self.assertEqual(turns[i].read(), f"turn {i}")

    def test_threads_share_a_client(self):
        texts = {}

        def work(i):
            texts[i] = [self.client.submit(f"{i}/{n}").read() for n in range(50)]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(texts, {i: [f"{i}/{n}" for n in range(50)] for i in range(4)})

    def test_cancel_ends_a_turn(self):
        turn = self.client.submit("hang")
        turn.next(20)
        with self.assertRaises(kairos.DeadlineExceeded):
            turn.next(0.01)
        turn.cancel()
        self.assertIsInstance(turn.next(20), kairos.FinalEvent)
        self.assertEqual(turn.result.finish, kairos.Finish.CANCELLED)

    def test_wrong_arguments_are_named(self):
        with self.assertRaisesRegex(kairos.InvalidArgument, "idempotency_key: at most 128 bytes"):
            self.client.submit("x", idempotency_key="k" * 129)
        with self.assertRaisesRegex(ValueError, r"messages\[0\]: unknown field 'text'"):
            self.client.submit({"role": "user", "text": "x"})
        with self.assertRaisesRegex(ValueError, "temperature: a number"):
            self.client.submit("x", generation=kairos.Generation(temperature="hot"))
        for option, meant in (("maxtokens", r"; did you mean generation=Generation\(max_tokens="),
                              ("temperature", r"; did you mean generation=Generation\(temp"),
                              ("tool", r"; did you mean tools\?"), ("xyz", r"\. Its options: ")):
            with self.subTest(option), self.assertRaisesRegex(
                    TypeError, f"^a turn has no option '{option}'{meant}.*tokens, tools, "):
                self.client.submit("x", **{option: 1})

    def test_large_text_goes_both_ways(self):
        text = "0123456789abcdef" * (1 << 17)
        self.assertEqual(self.client.submit(text).read(), text)

    def test_lost_sidecar_ends_the_turn_and_the_client(self):
        turn = self.client.submit("hang")
        turn.next(20)
        self.order("drop")
        with self.assertRaises(kairos.SidecarLost):
            turn.next(20)
        with self.assertRaises(kairos.SidecarLost):
            self.client.ping()

    def test_closed_client_is_refused(self):
        self.client.close()
        self.client.close()
        with self.assertRaisesRegex(kairos.InvalidArgument, "not an open client"):
            self.client.ping()

    def test_close_wakes_a_waiting_thread(self):
        turn = self.client.submit("hang")
        turn.next(20)
        caught = []

        def wait():
            try:
                turn.next(None)
            except (kairos.Cancelled, kairos.InvalidArgument) as error:
                caught.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        self.client.close()
        thread.join(20)
        self.assertEqual(len(caught), 1)


class Fork(FakeSidecarTest):
    def test_child_gets_forked_error_and_may_open_its_own(self):
        client = kairos.Client(self.path)
        self.addCleanup(client.close)
        self.assertGreater(client.ping(8), 0)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                client.ping()
            except kairos.ForkedError:
                with kairos.Client(self.path) as own:
                    status = 0 if own.ping(8) > 0 else 2
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertGreater(client.ping(8), 0)


class Async(FakeSidecarTest):
    def run_async(self, coroutine):
        return asyncio.run(asyncio.wait_for(coroutine, 30))

    def test_many_turns_at_once(self):
        async def body():
            async with kairos.AsyncClient(self.path, request_ring_bytes=1 << 16) as client:
                async def one(i):
                    turn = await client.submit(f"{i} " + "x" * 3000)
                    return (await turn.read()).split()[0], turn.result.finish

                return await asyncio.gather(*[one(i) for i in range(100)])

        self.assertEqual(self.run_async(body()),
                         [(str(i), kairos.Finish.STOP) for i in range(100)])

    def test_waits_for_room_in_the_ring(self):
        async def body():
            async with kairos.AsyncClient(self.path, request_ring_bytes=1 << 16) as client:
                self.order("pause")
                submits = [asyncio.create_task(client.submit("y" * 4000)) for _ in range(40)]
                await asyncio.sleep(0)
                self.assertTrue(any(not task.done() for task in submits))
                self.order("resume")
                turns = [await task for task in submits]
                return [len(await turn.read()) for turn in turns]

        self.assertEqual(self.run_async(body()), [4000] * 40)

    def test_watched_states_are_bounded_and_end_with_the_sidecar(self):
        async def body():
            async with kairos.AsyncClient(self.path) as client:
                watch = client.watch()
                await (await client.submit("states 3")).read()
                versions = []
                async for event in watch:
                    versions.append(event.info.version)
                    if len(versions) == 3:
                        break
                self.assertEqual(versions, [1, 2, 3])
                await (await client.submit("states 100000")).read()
                events = []
                with self.assertRaises(kairos.SidecarLost):
                    lost = await client.submit("die")
                    await lost.read()
                with self.assertRaises(kairos.SidecarLost):
                    async for event in watch:
                        events.append(event)
                self.assertLessEqual(len(events), 1024)
                self.assertTrue(any(event.skipped for event in events))
                self.assertIn(100000, [event.info.version for event in events if event.info])

        self.run_async(body())

    def test_cancel_and_errors(self):
        async def body():
            async with kairos.AsyncClient(self.path) as client:
                hanging = await client.submit("hang")
                kinds = []
                async for event in hanging:
                    kinds.append(type(event).__name__)
                    if isinstance(event, kairos.AcceptedEvent):
                        hanging.cancel()
                self.assertEqual(kinds, ["AcceptedEvent", "FinalEvent"])
                with self.assertRaises(kairos.ResourceExhausted):
                    await (await client.submit("fail")).read()
                lost = await client.submit("die")
                with self.assertRaises(kairos.SidecarLost):
                    await lost.read()
                with self.assertRaises(kairos.SidecarLost):
                    await client.submit("x")

        self.run_async(body())


if __name__ == "__main__":
    unittest.main()
