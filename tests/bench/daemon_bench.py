#!/usr/bin/env python3
"""What derated costs, on eight simulated GPUs behind NVML's interface: processor time, memory, how
late its rounds begin while one GPU's calls hang, and how long restoring takes. For people to run:
it prints and judges nothing.

    daemon_bench.py BUILD_DIR [--seconds N] [--chip CHIP] [--scrape-every S] [--driver-cpu] [--work]
    daemon_bench.py BUILD_DIR --dcgm [--seconds N]    with activity from a host engine, and without
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GPUS = 8


class House:
    """A server of simulated GPUs and a daemon over them, in a folder of their own."""

    def __init__(self, build, folder, chip, driver_cpu, policy):
        self.build, self.policy = build, policy
        self.env = dict(os.environ, DERATE_SIM=f"{folder}/sim", DERATE_RUN_DIR=f"{folder}/run",
                        DERATE_STATE_DIR=f"{folder}/state", DERATE_CONFIG=f"{folder}/derate.toml",
                        DERATE_NVML_LIBRARY=f"{build}/fakenvml/libnvidia-ml.so.1")
        if driver_cpu:
            self.env["DERATE_SIM_CPU"] = "h200"
        Path(f"{folder}/derate.toml").write_text(
            f'[governor]\npolicy = "{policy}"\ngovern = true\n[policy.geepafs]\ntick = 0.1\n',
            encoding="utf-8")
        self.processes = []
        self.start("derate", "sim", "serve", "--chip", chip, "--gpus", str(GPUS))
        self.wait(lambda: self.derate("sim", "show", "--json").returncode == 0)

    def use_dcgm(self, use):
        engine = Path(self.env["DERATE_SIM"], "hostengine")
        config = Path(self.env["DERATE_CONFIG"])
        text = config.read_text("utf-8").partition("[dcgm]")[0]
        config.write_text(f'{text}[dcgm]\nuse = "{use}"\naddress = "unix:{engine}"\n', "utf-8")
        if use == "on":
            self.env["DERATE_DCGM_LIBRARY"] = f"{self.build}/fakedcgm/4/libdcgm.so.4"
            self.start("derate", "sim", "dcgm")
            self.wait(engine.exists)

    def start(self, program, *arguments):
        process = subprocess.Popen([f"{self.build}/{program}", *arguments], env=self.env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def derate(self, *arguments):
        return subprocess.run([f"{self.build}/derate", *arguments], env=self.env, text=True,
                              capture_output=True, check=False)

    def wait(self, condition, timeout=60):
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                sys.exit("daemon_bench: waited for too long")
            time.sleep(0.005)

    def scrape(self):
        """How many bytes there are of metrics; 0 where nobody answers."""
        api = f"{self.env['DERATE_RUN_DIR']}/api.sock"
        done = subprocess.run(["curl", "-sf", "--unix-socket", api, "http://localhost/metrics"],
                              capture_output=True, check=False)
        return len(done.stdout) if done.returncode == 0 else 0

    def locked(self):
        gpus = json.loads(self.derate("sim", "show", "--json").stdout)["gpus"]
        return sum("locked_highest_mhz" in gpu for gpu in gpus)

    def loop(self):
        return json.loads(Path(self.env["DERATE_RUN_DIR"], "state.json").read_text("utf-8"))["loop"]

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def family(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return [pid, *map(int, children)]


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(pids, key):
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
            if line.startswith(key + ":"):
                total += int(line.split()[1])
    return total / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--chip", default="H200")
    parser.add_argument("--scrape-every", type=float, default=15, metavar="S",
                        help="of /metrics; the history is kept all the time")
    parser.add_argument("--driver-cpu", action="store_true",
                        help="the stand-in's calls take the CPU time of an H200's driver")
    parser.add_argument("--work", action="store_true",
                        help="a job on each GPU, which assure governs; else all are idle")
    parser.add_argument("--dcgm", action="store_true",
                        help="on A100s at work: what activity from a DCGM host engine costs")
    options = parser.parse_args()
    if options.dcgm:
        options.chip, options.work = "A100-SXM4", True
    with tempfile.TemporaryDirectory() as folder:
        house = House(options.build.resolve(), folder, options.chip,
                      options.driver_cpu, "assure" if options.work else "geepafs")
        try:
            if options.work:
                for gpu in range(GPUS):
                    house.start("derate", "sim", "job", "-i", str(gpu))
            if options.dcgm:
                measure_dcgm(house, options)
            else:
                measure(house, options)
        finally:
            house.end()


def measure_dcgm(house, options):
    """The same daemon without a host engine and with one, one after the other."""
    for use in ("off", "on"):
        house.use_dcgm(use)
        daemon = house.start("derated")
        house.wait(lambda: house.scrape() > 0)
        time.sleep(options.seconds / 2)  # the policies have learned by then
        pids = family(daemon.pid)
        before, start = cpu_seconds(pids), time.monotonic()
        time.sleep(options.seconds)
        spent, took = cpu_seconds(pids) - before, time.monotonic() - start
        loop = house.loop()
        print(f"{GPUS} x {options.chip} at work, assure, DCGM {use:3}: {100 * spent / took:.2f} % "
              f"of one core, rounds late by {1e3 * loop['late_p99_seconds']:.2f} ms (p99)")
        daemon.terminate()
        daemon.wait()


def measure(house, options):
    daemon = house.start("derated")
    house.wait(lambda: house.locked() == GPUS)
    pids = family(daemon.pid)
    house.wait(lambda: house.scrape() > 0)
    before, start = cpu_seconds(pids), time.monotonic()
    size = 0
    while time.monotonic() < start + options.seconds:
        time.sleep(options.scrape_every)
        size = house.scrape()
    spent, took = cpu_seconds(pids) - before, time.monotonic() - start
    what = "a job on each, assure" if options.work else "idle, geepafs at 10 Hz"
    print(f"{GPUS} x {options.chip}, {what}, guard and worker, {took:.0f} s, a history, "
          f"a scrape of {size / 1e3:.0f} kB each {options.scrape_every:g} s")
    print(f"processor        {100 * spent / took:6.2f} % of one core")
    print(f"resident         {memory(pids, 'Rss'):6.1f} MiB (shared pages counted twice), "
          f"{memory(pids, 'Pss'):.1f} MiB proportional")
    loop = house.loop()
    print(f"rounds begin late by {1e3 * loop['late_p99_seconds']:.2f} ms (p99), "
          f"{1e3 * loop['late_max_seconds']:.2f} ms (most)")

    rounds = loop["rounds"]
    house.derate("sim", "fault", "-i", "3", "--call", "nvmlDeviceGetPowerUsage", "--hangs")
    # The last thousand rounds are what the daemon's own figures are over.
    house.wait(lambda: house.loop()["rounds"] > rounds + 1000, timeout=600)
    loop = house.loop()
    print(f"while GPU 3 hangs    {1e3 * loop['late_p99_seconds']:.2f} ms (p99), "
          f"{1e3 * loop['late_max_seconds']:.2f} ms (most), the others go on")
    house.derate("sim", "fault", "--clear")
    house.wait(lambda: house.locked() == GPUS, timeout=120)

    start = time.monotonic()
    daemon.terminate()
    daemon.wait()
    print(f"stopping: {GPUS} GPUs restored in {time.monotonic() - start:.3f} s, "
          f"{house.locked()} locked after it")

    daemon = house.start("derated")
    house.wait(lambda: house.locked() == GPUS)
    worker = family(daemon.pid)[1]
    start = time.monotonic()
    os.kill(worker, signal.SIGKILL)
    daemon.wait()
    print(f"kill -9 of the worker: {GPUS} GPUs restored in {time.monotonic() - start:.3f} s, "
          f"{house.locked()} locked after it")

    daemon = house.start("derated")
    house.wait(lambda: house.locked() == GPUS)
    for pid in family(daemon.pid):
        os.kill(pid, signal.SIGKILL)
    daemon.wait()
    start = time.monotonic()
    house.derate("restore")
    print(f"kill -9 of both, then derate restore: {GPUS} GPUs restored in "
          f"{time.monotonic() - start:.3f} s, {house.locked()} locked after it")


if __name__ == "__main__":
    main()
