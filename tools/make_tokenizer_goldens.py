#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/goldens/tokenizer/NAME.jsonl: [text, ids, ids with special tokens] per line.

The ids are those of llama.cpp. The `tokenizers` package must agree, except on the one text where it
joins what stands on both sides of a byte that the vocabulary lacks. All texts are our own.
Needs the packages gguf, tokenizers and llama-cpp-python.
Usage: make_tokenizer_goldens.py --model M.gguf --output tests/goldens/tokenizer/smollm2.jsonl
"""
import argparse
import json
import random
import sys

from tokenizer_references import (HARD_TEXTS, llama_cpp_reference, own_texts, random_texts,
                                  tokenizers_reference)

JOINED_ACROSS_LOST_BYTE = {".\x04."}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()

    llama = llama_cpp_reference(arguments.model)
    if llama is None:
        sys.exit("llama-cpp-python is not installed")
    other = tokenizers_reference(arguments.model)
    source = random.Random(7)
    texts = HARD_TEXTS + own_texts(source, 60) + random_texts(source, 40)
    plain, special = llama(texts, 0), llama(texts, 1)
    for mode, ids in ((0, plain), (1, special)):
        for text, ours, theirs in zip(texts, ids, other(texts, mode)):
            if ours != theirs and text not in JOINED_ACROSS_LOST_BYTE:
                sys.exit("references differ on %r: %s and %s" % (text, ours, theirs))
    with open(arguments.output, "w", encoding="utf-8") as output:
        for row in zip(texts, plain, special):
            output.write(json.dumps(row, separators=(",", ":")) + "\n")
    print("%d texts" % len(texts))


if __name__ == "__main__":
    main()
