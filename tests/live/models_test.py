#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two real models in one kairosd: sessions of both at once, a restart, a model that is not there
any more, and that none of them says anything else than it says alone."""
from __future__ import annotations

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402
from gguf_edit import Gguf  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import Generation  # noqa: E402

CTL = os.environ.get("KAIROSCTL", "")
DEFAULT = pathlib.Path(live_daemon.model_path() or "").stem
LAYERS = 3
GREEDY = Generation(max_tokens=12, logits_hash=True)
TEXTS = ("Name a river.", "Where does it end?", "Say it again.")


def told(turn: kairos.Turn) -> tuple[str, int]:
    """What was said, and the hash of all logits behind it."""
    text = turn.read()
    return text, turn.result.logits_hash


class Models(unittest.TestCase):
    def setUp(self) -> None:
        self.daemon = live_daemon.LiveDaemon()
        self.addCleanup(self.daemon.close)
        self.small = self.daemon.folder + "/small.gguf"
        cut = Gguf(live_daemon.model_path())
        cut.keep_layers(LAYERS)
        cut.write(self.small)

    def start(self, *names: str, flags: tuple[str, ...] = ()) -> None:
        """The default model is the test model, or its first layers under the name `small`."""
        paths = {DEFAULT: live_daemon.model_path(), "small": self.small}
        config = self.daemon.folder + "/kairos.toml"
        with open(config, "w") as file:
            file.write('[kv]\nmemory = "64MiB"\n')
            for name in names[1:]:
                file.write(f'[[extra_model]]\nname = "{name}"\npath = "{paths[name]}"\n'
                           'kv_memory = "64MiB"\n')
        self.daemon.model = paths[names[0]]
        self.daemon.extra = ("--config", config, *flags)
        self.daemon.start()

    def client(self) -> kairos.Client:
        client = self.daemon.client()
        self.addCleanup(client.close)
        return client

    def run_tool(self, *words: str) -> str:
        return subprocess.run([CTL, *words], check=True, text=True, capture_output=True, timeout=60,
                              env={**os.environ, "KAIROS_SOCKET": self.daemon.socket}).stdout

    def alone(self, name: str) -> list[tuple[str, int]]:
        self.start(name)
        session = self.client().create_session()
        said = [told(session.turn(text, generation=GREEDY)) for text in TEXTS]
        self.daemon.terminate()
        return said

    def test_each_says_beside_the_other_what_it_says_alone(self) -> None:
        wanted = {name: self.alone(name) for name in (DEFAULT, "small")}
        self.assertNotEqual(wanted[DEFAULT], wanted["small"])
        self.start(DEFAULT, "small")
        client = self.client()
        sessions = {name: client.create_session(model=name) for name in wanted}
        for index, text in enumerate(TEXTS):
            # Both run at once.
            turns = {name: session.turn(text, generation=GREEDY)
                     for name, session in sessions.items()}
            for name, turn in turns.items():
                self.assertEqual(told(turn), wanted[name][index], (name, index))

    def test_sessions_go_on_after_a_restart_and_are_refused_without_their_model(self) -> None:
        self.start(DEFAULT, "small")
        client = self.client()
        session = client.create_session(model="small")
        told(session.turn(TEXTS[0], generation=GREEDY))
        number = session.id
        self.daemon.terminate()
        self.start(DEFAULT, "small")
        session = self.client().open_session(number)
        self.assertEqual(session.stat().model, "small")
        told(session.turn(TEXTS[1], generation=GREEDY))
        self.daemon.terminate()

        self.start(DEFAULT)
        client = self.client()
        with self.assertRaises(kairos.KairosError) as refused:
            client.open_session(number)
        self.assertIn("made under small (fingerprint", str(refused.exception))
        self.assertIn(DEFAULT, str(refused.exception))
        turn = client.submit(TEXTS[2], session_id=number, model=DEFAULT, move_model=True,
                             generation=GREEDY)
        told(turn)
        recomputed = turn.result.usage.recomputed_by
        self.assertEqual(list(recomputed), [kairos.Reason.OTHER_FORMAT])
        self.assertEqual(client.open_session(number).stat().model, DEFAULT)

    def test_a_name_that_no_model_has_is_refused_with_those_that_there_are(self) -> None:
        self.start(DEFAULT, "small")
        with self.assertRaises(kairos.KairosError) as refused:
            self.client().create_session(model="third")
        self.assertIn(f"there are: {DEFAULT}, small", str(refused.exception))

    @unittest.skipUnless(CTL, "KAIROSCTL is not set")
    def test_a_chat_at_the_terminal_is_with_the_model_that_it_names(self) -> None:
        self.start(DEFAULT, "small")

        def chat(*words: str) -> subprocess.CompletedProcess:
            return subprocess.run([CTL, "--json", "run", "--max-tokens", "4", *words], text=True,
                                  input="Name a river.\n", capture_output=True, timeout=60,
                                  env={**os.environ, "KAIROS_SOCKET": self.daemon.socket})

        first = chat("--model", "small")
        self.assertEqual(first.returncode, 0, first.stderr)
        session = json.loads(first.stdout)["session"]
        self.assertEqual(self.client().open_session(int(session, 16)).stat().model, "small")
        self.assertEqual(chat("--session", session).returncode, 0)
        other = chat("--session", session, "--model", DEFAULT)
        self.assertEqual(other.returncode, 1)
        self.assertIn("small", other.stderr)
        none = chat("--model", "nosuch")
        self.assertEqual(none.returncode, 1)
        self.assertIn("nosuch", none.stderr)

    def test_operators_see_which_model_is_whose(self) -> None:
        self.start(DEFAULT, "small")
        told(self.client().create_session(model="small", label="mine").turn(
            TEXTS[0], generation=GREEDY))
        models = json.loads(self.run_tool("--json", "model", "show"))
        self.assertEqual([(m["name"], m["default"]) for m in models],
                         [(DEFAULT, True), ("small", False)])
        self.assertEqual(models[1]["layers"], LAYERS)
        self.assertRegex(self.run_tool("session", "ls"), r"\bsmall +mine\b")
        figures = json.loads(self.run_tool("--json", "stats"))
        self.assertGreater(figures["model.small.engine_steps_total"], 0)
        self.assertEqual(figures[f"model.{DEFAULT}.engine_steps_total"], 0)
        self.assertEqual(figures["kv_slots_total"],
                         figures["model.small.kv_slots_total"]
                         + figures[f"model.{DEFAULT}.kv_slots_total"])

    def test_prometheus_has_the_figures_of_all_and_of_each(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % probe.getsockname()[1]
        self.start(DEFAULT, "small", flags=("--metrics-listen", address))
        told(self.client().create_session(model="small").turn(TEXTS[0], generation=GREEDY))
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as reply:
            page = reply.read().decode()
        name = "kairos_model_engine_steps_total"
        steps = dict(re.findall(r'(?m)^%s\{model="([^"]+)"\} (\S+)$' % name, page))
        self.assertEqual(set(steps), {DEFAULT, "small"})
        self.assertEqual(float(steps[DEFAULT]), 0)
        self.assertGreater(float(steps["small"]), 0)
        self.assertEqual(page.count(f"# TYPE {name} counter"), 1)
        self.assertIn(f"\nkairos_engine_steps_total {steps['small']}\n", page)

    def test_one_model_under_two_names_is_refused(self) -> None:
        config = self.daemon.folder + "/kairos.toml"
        with open(config, "w") as file:
            file.write(f'[[extra_model]]\nname = "again"\npath = "{live_daemon.model_path()}"\n')
        done = subprocess.run(
            [os.environ["KAIROSD"], "--config", config, "--model", str(live_daemon.model_path()),
             "--socket", self.daemon.socket, "--catalog-path", self.daemon.catalog], text=True,
            capture_output=True, timeout=300)
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn(f"[[extra_model]] again: is the same model as {DEFAULT}", done.stderr)


if __name__ == "__main__":
    live_daemon.main()
