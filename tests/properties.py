#!/usr/bin/env python3
"""Draws every property test's cases anew, and more of them than scripts/test does.

usage: tests/properties.py [--build DIR] [--draws N] [--seconds S]

Each property (RC_GTEST_PROP) runs alone, until N cases have passed or S seconds are over. One that
fails is printed with the line that reproduces it.
"""

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "apps", "fakenvml", "bench-cuda", "tests")
PROPERTY = re.compile(r"RC_GTEST(_FIXTURE)?_PROP\((\w+),\s*(\w+)")
ENDED = 124  # of timeout(1): the time was over, and nothing had failed


def parse_arguments():
    parser = argparse.ArgumentParser(description="Draw more cases of every property test.")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", metavar="DIR")
    parser.add_argument("--draws", type=int, default=1000, metavar="N")
    parser.add_argument("--seconds", type=int, default=20, metavar="S")
    return parser.parse_args()


def properties():
    return {f"{suite}{'_RapidCheck' if fixture else ''}.{name}"
            for folder in FOLDERS for source in (ROOT / folder).rglob("*.cc")
            for fixture, suite, name in PROPERTY.findall(source.read_text())}


def programs(build):
    # test-objects/ has the objects of the same programs, for those of the sanitizers.
    return [path for path in sorted(build.rglob("*_test"))
            if path.is_file() and os.access(path, os.X_OK) and "test-objects" not in path.parts]


def tests_of(program):
    listing = subprocess.run([program, "--gtest_list_tests"], check=True, capture_output=True,
                             text=True).stdout
    suite = ""
    for line in listing.splitlines():
        if line.startswith("  "):
            yield suite + line.split()[0]
        else:
            suite = line.split()[0] if line.endswith(".") else ""


def draw(program, name, arguments):
    done = subprocess.run(
        ["timeout", str(arguments.seconds), program, f"--gtest_filter={name}"],
        env=os.environ | {"RC_PARAMS": f"max_success={arguments.draws}"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return name, done.returncode, done.stdout


def main():
    arguments = parse_arguments()
    wanted = properties()
    found = [(program, name) for program in programs(arguments.build)
             for name in tests_of(program) if name in wanted]
    missing = wanted - {name for _, name in found}
    failed = len(missing)
    for name in sorted(missing):
        print(f"{name}: in no program of {arguments.build}: build it first")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, status, output in pool.map(lambda one: draw(*one, arguments), found):
            if status in (0, ENDED):
                continue
            failed += 1
            print(f"--- FAILED: {name}\n{output}")
    print(f"{len(found)} properties of up to {arguments.draws} cases each, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
