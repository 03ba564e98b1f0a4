#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two turns of one session. The second sends only what is new."""

import sys

from show import SHORT, connect, run_turn

import kairos


def main() -> None:
    with connect(__doc__) as client:
        session = client.create_session(label="hello")
        run_turn(session, "Name three rivers of Europe.", generation=SHORT)
        run_turn(session, "Which of them is the longest?", generation=SHORT)
        session.delete()


if __name__ == "__main__":
    try:
        main()
    except kairos.KairosError as error:
        sys.exit(f"error: {error}")
