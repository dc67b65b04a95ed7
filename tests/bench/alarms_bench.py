#!/usr/bin/env python3
"""How many false alarms a busy host causes: derated governs simulated GPUs, none of which has a
fault, while spinning processes keep all cores busy. For people to run: it prints the events by
kind and the lines of the log by level, and judges nothing.

    alarms_bench.py BUILD_DIR [--gpus N] [--minutes M] [--load PROCESSES] [--nice N]
"""
import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


class House:
    """A server of simulated GPUs, its jobs and a daemon over them, in a folder of their own."""

    def __init__(self, options, folder):
        build = options.build
        self.build, self.nice, self.log = build, options.nice, Path(folder, "log")
        self.env = dict(os.environ, DERATE_SIM=f"{folder}/sim", DERATE_RUN_DIR=f"{folder}/run",
                        DERATE_STATE_DIR=f"{folder}/state", DERATE_CONFIG=f"{folder}/derate.toml",
                        DERATE_NVML_LIBRARY=f"{build}/fakenvml/libnvidia-ml.so.1")
        Path(folder, "derate.toml").write_text('[governor]\npolicy = "assure"\ngovern = true\n',
                                               encoding="utf-8")
        self.processes = []
        self.start([f"{build}/derate", "sim", "serve", "--chip", options.chip, "--gpus",
                    str(options.gpus)])
        self.wait(lambda: self.derate("sim", "show", "--json").returncode == 0)
        for gpu in range(min(options.gpus, options.jobs)):
            self.start([f"{build}/derate", "sim", "job", "fft", "-i", str(gpu)])
        self.start([f"{build}/derated"], self.log)
        self.wait(lambda: "started" in self.derate("events").stdout)

    def start(self, command, log=None):
        output = open(log, "ab") if log else subprocess.DEVNULL
        process = subprocess.Popen(["nice", "-n", str(self.nice), *command], env=self.env,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=output)
        self.processes.append(process)

    def derate(self, *arguments):
        return subprocess.run([f"{self.build}/derate", *arguments], env=self.env, text=True,
                              capture_output=True, check=False)

    def wait(self, condition, timeout=120):
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                sys.exit("alarms_bench: waited for too long")
            time.sleep(0.1)

    def events(self):
        return json.loads(self.derate("events", "--json").stdout)["events"]

    def end(self):
        """The processes beside first, then derated, whose GPUs are still there."""
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def loop_of(house):
    state = Path(house.env["DERATE_RUN_DIR"], "state.json")
    return json.loads(state.read_text("utf-8")).get("loop", {})


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("build", type=lambda text: str(Path(text).resolve()))
    options.add_argument("--gpus", type=int, default=8)
    options.add_argument("--jobs", type=int, default=8)
    options.add_argument("--chip", default="H200")
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--load", type=int, default=20)
    options.add_argument("--nice", type=int, default=10)
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        house = House(options, folder)
        try:
            time.sleep(10)
            before = len(house.events())
            for _ in range(options.load):
                house.start([sys.executable, "-c", "while True: pass"])
            loads, end = [], time.monotonic() + 60 * options.minutes
            while time.monotonic() < end:
                time.sleep(5)
                loads.append(os.getloadavg()[0])
            events = house.events()[before:]
            loop = loop_of(house)
            log = house.log.read_text("utf-8", errors="replace").splitlines()
        finally:
            house.end()
    print(f"{options.gpus} GPUs, {options.minutes:g} min, {options.load} processes beside, load "
          f"{statistics.mean(loads):.0f} (highest {max(loads):.0f}), {os.cpu_count()} cores")
    print("rounds:", json.dumps(loop))
    kinds = collections.Counter((event["severity"], event["event"]) for event in events)
    for (severity, kind), count in sorted(kinds.items()):
        print(f"{severity:8} {kind:16} {count:6}  {count / options.minutes:.1f} a minute")
    print(f"{len(events)} events, {len(log)} lines of the log; the last of it:")
    print("\n".join(log[-8:]))


if __name__ == "__main__":
    main()
