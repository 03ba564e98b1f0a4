#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/goldens/architectures/: tiny random models, and logits that transformers computes.

NAME.gguf is made by llama.cpp's converter (as in the source package of llama-cpp-python), so that a
mistake of our own loader cannot cancel itself. NAME.txt has lines "tokens ID ..." and
"logits POSITION VALUE ...", in float32. Weights are whole multiples of 1/64, seeded.

Needs the packages torch, transformers, gguf and numpy (tools/peers --reference).
Usage: make_architecture_goldens.py --converter FOLDER --output tests/goldens/architectures
  FOLDER holds convert_hf_to_gguf.py: vendor/llama.cpp of the unpacked source package
"""
import argparse
import json
import pathlib
import sys
import tempfile

import numpy
import torch
import transformers

VOCABULARY = 64
TOKENS = 300
POSITIONS = [0, 1, 31, 32, 39, 40, 41, 63, 64, 127, 255, 256, 257, 295, 299]
COMMON = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64,
          "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
          "head_dim": 32, "max_position_embeddings": 512, "attn_implementation": "eager",
          "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}


def configurations() -> dict[str, transformers.PretrainedConfig]:
    return {
        "llama3": transformers.LlamaConfig(
            **COMMON, rope_parameters={
                "rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0,
                "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 128}),
        "mistral": transformers.MistralConfig(
            **{**COMMON, "num_attention_heads": 4, "num_key_value_heads": 2},
            sliding_window=None, tie_word_embeddings=False),
        "qwen2": transformers.Qwen2Config(
            **COMMON, tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": 20000.0}),
        "qwen3": transformers.Qwen3Config(
            **{**COMMON, "num_attention_heads": 4, "num_key_value_heads": 2},
            tie_word_embeddings=True),
        # Layers 0 to 4 and 6 see 40 tokens, layer 5 all.
        "gemma3": transformers.Gemma3TextConfig(
            **{**COMMON, "num_hidden_layers": 7}, sliding_window=40, query_pre_attn_scalar=32,
            tie_word_embeddings=True),
    }


def random_model(config: transformers.PretrainedConfig, seed: int) -> torch.nn.Module:
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    random = numpy.random.default_rng(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            steps = random.normal(0, 12, weight.shape).round()
            values = torch.from_numpy(steps / 64).to(torch.float32)
            if name.endswith("norm.weight"):  # Gemma's are stored less one
                values = values + (0.0 if config.model_type.startswith("gemma") else 1.0)
            weight.copy_(values)
    return model


def write_gguf(converter: pathlib.Path, model: torch.nn.Module, output: pathlib.Path) -> None:
    """Through the converter's own classes; only the vocabulary is a stand-in."""
    sys.path[:0] = [str(converter / "gguf-py"), str(converter)]
    import conversion
    from conversion.base import ModelBase
    import gguf

    def stand_in(self) -> None:
        self.gguf_writer.add_tokenizer_model("gpt2")
        self.gguf_writer.add_tokenizer_pre("gpt-2")
        self.gguf_writer.add_token_list([f"t{i}" for i in range(VOCABULARY)])
        self.gguf_writer.add_token_types([gguf.TokenType.NORMAL] * VOCABULARY)
        self.gguf_writer.add_token_merges([])

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps({
            "model": {"vocab": {f"t{i}": i for i in range(VOCABULARY)}}, "added_tokens": []}))
        hparams = ModelBase.load_hparams(pathlib.Path(folder), False)
        kind = conversion.get_model_class(hparams["architectures"][0])
        kind.set_vocab = stand_in
        converted = kind(pathlib.Path(folder), gguf.LlamaFileType.ALL_F32, output,
                         is_big_endian=False, use_temp_file=False, eager=True, hparams=hparams)
        converted.write()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--converter", required=True, type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for seed, (name, config) in enumerate(configurations().items(), start=1):
        model = random_model(config, seed)
        write_gguf(args.converter, model, args.output / f"{name}.gguf")
        tokens = numpy.random.default_rng(100 + seed).integers(0, VOCABULARY, TOKENS)
        with torch.no_grad():
            logits = model(torch.from_numpy(tokens)[None]).logits[0].numpy()
        with open(args.output / f"{name}.txt", "w", encoding="ascii") as out:
            out.write("tokens " + " ".join(map(str, tokens)) + "\n")
            for position in POSITIONS:
                values = " ".join(f"{value:.7g}" for value in logits[position])
                out.write(f"logits {position} {values}\n")
        print(f"{name}: largest logit {numpy.abs(logits).max():.1f}")


if __name__ == "__main__":
    main()
