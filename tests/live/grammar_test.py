#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Constrained replies on a real kairosd: whom a costly grammar delays, and what is said of one that
cannot be met."""
from __future__ import annotations

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import Finish, Generation  # noqa: E402


def costly(number: int) -> str:
    """A schema that takes some hundred milliseconds to compile."""
    kinds = [{"type": "object", "properties": {"kind": {"const": f"k{number}_{i}"}},
              "required": ["kind"]} for i in range(1000)]
    return json.dumps({"oneOf": kinds})


class Grammars(live_daemon.LiveTest):
    def test_costly_grammars_delay_neither_other_sessions_nor_their_own_cancellation(self) -> None:
        greedy, other = self.client(), self.client()
        turns = [greedy.submit("Hello.", generation=Generation(max_tokens=4, json_schema=costly(i)))
                 for i in range(16)]
        plain = other.submit("Hello.", generation=Generation(max_tokens=2))
        plain.read()
        self.assertGreater(plain.result.usage.generated_tokens, 0)
        # Behind them, it would have been the last one.
        self.assertLess(self.daemon.stats()["turns_done_total"], len(turns) / 2)
        turns[-1].cancel()
        turns[-1].read()
        self.assertEqual(turns[-1].result.finish, Finish.CANCELLED)
        self.assertLess(self.daemon.stats()["turns_done_total"], len(turns) / 2)
        for turn in turns[:-1]:
            turn.cancel()
            turn.read()

    def test_a_schema_that_nothing_matches_is_refused_in_words(self) -> None:
        sidecar = self.client()
        for schema, words in ((False, "nothing matches the schema false"),
                              ({"type": "string", "minLength": 3, "maxLength": 2},
                               "minLength (3) is greater than maxLength (2)")):
            with self.assertRaises(kairos.InvalidArgument) as refusal:
                asked = Generation(json_schema=json.dumps(schema))
                sidecar.submit("Hello.", generation=asked).read()
            self.assertIn(words, str(refusal.exception))
        with self.assertRaises(kairos.InvalidArgument) as refusal:
            sidecar.submit("Hello.", generation=Generation(grammar="start: T\nT: /a/ & /b/")).read()
        self.assertIn("constraint: nothing matches it", str(refusal.exception))
        with self.assertRaises(kairos.InvalidArgument) as refusal:
            sidecar.submit("Hello.",
                           generation=Generation(grammar="start: /[ab]/ T\nT: /c/ & /d/")).read()
        self.assertIn("nothing that the schema or constraint allows can follow",
                      str(refusal.exception))

    def test_events_of_a_constrained_reply_say_something(self) -> None:
        tools = [{"name": "look", "parameters": {"type": "object", "required": ["at"],
                                                 "properties": {"at": {"enum": ["é", "ü"]}}}}]
        sidecar = self.client()
        for options in ({"generation": Generation(max_tokens=60, json_schema='{"enum": ["é ü"]}')},
                        {"generation": Generation(max_tokens=60), "tools": tools,
                         "tool_choice": "required", "parallel_tool_calls": False}):
            turn = sidecar.submit("Look.", **options)
            events = list(turn)
            self.assertNotIn("", [event.text for event in events
                                  if isinstance(event, kairos.TextEvent)])
            self.assertEqual(sum(len(getattr(event, "tokens", ())) for event in events),
                             turn.result.usage.generated_tokens)

    def test_a_value_ends_in_time_and_where_it_cannot_the_finish_says_so(self) -> None:
        sidecar = self.client()
        schema = {"type": "object", "properties": {"text": {"type": "string"},
                                                   "list": {"type": "array", "minItems": 2}},
                  "required": ["text", "list"], "additionalProperties": False}
        turn = sidecar.submit("Write.", generation=Generation(
            max_tokens=40, temperature=1.5, seed=3, json_schema=json.dumps(schema)))
        value = json.loads(turn.read())
        self.assertEqual(set(value), {"text", "list"})
        self.assertNotEqual(turn.result.finish, Finish.LENGTH)
        long = sidecar.submit("Write.", generation=Generation(
            max_tokens=8, json_schema=json.dumps({"type": "string", "minLength": 500})))
        long.read()
        self.assertEqual(long.result.finish, Finish.LENGTH)


if __name__ == "__main__":
    live_daemon.main()
