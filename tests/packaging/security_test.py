#!/usr/bin/env python3
"""What the shipped unit leaves open, as systemd sees it; skipped where systemd cannot judge a file.

    security_test.py UNIT
"""
import json
import re
import shutil
import subprocess
import sys
import unittest

UNIT = ""
MOST = 1.8  # systemd's scale: 0 is closed, 10 open

# Why each of these is open stands in the unit. What else systemd finds open is news.
OPEN = {
    "RootDirectoryOrRootImage", "UserOrDynamicUser", "PrivateDevices", "ProtectClock",
    "MemoryDenyWriteExecute", "RestrictAddressFamilies_AF_UNIX", "DeviceAllow", "ProtectProc",
    "ProcSubset", "CapabilityBoundingSet_CAP_SYS_ADMIN", "PrivateUsers", "UMask",
}


def analyze(*options):
    """Its output; None where this systemd is too old for the options (before 250)."""
    done = subprocess.run(["systemd-analyze", "security", "--no-pager", *options, UNIT],
                          capture_output=True, text=True, timeout=60)
    return done.stdout if done.stdout else None


@unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze here")
class Security(unittest.TestCase):
    def test_the_unit_is_closed_as_far_as_the_driver_lets_it(self):
        text = analyze("--offline=true")
        if text is None:
            self.skipTest("this systemd-analyze judges no unit that is not loaded")
        overall = re.search(r"Overall exposure level for \S+: ([0-9.]+)", text)
        self.assertIsNotNone(overall, text)
        print("overall exposure", overall[1])
        self.assertLessEqual(float(overall[1]), MOST)

    def test_what_is_open_is_known(self):
        text = analyze("--offline=true", "--json=short")
        if text is None:
            self.skipTest("this systemd-analyze judges no unit that is not loaded")
        found = {row["json_field"] for row in json.loads(text) if row["exposure"]}
        self.assertEqual(found - OPEN, set())

    def test_nothing_goes_on_without_limit(self):
        with open(UNIT) as file:
            lines = dict(line.strip().partition("=")[::2] for line in file if "=" in line)
        for key in ("MemoryMax", "TasksMax", "StartLimitBurst", "StartLimitIntervalSec"):
            self.assertNotIn(lines.get(key), (None, "", "0", "infinity"), key)


if __name__ == "__main__":
    UNIT = sys.argv.pop(1)
    unittest.main(verbosity=2)
