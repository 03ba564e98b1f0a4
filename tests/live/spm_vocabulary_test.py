#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real kairosd with a SentencePiece vocabulary: that of tests/goldens/tokenizer/spm_small.gguf,
which leads text with spaces, on the test model's first layer. It was trained with another one, so
what is said means nothing; what is held to a grammar and what is kept of a history can be told."""
from __future__ import annotations

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import live_daemon  # noqa: E402
from gguf_edit import Gguf  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402
from kairos import Finish, Generation, Message  # noqa: E402

SMALL = live_daemon.ROOT / "tests/goldens/tokenizer/spm_small.gguf"
UNUSED = 5  # of tokenizer.ggml.token_type
SPELLED = "  caf\u00e9 \U0001f600 a\u2581b<note>c  d<s>"
ASKED = "\u2581What is  this\u2581\u2581?\n<note> \U0001f600</s>"


def write_model(path: str) -> str:
    model, small = Gguf(live_daemon.model_path()), Gguf(str(SMALL))
    model.keep_layers(1)
    (rows,) = model.tensor("token_embd.weight").extents[1:]
    for key in [key for key in model.values if key.startswith("tokenizer.")]:
        del model.values[key]
    model.values.update((key, value) for key, value in small.values.items()
                        if key.startswith("tokenizer."))
    missing = range(small.array_size("tokenizer.ggml.tokens"), rows)
    model.extend_array("tokenizer.ggml.tokens", [f"<no{i}>" for i in missing])
    model.extend_array("tokenizer.ggml.scores", [-1e9] * len(missing))
    model.extend_array("tokenizer.ggml.token_type", [UNUSED] * len(missing))
    return model.write(path)


class SpmVocabulary(live_daemon.LiveTest):
    @classmethod
    def setUpClass(cls) -> None:
        cls.daemon = live_daemon.LiveDaemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.model = write_model(cls.daemon.folder + "/spm.gguf")
        cls.daemon.start()

    def spell(self, session: kairos.Session, text: str) -> kairos.Turn:
        """A turn that has one possible answer."""
        turn = session.turn(text, generation=Generation(max_tokens=200, grammar=(
            f"start: {json.dumps(SPELLED, ensure_ascii=False)}")))
        self.assertEqual(turn.read(), SPELLED)
        self.assertEqual(turn.result.finish, Finish.STOP)
        return turn

    def test_text_that_a_grammar_forces_comes_byte_for_byte(self) -> None:
        turn = self.spell(self.client().create_session(), ASKED)
        self.assertGreater(turn.result.usage.forced_tokens, 10)

    def test_json_is_valid_whatever_is_drawn(self) -> None:
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20},
                                                   "\u00e9\u2581": {"type": "integer"}},
                  "required": ["name", "\u00e9\u2581"], "additionalProperties": False}
        for seed in range(5):
            turn = self.client().submit("Write.", generation=Generation(
                max_tokens=150, temperature=1.5, seed=seed, json_schema=json.dumps(schema)))
            self.assertEqual(list(json.loads(turn.read())), ["name", "\u00e9\u2581"])

    def test_a_stop_string_ends_a_reply_inside_its_tokens(self) -> None:
        turn = self.client().submit("Write.", generation=Generation(
            max_tokens=200, stop=("a\u2581b",),
            grammar=f"start: {json.dumps(SPELLED, ensure_ascii=False)}"))
        self.assertEqual(turn.read(), SPELLED[:SPELLED.index("a\u2581b")])

    def test_a_history_is_cut_where_a_message_ends(self) -> None:
        """A message changed later leaves the tokens that a session without it would have."""
        greedy = Generation(max_tokens=12, logits_hash=True)

        def told(turn: kairos.Turn) -> tuple[str, int, int]:
            return turn.read(), turn.result.logits_hash, turn.result.usage.prompt_tokens

        cut, straight = self.client().create_session(), self.client().create_session()
        self.spell(cut, ASKED)
        cut.turn("And\u2581that?", generation=greedy).read()
        self.spell(straight, ASKED)
        changed = cut.turn([Message("user", ASKED), Message("assistant", SPELLED),
                            Message("user", "And  \u2581this?")],
                           whole_history=True, generation=greedy)
        self.assertEqual(told(changed),
                         told(straight.turn("And  \u2581this?", generation=greedy)))
        self.assertEqual(changed.result.first_difference, 2)


if __name__ == "__main__":
    live_daemon.main()
