#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails unless libkairos exports exactly what kairos.h declares and kairos.map lists, and needs
nothing but the C library. Usage: exported_symbols.py LIBRARY HEADER MAP"""
import re
import subprocess
import sys

ALLOWED_NEEDS = re.compile(r"^(libc\.so\.6|libm\.so\.6|libpthread\.so\.0|ld-linux-[\w-]+\.so\.\d)$")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(library):
    names = set()
    for line in run("nm", "-D", "--defined-only", library).splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":  # version nodes
            names.add(name.split("@")[0])
    return names


def difference(what, left, right):
    problems = [f"{what}: missing {name}" for name in sorted(left - right)]
    return problems + [f"{what}: unexpected {name}" for name in sorted(right - left)]


def main(library, header, version_map):
    text = re.sub(r"/\*.*?\*/", "", open(header).read(), flags=re.S)
    declared = set(re.findall(r"KAIROS_API[^;(]*?\b(kairos_\w+)\(", text))
    listed = set(re.findall(r"^\s*(kairos_\w+);", open(version_map).read(), re.M))
    problems = []
    if not declared:
        problems.append("no declaration found in the header")
    problems += difference("kairos.map against kairos.h", declared, listed)
    problems += difference("library against kairos.h", declared, exported(library))
    dynamic = run("readelf", "-d", library)
    for need in re.findall(r"NEEDED.*\[(.*)\]", dynamic):
        if not ALLOWED_NEEDS.match(need):
            problems.append(f"library needs {need}")
    if "[libkairos.so.1]" not in dynamic:
        problems.append("soname is not libkairos.so.1")
    print("\n".join(problems) or f"{len(declared)} symbols agree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
