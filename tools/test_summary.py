#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the cases of a ctest run and prints the closing line of tools/test.

  test_summary.py TESTS.xml CASES_FOLDER CTEST_STATUS

TESTS.xml is ctest's JUnit file. A GoogleTest program also leaves CASES_FOLDER/NAME.xml: then its
cases are counted, else the ctest test counts as one. A program that failed although its cases
passed (a leak, a crash at exit) counts as one failure more. Exits 1 unless something ran and
nothing failed.
"""
import pathlib
import sys
import xml.etree.ElementTree as tree


def cases_of(path):
    """(passed, failed names, skipped names) of one GoogleTest report, or None."""
    try:
        root = tree.parse(path).getroot()
    except (OSError, tree.ParseError):
        return None
    passed, failed, skipped = 0, [], []
    for case in root.iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None:
            failed.append(name)
        elif case.find("skipped") is not None or case.get("result") == "skipped":
            message = case.find("skipped")
            words = "" if message is None else (message.get("message") or "").strip()
            skipped.append(name + (": " + words.splitlines()[-1] if words else ""))
        elif case.get("status") == "run":
            passed += 1
        else:
            skipped.append(f"{name}: disabled")
    return passed, failed, skipped


def count(tests_path, cases_folder):
    passed, failed, skipped = 0, [], []
    for test in tree.parse(tests_path).getroot().iter("testcase"):
        name, status = test.get("name"), test.get("status")
        cases = cases_of(cases_folder / f"{name}.xml")
        if status in ("notrun", "disabled"):
            # A program that is missing is a failure; one that returned its skip code is not.
            message = test.find("skipped")
            words = "" if message is None else message.get("message") or ""
            if "SKIP" in words.upper() or status == "disabled":
                skipped.append(name)
            else:
                failed.append(f"{name}: {words or 'did not run'}")
        elif cases is None:
            if status == "fail":
                failed.append(name)
            else:
                passed += 1
        else:
            passed += cases[0]
            failed += [f"{name}: {case}" for case in cases[1]]
            skipped += [f"{name}: {case}" for case in cases[2]]
            if status == "fail" and not cases[1]:
                failed.append(f"{name}: the program failed although its cases passed")
    return passed, failed, skipped


def main():
    tests_path, cases_folder, status = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    try:
        passed, failed, skipped = count(tests_path, cases_folder)
    except (OSError, tree.ParseError) as error:
        print(f"error: no readable test report: {error}", file=sys.stderr)
        return 1
    if status != 0 and not failed:
        failed.append(f"ctest ended with status {status}")
    for title, names in (("skipped", skipped), ("failed", failed)):
        if names:
            print(f"{title}:", *names, sep="\n  ", file=sys.stderr)
    sys.stderr.flush()
    tail = f", {len(skipped)} skipped" if skipped else ""
    print(f"{passed} passed, {len(failed)} failed{tail}")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
