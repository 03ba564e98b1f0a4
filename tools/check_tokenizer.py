#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares kairos-tokenize with other tokenizers on many texts and reports how many agree.

References: `tokenizers`, or for SentencePiece's vocabularies `sentencepiece` (both given the GGUF
file's own tokens), and, where it is installed, llama-cpp-python. Needs the packages gguf and
tokenizers, or sentencepiece and protobuf.
Usage: check_tokenizer.py --binary build/kairos-tokenize --model M.gguf [--data FOLDER] [--random N]
"""
import argparse
import glob
import json
import random
import subprocess
import sys

from tokenizer_references import (HARD_TEXTS, SPM_TEXTS, every_code_point, gguf_vocabulary,
                                  known_differences, random_texts, references_of,
                                  vocabulary_texts)


def kairos_ids(binary, model, texts, special):
    """Ids and dropped bytes of each text."""
    data = bytearray()
    for text in texts:
        encoded = text.encode("utf-8")
        data += b"%d %d\n" % (len(encoded), special) + encoded
    run = subprocess.run([binary, model], input=bytes(data), capture_output=True, check=True)
    print("    " + run.stderr.decode().strip())
    rows = [[int(word) for word in line.split()] for line in run.stdout.decode().splitlines()]
    if len(rows) != len(texts):
        sys.exit("kairos-tokenize answered %d of %d texts" % (len(rows), len(texts)))
    return [row[1:] for row in rows], [row[0] for row in rows]


def data_texts(folder):
    texts = set()
    for path in sorted(glob.glob(folder + "/*.jsonl")):
        for line in open(path, encoding="utf-8"):
            row = json.loads(line)
            for message in row["history"] + [row["turn"]]:
                texts.add(message["text"])
    return sorted(texts)


def compare(name, texts, special, arguments, references, is_known):
    """One line per reference; returns how many texts differ without a dropped byte or a reason."""
    print("%s, special tokens %s: %d texts" % (name, "on" if special else "off", len(texts)))
    ours, dropped = kairos_ids(arguments.binary, arguments.model, texts, special)
    total = 0
    for label, reference in references:
        theirs = reference(texts, special)
        differ = [i for i in range(len(texts)) if ours[i] != theirs[i]]
        lossy = [i for i in differ if dropped[i]]
        known = [i for i in differ if not dropped[i] and is_known(label, texts[i], special)]
        print("    %s: %d equal, %d differ (%d of them have dropped bytes, %d are known); "
              "%d tokens" % (label, len(texts) - len(differ), len(differ), len(lossy), len(known),
                             sum(map(len, ours))))
        for i in sorted(set(differ) - set(known))[:arguments.show]:
            print("      %r\n        ours   %s\n        theirs %s" % (texts[i][:200], ours[i][:40],
                                                                    theirs[i][:40]))
        total += len(differ) - len(lossy) - len(known)
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", help="folder of *.jsonl turn files")
    parser.add_argument("--random", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5)
    arguments = parser.parse_args()

    vocabulary = gguf_vocabulary(arguments.model)
    references = references_of(arguments.model)
    if "llama.cpp" not in dict(references):
        print("llama-cpp-python is not installed: that comparison is skipped")
    is_known = known_differences(vocabulary)

    differ = 0

    def compare_both(name, texts):
        nonlocal differ
        for special in (0, 1):
            differ += compare(name, texts, special, arguments, references, is_known)
    is_spm = vocabulary["model"] == "llama"
    compare_both("hard cases", HARD_TEXTS + (SPM_TEXTS if is_spm else []))
    if arguments.data:
        compare_both("data", data_texts(arguments.data))
    source = random.Random(arguments.seed)
    compare_both("random, seed %d" % arguments.seed, random_texts(source, arguments.random))
    if is_spm:
        compare_both("random tokens, seed %d" % arguments.seed,
                     vocabulary_texts(source, arguments.random, vocabulary))
    # Informative: libraries know different Unicode versions.
    compare("every code point", every_code_point(), 0, arguments, references, is_known)
    print("differences that count: %d" % differ)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
