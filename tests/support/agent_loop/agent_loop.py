#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same as agent_loop.c, over the Python package."""
import json
import pathlib
import sys

import kairos


def main() -> int:
    if len(sys.argv) != 4:
        sys.exit("usage: agent_loop.py SOCKET TOOLS.json TEMPERATURE < LINES")
    tools = pathlib.Path(sys.argv[2]).read_text()
    temperature = float(sys.argv[3])
    seed = 0
    with kairos.Client(sys.argv[1]) as client:
        session = None

        def run(role: str, content: str, choice: str) -> int:
            nonlocal session, seed
            options = {}
            if session is None:
                session = client.create_session()
                options["tools"] = tools
            seed += 1
            generation = kairos.Generation(max_tokens=8 if choice == "none" else 160,
                                           temperature=temperature, seed=seed)
            calls = 0
            for event in session.turn({"role": role, "content": content}, tool_choice=choice,
                                      parallel_tool_calls=False, generation=generation, **options):
                if isinstance(event, kairos.ToolCallEvent):
                    print(event.raw, flush=True)
                    calls += 1
            return calls

        for line in sys.stdin.read().splitlines():
            if not line:
                session = None
                continue
            if run("user", line, "required") != 1:
                return 1
            run("tool", json.dumps({"ok": True}), "none")
    return 0


if __name__ == "__main__":
    sys.exit(main())
