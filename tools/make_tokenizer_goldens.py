#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/goldens/tokenizer/NAME.jsonl: [text, ids, ids with special tokens] per line.

The ids are those of llama.cpp; texts where it is known to go astray are left out. The other
package must agree, except where that one is, and on the one text where `tokenizers` joins what
stands on both sides of a byte that the vocabulary lacks.
All texts are our own. Needs the packages that check_tokenizer.py needs, and llama-cpp-python.
Usage: make_tokenizer_goldens.py --model M.gguf --output tests/goldens/tokenizer/smollm2.jsonl
"""
import argparse
import json
import random
import sys

from tokenizer_references import (HARD_TEXTS, SPM_TEXTS, gguf_vocabulary, known_differences,
                                  own_texts, random_texts, references_of, vocabulary_texts)

JOINED_ACROSS_LOST_BYTE = {".\x04."}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()

    references = dict(references_of(arguments.model))
    llama = references.pop("llama.cpp", None)
    if llama is None:
        sys.exit("llama-cpp-python is not installed")
    (label, other), = references.items()
    vocabulary = gguf_vocabulary(arguments.model)
    is_known = known_differences(vocabulary)
    source = random.Random(7)
    texts = HARD_TEXTS + own_texts(source, 60) + random_texts(source, 40)
    if vocabulary["model"] == "llama":
        texts += SPM_TEXTS + vocabulary_texts(source, 40, vocabulary)
    texts = [text for text in texts if not is_known("llama.cpp", text, 0)]
    plain, special = llama(texts, 0), llama(texts, 1)
    for mode, ids in ((0, plain), (1, special)):
        for text, ours, theirs in zip(texts, ids, other(texts, mode)):
            if (ours != theirs and text not in JOINED_ACROSS_LOST_BYTE
                    and not is_known(label, text, mode)):
                sys.exit("references differ on %r: %s and %s" % (text, ours, theirs))
    with open(arguments.output, "w", encoding="utf-8") as output:
        for row in zip(texts, plain, special):
            output.write(json.dumps(row, separators=(",", ":")) + "\n")
    print("%d texts" % len(texts))


if __name__ == "__main__":
    main()
