#!/usr/bin/env python3
"""The Prometheus rules in dashboards/prometheus: promtool checks and tests them, and what they ask
for is what derated serves.

    rules_test.py
"""
import json
import re
import shutil
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "dashboards/prometheus"


@unittest.skipUnless(shutil.which("promtool"), "no promtool here")
class Rules(unittest.TestCase):
    def promtool(self, *arguments):
        done = subprocess.run(["promtool", *arguments], cwd=RULES, text=True, capture_output=True,
                              timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def test_promtool_finds_no_fault(self):
        self.promtool("check", "rules", "derate-alerts.yml", "derate-recording.yml")

    def test_each_does_what_it_is_for(self):
        self.promtool("test", "rules", "rules_test.yml")


class Names(unittest.TestCase):
    def test_every_metric_is_served(self):
        served = {each["name"] for each in json.loads((ROOT / "clients/metrics.json").read_text())
                  ["metrics"]}
        for path in sorted(RULES.glob("*.yml")):
            text = path.read_text()
            # What is recorded is named LEVEL:METRIC:OPERATION.
            asked = set(re.findall(r"(?<![:\w])derate_\w+(?!\w*:)", text))
            self.assertGreater(len(asked), 5)
            self.assertEqual(asked - served, set(), path.name)

    def test_every_alert_is_tested_and_says_what_to_do(self):
        alerts = (RULES / "derate-alerts.yml").read_text()
        names = re.findall(r"- alert: (\w+)", alerts)
        self.assertEqual(len(names), len(set(names)))
        tests = (RULES / "rules_test.yml").read_text()
        for name in names:
            self.assertIn(f'alertname="{name}"', tests)
        for word in ("severity:", "summary:", "description:"):
            self.assertEqual(len(re.findall(rf"\b{word}", alerts)), len(names), word)



if __name__ == "__main__":
    unittest.main()
