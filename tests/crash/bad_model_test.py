#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Model files that cannot be served: kairosd ends with 66 and words that name what is wrong. A chat
template that cannot be used does not keep a model from being served."""
from __future__ import annotations

import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import gguf_edit  # noqa: E402
import live_daemon  # noqa: E402

live_daemon.require_live()
import kairos  # noqa: E402

NO_INPUT = 66
DETAIL_TEMPLATE = 15


class BadModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="kairos-models-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        model = gguf_edit.Gguf(str(live_daemon.model_path()))
        model.keep_layers(2)
        cls.small = model.write(cls.folder + "/small.gguf")

    def model(self) -> gguf_edit.Gguf:
        return gguf_edit.Gguf(self.small)

    def path(self) -> str:
        return f"{self.folder}/{self.id().rsplit('.', 1)[-1]}.gguf"

    def write(self, data: bytes) -> str:
        pathlib.Path(self.path()).write_bytes(data)
        return self.path()

    def assert_refused(self, path: str, *words: str) -> None:
        daemon = live_daemon.LiveDaemon(model=path)
        self.addCleanup(daemon.close)
        process = daemon.spawn()
        try:
            code = process.wait(live_daemon.WATCHDOG_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.fail(f"{path} was not refused")
        log = daemon.log_text()
        self.assertEqual(code, NO_INPUT, log)
        for word in words:
            self.assertIn(word, log)

    def damage_float(self, tensor: gguf_edit.Tensor, index: int, value: float) -> None:
        raw = bytearray(tensor.data)
        struct.pack_into("<f", raw, 4 * index, value)
        tensor.data = memoryview(bytes(raw))

    def test_that_is_missing(self) -> None:
        self.assert_refused(self.path(), self.path(), "No such file")

    def test_that_is_empty(self) -> None:
        self.assert_refused(self.write(b""), self.path(), "empty")

    def test_that_is_foreign(self) -> None:
        self.assert_refused(self.write(b"\x7fELF" + bytes(4096)), "GGUF")

    def test_that_is_truncated_in_its_header(self) -> None:
        data = pathlib.Path(self.small).read_bytes()
        self.assert_refused(self.write(data[:17]), "header")

    def test_that_is_truncated_in_its_metadata(self) -> None:
        data = pathlib.Path(self.small).read_bytes()
        self.assert_refused(self.write(data[:100_000]), "file")

    def test_that_is_truncated_in_a_tensor(self) -> None:
        data = pathlib.Path(self.small).read_bytes()
        self.assert_refused(self.write(data[:-100_000]), "tensor", "file")

    def test_of_another_architecture(self) -> None:
        model = self.model()
        model.set_string("general.architecture", "mamba")
        self.assert_refused(model.write(self.path()), "mamba", "llama")

    def test_with_an_unsupported_type(self) -> None:
        model = self.model()
        tensor = model.tensor("blk.1.ffn_down.weight")
        tensor.type = 19  # IQ1_S: a type of the format that no kernel of ours reads
        values = tensor.extents[0] * tensor.extents[1]
        tensor.extents = [256, values // 256]
        tensor.data = memoryview(bytes(values // 256 * 50))
        self.assert_refused(model.write(self.path()), "blk.1.ffn_down.weight")

    def test_with_a_type_nobody_knows(self) -> None:
        model = self.model()
        model.tensor("blk.1.ffn_down.weight").type = 250
        self.assert_refused(model.write(self.path()), "blk.1.ffn_down.weight", "250")

    def test_with_a_weight_that_is_not_a_number(self) -> None:
        model = self.model()
        self.damage_float(model.tensor("blk.1.attn_norm.weight"), 7, float("nan"))
        self.assert_refused(model.write(self.path()), "blk.1.attn_norm.weight", "not a number")

    def test_with_an_infinite_weight(self) -> None:
        model = self.model()
        self.damage_float(model.tensor("output_norm.weight"), 0, float("inf"))
        self.assert_refused(model.write(self.path()), "output_norm.weight", "infinite")

    def test_with_a_scale_that_is_not_a_number(self) -> None:
        model = self.model()
        tensor = model.tensor("blk.0.ffn_up.weight")
        raw = bytearray(tensor.data)
        struct.pack_into("<H", raw, 0, 0x7e00)  # the half-precision scale of its first block
        tensor.data = memoryview(bytes(raw))
        self.assert_refused(model.write(self.path()), "blk.0.ffn_up.weight")

    def test_without_one_of_its_tensors(self) -> None:
        model = self.model()
        model.tensors = [t for t in model.tensors if t.name != "blk.1.attn_q.weight"]
        self.assert_refused(model.write(self.path()), "blk.1.attn_q.weight")

    # -- templates --

    def served(self, template: str) -> live_daemon.LiveDaemon:
        model = self.model()
        model.set_string("tokenizer.chat_template", template)
        daemon = live_daemon.LiveDaemon(model=model.write(self.path()))
        self.addCleanup(daemon.close)
        return daemon.start()

    def assert_turn_works(self, daemon: live_daemon.LiveDaemon) -> None:
        with daemon.client() as client:
            turn = client.submit("Hi.", generation=kairos.Generation(max_tokens=4))
            turn.read()
            self.assertGreater(turn.result.usage.generated_tokens, 0)

    def test_with_a_template_that_loops_for_some_text_refuses_that_turn(self) -> None:
        loop = ("{% for a in range(100000) %}{% for b in range(100000) %}"
                "{% for c in range(100000) %}{% set x = c %}{% endfor %}{% endfor %}{% endfor %}")
        daemon = self.served(
            "{% for m in messages %}{% if m.content == 'loop' %}" + loop + "{% endif %}"
            "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
        with daemon.client() as client:
            session = client.create_session()
            session.turn("Hi.", generation=kairos.Generation(max_tokens=4)).read()
            for _ in range(2):
                with self.assertRaises(kairos.KairosError) as caught:
                    session.turn("loop", generation=kairos.Generation(max_tokens=4)).read()
                self.assertEqual(caught.exception.detail, DETAIL_TEMPLATE, caught.exception)
                self.assertTrue(str(caught.exception))
            self.assertEqual(session.stat().message_count, 2)
            session.turn("Still there?", generation=kairos.Generation(max_tokens=4)).read()
            self.assertEqual(session.stat().message_count, 4)

    def test_with_a_template_that_refuses_some_text_says_why(self) -> None:
        daemon = self.served(
            "{% for m in messages %}{% if m.content == 'work' %}"
            "{{ raise_exception('only for weekends') }}{% endif %}"
            "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}")
        with daemon.client() as client:
            with self.assertRaises(kairos.KairosError) as caught:
                client.submit("work", generation=kairos.Generation(max_tokens=4)).read()
            self.assertEqual(caught.exception.detail, DETAIL_TEMPLATE)
            self.assertIn("only for weekends", str(caught.exception))
        self.assert_turn_works(daemon)

    def test_with_a_template_that_always_loops_is_served_without_it(self) -> None:
        daemon = self.served("{% for a in range(100000) %}{% for b in range(100000) %}"
                             "{% for c in range(100000) %}x{% endfor %}{% endfor %}{% endfor %}")
        self.assertIn("template_refused", daemon.log_text())
        self.assert_turn_works(daemon)

    def test_with_a_template_that_is_no_template_is_served_without_it(self) -> None:
        daemon = self.served("{% for broken %}{{ ")
        self.assertIn("template_refused", daemon.log_text())
        self.assert_turn_works(daemon)


if __name__ == "__main__":
    live_daemon.main()
