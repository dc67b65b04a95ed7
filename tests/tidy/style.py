#!/usr/bin/env python3
"""Formatting (clang-format), and headers that compile alone.

usage: style.py [--fix] [--headers-only | --format-only]
  --fix            format the files in place
  --headers-only   two minutes on two cores
"""

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("*.cc", "*.h", "*.c", "*.cu")
HEADER_FOLDERS = ("src", "apps", "fakenvml", "fakedcgm")
# As CMakeLists.txt has it. The programs' headers also include from their own folder.
COMPILE = ["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
           "-Wno-missing-field-initializers", '-DDERATE_VERSION="0"', "-x", "c++"]


def listed(patterns, folders=()):
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard",
                            "--", *patterns], cwd=ROOT, check=True, capture_output=True,
                           text=True).stdout.split("\0")
    return [name for name in names if name and (ROOT / name).exists()
            and (not folders or name.split("/")[0] in folders)]


def formatter():
    for name in ("clang-format-14", "clang-format"):
        if subprocess.run(["which", name], capture_output=True, check=False).returncode == 0:
            return name
    sys.exit("style: clang-format is missing: scripts/setup installs it")


def check_format(fix):
    files = listed(CODE)
    how = ["-i"] if fix else ["--dry-run", "--Werror"]
    done = subprocess.run([formatter(), *how, *files], cwd=ROOT, check=False,
                          stderr=subprocess.PIPE, text=True)
    bad = sorted({line.split(":")[0] for line in done.stderr.splitlines() if ": error:" in line})
    for name in bad:
        print(f"{name}: format it: tests/tidy/style.py --fix")
    return len(bad)


def check_header(name):
    """Twice in one file, so that its guard is tried, too."""
    folders = ["src", "."] + ([str(Path(name).parent)] if name.startswith("apps/") else [])
    with tempfile.NamedTemporaryFile("w", suffix=".cc") as source:
        source.write(f'#include "{ROOT / name}"\n#include "{ROOT / name}"\n')
        source.flush()
        done = subprocess.run([*COMPILE, *(f"-I{folder}" for folder in folders),
                               "-isystem", "/usr/include/eigen3", source.name],
                              cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr)
    return f"{name}: does not compile alone: {first}"


def check_headers():
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        bad = [text for text in pool.map(check_header, listed(["*.h"], HEADER_FOLDERS)) if text]
    for text in bad:
        print(text)
    return len(bad)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="format the files in place")
    parser.add_argument("--headers-only", action="store_true")
    parser.add_argument("--format-only", action="store_true")
    options = parser.parse_args()
    bad = 0 if options.headers_only else check_format(options.fix)
    if not options.format_only and not options.fix:
        bad += check_headers()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
