#!/usr/bin/env python3
"""The wheel of the Python package, as somebody without a network installs it: in a virtual
environment, in a network namespace without interfaces, up to a first window on simulated GPUs.

    wheel_test.py BUILD [SLOWNESS]

Prints how long that takes.
"""
import base64
import csv
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))
import make_wheel  # noqa: E402

BUILD, SLOW = Path(), 1.0

# Any socket that is not a Unix socket ends the program.
FIRST_WINDOW = """
import socket, sys
def audit(event, arguments):
    if event == "socket.__new__" and arguments[1] not in (-1, socket.AF_UNIX):
        raise SystemExit(f"a socket of family {arguments[1]}")
sys.addaudithook(audit)
import time
import derate
with derate.window("first") as w:
    time.sleep(1)
print("joules", w.joules, "GPUs", len(w.gpus))
from derate.__main__ import main
sys.exit(main(["doctor"]))
"""

INSTALL = """
set -e
"$1" -m venv venv
venv/bin/pip install --quiet --no-index --disable-pip-version-check "$2"
venv/bin/pip check
"""


def isolated():
    """What runs a command where no interface is; None if this user may not have that."""
    for command in (["unshare", "-n"], ["unshare", "-rn"]):
        try:
            done = subprocess.run([*command, "true"], capture_output=True)
        except FileNotFoundError:
            return None
        if done.returncode == 0:
            return command
    return None


class Wheel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="dw-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.wheel = make_wheel.make_wheel(self.folder / "a")

    def test_the_same_sources_give_the_same_file(self):
        again = make_wheel.make_wheel(self.folder / "b")
        self.assertEqual(again.name, self.wheel.name)
        self.assertEqual(again.read_bytes(), self.wheel.read_bytes())
        version = re.search(r"derate VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertEqual(self.wheel.name, f"derate-{version}-py3-none-any.whl")

    def test_it_has_every_module_and_its_record_is_true(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            names = set(wheel.namelist())
            (record,) = [name for name in names if name.endswith("/RECORD")]
            rows = list(csv.reader(wheel.read(record).decode().splitlines()))
            for name, digest, size in rows:
                if name == record:
                    continue
                text = wheel.read(name)
                own = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
                self.assertEqual((digest, int(size)), (f"sha256={own}", len(text)), name)
            self.assertEqual({row[0] for row in rows}, names)
        sources = ROOT / "clients/python"
        modules = {str(path.relative_to(sources)) for path in
                   [*sources.glob("*.py"), *(sources / "derate").glob("*.py")]}
        self.assertEqual({name for name in names if ".dist-info/" not in name}, modules)

    def environment(self):
        out = {name: value for name, value in os.environ.items()
               if not name.startswith(("DERATE_", "PYTHON", "PIP_"))}
        (self.folder / "run").mkdir(exist_ok=True)
        return out | {"DERATE_RUN_DIR": str(self.folder / "run"),
                      "DERATE_STATE_DIR": str(self.folder / "state"),
                      "PATH": f"{BUILD}:{os.environ['PATH']}"}

    def test_a_first_window_without_a_network(self):
        alone = isolated()
        if alone is None:
            self.skipTest("unshare -n is not allowed here")
        script = self.folder / "first.py"
        script.write_text(FIRST_WINDOW)

        def run(*command):
            return subprocess.run([*alone, *map(str, command)], cwd=self.folder, text=True,
                                  capture_output=True, timeout=180 * SLOW,
                                  env=self.environment())
        begin = time.monotonic()
        done = run("bash", "-c", INSTALL, "install", sys.executable, self.wheel)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        installed = time.monotonic()
        python = self.folder / "venv/bin/python"
        simulated = ["--sim", "V100-SXM2", "--app", "GeMM", "--", python, "-B", script]
        done = run("derate", "energy", *simulated)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        end = time.monotonic()
        print(f"from a wheel to a first window: {end - begin:.1f} s, of which the virtual "
              f"environment and pip {installed - begin:.1f} s", file=sys.stderr)
        for verb in (["energy"], ["run", "--dry-run"], ["run"]):
            with self.subTest(verb=verb):
                done = run("derate", *verb, *simulated)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                joules, gpus = re.search(r"^joules (\S+) GPUs (\d+)$", done.stdout, re.M).groups()
                # Of GeMM on a simulated V100: between idle and the power limit, for 1 s.
                self.assertTrue(30 < float(joules) < 600 * SLOW, done.stdout)
                self.assertEqual(gpus, "1")
                self.assertIn("Windows are measured, by the program that started this one.",
                              done.stdout)
                self.assertRegex(done.stdout, r"derate +.*/derate: derate \d")
        alone_here = run(python, "-B", "-m", "derate", "doctor")
        self.assertEqual(alone_here.returncode, 1, alone_here.stderr)
        self.assertIn("Windows are not measured", alone_here.stdout)
        self.assertIn(f"{self.folder}/run/client.sock: No such file", alone_here.stdout)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        SLOW = float(sys.argv.pop())
    BUILD = Path(sys.argv.pop()).resolve()
    unittest.main(verbosity=2)
