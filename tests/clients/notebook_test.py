#!/usr/bin/env python3
"""docs/examples/energy.ipynb, executed below `derate energy` on a simulated GPU: by nbconvert where
Debian's python3-nbconvert, python3-ipykernel and python3-matplotlib are (scripts/setup --all), else
its cells in turn, with a stand-in for the plot if matplotlib is missing.

    notebook_test.py BUILD [SLOWNESS]
"""
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs/examples/energy.ipynb"
BUILD, SLOW = Path(), 1.0


def is_there(*modules):
    return all(importlib.util.find_spec(each) is not None for each in modules)


def cells():
    book = json.loads(NOTEBOOK.read_text())
    return ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]


PLAIN = """
import json, sys
from unittest import mock
try:
    import matplotlib
    matplotlib.use("Agg")
except ImportError:
    plot = mock.MagicMock()
    plot.subplots.return_value = mock.MagicMock(), mock.MagicMock()
    package = mock.MagicMock(pyplot=plot)
    sys.modules.update({"matplotlib": package, "matplotlib.pyplot": plot})
names = {}
for cell in json.load(open(sys.argv[1])):
    exec(compile(cell, "cell", "exec"), names)
"""


class Notebook(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="dn-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "run").mkdir()

    def execute(self, *command):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("DERATE_")}
        environment |= {"DERATE_RUN_DIR": str(self.folder / "run"),
                        "DERATE_STATE_DIR": str(self.folder / "state"), "HOME": str(self.folder),
                        "PYTHONPATH": str(ROOT / "clients/python")}
        done = subprocess.run(
            [str(BUILD / "derate"), "energy", "--sim", "V100-SXM2", "--app", "GeMM", "--",
             sys.executable, "-B", *map(str, command)], capture_output=True, text=True,
            timeout=150 * SLOW, env=environment, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def check_printed(self, text):
        rows = re.findall(r"^epoch (\d): ([\d.]+) s, (\d+) J, (\d+) W$", text, re.M)
        self.assertEqual([row[0] for row in rows], list("01234"), text)
        for _, seconds, joules, watts in rows:
            # Of GeMM on a simulated V100: between idle and the power limit.
            self.assertTrue(40 < int(watts) < 310, text)
            self.assertAlmostEqual(int(joules), float(seconds) * int(watts),
                                   delta=2 + 0.02 * int(joules))

    def test_its_cells_in_turn(self):
        (self.folder / "cells.json").write_text(json.dumps(cells()))
        (self.folder / "plain.py").write_text(PLAIN)
        self.check_printed(self.execute("plain.py", "cells.json"))

    @unittest.skipUnless(is_there("nbconvert", "ipykernel", "matplotlib"),
                         "no nbconvert, ipykernel or matplotlib: scripts/setup --all")
    def test_by_nbconvert(self):
        self.execute("-m", "nbconvert", "--to", "notebook", "--execute", "--output-dir", ".",
                     "--output", "done.ipynb", NOTEBOOK)
        done = json.loads((self.folder / "done.ipynb").read_text())
        outputs = [output for cell in done["cells"] for output in cell.get("outputs", [])]
        self.check_printed("".join("".join(output.get("text", [])) for output in outputs))
        pictures = [output for output in outputs if "image/png" in output.get("data", {})]
        self.assertEqual(len(pictures), 1)

    def test_it_is_kept_without_outputs(self):
        book = json.loads(NOTEBOOK.read_text())
        self.assertTrue(all(not cell.get("outputs") for cell in book["cells"]))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        SLOW = float(sys.argv.pop())
    BUILD = Path(sys.argv.pop()).resolve()
    unittest.main(verbosity=2)
