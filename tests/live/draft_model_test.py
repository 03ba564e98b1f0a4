#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kairosd with a draft model: what it says, what it tells operators, and what it refuses."""
from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402
from gguf_edit import Gguf  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import Generation  # noqa: E402

CTL = os.environ["KAIROSCTL"]
LAYERS = 2
NO_INPUT, CONFIG = 66, 78
TOKENS = 96
WAYS = (Generation(max_tokens=TOKENS, logits_hash=True, ignore_eos=True),
        Generation(max_tokens=TOKENS, logits_hash=True, ignore_eos=True, temperature=0.9, seed=7))


class DraftModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.mkdtemp(prefix="kairos-draft-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cut = Gguf(live_daemon.model_path())
        cut.keep_layers(LAYERS)
        cls.draft = cut.write(cls.folder + "/draft.gguf")
        cut.replace_text("tokenizer.ggml.tokens", 5, "<zq>")
        cls.stranger = cut.write(cls.folder + "/stranger.gguf")
        # Says what the draft model says and takes fifteen times as long.
        slow = Gguf(live_daemon.model_path())
        slow.silence_layers(LAYERS)
        cls.served = slow.write(cls.folder + "/served.gguf")

    def daemon(self, *flags: str) -> live_daemon.LiveDaemon:
        daemon = live_daemon.LiveDaemon(model=self.served, extra=flags)
        self.addCleanup(daemon.close)
        return daemon

    def said(self, daemon: live_daemon.LiveDaemon) -> list[tuple[str, int]]:
        with daemon.client() as client:
            told = []
            for way in WAYS:
                session = client.create_session()
                for text in ("Tell me of a river.", "And of its sea?"):
                    turn = session.turn(text, generation=way)
                    told.append((turn.read(), turn.result.logits_hash))
            # Two at once.
            turns = [client.create_session().turn("A list of towns.", generation=way)
                     for way in WAYS]
            told += [(turn.read(), turn.result.logits_hash) for turn in turns]
        return told

    def test_says_the_same_and_tells_what_it_guessed(self) -> None:
        without = self.daemon()
        without.start()
        wanted = self.said(without)
        self.assertEqual(without.stats()["engine_model_drafted_tokens_total"], 0)
        without.terminate()

        daemon = self.daemon("--engine-draft-model", self.draft)
        daemon.start()
        self.assertEqual(self.said(daemon), wanted)
        figures = daemon.stats()
        drafted = figures["engine_model_drafted_tokens_total"]
        self.assertGreater(drafted, TOKENS)
        self.assertGreater(figures["engine_model_accepted_tokens_total"], 0.9 * drafted)
        self.assertGreaterEqual(figures["engine_drafted_tokens_total"], drafted)
        self.assertGreater(figures["engine_model_draft_seconds_total"], 0)
        shown = subprocess.run([CTL, "--json", "model", "show"], check=True, text=True,
                               capture_output=True, timeout=60,
                               env={**os.environ, "KAIROS_SOCKET": daemon.socket}).stdout
        [model] = json.loads(shown)
        self.assertEqual((model["draft_model"], model["draft_model_layers"]),
                         (self.draft, LAYERS))
        self.assertLessEqual(model["draft_model_kv_bytes"], 256 << 20)

    def test_refuses_a_model_of_another_vocabulary(self) -> None:
        words = "engine.draft_model: ", "token 5 is \"<zq>\", not "
        self.assert_refused(NO_INPUT, "draft_model", *words, draft=self.stranger)

    def test_refuses_too_little_memory_for_its_kv(self) -> None:
        flags = "--engine-draft-kv-memory", "1MiB"
        daemon = self.daemon("--engine-draft-model", self.served, *flags)
        words = "engine.draft_kv_memory of 1048576 bytes holds", "raise engine.draft_kv_memory"
        self.assert_ends(daemon, CONFIG, *words)

    def test_refuses_what_is_no_model(self) -> None:
        self.assert_refused(NO_INPUT, "draft_model", "engine.draft_model: ", draft="/dev/null")

    def assert_refused(self, status: int, check: str, *words: str, draft: str) -> None:
        daemon = self.daemon("--engine-draft-model", draft)
        self.assert_ends(daemon, status, *words)
        self.assert_ends(daemon, status, *words, flag="--check-config")
        done = subprocess.run([CTL, "doctor", "--json", *daemon.arguments()[1:]], text=True,
                              capture_output=True, timeout=60)
        [row] = [row for row in json.loads(done.stdout) if row["check"] == check]
        self.assertEqual((row["severity"], row["exit_status"]), ("fail", status))
        for word in words:
            self.assertIn(word, row["words"])

    def assert_ends(self, daemon: live_daemon.LiveDaemon, status: int, *words: str,
                    flag: str = "") -> None:
        arguments = daemon.arguments() + ([flag] if flag else [])
        done = subprocess.run(arguments, text=True, capture_output=True,
                              timeout=live_daemon.WATCHDOG_S)
        self.assertEqual(done.returncode, status, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
