#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates a reply for each of many JSON schemas on a live kairosd and validates every one.

  check_schemas.py [--data FILE.jsonl]... [--suite FOLDER]... [--file SCHEMA.json]...
                   [--model FILE.gguf] [--outputs N] [--temperature T]

--data takes conversations with `tools` (each tool's parameters are a schema); --suite the folder of
a draft of the JSON Schema test suite, as the source package of the Python package jsonschema has
them under json/tests; a schema of it that names no draft gets its folder's. --file takes a file
that is one schema. Schemas that the sidecar refuses are counted by the keyword that it names.
Every reply is checked by the Python package jsonschema, which this script needs (tools/peers
installs it). Prints one JSON object; the exit status says whether all replies were valid, but for
those that end at --max-tokens and say so.
"""
from __future__ import annotations

import argparse
import collections
import concurrent.futures
import decimal
import json
import pathlib
import sys
import threading

import jsonschema
import jsonschema.validators

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "support"))
from live_daemon import LiveDaemon, require_live  # noqa: E402

require_live()
import kairos  # noqa: E402

DRAFTS = {
    "draft3": "http://json-schema.org/draft-03/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
PROMPT = "Write an example of a value of this JSON schema: "


def schemas_of(arguments: argparse.Namespace) -> list[object]:
    """Every different schema, in the order in which it is met."""
    found: dict[str, object] = {}

    def add(schema: object) -> None:
        # What the validator cannot read, it cannot judge: its patterns know no classes like \\p{L}.
        if "\\\\p{" not in json.dumps(schema):
            found.setdefault(json.dumps(schema, sort_keys=True), schema)

    for path in arguments.data:
        with open(path) as lines:
            for line in lines:
                for tool in json.loads(line).get("tools") or []:
                    add(tool.get("function", tool)["parameters"])
    for folder in map(pathlib.Path, arguments.suite):
        draft = {"$schema": DRAFTS[folder.name]}
        for path in sorted(folder.rglob("*.json")):
            for group in json.loads(path.read_text()):
                schema = group["schema"]
                add({**draft, **schema} if isinstance(schema, dict) else schema)
    for path in arguments.file:
        add(json.loads(pathlib.Path(path).read_text()))
    return list(found.values())


def draft_of(schema: object) -> str:
    """The draft's name as the validator knows it; with http and https it is the same one."""
    named = schema.get("$schema") if isinstance(schema, dict) else None
    for uri in DRAFTS.values():
        if str(named).split("://")[-1].rstrip("#") == uri.split("://")[-1].rstrip("#"):
            return uri
    return DRAFTS["draft2020-12"]


def number_of(text: str) -> decimal.Decimal | float:
    """Exact, since 0.3 is no multiple of 0.1 in binary, but for exponents that no reader keeps."""
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:
        return float(text)


def refused_for(message: str) -> str:
    """The refusal, with what differs between schemas cut off."""
    return message.split("constraint: ", 1)[-1][:60]


class Check:
    """The counts of one run, kept by the threads that ask."""

    def __init__(self, arguments: argparse.Namespace, socket: str) -> None:
        self.arguments = arguments
        self.socket = socket
        self.lock = threading.Lock()
        self.own = threading.local()
        self.clients: list[kairos.Client] = []  # of the threads of one round
        self.refusals: collections.Counter[str] = collections.Counter()
        self.counts: collections.Counter[str] = collections.Counter()
        self.invalid: list[dict[str, object]] = []
        self.cut: list[dict[str, object]] = []
        self.usable: list[object] = []
        self.asked = 0

    def ask(self, schema: object, seed: int) -> None:
        if not hasattr(self.own, "client"):
            self.own.client = kairos.Client(self.socket, spin_us=0)
            with self.lock:
                self.clients.append(self.own.client)
        client = self.own.client
        generation = kairos.Generation(
            max_tokens=self.arguments.max_tokens, temperature=self.arguments.temperature,
            seed=seed, json_schema=json.dumps(schema))
        text = ""
        result = None
        try:
            for event in client.submit(PROMPT + json.dumps(schema)[:2000], generation=generation):
                if isinstance(event, kairos.TextEvent):
                    text += event.text
                elif isinstance(event, kairos.FinalEvent):
                    result = event.result
        except kairos.KairosError as error:
            with self.lock:
                self.refusals[refused_for(str(error))] += 1
            return
        client.open_session(result.session_id).delete()
        fault = self.fault_of(schema, text)
        with self.lock:
            if seed == 0:
                self.usable.append(schema)
            self.counts["outputs"] += 1
            self.counts["valid"] += fault is None
            self.counts["tokens"] += result.usage.generated_tokens
            self.counts["forced_tokens"] += result.usage.forced_tokens
            if fault is not None:
                # A reply that no way led to the end of in time says so by its finish.
                cut = result.finish == kairos.Finish.LENGTH
                (self.cut if cut else self.invalid).append(
                    {"schema": schema, "seed": seed, "text": text, "error": fault})

    @staticmethod
    def fault_of(schema: object, text: str) -> str | None:
        decimal.getcontext().prec = 600
        try:
            exact = json.loads(json.dumps(schema), parse_float=number_of)
            validator = jsonschema.validators.validator_for({"$schema": draft_of(schema)})
            validator(exact).validate(json.loads(text, parse_float=number_of))
        except Exception as error:  # whatever the validator or its reader finds
            return f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        return None

    def all_of(self, asks: list[tuple[object, int]]) -> None:
        with concurrent.futures.ThreadPoolExecutor(self.arguments.sessions) as pool:
            waits = [pool.submit(self.ask, *one) for one in asks]
            for done, wait in enumerate(concurrent.futures.as_completed(waits), 1):
                wait.result()
                if sys.stderr.isatty() or done % 100 == 0:
                    print(f"\r{done} of {len(asks)}", end="", file=sys.stderr, flush=True)
        for client in self.clients:
            client.close()
        self.clients.clear()

    def run(self) -> dict[str, object]:
        schemas = schemas_of(self.arguments)
        self.all_of([(schema, 0) for schema in schemas])
        seed = 1
        while self.usable and self.counts["outputs"] < self.arguments.outputs:
            wanted = self.arguments.outputs - self.counts["outputs"]
            self.all_of([(schema, seed) for schema in self.usable[:wanted]])
            seed += 1
        print(file=sys.stderr)
        return {"schemas": len(schemas), "usable": len(self.usable), **self.counts,
                "refused": dict(self.refusals.most_common()), "cut": self.cut,
                "invalid": self.invalid}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", action="append", default=[], metavar="FILE.jsonl")
    parser.add_argument("--suite", action="append", default=[], metavar="FOLDER")
    parser.add_argument("--file", action="append", default=[], metavar="SCHEMA.json")
    parser.add_argument("--model", metavar="FILE.gguf", help="default: as the live tests'")
    parser.add_argument("--outputs", type=int, default=2000)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--temperature", type=float, default=1.5)
    parser.add_argument("--sessions", type=int, default=24, help="at once")
    arguments = parser.parse_args()
    with LiveDaemon(model=arguments.model) as daemon:
        try:
            report = Check(arguments, daemon.socket).run()
        finally:
            if not daemon.alive():
                print(f"kairosd ended with {daemon.wait()}: {daemon.log_text()}", file=sys.stderr)
    print(json.dumps(report, indent=1))
    return 0 if report.get("outputs") and not report["invalid"] else 1


if __name__ == "__main__":
    sys.exit(main())
