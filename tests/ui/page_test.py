#!/usr/bin/env python3
"""The page of `derate ui`, used in a real browser over simulated GPUs, and its source.

    page_test.py BUILD [SLOWNESS]

Skipped where node, Chromium or web/ui/node_modules is not there (`scripts/setup --all` brings
them).
Pictures of each view go to $DERATE_PICTURES, if that is set.
"""
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/service"))
import service_machine as service  # noqa: E402
from energy_test import wait_for  # noqa: E402

UI = ROOT / "web/ui"
CHROMIUM = shutil.which("chromium")


class Source(unittest.TestCase):
    def test_the_page_is_what_its_source_makes(self):
        done = subprocess.run(["node", "build.mjs", "--check"], cwd=UI, capture_output=True,
                              text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_its_types_hold(self):
        done = subprocess.run(["node", "node_modules/typescript/bin/tsc", "--noEmit"], cwd=UI,
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))


    def test_a_name_is_no_formula_in_its_csv(self):
        done = subprocess.run(["node", str(ROOT / "tests/ui/csv.mjs")], capture_output=True,
                              text=True)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "ok"), done.stderr)

    def test_what_nobody_reads_any_more_is_not_known(self):
        done = subprocess.run(["node", str(ROOT / "tests/ui/known.mjs")], capture_output=True,
                              text=True)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "ok"), done.stderr)

    @unittest.skipUnless(CHROMIUM, "no chromium here")
    def test_it_asks_one_question_at_a_time(self):
        done = subprocess.run(["node", str(ROOT / "tests/ui/asked.mjs")], capture_output=True,
                              text=True, timeout=120, env={**os.environ, "CHROMIUM": CHROMIUM})
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "ok"), done.stderr)


@unittest.skipUnless(CHROMIUM, "no chromium here")
class Page(service.Machine):
    def setUp(self):
        super().setUp()
        self.start("derate", "sim", "serve", "--chip", "V100-SXM2,A100-SXM4,H200")
        wait_for(lambda: self.derate("sim", "show").returncode == 0, "simulated GPUs")
        self.derated = self.begin_derated()
        self.assertEqual(self.derate("policy", "set", "assure", "-i", "0,1").returncode, 0)
        for gpu, work in (("0", "GeMM"), ("1", "lavamd")):
            self.start("derate", "sim", "job", work, "-i", gpu)

    def begin_derated(self):
        out = self.start("derated")
        wait_for(self.is_ready, "derated is ready")
        return out

    def derate(self, *arguments):
        return subprocess.run([str(service.energy_test.BUILD / "derate"), *arguments],
                              capture_output=True, text=True, timeout=60)

    def results(self):
        """Of a small experiment."""
        experiment = self.folder / "small.toml"
        experiment.write_text('[experiment]\nrepetitions = 1\n[gpus]\nchips = ["V100-SXM2"]\n'
                              '[workloads]\nfitted = ["GeMM", "FDTD"]\n'
                              '[[policy]]\nname = "assure"\n[[policy]]\nname = "geepafs"\n')
        done = self.derate("lab", "run", str(experiment), "-o", str(self.folder / "small.lab"))
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = self.derate("lab", "show", str(self.folder / "small.lab"), "--json")
        out = self.folder / "small.json"
        out.write_text(shown.stdout)
        return out

    def test_a_person_reads_a_report(self):
        self.results()
        made = self.derate("report", str(self.folder / "small.lab"), "-o",
                           str(self.folder / "small.html"))
        self.assertEqual(made.returncode, 0, made.stderr)
        both = self.derate("report", str(self.folder / "small.lab"), "--beside",
                           str(self.folder / "small.lab"), "-o", str(self.folder / "two.html"))
        self.assertEqual(both.returncode, 0, both.stderr)
        pictures = os.environ.get("DERATE_PICTURES")
        done = subprocess.run(
            ["node", str(ROOT / "tests/ui/read_report.mjs"), str(self.folder / "small.html"),
             str(self.folder / "two.html"), *([pictures] if pictures else [])],
            capture_output=True, text=True, timeout=200, env={**os.environ, "CHROMIUM": CHROMIUM})
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "ok"), done.stderr)

    def test_a_person_uses_it(self):
        made = self.derate("tune", "job", "create", "bert", "--batch-sizes", "32,64", "--default",
                           "64", "--target", "0.8", "--max-epochs", "40")
        self.assertEqual(made.returncode, 0, made.stderr)
        page = subprocess.Popen([str(service.energy_test.BUILD / "derate"), "ui", "--no-open"],
                                stdout=subprocess.PIPE, text=True)
        self.addCleanup(page.wait)
        self.addCleanup(page.terminate)
        address = page.stdout.readline().strip()
        self.assertRegex(address, r"^http://127\.0\.0\.1:\d+/ui#[A-Za-z0-9_-]{43}$")
        pictures = os.environ.get("DERATE_PICTURES")
        browser = subprocess.Popen(
            ["node", str(ROOT / "tests/ui/browse.mjs"), address, str(self.results()),
             *([pictures] if pictures else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "CHROMIUM": CHROMIUM})
        self.addCleanup(browser.stdout.close)
        self.addCleanup(browser.stdin.close)
        last = ""
        for line in browser.stdout:
            last = line.strip()
            print(last, file=sys.stderr)
            if last == "wait gone":
                self.derated.terminate()
                self.derated.wait()
                browser.stdin.write("gone\n")
            elif last == "wait back":
                self.derated = self.begin_derated()
                browser.stdin.write("back\n")
            elif last == "wait xid":
                for gpu, xid in (("0", "31"), ("1", "79")):
                    done = self.derate("sim", "fault", "-i", gpu, "--xid", xid)
                    self.assertEqual(done.returncode, 0, done.stderr)
                browser.stdin.write("xid\n")
            elif last == "wait lost":
                self.assertEqual(self.derate("sim", "fault", "-i", "1", "--lost").returncode, 0)
                browser.stdin.write("lost\n")
            browser.stdin.flush()
        self.assertEqual((browser.wait(), last), (0, "ok"))


if __name__ == "__main__":
    service.begin(sys.argv)
    if not shutil.which("node") or not (UI / "node_modules").is_dir():
        print("skipped: no node, or no web/ui/node_modules: scripts/setup --all brings them")
        sys.exit(77)
    unittest.main(verbosity=2)
