#!/usr/bin/env python3
"""docs/chips-seen.md: what `derate doctor` and `derate status` say of each chip of the catalogue,
served behind NVML's interface. DERATE_WRITE_DOCS=1 writes the page.

    chips_page_test.py BUILD [FACTOR]    FACTOR multiplies its limit of time, for slow builds
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/chips-seen.md"
BUILD, FACTOR = Path(), 1.0
INTRODUCTION = """\
# Derate's words on each chip
Every GPU on this page is simulated. A test serves each chip of `derate sim list` behind NVML's own
interface, runs `derate doctor -v` and `derate status`, and compares this page with their output.
The simulated driver answers as the chip's file says ([data/chips](../data/chips)). Each figure
there has its source or is marked as assumed. A real card can answer otherwise. We read two real
products, an H100 80GB HBM3 and an H200 ([real-gpu.md](real-gpu.md)), and no other.

The GPUs are idle. Their watts change a little from run to run, so the test does not compare them.

    derate sim serve --chip L40S,RTX4090     # the same on your machine
    derate doctor -v
"""


class Served:
    """Every chip as one machine's GPUs."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="dc-")
        here = Path(self.folder.name)
        (here / "derate.toml").write_text("")
        self.environment = {
            **os.environ, "DERATE_RUN_DIR": str(here / "run"), "DERATE_SIM": str(here / "sim"),
            "DERATE_STATE_DIR": str(here / "state"), "DERATE_CONFIG": str(here / "derate.toml"),
            "DERATE_NVML_LIBRARY": str(BUILD / "fakenvml/libnvidia-ml.so.1")}
        self.chips = [chip["chip"] for chip in self.run("sim", "list", "--json")["chips"]]
        self.server = subprocess.Popen(
            [BUILD / "derate", "sim", "serve", "--chip", ",".join(self.chips), "--dir",
             here / "sim"], env=self.environment, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 20 * FACTOR
        while subprocess.run([BUILD / "derate", "sim", "show"], env=self.environment,
                             capture_output=True).returncode != 0:
            if time.monotonic() > until:
                raise AssertionError("the server never answers")
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        self.server.terminate()
        self.server.wait()
        self.folder.cleanup()

    def run(self, *words):
        done = subprocess.run([BUILD / "derate", *words], env=self.environment,
                              capture_output=True, text=True, timeout=60 * FACTOR)
        return json.loads(done.stdout)


def finding_text(finding):
    remedy = f"\n        -> {finding['remedy']}" if "remedy" in finding else ""
    return f"    {finding['level']:<5} {finding['what']}: {finding['detail']}{remedy}\n"


def status_line(gpu):
    return (f"    status: {gpu['name']}, {gpu['sm_clock_mhz']:.0f} MHz of "
            f"{gpu['highest_sm_clock_mhz']:.0f}, {gpu['power_watts']:.0f} W"
            + (f" of {gpu['factory_power_limit_watts']:.0f}" if "factory_power_limit_watts" in gpu
               else "") + f"; {gpu['reason']}\n")


def page_text():
    with Served() as served:
        findings = served.run("doctor", "-v", "--json")["findings"]
        gpus = served.run("status", "--json")["gpus"]
        out = INTRODUCTION
        for index, chip in enumerate(served.chips):
            out += f"\n## {chip}\n\n"
            out += "".join(finding_text(one) for one in findings
                           if one.get("gpu") == index and one["what"] != "is")
            out += status_line(gpus[index])
    return out


class ChipsPage(unittest.TestCase):
    maxDiff = None

    def test_it_is_what_the_programs_say(self):
        text = page_text()
        if os.environ.get("DERATE_WRITE_DOCS") == "1":
            PAGE.write_text(text, encoding="utf-8")

        def without_watts(page):
            return re.sub(r", \d+ W", ", N W", page)

        self.assertEqual(without_watts(PAGE.read_text(encoding="utf-8")), without_watts(text),
                         "run this test with DERATE_WRITE_DOCS=1")


if __name__ == "__main__":
    BUILD = Path(sys.argv[1])
    FACTOR = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    unittest.main(argv=sys.argv[:1])
