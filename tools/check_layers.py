#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when a file includes what its layer may not see. The rules are in tools/layers.txt.

  check_layers.py [ROOT]

Checks: quoted includes are paths from the root (or kairos/kairos.h) to files that exist, and go to
a folder that the includer's line names; outside headers are included only inside their fence; every
source file outside the free folders is covered by a line.
"""
import fnmatch
import pathlib
import re
import sys

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
SUFFIXES = {".h", ".hpp", ".c", ".cc", ".cpp", ".cu", ".cuh", ".inc"}
FREE = {"tests", "bench", "tools", "bindings"}
PUBLIC_HEADER_ROOT = "capi/include"


class Rules:
    def __init__(self, text):
        self.allowed = {}  # folder -> set of folders
        self.fences = []   # (header pattern, places)
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.split("#")[0].strip()
            if not line:
                continue
            if line.startswith("fence:"):
                _, pattern, places = (part.strip() for part in line.split(":", 2))
                self.fences.append((pattern, places.split()))
                continue
            folder, colon, rest = line.partition(":")
            folder, names = folder.strip(), set(rest.split())
            if not colon or folder in self.allowed:
                sys.exit(f"layers.txt:{number}: expected one `folder: folders` line per folder")
            unknown = names - self.allowed.keys()
            if unknown:
                sys.exit(f"layers.txt:{number}: {folder} names {sorted(unknown)} before they are"
                         " defined")
            self.allowed[folder] = names | {folder}

    def layer_of(self, path):
        matches = [f for f in self.allowed if path.startswith(f + "/")]
        return max(matches, key=len, default=None)

    def fence_of(self, header):
        """Places of every fence line that matches, or None where none does."""
        found = [places for pattern, places in self.fences if fnmatch.fnmatchcase(header, pattern)]
        return sum(found, []) if found else None


def is_inside(path, places):
    return any(path == place or path.startswith(place + "/") for place in places)


def without_comments(text):
    """Keeps the newlines, so that line numbers stay right."""
    return COMMENT.sub(lambda match: "\n" * match.group(0).count("\n"), text)


def violations(root, rules):
    """Yields one line of text per violation."""
    tops = sorted({folder.split("/")[0] for folder in rules.allowed})
    files = sorted(p for top in tops for p in (root / top).rglob("*") if p.suffix in SUFFIXES)
    for file in files:
        path = file.relative_to(root).as_posix()
        layer = rules.layer_of(path)
        if layer is None:
            yield f"{path}:1: no line of tools/layers.txt covers this file"
            continue
        text = without_comments(file.read_text(errors="replace"))
        for match in INCLUDE.finditer(text):
            where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
            quoted, outside = match.groups()
            problem = (check_quoted(root, rules, layer, quoted) if quoted
                       else check_outside(rules, path, layer, outside))
            if problem:
                yield f"{where}: {problem}"


def check_quoted(root, rules, layer, target):
    if target.startswith("kairos/"):
        target = f"{PUBLIC_HEADER_ROOT}/{target}"
    if not (root / target).is_file():
        return f'"{target}" is not a file, seen from the root'
    owner = rules.layer_of(target)
    if owner is None:
        return f'"{target}" lies in no layer'
    if owner not in rules.allowed[layer]:
        return f'{layer} may not include {owner} ("{target}")'
    return None


def check_outside(rules, path, layer, header):
    if header.startswith("kairos/") and layer != "examples":
        return f"write <{header}> with quotes"
    places = rules.fence_of(header)
    if places is not None and not is_inside(path, places):
        return f"<{header}> may be included only in: {', '.join(places) or 'free folders'}"
    return None


def main():
    here = pathlib.Path(__file__).resolve().parent
    root = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else here.parent
    rules = Rules((root / "tools/layers.txt").read_text())
    found = list(violations(root, rules))
    print("\n".join(found) if found else "layers: every include keeps to tools/layers.txt")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
