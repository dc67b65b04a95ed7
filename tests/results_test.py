#!/usr/bin/env python3
"""Each case counts once, and a program that ends early counts as a failure."""
import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

import results

CASE = '<testcase name="{0}" classname="Suite"/>'
FAILED = '<testcase name="{0}" classname="Suite"><failure>it broke</failure></testcase>'
SKIPPED = '<testcase name="{0}" classname=""><skipped>a\nno tables</skipped></testcase>'


def test(name, status="run", more="", seconds=1):
    return (f'<testcase name="{name}" status="{status}" time="{seconds}">{more}'
            f"<system-out>output of {name}</system-out></testcase>")


class Results(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "cases").mkdir()

    def write(self, name, *tests):
        text = f"<testsuite>{''.join(tests)}</testsuite>" if tests else ""
        (self.folder / name).write_text(text)

    def summarise(self, *tests):
        self.write("ctest.xml", *tests)
        out, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            results.summarise(self.folder / "ctest.xml", self.folder / "cases")
        return out.getvalue().strip(), said.getvalue()

    def test_a_test_without_cases_counts_once(self):
        counts, said = self.summarise(
            test("a"), test("b", "fail"),
            test("c", "notrun", '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'),
            test("d", "notrun", '<skipped message="Unable to find executable"/>'))
        self.assertEqual(counts, "1 2 1")
        self.assertIn("--- FAILED: b\noutput of b", said)
        self.assertIn("skipped: c: see its output", said)

    def test_the_cases_of_a_program_count(self):
        self.write("cases/p.xml", CASE.format("one"), FAILED.format("two"), SKIPPED.format("three"))
        for status in ("run", "fail"):
            counts, said = self.summarise(test("p", status))
            self.assertEqual(counts, "1 1 1")
            self.assertIn("--- FAILED: p.Suite.two\nit broke", said)
            self.assertIn("skipped: p.three: no tables", said)

    def test_a_program_that_ends_early_fails(self):
        self.write("cases/p.xml")
        self.assertEqual(self.summarise(test("p"))[0], "0 1 0")
        self.assertEqual(self.summarise(test("p", "fail"))[0], "0 1 0")
        # Its cases went well, and then it failed: leaks, say.
        self.write("cases/p.xml", CASE.format("one"))
        counts, said = self.summarise(test("p", "fail"))
        self.assertEqual(counts, "0 1 0")
        self.assertIn("output of p", said)

    def test_the_slowest(self):
        self.write("asan.xml", *(test(f"t{i}", seconds=i) for i in range(12)))
        self.write("release.xml", test("long", seconds=99.5))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            results.slowest(self.folder)
        lines = out.getvalue().splitlines()
        self.assertEqual(len(lines), 10)
        self.assertEqual(lines[0].strip(), "99.5 s  release: long")
        self.assertEqual(lines[1].strip(), "11.0 s  asan: t11")


if __name__ == "__main__":
    sys.exit(unittest.main())
