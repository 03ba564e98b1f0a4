#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A dashboard: one client watches every session while another one works.

The watcher is told when a session begins a turn, waits for a tool or for the user, and is gone; it
asks for nothing in between.
"""

import sys

from show import SHORT, run_turn, socket_argument

import kairos

CLOCK = [{"type": "function", "function": {
    "name": "clock", "description": "Tells the time.",
    "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}}]


def line(event: kairos.SessionEvent) -> str:
    if event.info is None:
        return "  [changes of some sessions were left out]"
    phase = kairos.Phase(event.info.phase).name.lower()
    waiting = f" ({event.info.waiting_for})" if event.info.waiting_for else ""
    return (f"  [{event.session_id:016x} {event.info.label}: version {event.info.version}, "
            f"{phase}{waiting}]")


def main() -> None:
    socket = socket_argument(__doc__)
    with kairos.Client(socket, timeout=120) as agent, kairos.Client(socket) as dashboard, \
            dashboard.watch() as changes:
        session = agent.create_session(label="clerk")
        run_turn(session, "What time is it?", tools=CLOCK, tool_choice="required",
                 generation=SHORT)
        run_turn(session, [{"role": "tool", "content": "noon"}], tool_choice="none",
                 generation=SHORT)
        session.delete()

        for event in changes:
            print(line(event))
            if event.session_id == session.id and event.info.phase == kairos.Phase.CLOSED:
                break


if __name__ == "__main__":
    try:
        main()
    except kairos.KairosError as error:
        sys.exit(f"error: {error}")
