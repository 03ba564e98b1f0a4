#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loop of an agent: ask, run the tool that the model calls, give it the result, ask again.

The tool is real: a look-up in this program's table. Whether the model calls it depends on the
model. A small one often does not; then this program writes the call that a larger model would have
made into the dialogue itself, says so, and the rest of the loop is the same.
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
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                       "required": ["city"]},
    },
}]


def get_weather(city: str) -> dict:
    return WEATHER.get(city, {"error": "unknown city"})


def find_call(calls: list) -> tuple[str, dict] | None:
    """Id and arguments of the call, if there is one."""
    for call in calls:
        if call.name == "get_weather" and isinstance(call.arguments, dict):
            return call.id, call.arguments
    return None


def main() -> None:
    with connect(__doc__) as client:
        session = client.create_session(label="weather agent")
        question = "What is the weather in Oslo?"
        print(">", question)
        _, calls, _ = run_turn(session, [
            {"role": "system",
             "content": "You help with questions about the weather. Use the tool."},
            {"role": "user", "content": question},
        ], tools=TOOLS, generation=SHORT)

        messages = []
        call = find_call(calls)
        if call is None:
            print("  [the model did not call the tool; the call is scripted]")
            call = ("call_1", {"city": "Oslo"})
            messages.append({"role": "assistant", "tool_calls": [{
                "id": call[0], "type": "function",
                "function": {"name": "get_weather", "arguments": json.dumps(call[1])}}]})
        else:
            print("  [the model called the tool]")
        result = get_weather(str(call[1].get("city")))
        print(f"  [get_weather({call[1]}) = {result}]")
        messages.append({"role": "tool", "name": "get_weather", "tool_call_id": call[0],
                         "content": json.dumps(result)})
        run_turn(session, messages, generation=SHORT)
        session.delete()


if __name__ == "__main__":
    try:
        main()
    except kairos.KairosError as error:
        sys.exit(f"error: {error}")
