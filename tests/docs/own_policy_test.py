#!/usr/bin/env python3
"""The policy of docs/policies/README.md compiles as it is printed.

    own_policy_test.py COMPILER
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main():
    text = (ROOT / "docs/policies/README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```cpp\n(.*?)^```", text, re.M | re.S)
    (name,) = re.findall(r"`src/policy/(\w+)\.cc`, locks", text)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"{name}.cc"
        called = f"derate::PolicyInfo called() {{ return derate::{name}_info(); }}\n"
        source.write_text(f"{code}\n{called}")  # as the table of policies does
        done = subprocess.run([sys.argv[1], "-std=c++20", "-Wall", "-Wextra", "-Werror",
                               "-DFMT_HEADER_ONLY", "-fsyntax-only", f"-I{ROOT / 'src'}", source],
                              capture_output=True, text=True)
    print(done.stderr, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
