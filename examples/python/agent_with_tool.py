#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loop of an agent: ask, run the tool that the model calls, give it the result, ask again.

The tool is real: a look-up in this program's table. The first turn must call it, so that also a
small model does; its arguments match the tool's schema. The second must not, so that it answers.
"""

import json
import sys

from show import SHORT, connect, run_turn

import kairos

WEATHER = {
    "Oslo": {"celsius": -3, "sky": "snow"},
    "Lisbon": {"celsius": 18, "sky": "clear"},
    "Nairobi": {"celsius": 24, "sky": "cloudy"},
}
TOOLS = [{
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city now",
        "parameters": {"type": "object", "properties": {"city": {"enum": list(WEATHER)}},
                       "required": ["city"]},
    },
}]

# A call takes some 32 tokens. When few are left, the shortest way to close it decides, no more the
# model, and that might name another city.
CALL = kairos.Generation(max_tokens=128, temperature=0)


def get_weather(city: str) -> dict:
    return {"city": city, **WEATHER[city]} if city in WEATHER else {"error": "unknown city"}


def main() -> None:
    with connect(__doc__) as client:
        session = client.create_session(label="weather agent")
        question = "What is the weather in Oslo?"
        print(">", question)
        _, calls, _ = run_turn(session, [
            {"role": "system",
             "content": "You help with questions about the weather. Use the tool."},
            {"role": "user", "content": question},
        ], tools=TOOLS, tool_choice="required", parallel_tool_calls=False, generation=CALL)

        call = calls[0]
        result = get_weather(call.arguments["city"])
        print(f"  [{call.name}({call.arguments['city']}) = {json.dumps(result)}]")
        run_turn(session, {"role": "tool", "name": call.name, "tool_call_id": call.id,
                           "content": json.dumps(result)}, tool_choice="none", generation=SHORT)
        session.delete()


if __name__ == "__main__":
    try:
        main()
    except kairos.KairosError as error:
        sys.exit(f"error: {error}")
