#!/usr/bin/env python3
"""What ctest's results say.

    results.py summarise RESULTS.xml CASES   failures, skips, then counts: passed failed skipped
    results.py slowest FOLDER                the ten slowest tests of the results kept there

CASES has TEST.xml for each test that is a program of many cases: there each case counts.
"""
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SHOWN = 10


class Counts:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def passes(self):
        self.passed += 1

    def skips(self, name, why):
        self.skipped += 1
        print(f"skipped: {name}: {why}", file=sys.stderr)

    def fails(self, name, why):
        self.failed += 1
        print(f"--- FAILED: {name}\n{why}", file=sys.stderr)


def tests_of(file):
    return ElementTree.parse(file).getroot().iter("testcase")


def cases_of(file):
    """Those of a program that has ended; None where it did not come to its last one."""
    return list(tests_of(file)) if file.stat().st_size > 0 else None


def count_cases(counts, program, cases):
    for case in cases:
        name = ".".join(filter(None, (program, case.get("classname"), case.get("name"))))
        skip, failures = case.find("skipped"), case.findall("failure")
        if failures:
            counts.fails(name, "\n".join(each.text or "" for each in failures))
        elif skip is not None:  # its last line says why
            counts.skips(name, ((skip.text or "").strip().splitlines() or ["see its output"])[-1])
        else:
            counts.passes()


def count_program(counts, test, output, file):
    """A failed program counts by its cases, too, where it is a case that failed."""
    name, cases, ended_well = test.get("name"), cases_of(file), test.get("status") == "run"
    if cases is None and ended_well:
        counts.fails(name, "it ended with 0 before its last case")
    elif cases is None or not (ended_well or any(case.find("failure") is not None
                                                 for case in cases)):
        counts.fails(name, output)
    else:
        count_cases(counts, name, cases)


def summarise(results, folder):
    counts = Counts()
    for test in tests_of(results):
        name, output = test.get("name"), test.findtext("system-out") or ""
        skip, file = test.find("skipped"), Path(folder, f"{name}.xml")
        if skip is not None and "SKIP" in (skip.get("message") or ""):
            why = [line.partition("skipped: ")[2] for line in output.splitlines()]
            counts.skips(name, next(filter(None, why), "see its output"))
        elif file.exists():
            count_program(counts, test, output, file)
        elif test.get("status") == "run":
            counts.passes()
        else:
            counts.fails(name, output)
    print(counts.passed, counts.failed, counts.skipped)


def slowest(folder):
    found = [(float(test.get("time") or 0), file.stem, test.get("name"))
             for file in Path(folder).glob("*.xml") for test in tests_of(file)]
    for seconds, part, name in sorted(found, reverse=True)[:SHOWN]:
        print(f"{seconds:7.1f} s  {part}: {name}")


if __name__ == "__main__":
    {"summarise": summarise, "slowest": slowest}[sys.argv[1]](*sys.argv[2:])
