#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One beginning, two ends: a fork shares everything up to the fork; a rewind undoes a turn."""

import sys

from show import SHORT, connect, run_turn

import kairos


def main() -> None:
    with connect(__doc__) as client:
        session = client.create_session(label="plan")
        _, _, base = run_turn(
            session, "I have two free days in Lisbon. Suggest a plan in one sentence.",
            generation=SHORT)
        fork = session.fork(base.version)
        run_turn(session, "I like museums. Change the plan.", generation=SHORT)
        _, _, other = run_turn(fork, "I like the sea. Change the plan.", generation=SHORT)
        print(f"  [the fork reused {other.usage.reused_tokens} tokens]")
        session.rewind(base.version)
        print(f"  [the first session is back at version {session.stat().version}]")
        fork.delete()
        session.delete()


if __name__ == "__main__":
    try:
        main()
    except kairos.KairosError as error:
        sys.exit(f"error: {error}")
