#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Watching the sessions of others, and reading again what one has read, on a live kairosd."""
from __future__ import annotations

import asyncio
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import Generation, Phase  # noqa: E402

SHORT = Generation(max_tokens=4, temperature=0)
CALL = Generation(max_tokens=48, temperature=0)
CLOCK = [{"type": "function", "function": {
    "name": "clock", "description": "Tells the time.",
    "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}}]


def steps(events: list[kairos.SessionEvent], session_id: int) -> list[tuple]:
    return [(event.info.version, event.info.phase, event.info.waiting_for) for event in events
            if event.session_id == session_id]


class Watching(live_daemon.LiveTest):
    def read_to_end(self, watch: kairos.Watch, session_id: int) -> list[kairos.SessionEvent]:
        """What is told up to the session's end."""
        events: list[kairos.SessionEvent] = []
        while not events or events[-1].session_id != session_id or \
                events[-1].info.phase != Phase.CLOSED:
            event = watch.next(live_daemon.WATCHDOG_S)
            self.assertIsNotNone(event, f"no end after {events}")
            events.append(event)
        return events

    def read_up_to(self, watch: kairos.Watch, session_id: int, last: tuple) -> list[tuple]:
        """What is told up to `last`; of a step that a later one replaced, None stands there."""
        told: list[tuple | None] = []
        while not told or told[-1] != last:
            event = watch.next(live_daemon.WATCHDOG_S)
            self.assertIsNotNone(event, f"{last} did not come after {told}")
            told += ([None] if event.skipped else []) + steps([event], session_id)
            self.assertEqual(event.info.label, "" if event.info.phase == Phase.CLOSED else "clerk")
        return told

    def test_phases_of_another_clients_session_are_told_in_order(self) -> None:
        agent, dashboard = self.client(), self.client()
        with dashboard.watch() as watch:
            def expect(*expected: tuple) -> None:
                """All of them, but that a step which the next has overtaken is told as left out."""
                told = self.read_up_to(watch, session.id, expected[-1])
                left = list(expected)
                for step in told:
                    if step is None:
                        left.pop(0)
                    else:
                        self.assertEqual(step, left.pop(0), f"{told} for {expected}")
                self.assertFalse(left, f"{told} for {expected}")

            session = agent.create_session(label="clerk")
            expect((0, Phase.IDLE, ""))
            session.turn("What time is it?", tools=CLOCK, tool_choice="required",
                         generation=CALL).read()
            expect((0, Phase.RUNNING, ""), (1, Phase.WAITING_TOOL, "clock"))
            session.turn([{"role": "tool", "content": "noon"}], generation=SHORT,
                         tool_choice="none").read()
            expect((1, Phase.RUNNING, ""), (2, Phase.WAITING_USER, ""))
            session.set_context({"goal": "time"})
            expect((3, Phase.WAITING_USER, ""))
            session.rewind(1)
            expect((1, Phase.WAITING_TOOL, "clock"))
            session.delete()
            expect((0, Phase.CLOSED, ""))
        with self.assertRaises(kairos.FailedPrecondition):
            watch.next(0)

    def test_other_namespaces_are_not_heard(self) -> None:
        agent, near, far = self.client(), self.client(), self.client(name_space="elsewhere")
        with near.watch() as heard, far.watch() as unheard:
            session = agent.create_session()
            session.turn("Hello", generation=SHORT).read()
            session.delete()
            self.read_to_end(heard, session.id)
            own = far.create_session()
            first = unheard.next(live_daemon.WATCHDOG_S)
        self.assertEqual(first.session_id, own.id)

    def test_a_watcher_that_is_stopped_disturbs_nobody_and_is_told_what_it_missed(self) -> None:
        agent = self.client()
        session = agent.create_session()
        ready_read, ready_write = os.pipe()
        go_read, go_write = os.pipe()
        watcher = os.fork()
        if watcher == 0:
            os.close(go_write)
            os._exit(self.play_stopped_watcher(session.id, ready_write, go_read))
        os.close(go_read)
        os.close(ready_write)
        self.assertEqual(os.read(ready_read, 1), b"r", "the watcher is not ready")
        os.close(ready_read)
        before = self.daemon.stats()
        for number in range(600):
            session.set_context({"number": number})
        text = session.turn("Hello", generation=SHORT).read()
        self.assertTrue(text)
        self.assert_serves()
        after = self.daemon.stats()
        self.assertEqual(after["clients"], before["clients"], "nobody was thrown out")
        session.delete()
        os.close(go_write)  # go on
        _, status = os.waitpid(watcher, 0)
        self.assertEqual(status, 0)
        self.daemon.wait_until("the watcher is forgotten",
                               lambda: self.daemon.stats()["watchers"] == before["watchers"] - 1)

    def play_stopped_watcher(self, session_id: int, ready: int, go: int) -> int:
        """0: told the last state, and of what was left out, in far fewer events than changes."""
        try:
            with self.daemon.client(reply_ring_bytes=65536) as client, client.watch() as watch:
                os.write(ready, b"r")
                os.read(go, 1)
                events = self.read_to_end(watch, session_id)
                told = steps(events, session_id)
                assert any(event.skipped for event in events), "nothing skipped"
                assert len(told) < 400, len(told)
                assert told[:-1] == sorted(told[:-1], key=lambda step: step[0]), "out of order"
            return 0
        except BaseException as error:  # a child must not go on with the parent's tests
            print(f"watcher: {error!r}", file=sys.stderr, flush=True)
            return 1

    def test_an_event_loop_watches_while_it_runs_turns(self) -> None:
        async def play() -> list[kairos.SessionEvent]:
            async with kairos.AsyncClient(self.daemon.socket) as client:
                watch = client.watch()
                turn = await client.submit("Hello", generation=SHORT)
                await turn.read()
                client.client.open_session(turn.session_id).delete()
                events = []
                async for event in watch:
                    events.append(event)
                    if event.info.phase == Phase.CLOSED and event.session_id == turn.session_id:
                        watch.close()
                return [event for event in events if event.session_id == turn.session_id]

        events = asyncio.run(asyncio.wait_for(play(), live_daemon.WATCHDOG_S))
        phases = [event.info.phase for event in events]
        self.assertEqual(phases[-1], Phase.CLOSED)
        # The loop reads while the turn runs: a phase may be overtaken, and then it says so.
        skipped = sum(event.skipped for event in events)
        self.assertGreaterEqual(len(phases) + skipped, 3, phases)
        order = [Phase.RUNNING, Phase.WAITING_USER, Phase.CLOSED]
        self.assertEqual(phases, [phase for phase in order if phase in phases])


class ReadingAgain(live_daemon.LiveTest):
    def not_changed(self) -> float:
        return self.daemon.stats()["reads_not_changed_total"]

    def assert_read_again(self, read, count: int = 1) -> None:
        """The read gives what a client gets that has read nothing before."""
        before = self.not_changed()
        got = read(self.reader)
        self.assertEqual(self.not_changed() - before, count)
        self.assertEqual(got, read(self.client()))

    def test_what_did_not_change_comes_from_the_cache_and_what_did_from_the_sidecar(self) -> None:
        writer, self.reader = self.client(), self.client()
        session = writer.create_session()
        session.turn("Hello", generation=SHORT).read()

        def of(session_id: int, version: int = 0):
            def read(client: kairos.Client):
                with_name = kairos.Session(client, session_id)
                return with_name.messages(version), with_name.context(version)
            return read

        read = of(session.id)
        self.assert_read_again(read, 0)
        self.assert_read_again(read, 2)
        # By a client that this one knows nothing of.
        session.turn("And again", generation=SHORT).read()
        self.assert_read_again(read, 0)
        self.assert_read_again(read, 2)
        self.assert_read_again(of(session.id, 1), 0)
        self.assert_read_again(of(session.id, 2), 2)
        session.set_context({"goal": "other"})
        self.assert_read_again(read, 0)
        self.assertEqual(json.dumps(read(self.reader)[1]).count("other"), 1)

        fork = session.fork()
        self.assert_read_again(of(fork.id), 0)
        self.assert_read_again(of(fork.id), 2)
        self.assert_read_again(read, 2)
        session.rewind(1)
        self.assert_read_again(read, 0)
        self.assert_read_again(read, 2)
        session.turn("Another way", generation=SHORT).read()
        self.assert_read_again(read, 0)

        session.delete()
        with self.assertRaises(kairos.NotFound):
            read(self.reader)

    def test_a_new_client_of_a_new_sidecar_starts_with_nothing(self) -> None:
        with live_daemon.LiveDaemon() as daemon:
            client = daemon.client()
            session = client.create_session()
            session.turn("Hello", generation=SHORT).read()
            messages = session.messages()
            daemon.kill()
            daemon.start()
            with self.assertRaises(kairos.KairosError):
                session.messages()
            with daemon.client() as again:
                self.assertEqual(again.open_session(session.id).messages(), messages)


if __name__ == "__main__":
    live_daemon.main()
