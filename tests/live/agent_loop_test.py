#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An agent's loop with three tools through C, C++ and Python: every call that a client is told
parses and is valid under its tool's schema, at temperature 1.5.

  agent_loop_test.py PROGRAM_C PROGRAM_CPP [--data FILE.jsonl] [--turns N]

Without --data, the tools and lines below. With it, conversations with `tools` and `messages`: the
first three tools of each and what its user says, N lines in all.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from live_daemon import ROOT, LiveDaemon, require_live  # noqa: E402

TOOLS = [
    {"type": "function", "function": {
        "name": "find_hotel", "description": "Hotels of a city that have room",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "maxLength": 40},
            "nights": {"type": "integer", "minimum": 1, "maximum": 30},
            "stars": {"enum": [3, 4, 5]}},
            "required": ["city", "nights"], "additionalProperties": False}}},
    {"type": "function", "function": {
        "name": "book", "description": "Books what was found",
        "parameters": {"type": "object", "properties": {
            "id": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{4}$"},
            "guests": {"type": "array", "minItems": 1, "maxItems": 3, "items": {
                "type": "object", "properties": {"name": {"type": "string", "maxLength": 30},
                                                 "child": {"type": "boolean"}},
                "required": ["name"], "additionalProperties": False}}},
            "required": ["id", "guests"], "additionalProperties": False}}},
    {"name": "weather", "description": "The weather of a day", "parameters": {
        "type": "object", "properties": {"day": {"enum": ["today", "tomorrow"]},
                                         "celsius": {"type": "boolean"}},
        "required": ["day"], "additionalProperties": False}},
]
LINES = ["I want to go to Lisbon for a week.", "Four stars, please.", "How is the weather there?",
         "Book the first one for me and my son Tom.", "", "Two nights in Oslo, cheap.",
         "Will it snow?", "Take AB1234."]


class Invalid(Exception):
    """What is wrong with a call."""


def check(value: object, schema: dict, where: str) -> None:
    """The keywords that these schemas use; another one is an error of this test."""
    unknown = set(schema) - {"type", "properties", "required", "additionalProperties", "enum",
                             "minimum", "maximum", "pattern", "minItems", "maxItems", "items",
                             "maxLength", "description"}
    assert not unknown, f"this test does not know {unknown}"
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
    kind = kinds.get(schema.get("type", ""))
    if kind and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise Invalid(f"{where}: {value!r} is no {schema['type']}")
    if "enum" in schema and value not in schema["enum"]:
        raise Invalid(f"{where}: {value!r} is none of {schema['enum']}")
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                raise Invalid(f"{where}: no {name}")
        for name, part in value.items():
            if name not in schema.get("properties", {}):
                raise Invalid(f"{where}: {name} is not declared")
            check(part, schema["properties"][name], f"{where}.{name}")
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 1 << 20):
            raise Invalid(f"{where}: {len(value)} items")
        for part in value:
            check(part, schema["items"], f"{where}[]")
    if isinstance(value, str):
        if len(value) > schema.get("maxLength", 1 << 20):
            raise Invalid(f"{where}: {len(value)} characters")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            raise Invalid(f"{where}: {value!r} does not match")
    if isinstance(value, int) and not isinstance(value, bool):
        if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            raise Invalid(f"{where}: {value} is out of range")


def scripts(data: str | None, turns: int) -> list[tuple[list, list[str]]]:
    """Tools, and the lines for them."""
    if data is None:
        return [(TOOLS, LINES)]
    found = []
    with open(data) as lines:
        for line in lines:
            conversation = json.loads(line)
            said = [message["content"].replace("\n", " ") for message in conversation["messages"]
                    if message["role"] == "user"][:min(5, turns)]
            if len(conversation.get("tools") or ()) < 3 or not said:
                continue
            found.append((conversation["tools"][:3], said))
            turns -= len(said)
            if turns <= 0:
                break
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs=2)
    parser.add_argument("--data")
    parser.add_argument("--turns", type=int, default=50)
    arguments = parser.parse_args()
    require_live()
    script = ROOT / "tests" / "support" / "agent_loop" / "agent_loop.py"
    clients = {"c": [arguments.programs[0]], "c++": [arguments.programs[1]],
               "python": [sys.executable, str(script)]}
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "bindings" / "python")}
    status = 0
    with LiveDaemon() as daemon, tempfile.TemporaryDirectory() as folder:
        tools_file = pathlib.Path(folder) / "tools.json"
        for name, command in clients.items():
            counts = {"turns": 0, "valid": 0}
            for tools, lines in scripts(arguments.data, arguments.turns):
                tools_file.write_text(json.dumps(tools))
                ran = subprocess.run([*command, daemon.socket, str(tools_file), "1.5"],
                                     input="\n".join(lines) + "\n", text=True, env=environment,
                                     stdout=subprocess.PIPE, timeout=900)
                if ran.returncode != 0:
                    print(f"{name}: exit status {ran.returncode}")
                    status = 1
                schemas = {tool.get("function", tool)["name"]: tool.get("function", tool)
                           for tool in tools}
                counts["turns"] += sum(bool(line) for line in lines)
                for text in ran.stdout.splitlines():
                    call = json.loads(text)
                    try:
                        check(call["arguments"], schemas[call["name"]]["parameters"], call["name"])
                        counts["valid"] += 1
                    except Invalid as fault:
                        print(f"{name}: {fault}")
            print(f"{name}: {counts['turns']} turns, {counts['valid']} valid calls", flush=True)
            if counts["valid"] != counts["turns"] or not counts["turns"]:
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
