# SPDX-License-Identifier: Apache-2.0
"""What the examples share: the --socket option, and showing a turn."""

from __future__ import annotations

import argparse
from typing import Any

import kairos

SHORT = kairos.Generation(max_tokens=48, temperature=0)


def socket_argument(description: str | None) -> str | None:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--socket", help="the sidecar's socket; otherwise the library finds it")
    return parser.parse_args().socket


def connect(description: str | None) -> kairos.Client:
    return kairos.Client(socket_argument(description), timeout=120)


def numbers(result: kairos.TurnResult) -> str:
    usage = result.usage
    return (f"  [session {result.session_id:016x} version {result.version}: "
            f"{usage.new_tokens} new, {usage.reused_tokens} reused "
            f"({usage.shared_tokens} shared with other sessions), "
            f"{usage.recomputed_tokens} recomputed, {usage.generated_tokens} generated; "
            f"first token after {result.ttft_ns / 1e6:.1f} ms, all {result.total_ns / 1e6:.1f} ms]")


def run_turn(session: kairos.Session, messages: Any, **options: Any
             ) -> tuple[str, list[kairos.ToolCallEvent], kairos.TurnResult]:
    """Shows a turn while it runs; returns its text, its tool calls and its numbers."""
    if isinstance(messages, str):
        print(">", messages)
    text, calls = "", []
    turn = session.turn(messages, **options)
    for event in turn:
        if isinstance(event, kairos.TextEvent):
            print(event.text, end="", flush=True)
            text += event.text
        elif isinstance(event, kairos.ToolCallEvent):
            calls.append(event)
    assert turn.result is not None  # iteration ends with a final event or raises
    print("\n" + numbers(turn.result))
    return text, calls, turn.result
