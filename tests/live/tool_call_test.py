#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tool calls from a real model to a program. A small model calls no tool by itself, but it goes on
as the dialogue went before, so it is shown calls until it writes one."""
from __future__ import annotations

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import Finish, Generation, Message, Phase  # noqa: E402

CALL = '<tool_call>\n{"name": "time", "arguments": {"zone": "UTC"}}\n</tool_call>'
SHOWN = [message for _ in range(3) for message in (
    Message("user", "What time is it?"), Message("assistant", "Let me look. " + CALL))]
ASK = [*SHOWN, Message("user", "What time is it?")]
LONG = Generation(max_tokens=64, temperature=0)


def told(events) -> list:
    """What a reply says, text joined."""
    out: list = []
    for event in events:
        if isinstance(event, kairos.ToolCallEvent):
            out.append((event.id, event.name, event.arguments))
        elif isinstance(event, kairos.TextEvent) and event.text:
            if out and isinstance(out[-1], str):
                out[-1] += event.text
            else:
                out.append(event.text)
    return out


class ToolCalls(live_daemon.LiveTest):
    def test_a_call_is_an_event_and_no_text_and_is_the_same_when_replayed_or_resent(self) -> None:
        sidecar = self.client()
        options = {"generation": LONG, "idempotency_key": "once"}
        turn = sidecar.submit(ASK, **options)
        events = list(turn)

        said = told(events)
        self.assertEqual(said[0].strip(), "Let me look.")
        self.assertEqual(said[1], ("call_1_0", "time", {"zone": "UTC"}))
        self.assertFalse([part for part in said if "tool_call" in str(part)])
        self.assertEqual(turn.result.finish, Finish.TOOL_CALL)
        self.assertEqual(turn.result.phase, Phase.WAITING_TOOL)
        counted = sum(len(getattr(event, "tokens", ())) for event in events)
        self.assertEqual(counted, turn.result.usage.generated_tokens)
        session = sidecar.open_session(turn.session_id)
        self.assertIn("<tool_call>", session.messages()[-1]["content"])

        again = sidecar.submit(ASK, **options)
        self.assertEqual(told(again), said)
        self.assertTrue(again.result.replayed)

        answer = Message("assistant", said[0], tool_calls=[{
            "id": said[1][0], "name": said[1][1], "arguments": said[1][2]}])
        resent = session.turn([*ASK, answer, Message("tool", "noon")], generation=LONG,
                              whole_history=True)
        resent.read()
        self.assertIsNone(resent.result.first_difference)
        self.assertEqual(resent.result.usage.recomputed_tokens, 0)

    def test_a_session_keeps_reasoning_or_drops_it_as_it_was_made(self) -> None:
        sidecar = self.client()
        thinks = Generation(max_tokens=64, temperature=0,
                            regex="<think>[a-z][a-z ]{40,60}</think>[a-z]{3,6}")
        tokens: list[int] = []
        for drops in (False, True):
            session = sidecar.create_session(drop_reasoning=drops)
            self.assertEqual(session.stat().drop_reasoning, drops)
            events = list(session.turn("Hello.", generation=thinks))
            thought = "".join(event.text for event in events
                              if isinstance(event, kairos.ReasoningEvent))
            answer = told(events)[-1]
            self.assertGreaterEqual(len(thought), 40)
            kept = session.messages()[-1]["content"]
            self.assertEqual(kept, answer if drops else f"<think>{thought}</think>{answer}")
            tokens.append(session.stat().token_count)
            session.turn("Again.", generation=Generation(max_tokens=2)).read()
            shown = subprocess.run(
                [os.environ["KAIROSCTL"], "--control", self.daemon.control, "--json", "session",
                 "show", f"{session.id:016x}"], capture_output=True, text=True, check=True)
            self.assertIn('"reasoning":"' + ("dropped" if drops else "kept"), shown.stdout)
        self.assertLess(tokens[1], tokens[0])


if __name__ == "__main__":
    live_daemon.main()
