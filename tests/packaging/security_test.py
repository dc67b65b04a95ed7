#!/usr/bin/env python3
"""What a shipped unit leaves open, as systemd sees it; skipped where systemd cannot judge a file.

    security_test.py UNIT
"""
import json
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

UNIT = ""
# On systemd's scale: 0 is closed, 10 open.
MOST = {"derated.service": 1.8, "derate-agent.service": 1.1, "derate-otlp.service": 1.0}

FILES = {"derated.service": 4096, "derate-agent.service": 1024, "derate-otlp.service": 1024}

# Why each of these is open stands in the unit. What else systemd finds open is news.
OPEN = {
    "derated.service": {
        "RootDirectoryOrRootImage", "UserOrDynamicUser", "PrivateDevices", "ProtectClock",
        "MemoryDenyWriteExecute", "RestrictAddressFamilies_AF_UNIX", "DeviceAllow", "ProtectProc",
        "ProcSubset", "CapabilityBoundingSet_CAP_SYS_ADMIN", "PrivateUsers", "UMask",
    },
    # It has the network, as far as the loopback; ProtectClock lets the clock be read.
    "derate-agent.service": {
        "RootDirectoryOrRootImage", "RestrictAddressFamilies_AF_INET_INET6",
        "RestrictAddressFamilies_AF_UNIX", "PrivateNetwork", "IPAddressDeny", "DeviceAllow",
    },
}
OPEN["derate-otlp.service"] = OPEN["derate-agent.service"]
# derate-agent counts its callers by user.
OPEN["derate-agent.service"] = OPEN["derate-agent.service"] | {
    "PrivateUsers", "RestrictAddressFamilies_AF_NETLINK",
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
        self.assertLessEqual(float(overall[1]), MOST[Path(UNIT).name])

    def test_what_is_open_is_known(self):
        text = analyze("--offline=true", "--json=short")
        if text is None:
            self.skipTest("this systemd-analyze judges no unit that is not loaded")
        found = {row["json_field"] for row in json.loads(text) if row["exposure"]}
        self.assertEqual(found - OPEN[Path(UNIT).name], set())

    def lines(self):
        with open(UNIT) as file:
            return dict(line.strip().partition("=")[::2] for line in file if "=" in line)

    def test_of_etc_the_drop_ins_alone_are_written(self):
        lines = self.lines()
        self.assertEqual(lines["ProtectSystem"], "strict")
        drop_ins = "-/etc/derate/conf.d" if Path(UNIT).name == "derated.service" else None
        self.assertEqual(lines.get("ReadWritePaths"), drop_ins)

    def test_nothing_goes_on_without_limit(self):
        lines = self.lines()
        for key in ("MemoryMax", "TasksMax", "LimitNOFILE", "StartLimitBurst",
                    "StartLimitIntervalSec"):
            self.assertNotIn(lines.get(key), (None, "", "0", "infinity"), key)

    def test_callers_cannot_take_all_of_its_files(self):
        """What users can make it hold, as far as the bounds in the code go."""
        self.assertGreaterEqual(int(self.lines()["LimitNOFILE"]), FILES[Path(UNIT).name])


if __name__ == "__main__":
    UNIT = sys.argv.pop(1)
    unittest.main(verbosity=2)
