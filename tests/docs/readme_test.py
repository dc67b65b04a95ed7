#!/usr/bin/env python3
"""The README's figures against what `derate demo` prints: the table row by row, and the savings
that the first paragraph names.

    readme_test.py DERATE [FACTOR]
"""
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DERATE, LIMIT = "", 200


def demo():
    """The demo's tables by the first word of their title, as their lines."""
    environment = {name: value for name, value in os.environ.items() if name != "DERATE_DATA"}
    done = subprocess.run([DERATE, "demo"], capture_output=True, text=True, timeout=LIMIT,
                          env=environment, check=True)
    tables = {}
    for part in done.stdout.split("\n\n"):
        lines = part.strip("\n").split("\n")
        tables.setdefault(lines[0].partition(":")[0], lines)
    return tables


def of_assure(lines, column):
    (row,) = [line for line in lines if line.startswith("assure ")]
    return re.findall(r"([\d.]+) %", row)[column]


class Readme(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tables = demo()

    def test_its_table_is_the_demo_s(self):
        lines = [line[4:] for line in README.splitlines() if line.startswith("    ")]
        begin = next(i for i, line in enumerate(lines) if line.startswith("V100-SXM2:"))
        shown = lines[begin:begin + len(self.tables["V100-SXM2"])]
        self.assertEqual(shown, self.tables["V100-SXM2"])

    def test_the_savings_of_its_first_paragraph_are_the_demo_s(self):
        text = " ".join(README.split("\n- ")[0].split())
        found = re.search(r"(\d+) % less energy on a V100, (\d+) % on an A100 and (\d+) % on an "
                          "H200", text)
        self.assertIsNotNone(found, text)
        savings = [of_assure(self.tables[chip], 0)
                   for chip in ("V100-SXM2", "A100-SXM4", "H200")]
        self.assertEqual(list(found.groups()), [f"{float(each):.0f}" for each in savings])


if __name__ == "__main__":
    DERATE = sys.argv[1]
    if len(sys.argv) > 2:
        LIMIT *= float(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
