#!/usr/bin/env python3
"""clang-tidy on every file of the programs, as .clang-tidy has it; each file is compiled alone.

usage: lint.py [FILE...]     e.g. lint.py src/govern/lease.cc; without files: all, some ten minutes
                             on two cores. Exit 1 when there is anything to mend.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "lint"
FOLDERS = ("src/", "apps/", "fakenvml/", "fakedcgm/", "bench-cuda/")


def configure():
    """Only compile_commands.json is needed of it: clang's, one file after the other, no tests."""
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug",
                    "-DCMAKE_C_COMPILER=clang-14", "-DCMAKE_CXX_COMPILER=clang++-14",
                    "-DBUILD_TESTING=OFF", "-DDERATE_CUDA=OFF"],
                   check=True, stdout=subprocess.DEVNULL)
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    return sorted({os.path.relpath(entry["file"], ROOT) for entry in commands})


def lint(name):
    """What clang-tidy says of a file and the headers that it includes; empty when all is well."""
    done = subprocess.run(["clang-tidy-14", "--quiet", "-p", BUILD, ROOT / name], cwd=ROOT,
                          check=False, capture_output=True, text=True)
    return done.stdout.replace(f"{ROOT}/", "") if done.returncode != 0 else ""


def main():
    known = configure()
    wanted = sys.argv[1:] or [name for name in known if name.startswith(FOLDERS)]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"lint: {unknown[0]}: not a source file of a program")
    told = set()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, text in enumerate(pool.map(lint, wanted), 1):
            # A header's finding comes with each file that includes it.
            for finding in re.split(r"\n(?=\S+:\d+:\d+: )", text.strip()):
                if finding and finding not in told:
                    told.add(finding)
                    print(finding, flush=True)
            if sys.stderr.isatty():
                print(f"\r{done} of {len(wanted)} ", end="", file=sys.stderr)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
