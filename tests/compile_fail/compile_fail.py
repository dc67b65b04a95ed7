#!/usr/bin/env python3
"""Misuse must not compile.

usage: compile_fail.py CASE.cc COMPILER FLAG...
       compile_fail.py --self-test COMPILER FLAG...

A case compiles as it stands (the positive control), and does not with -DMISUSE; then the
compiler's message must contain what the case's first line says after "// EXPECT: ".
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def compile_case(case, compiler, flags, *more):
    """The exit status and the messages, with plain quotes."""
    done = subprocess.run([compiler, *flags, *more, "-fsyntax-only", str(case)],
                          capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"})
    return done.returncode, done.stderr


def check_case(case, compiler, flags):
    """What is wrong with the case; None when it holds."""
    first = Path(case).read_text().splitlines()[0]
    if not first.startswith("// EXPECT: "):
        return "its first line must be // EXPECT: and a part of the compiler's message"
    status, messages = compile_case(case, compiler, flags)
    if status != 0:
        return "does not compile even without the misuse:\n" + messages
    status, messages = compile_case(case, compiler, flags, "-DMISUSE")
    if status == 0:
        return "the misuse compiles"
    expected = first.removeprefix("// EXPECT: ")
    if expected not in messages:
        return f'the misuse does not compile, but for another reason than "{expected}":\n{messages}'
    return None


def self_test(compiler, flags):
    """The runner itself must see a misuse that compiles, a broken case and a wrong message."""
    bad = {"the misuse compiles": "// EXPECT: no such message\nint a = 1;\n",
           "does not compile even without": "// EXPECT: no such message\nint a = b;\n",
           "for another reason": "// EXPECT: no such message\n#ifdef MISUSE\nint a = b;\n#endif\n",
           "its first line must be": "int a = 1;\n"}
    with tempfile.TemporaryDirectory() as folder:
        case = Path(folder) / "case.cc"
        for expected, text in bad.items():
            case.write_text(text)
            found = check_case(case, compiler, flags) or "nothing"
            if expected not in found:
                return f'expected to hear "{expected}", heard: {found}'
    return None


def main():
    what, compiler, *flags = sys.argv[1:]
    if what == "--self-test":
        wrong = self_test(compiler, flags)
    else:
        wrong = check_case(what, compiler, flags)
    print(f"{Path(what).name}: {wrong or 'holds'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
