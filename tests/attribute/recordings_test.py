#!/usr/bin/env python3
"""How three recordings of a real H200 are split, against the truth by work.

    recordings_test.py BUILD
"""
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent.parent
RECORDINGS = REPO / "tests/fixtures/h200-pairs"
BUILD = Path()


def judged(name, method):
    """The points of the energy that the method gives to the wrong process."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(RECORDINGS / f"{name}.tgz") as file:
        file.extractall(folder)
        (inside,) = Path(folder).iterdir()
        text = subprocess.run(
            [REPO / "scripts/attribution-pairs", "judge-phases", inside, "--methods", method,
             "--derate", BUILD / "derate"], check=True, capture_output=True, text=True).stdout
    return float(re.search(rf"\| {method} \|.* ([\d.]+) \|$", text, re.M)[1])


class Recordings(unittest.TestCase):
    def check(self, name, most):
        online, sm_share = judged(name, "online"), judged(name, "sm-share")
        self.assertLess(online, most)
        self.assertLess(online, sm_share + 1)

    def test_one_that_works_pays_for_its_work(self):
        self.check("rest", 2)

    def test_a_training_and_an_inference(self):
        self.check("serving", 5)

    def test_three_with_phases(self):
        self.check("phases-three", 3)


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()
