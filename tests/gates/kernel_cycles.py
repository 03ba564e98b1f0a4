#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cycles of the kernels' inner loops, by llvm-mca's model of a processor, against those on record.

A slow-down shows without a clock and without the processor. A loop's body is cut out of the built
object (kernel_loops.cc); a count is cycles for one block of weights, or one pair of an INT8 tile.

  kernel_cycles.py TIER=OBJECT...          fails where a loop takes over 3 % more, or 10 % less, or
                                           where AVX-VNNI takes longer than AVX2
  kernel_cycles.py TIER=OBJECT... --write  writes kernel_cycles.json anew

The record is of GCC 12 with the release flags and of llvm-mca 16; without that the test is skipped
(77). A loop that became much faster fails too, so that the record is renewed and the gain is kept.
"""
import concurrent.futures
import json
import pathlib
import re
import shutil
import subprocess
import sys

RECORD = pathlib.Path(__file__).with_suffix(".json")
MCA = "llvm-mca-16"
MORE, LESS = 1.03, 0.90
SKIPPED = 77
PASSES = 200
PROCESSORS = {"avx2": "alderlake", "avx_vnni": "alderlake", "avx512_vnni": "icelake-server"}
DOTS = {"vpdpbusd", "vpdpwssd", "vpmaddubsw", "vpmaddwd"}
FUNCTION = re.compile(r"^[0-9a-f]+ <(\w+(?:_\d|_tile))>:$")
INSTRUCTION = re.compile(r"^\s+([0-9a-f]+):\t(.*)$")
JUMP = re.compile(r"j\w+\s+([0-9a-f]+) ")


def functions(built: str) -> dict[str, list[tuple[int, str]]]:
    """Address and text of the instructions of each function that kernel_loops.cc names."""
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", built], capture_output=True,
                             text=True, check=True).stdout
    found: dict[str, list[tuple[int, str]]] = {}
    current: list[tuple[int, str]] | None = None
    for line in listing.splitlines():
        if line.endswith(">:"):
            name = FUNCTION.match(line)
            current = found.setdefault(name[1], []) if name else None
        elif current is not None and (text := INSTRUCTION.match(line)):
            current.append((int(text[1], 16), text[2].split("#")[0].strip()))
    return found


def dots(body: list[str]) -> int:
    return sum(not DOTS.isdisjoint(line.split()) for line in body)


def inner_loop(name: str, code: list[tuple[int, str]]) -> list[str]:
    """The loop without jumps inside that has the most dots; its own jump is left out."""
    place = {address: i for i, (address, _) in enumerate(code)}
    texts = [text for _, text in code]
    loops = []
    for i, text in enumerate(texts):
        target = JUMP.match(text)
        start = place.get(int(target[1], 16), i) if target else i
        body = texts[start:i]
        if body and not any(line.startswith("j") for line in body):
            loops.append(body)
    loops.sort(key=dots)
    if not loops or dots(loops[-1]) == 0:
        sys.exit(f"{name}: no loop with dots was found")
    return loops[-1]


def units(body: list[str]) -> int:
    """Blocks or pairs of one pass: only attention takes several, of 64 bytes when they are wide."""
    wide = [line for line in body if line.startswith("vpmovsxbw")]
    return max(1, sum(64 if "zmm" in line else 32 for line in wide) // 64)


def cycles(body: list[str], processor: str) -> float:
    done = subprocess.run([MCA, f"-mcpu={processor}", f"-iterations={PASSES}",
                           "--instruction-info=0", "--resource-pressure=0"],
                          input="\n".join(body), capture_output=True, text=True, check=False)
    total = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    if done.returncode != 0 or total is None:
        sys.exit(f"{processor}: {done.stderr}")
    return round(int(total[1]) / PASSES / units(body), 2)


def measured(objects: dict[str, str]) -> dict[str, float]:
    jobs = {}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for tier, built in objects.items():
            for name, code in functions(built).items():
                body = inner_loop(f"{tier} {name}", code)
                jobs[f"{tier} {name}"] = pool.submit(cycles, body, PROCESSORS[tier])
        return {name: job.result() for name, job in jobs.items()}


def main() -> int:
    objects = dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)
    if shutil.which(MCA) is None or shutil.which("objdump") is None:
        print(f"skipped: {MCA} or objdump is not installed")
        return SKIPPED
    counts = measured(objects)
    if "--write" in sys.argv:
        RECORD.write_text(json.dumps(counts, indent=2) + "\n", encoding="ascii")
    record = json.loads(RECORD.read_text(encoding="ascii"))
    if set(record) != set(counts):
        print("the record has other loops; write it anew")
        return 1
    missed = 0
    for name, count in counts.items():
        ratio = count / record[name]
        lost = count > counts.get(name.replace("avx_vnni", "avx2"), count)
        verdict = "MISSED" if lost or not LESS <= ratio <= MORE else "ok"
        missed += verdict != "ok"
        print(f"{name:34} {count:7.2f} cycles, {ratio:.3f} of the record: {verdict}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
