#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/goldens/weights/rows.txt: "TYPE COLUMNS ROW VALUES" per line.

ROW is a row of 256 weights as GGUF stores them, random but for scales of a usual size; VALUES are
what the package gguf makes of it, float32, little-endian. Both are in hex.
Needs the packages gguf and numpy.
Usage: make_weight_goldens.py --output tests/goldens/weights/rows.txt
"""
import argparse

import gguf
import numpy
from gguf import quants

COLUMNS = 256
# Bytes of each block that are halves: scales, offsets.
HALVES = {"F16": range(0, 2, 2), "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
          "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def random_row(name: str, random: numpy.random.Generator) -> bytes:
    if name == "F32":
        return random.normal(0, 0.1, COLUMNS).astype("<f4").tobytes()
    if name == "BF16":
        return (random.normal(0, 0.1, COLUMNS).astype("<f4").view("<u4") >> 16).astype(
            "<u2").tobytes()
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    row = b""
    for _ in range(COLUMNS // elements):
        block = bytearray(random.integers(0, 256, size, dtype=numpy.uint8).tobytes())
        for at in HALVES[name]:
            block[at:at + 2] = random.normal(0, 0.01, 1).astype("<f2").tobytes()
        row += bytes(block)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()
    random = numpy.random.default_rng(7)
    with open(arguments.output, "w", encoding="ascii") as output:
        for name in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K",
                     "Q6_K"):
            kind = gguf.GGMLQuantizationType[name]
            row = random_row(name, random)
            values = quants.dequantize(numpy.frombuffer(row, dtype=numpy.uint8), kind)
            output.write(f"{kind.value} {COLUMNS} {row.hex()} "
                         f"{values.astype('<f4').tobytes().hex()}\n")


if __name__ == "__main__":
    main()
