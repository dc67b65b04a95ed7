#!/usr/bin/env python3
"""The runner sees what is wrong: a case that must fail does fail."""

import contextlib
import io
import os
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import run_cases

# Stands in for derate: prints its arguments, one a line.
FAKE = '#!/bin/bash\nprintf "%s\\n" "$@"\n'


class RunCases(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.binary = self.folder / "derate"
        self.binary.write_text(FAKE)
        self.binary.chmod(0o755)
        os.environ["DERATE_DATA"] = str(self.folder / "no-data")

    def run_text(self, text, *options):
        """(exit status, what was printed) of a case file with this text."""
        file = self.folder / "t.case"
        file.write_text(text)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = run_cases.main(["--derate", str(self.binary), *options, str(file)])
        return status, out.getvalue()

    def assert_passes(self, *lines):
        status, out = self.run_text("\n".join(["NAME a", *lines]))
        self.assertEqual((status, out), (0, "t.a: passed\n1 passed, 0 failed, 0 skipped\n"), lines)

    def assert_fails(self, why, *lines):
        status, out = self.run_text("\n".join(["NAME a", *lines]))
        self.assertEqual(status, 1, lines)
        self.assertIn("t.a: failed\n", out)
        self.assertIn("0 passed, 1 failed, 0 skipped", out)
        self.assertIn(why, out)

    def test_exit_codes(self):
        self.assert_passes("RUN exit 3", "EXIT 3")
        self.assert_passes("RUN $DERATE")
        self.assert_fails("exit code 3, wanted 0", "RUN exit 3")
        self.assert_fails("exit code 0, wanted 2", "RUN true", "EXIT 2")
        self.assert_passes("RUN kill -9 $$", "EXIT 137")

    def test_text(self):
        self.assert_passes("RUN $DERATE one two", "EXPECT ^two$", "EXPECT_NOT three")
        self.assert_passes("RUN echo oops >&2", "EXPECT_ERR ^oops$", "EXPECT_NOT .")
        self.assert_fails("no line of stdout matches ^one two$", "RUN $DERATE one two",
                          "EXPECT ^one two$")
        self.assert_fails("stdout has 'two'", "RUN $DERATE one two", "EXPECT_NOT t.o")
        self.assert_fails("no line of stderr matches one", "RUN $DERATE one", "EXPECT_ERR one")
        self.assert_fails("stdout: one", "RUN $DERATE one", "EXPECT two")

    def test_json(self):
        document = """RUN echo '{"gpus": [{"chip": "V100", "w": 1.5, "none": null}], "a.b": 3}'"""
        for check in ('gpus[0].chip="V100"', 'gpus[-1].w < 1.6', "gpus >= 1", "gpus = 1",
                      '["a.b"] = 3', "gpus[0].none = null", 'gpus[0].chip != "A100"',
                      'gpus[0] != {}', "gpus[0].chip"):
            self.assert_passes(document, f"EXPECT_JSON {check}")
        for check, why in {'gpus[0].chip="A100"': 'gpus[0].chip is "V100"',
                           "gpus[1].chip": "gpus[1] is not there", "gpus >= 2": "gpus is 1 long",
                           "gpus[0].none": "is null", 'gpus[0].w > "x"': "is 1.5",
                           "nothing.here = 1": "nothing is not there"}.items():
            self.assert_fails(why, document, f"EXPECT_JSON {check}")
        self.assert_fails("stdout is not JSON", "RUN echo nan", "EXPECT_JSON a")
        self.assert_fails("NaN is not JSON", """RUN echo '{"a": NaN}'""", "EXPECT_JSON a")

    def test_surroundings(self):
        self.assert_passes("FILE d/x.toml", "| [a]", "|   b = 1", "RUN cat d/x.toml",
                           "EXPECT ^\\[a\\]$", "EXPECT ^  b = 1$")
        self.assert_passes("RUN echo $HOME $XDG_RUNTIME_DIR $TMPDIR",
                           "|ls -A; pwd; read || echo no", "EXPECT ^(\\S+) \\1 \\1\\n\\1\\nno$")
        self.assert_passes("ENV A=b c", "RUN echo $A $LC_ALL", "EXPECT ^b c C$")
        os.environ["SECRET"] = "x"
        self.assert_passes("RUN echo [$SECRET]", "EXPECT ^\\[\\]$")

    def test_timeout_kills_everything(self):
        begin = time.monotonic()
        self.assert_fails("still running after 0.2 s", "RUN sleep 30", "TIMEOUT 0.2")
        self.assert_passes("RUN sleep 30 & echo done", "EXPECT done")
        self.assertLess(time.monotonic() - begin, 10)

    def test_skips(self):
        status, out = self.run_text("NAME a\nNEEDS data\nRUN false\n")
        self.assertEqual(status, 0)
        self.assertEqual(out, f"t.a: skipped: no tables at {self.folder}/no-data\n"
                              "0 passed, 0 failed, 1 skipped\n")
        (self.folder / "no-data").mkdir()
        self.assert_passes("NEEDS data", "RUN test -d $DERATE_DATA")
        status, out = self.run_text("NAME a\nNEEDS no-such-program\nRUN false\n")
        self.assertIn("skipped: no no-such-program on this machine", out)

    def test_bad_files(self):
        for text, why in {"RUN true\n": "t.case:1: expected NAME first",
                          "NAME a\nEXPECTED x\n": "t.case:2: expected NAME first, then one of",
                          "NAME a\nEXIT 0\n": "t.case:1: the case has no RUN",
                          "NAME a\n| x\n": "t.case:2: a | line",
                          "NAME a\nRUN b\nNAME a\nRUN b\n": "two cases are called t.a",
                          "NAME a\nRUN b\nEXPECT (\n": "unterminated", "": "no such case"}.items():
            status, out = self.run_text(text)
            self.assertEqual(status, 1, text)
            self.assertIn(why, out)

    def test_some_at_a_time_in_order_and_as_junit(self):
        junit = self.folder / "t.xml"
        # Each waits until the other runs.
        meet = "touch {0}; until [ -e {1} ]; do sleep 0.05; done"
        here = [self.folder / name for name in ("a", "c")]
        status, out = self.run_text(f"NAME a\nRUN {meet.format(*here)}\n"
                                    "NAME b\nNEEDS data\nRUN true\n"
                                    f"NAME c\nRUN {meet.format(*here[::-1])}; printf '\\001'\n"
                                    "EXPECT x\n",
                                    "--jobs", "2", "--junit", str(junit))
        self.assertEqual(status, 1)
        self.assertRegex(out, "t.a: passed\nt.b: skipped: .*\nt.c: failed\n")
        cases = list(ElementTree.parse(junit).getroot().iter("testcase"))
        self.assertEqual([case.get("name") for case in cases], ["a", "b", "c"])
        self.assertEqual([[child.tag for child in case] for case in cases],
                         [[], ["skipped"], ["failure"]])
        self.assertIn("no line of stdout matches x", cases[2].findtext("failure"))

    def test_list_and_choose(self):
        text = "NAME a b\nRUN true\nNAME c\nRUN false\n"
        self.assertEqual(self.run_text(text, "--list"), (0, "t.a_b\nt.c\n"))
        self.assertEqual(self.run_text(text, "--case", "t.a_b")[0], 0)
        self.assertEqual(self.run_text(text)[0], 1)
        self.binary.unlink()
        self.assertIn("no binary at", self.run_text(text)[1])


if __name__ == "__main__":
    sys.exit(unittest.main())
