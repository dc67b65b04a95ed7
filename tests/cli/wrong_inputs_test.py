#!/usr/bin/env python3
"""Wrong inputs (wrong_inputs.txt) against a real derated on 8 simulated GPUs: each answer has at
most 3 lines of 100 columns, names the wrong value and leads to a command that works.

    wrong_inputs_test.py BUILD [SLOWNESS] [--show]    --show prints each answer that misses
"""
import math
import os
import re
import shlex
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "service"))
import service_machine  # noqa: E402
from service_machine import slow, wait_for  # noqa: E402

INPUTS = Path(__file__).with_name("wrong_inputs.txt")
LINES, COLUMNS = 3, 100
NOBODY = 65534
SHOW = "--show" in sys.argv


def read_inputs():
    """Rows of (who, command, value, lead)."""
    for line in INPUTS.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        command, value, lead = [part.strip() for part in line.split(" ## ")[:3]]
        who, _, rest = command.partition(": ")
        if who not in ("user", "away"):
            who, rest = "root", command
        yield who, rest, value, lead


def misses(answer, value, lead):
    """What an answer lacks, in words; empty if it is good."""
    lines = sum(math.ceil(len(line) / COLUMNS) for line in answer.splitlines() if line)
    lacks = []
    if not 1 <= lines <= LINES:
        lacks.append(f"{lines} lines")
    if not re.search(value, answer, re.IGNORECASE):
        lacks.append("the value")
    if not re.search(lead, answer, re.IGNORECASE):
        lacks.append("a lead")
    return ", ".join(lacks)


class WrongInputs(service_machine.Machine):
    def serve(self):
        self.start("derate", "sim", "serve", "--chip", "V100-SXM2", "--gpus", "8")
        wait_for(lambda: self.derate("sim show").returncode == 0, "simulated GPUs")
        self.start("derated")
        wait_for(self.is_ready, "the daemon")
        done = self.derate("policy set assure -i 0")
        self.assertEqual(done.returncode, 0, done.stdout)

    def derate(self, command, who="root"):
        how = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if who == "user" else {}
        environment = dict(os.environ, HOME=str(self.folder), NO_COLOR="1")
        if who == "away":
            environment["DERATE_RUN_DIR"] = str(self.folder / "nowhere")
        return subprocess.run(
            [str(service_machine.energy_test.BUILD / "derate"), *shlex.split(command)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=20 * slow(), cwd=self.folder, env=environment, check=False, **how)

    def test_every_answer_is_short_names_the_value_and_leads_on(self):
        self.serve()
        rows, bad = 0, []
        for who, command, value, lead in read_inputs():
            if who == "user" and os.geteuid() != 0:
                continue
            rows += 1
            try:
                done = self.derate(command.removeprefix("derate "), who)
                answer = done.stdout
                lacks = misses(answer, value, lead)
                if done.returncode == 0:
                    lacks = f"an error ({lacks})"
            except subprocess.TimeoutExpired:
                answer, lacks = "", "an end"
            if lacks:
                bad.append(f"{who}: {command}\n  lacks {lacks}:\n{answer}")
        print(f"{rows - len(bad)} of {rows} wrong inputs are answered well", file=sys.stderr)
        if SHOW:
            print("\n".join(bad))
        self.assertEqual(bad, [])

    def test_a_bad_answer_is_seen(self):
        self.assertEqual(misses("derate: 'x': did you mean y?\n", "'x'", "y"), "")
        self.assertEqual(misses("derate: 'x': no\n", "'x'", "y"), "a lead")
        self.assertEqual(misses("derate: no, y\n", "'x'", "y"), "the value")
        self.assertEqual(misses("x y " * 100, "x", "y"), "4 lines")
        self.assertEqual(misses("", "x", "y"), "0 lines, the value, a lead")


if __name__ == "__main__":
    service_machine.begin(sys.argv)
    if SHOW:
        sys.argv.remove("--show")
    unittest.main()
