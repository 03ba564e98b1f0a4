#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stops a long answer after a few pieces of text. The text so far is kept, and the session goes
on."""

import sys

from show import SHORT, connect, numbers, run_turn

import kairos


def main() -> None:
    with connect(__doc__) as client:
        session = client.create_session(label="bridges")
        question = "Tell me everything about the history of bridges."
        print(">", question)
        long = kairos.Generation(max_tokens=1500, temperature=0, ignore_eos=True)
        turn = session.turn(question, generation=long)
        pieces = 0
        for text in turn.texts():
            print(text, end="", flush=True)
            pieces += 1
            if pieces == 10:
                turn.cancel()
        assert turn.result is not None
        print("\n" + numbers(turn.result))
        if turn.result.finish != kairos.Finish.CANCELLED:
            sys.exit("the turn was not cancelled")
        run_turn(session, "In one word: what was that about?", generation=SHORT)
        session.delete()


if __name__ == "__main__":
    try:
        main()
    except kairos.KairosError as error:
        sys.exit(f"error: {error}")
