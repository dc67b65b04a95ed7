#!/usr/bin/env python3
"""Whose watts these are, from outside: a real derated on a simulated GPU with two jobs, killed and
started again, and the bill of it.

    attribute_test.py BUILD [SLOWNESS]
"""
import csv
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

BUILD, SLOW = Path(), 1.0


class Machine(unittest.TestCase):
    """A folder, an environment, and what is started in it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="da-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "run").mkdir()
        (self.folder / "derate.toml").write_text(
            "[attribute]\ninterval_s = 0.5\nprice_per_kwh = 0.5\nco2_g_per_kwh = 400\n")
        self.environment = {
            **os.environ, "DERATE_RUN_DIR": str(self.folder / "run"),
            "DERATE_STATE_DIR": str(self.folder / "s"), "DERATE_SIM": str(self.folder / "sim"),
            "DERATE_CONFIG": str(self.folder / "derate.toml"),
            "DERATE_NVML_LIBRARY": str(BUILD / "fakenvml/libnvidia-ml.so.1")}
        self.environment.pop("DERATE_CLIENT_SOCKET", None)
        self.start("derate", "sim", "serve", "--chip", "V100-SXM2")
        self.wait_for(lambda: self.call("sim", "show").returncode == 0, "simulated GPUs")
        self.jobs = [self.start("derate", "sim", "job", name) for name in ("GeMM", "FDTD")]
        self.wait_for(lambda: len(self.tenants(direct=True)) == 2, "two processes on the GPU")

    def start(self, *arguments):
        with open(self.folder / "errors", "ab") as errors:
            process = subprocess.Popen(
                [str(BUILD / arguments[0]), *arguments[1:]], stderr=errors, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(self.stop, process)
        return process

    def stop(self, process):
        if process.poll() is None:
            process.terminate()
            process.wait(20 * SLOW)

    def wait_for(self, holds, what):
        until = time.monotonic() + 20 * SLOW
        while not holds():
            if time.monotonic() > until:
                raise AssertionError(f"never: {what}\n{(self.folder / 'errors').read_text()}")
            time.sleep(0.05)

    def call(self, *arguments):
        return subprocess.run([str(BUILD / "derate"), *arguments], capture_output=True, text=True,
                              env=self.environment, timeout=60 * SLOW)

    def document(self, *arguments):
        done = self.call(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def tenants(self, direct=False):
        how = ("--method", "equal") if direct else ()
        picture = self.document("attribute", "--json", "--interval", "0.3", *how)
        return {tenant["pid"]: tenant for gpu in picture["gpus"] for tenant in gpu["tenants"]}

    def counter(self):
        """The board's counter in mJ, and the time it was read at in s."""
        ticks = self.folder / "ticks"
        self.document("attribute", "--json", "--interval", "0.2", "--ticks", str(ticks))
        board = json.loads(ticks.read_text().splitlines()[-1])["tenancy"]
        return round(board["energy_joules"] * 1000), board["time_ns"] * 1e-9

    def daemon(self):
        process = self.start("derated")

        def told():
            state = self.folder / "run/state.json"
            return state.exists() and "attribution" in state.read_text()
        self.wait_for(told, "the daemon's state")
        return process

    def bill(self, *arguments):
        return self.document("bill", "--from", "-1h", "--json", *arguments)

    def assert_adds_up(self, bill):
        lines = [*bill["lines"], bill["unallocated"]]
        self.assertEqual(sum(round(line["energy_joules"] * 1000) for line in lines),
                         round(bill["total"]["energy_joules"] * 1000))


class Attribute(Machine):
    def test_a_bill_of_two_jobs_adds_up_and_outlives_a_kill(self):
        counter, began = self.counter()
        daemon = self.daemon()
        time.sleep(5)
        live = self.document("attribute", "--json")
        self.assertEqual(live["source"], "derated")
        self.stop(daemon)
        after, ended = self.counter()
        self.assertFalse(list((self.folder / "s").glob("*-wal")))  # closed in time
        bill = self.bill("--by", "process")
        self.assert_adds_up(bill)
        total = bill["total"]["energy_joules"]
        self.assertGreaterEqual(total, live["gpus"][0]["energy_joules"])
        self.assertLessEqual(total * 1000, after - counter)
        # The jobs draw the same all the time: what is billed has the counter's watts.
        self.assertGreater(bill["seconds"], 4)
        watts = (after - counter) / 1000 / (ended - began)
        self.assertAlmostEqual(total / bill["seconds"], watts, delta=watts * 0.1)
        pids = {job.pid for job in self.jobs}
        self.assertEqual({int(line["name"].split("(")[1].rstrip(")")) for line in bill["lines"]},
                         pids)
        self.assertAlmostEqual(bill["total"]["cost"], total / 3.6e6 * 0.5)
        self.assertIsNone(bill["total"]["saving"])  # nobody governs

        daemon = self.daemon()
        time.sleep(1)
        worker = json.loads((self.folder / "run/state.json").read_text())["pid"]
        os.kill(worker, signal.SIGSTOP)  # one that sees its guard gone would write
        daemon.send_signal(signal.SIGKILL)
        os.kill(worker, signal.SIGKILL)
        daemon.wait(20 * SLOW)
        (self.folder / "run/state.json").unlink(missing_ok=True)
        # derated writes each second, so the bill has the energy of the killed run.
        self.assertGreaterEqual(self.bill("--by", "process")["total"]["energy_joules"], total)

        daemon = self.daemon()
        self.stop(self.jobs.pop())
        self.wait_for(lambda: len(self.tenants()) == 1, "one job has ended")
        self.stop(daemon)
        more = self.bill()
        self.assert_adds_up(more)
        self.assertGreater(more["total"]["energy_joules"], total)
        # What the killed one had not written is shown, and when.
        self.assertEqual((bill["lost_seconds"], bill["losses"]), (0, []))
        self.assertGreater(more["lost_seconds"], 0)
        self.assertAlmostEqual(sum(loss["lost_seconds"] for loss in more["losses"]),
                               more["lost_seconds"])
        self.assertIn("is on no bill: 2", self.call("bill", "--from", "-1h").stdout)
        self.assertFalse(list((self.folder / "s").glob("*.aside*")))
        self.check_csv(more)

    def check_csv(self, bill):
        rows = list(csv.DictReader(io.StringIO(
            self.call("bill", "--from", "-1h", "--csv").stdout)))
        self.assertEqual(rows[-1]["kind"], "total")
        self.assertEqual(float(rows[-1]["energy_joules"]), bill["total"]["energy_joules"])
        self.assertEqual(sum(round(float(row["energy_joules"]) * 1000) for row in rows[:-1]),
                         round(float(rows[-1]["energy_joules"]) * 1000))

    def test_idle_gpus_and_reloads_go_on(self):
        daemon = self.daemon()
        self.wait_for(lambda: len(self.tenants()) == 2, "both jobs in a tick")
        for job in self.jobs:
            self.stop(job)
        self.wait_for(lambda: not self.tenants(), "nobody")
        (self.folder / "derate.toml").write_text("[attribute]\nidle_rule = \"equal\"\n")
        daemon.send_signal(signal.SIGHUP)
        self.wait_for(lambda: self.document("attribute", "--json")["gpus"][0]["idle_rule"] ==
                      "equal", "the new rule")
        gpu = self.document("attribute", "--json")["gpus"][0]
        self.assertGreater(gpu["ended_joules"], 0)
        self.assertGreater(gpu["unallocated_watts"], 5)


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).resolve()
    SLOW = float(sys.argv.pop(1)) if len(sys.argv) > 1 else 1.0
    unittest.main()
