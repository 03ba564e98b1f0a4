#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of fixed kernels under cachegrind and compares them with those on record.

A slow-down shows without a clock, on any machine. Of each kernel, the instructions of one run are
those of eleven runs less those of one, by ten: what the program does besides cancels out.

  kernel_instructions.py PROGRAM          fails where a kernel takes over 3 % more, or 10 % less
  kernel_instructions.py PROGRAM --write  writes kernel_instructions.json anew

The record is of GCC 12 with the release flags; with another compiler the test is skipped (77). A
kernel that became much faster fails too, so that the record is renewed and the gain is kept.
"""
import concurrent.futures
import json
import pathlib
import re
import shutil
import subprocess
import sys

RECORD = pathlib.Path(__file__).with_suffix(".json")
MORE, LESS = 1.03, 0.90
SKIPPED = 77


def instructions(program: str, kernel: str, times: int) -> int:
    done = subprocess.run(
        ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
         program, kernel, str(times)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{kernel}: exit status {done.returncode}\n{done.stderr}")
    return int(re.search(r"I\s+refs:\s+([\d,]+)", done.stderr).group(1).replace(",", ""))


def one_run(program: str, kernel: str) -> int:
    return (instructions(program, kernel, 11) - instructions(program, kernel, 1)) // 10


def main() -> int:
    program = sys.argv[1]
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not installed")
        return SKIPPED
    names = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    probe = subprocess.run([program, names[0], "1"], check=False)
    if probe.returncode == SKIPPED:
        return SKIPPED
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        counts = dict(zip(names, pool.map(lambda name: one_run(program, name), names)))
    if "--write" in sys.argv:
        RECORD.write_text(json.dumps(counts, indent=2) + "\n", encoding="ascii")
        return 0
    record = json.loads(RECORD.read_text(encoding="ascii"))
    if set(record) != set(counts):
        print("the record has other kernels; write it anew")
        return 1
    missed = 0
    for name, count in counts.items():
        ratio = count / record[name]
        verdict = "ok" if LESS <= ratio <= MORE else "MISSED"
        missed += verdict != "ok"
        print(f"{name:20} {count:10} instructions, {ratio:.3f} of the record: {verdict}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
