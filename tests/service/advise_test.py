#!/usr/bin/env python3
"""Advice of a running derated: what holds the work on a GPU back, and what promises have come to,
or would have, by its history.

    advise_test.py BUILD [SLOWNESS]
"""
import json
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import service_machine as service  # noqa: E402
from energy_test import wait_for  # noqa: E402
from service_machine import ask, slow  # noqa: E402

GOVERNED, OBSERVED, IDLE = 0, 1, 2


class Advise(service.Machine):
    def setUp(self):
        super().setUp()
        self.socket = self.folder / "run/api.sock"
        (self.folder / "derate.toml").write_text(
            f'[governor]\npolicy = "assure"\ngovern = true\ngpus = "{GOVERNED}"\n')
        self.start("derate", "sim", "serve", "--chip", "V100-SXM2", "--gpus", "3")
        wait_for(lambda: self.derate("sim", "show").returncode == 0, "simulated GPUs")
        self.start("derated")
        wait_for(self.is_ready, "derated is ready")
        for gpu in (GOVERNED, OBSERVED):
            self.start("derate", "sim", "job", "GeMM", "-i", str(gpu))

    def derate(self, *arguments):
        return subprocess.run([str(service.energy_test.BUILD / "derate"), *arguments], text=True,
                              capture_output=True, timeout=60 * slow())

    def advice(self, gpu):
        answer = ask(self.socket, f"/v1/advice?gpu={gpu}")
        self.assertEqual(answer.status, 200, answer)
        return json.loads(answer.body)

    def test_who_asks_has_the_work_watched(self):
        first = self.advice(OBSERVED)
        self.assertEqual(first["advice"], [])
        wait_for(lambda: self.advice(OBSERVED)["watched_seconds"] > 5, "readings")
        found = self.advice(OBSERVED)
        self.assertGreater(found["working_ratio"], 0.5)
        for each in found["advice"]:
            self.assertIn(each["certainty"], ("sure", "likely"))
            self.assertTrue(each["page"].startswith("https://"))
        self.assertEqual(ask(self.socket, "/v1/advice?gpu=9").status, 404)
        self.assertEqual(ask(self.socket, "/v1/advice?gpu=0,1").status, 400)

    def test_a_governed_gpu_is_not_advised_to_be_governed(self):
        wait_for(lambda: "assure" in self.derate("status").stdout, "what governs it")
        gpus = json.loads(self.derate("advise", "--for", "5s", "--json").stdout)["gpus"]
        self.assertEqual([gpu.get("policy") for gpu in gpus], ["assure", None, None])
        tries = [each for advice in gpus[GOVERNED]["advice"] for each in advice["tries"]]
        self.assertFalse([each for each in tries if "policy set assure" in each], tries)

    def history(self, *options):
        return self.derate("advise", "--history", *options)

    def told(self):
        done = self.history("--from", "now-1h", "--json")
        if done.returncode != 0:
            self.assertIn(done.returncode, (6, 75), done.stderr)  # nothing is kept yet
            return {}
        return {gpu["index"]: gpu for gpu in json.loads(done.stdout)["gpus"]}

    def test_the_history_tells_what_promises_come_to(self):
        # The mean of the first second may be of a clock that still rises.
        wait_for(lambda: self.told().get(OBSERVED, {}).get("told_seconds", 0) > 5, "a history")
        wait_for(lambda: self.told()[GOVERNED]["governed"], "what was governed")
        told = self.told()
        self.assertEqual(told[IDLE]["at_work_seconds"], 0)
        self.assertEqual(told[IDLE]["promises"], [])
        promises = told[OBSERVED]["promises"]
        savings = [each["saving"]["ratio"] for each in promises]
        self.assertEqual(savings, sorted(savings))
        for each in promises:
            self.assertLessEqual(each["saving"]["low_ratio"], each["saving"]["high_ratio"])
        self.assertEqual(told[OBSERVED]["governed"], [])
        [governed] = told[GOVERNED]["governed"]
        self.assertEqual(governed["policy"], "assure")
        self.assertGreater(governed["energy_joules"], 0)
        text = self.history("-i", f"{OBSERVED},{IDLE}").stdout
        self.assertIn("Under 'assure' it would have come to", " ".join(text.split()))
        self.assertIn("there was no work in that time", text)

    def test_what_is_wrong_is_said(self):
        wait_for(lambda: self.told(), "a history")
        for options, code, said in ((["--from", "yesterdayish"], 2, "--from"),
                                    (["--from", "now", "--to", "now-1h"], 2, "from"),
                                    (["-i", "7"], 6, "7"),
                                    (["--file", str(self.folder / "none.db")], 6, "none.db")):
            done = self.history(*options)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(said, done.stderr)
        self.assertEqual(self.derate("advise", "--from", "now-1h").returncode, 2)


if __name__ == "__main__":
    service.begin(sys.argv)
    unittest.main(verbosity=2)
