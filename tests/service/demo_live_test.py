#!/usr/bin/env python3
"""scripts/demo-live: simulated GPUs at work under a derated of its own, a page's address, and
nothing left after Ctrl-C.

    demo_live_test.py BUILD [SLOWNESS]
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import service_machine as service  # noqa: E402
from energy_test import wait_for  # noqa: E402


def alive(folder):
    """Processes whose environment names the folder."""
    out = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "environ").read_bytes():
                out.append(process.name)
        except OSError:
            pass
    return out


class DemoLive(unittest.TestCase):
    def end(self, demo):
        try:
            os.killpg(demo.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        demo.wait(30 * service.slow())
        demo.stdout.close()

    def test_it_runs_until_ctrl_c_and_leaves_nothing(self):
        with tempfile.TemporaryDirectory(prefix="derate-demo-test-") as name:
            folder = Path(name)
            demo = subprocess.Popen(
                [str(service.ROOT / "scripts/demo-live"), str(service.energy_test.BUILD),
                 "--no-open"], stdout=subprocess.PIPE, text=True, start_new_session=True,
                env={**os.environ, "TMPDIR": name, "HOME": name})
            self.addCleanup(self.end, demo)
            address = ""
            for line in demo.stdout:
                if found := re.search(r"http://127\.0\.0\.1:(\d+)/ui#\S+", line):
                    address = found
                    break
            self.assertTrue(address, "no address was printed")
            port = int(address[1])
            self.assertEqual(service.ask(port, "/ui").status, 200)

            def all_work():
                shown = service.ask(port, "/metrics").body
                return len(re.findall(r"^derate_gpu_governed\{.*\} 1$", shown, re.M)) == 3
            wait_for(all_work, "three governed GPUs")
            self.assertGreater(len(alive(folder)), 5)
            os.killpg(demo.pid, signal.SIGINT)
            self.assertEqual(demo.wait(30 * service.slow()), 0)
            wait_for(lambda: alive(folder) == [], "no process left")
            self.assertEqual(list(folder.glob("derate-demo.*")), [])


if __name__ == "__main__":
    service.begin(sys.argv)
    unittest.main(verbosity=2)
