# SPDX-License-Identifier: Apache-2.0
"""The bindings on a live sidecar with a model. What the model says is not judged."""

import asyncio
import unittest

import kairos
from tests.sidecar import LiveSidecarTest

SHORT = kairos.Generation(max_tokens=8, temperature=0)


class Live(LiveSidecarTest):
    def setUp(self):
        super().setUp()
        self.client = kairos.Client()
        self.addCleanup(self.client.close)

    def new_session(self):
        session = self.client.create_session(label="bindings test")
        self.addCleanup(session.delete)
        return session

    def test_second_turn_reuses_what_the_first_computed(self):
        session = self.new_session()
        first = session.turn("Name a colour.", generation=SHORT)
        first.read()
        second = session.turn("Name another.", generation=SHORT)
        second.read()
        usage = second.result.usage
        self.assertGreater(usage.reused_tokens, 0)
        self.assertEqual(usage.recomputed_tokens, sum(usage.recomputed_by.values()))
        self.assertEqual(session.stat().version, second.result.version)

    def test_greedy_turns_repeat_after_rewind_and_in_a_fork(self):
        session = self.new_session()
        base = session.turn("Remember the number 7.", generation=SHORT)
        base.read()
        said = session.turn("Which number?", generation=SHORT).read()
        fork = session.fork(base.result.version)
        self.addCleanup(fork.delete)
        self.assertEqual(fork.turn("Which number?", generation=SHORT).read(), said)
        session.rewind(base.result.version)
        self.assertEqual(session.turn("Which number?", generation=SHORT).read(), said)

    def test_logprobs_come_with_the_text(self):
        settings = kairos.Generation(max_tokens=4, temperature=0, logprobs=3)
        events = list(self.new_session().turn("Count: 1 2 3", generation=settings))
        self.assertTrue(any(isinstance(event, kairos.LogprobsEvent) for event in events))

    def test_cancel_stops_a_long_turn(self):
        settings = kairos.Generation(max_tokens=2000, temperature=0, ignore_eos=True)
        turn = self.new_session().turn("Count to ten thousand.", generation=settings)
        for event in turn:
            if isinstance(event, kairos.TextEvent):
                turn.cancel()
        self.assertEqual(turn.result.finish, kairos.Finish.CANCELLED)
        self.assertLess(turn.result.usage.generated_tokens, 2000)

    def test_messages_and_context_are_readable(self):
        session = self.new_session()
        session.turn("Hello.", generation=SHORT).read()
        roles = [message["role"] for message in session.messages()]
        self.assertIn("user", roles)
        self.assertIsInstance(session.context(), dict)

    def test_unknown_session_is_not_found(self):
        with self.assertRaises(kairos.NotFound):
            self.client.open_session(0xFFFFFFFFFFFF)

    def test_async_turns_run_together(self):
        async def body():
            async with kairos.AsyncClient() as client:
                turns = [await client.submit("Say hi.", generation=SHORT) for _ in range(4)]
                texts = [await turn.read() for turn in turns]
                for turn in turns:
                    client.client.open_session(turn.session_id).delete()
                return texts

        texts = asyncio.run(asyncio.wait_for(body(), 120))
        self.assertEqual(len(set(texts)), 1, "equal greedy turns say the same")


if __name__ == "__main__":
    unittest.main()
