#!/usr/bin/env python3
"""What the portable programs want of a machine: no glibc later than 2.34, which RHEL 9 and Ubuntu
22.04 have, and no library but glibc's own; derated and the services next to it systemd's, too.

    portable_test.py BUILD
"""
import re
import subprocess
import sys
import unittest
from pathlib import Path

BUILD = Path()
LATEST = (2, 34)
OWN = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
PROGRAMS = {"derate": OWN, "derated": OWN | {"libsystemd.so.0"},
            "derate-agent": OWN | {"libsystemd.so.0"},
            "derate-pods": OWN | {"libsystemd.so.0"},
            "fakenvml/libnvidia-ml.so.1": OWN, "fakedcgm/4/libdcgm.so.4": OWN}


def objdump(option, program):
    return subprocess.run(["objdump", option, BUILD / program], capture_output=True, text=True,
                          check=True).stdout


class Portable(unittest.TestCase):
    def test_the_versions_of_symbols(self):
        for program in PROGRAMS:
            wanted = re.findall(r"\(?GLIBC_([0-9.]+)\)?\s+(\S+)$", objdump("-T", program),
                                re.MULTILINE)
            self.assertGreater(len(wanted), 20, program)
            late = [name for version, name in wanted
                    if tuple(map(int, version.split("."))) > LATEST]
            self.assertEqual(late, [], program)
            # Of symbols that nothing uses any more a version may still be wanted.
            needed = re.findall(r" GLIBC_(\d+)\.(\d+)$", objdump("-p", program), re.MULTILINE)
            self.assertLessEqual(max((int(a), int(b)) for a, b in needed), LATEST, program)

    def test_the_libraries(self):
        for program, allowed in PROGRAMS.items():
            needed = set(re.findall(r"NEEDED\s+(\S+)", objdump("-p", program)))
            self.assertIn("libc.so.6", needed, program)
            self.assertEqual(needed - allowed, set(), program)

    def test_exceptions_find_their_handlers(self):
        for program in ("derate", "derated", "derate-agent", "derate-pods"):
            words = ["status"] if program == "derate" else []
            done = subprocess.run([BUILD / program, *words, "--no-such-option"],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--no-such-option", done.stderr)


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
