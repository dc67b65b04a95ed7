#!/usr/bin/env python3
"""What the page of `derate ui` costs a browser over 64 simulated GPUs: the first picture, the
main thread's time a frame while a day of one GPU is scrubbed, and the browser's processor time
while the fleet is watched. For people to run: it prints and judges nothing. It needs node,
Chromium and web/ui/node_modules (`scripts/setup --all` brings them).

    page_bench.py BUILD_DIR [--gpus N] [--seconds N]
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JOBS = ("GeMM", "lavamd", "fft", "FDTD")


def wait(condition, what, timeout=120):
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"page_bench: waited {timeout} s for {what}")
        time.sleep(0.05)


def measure(build, folder, gpus, seconds):
    env = dict(os.environ, DERATE_SIM=f"{folder}/sim", DERATE_RUN_DIR=f"{folder}/run",
               DERATE_STATE_DIR=f"{folder}/state", DERATE_CONFIG=f"{folder}/derate.toml",
               DERATE_NVML_LIBRARY=f"{build}/fakenvml/libnvidia-ml.so.1",
               CHROMIUM=shutil.which("chromium") or "")
    Path(f"{folder}/derate.toml").write_text(
        '[governor]\npolicy = "assure"\ngovern = true\n', encoding="utf-8")
    processes = []

    def start(program, *arguments, **options):
        options.setdefault("stdout", subprocess.DEVNULL)
        processes.append(subprocess.Popen([f"{build}/{program}", *arguments], env=env,
                                          stderr=subprocess.DEVNULL, **options))
        return processes[-1]

    def derate(*arguments):
        return subprocess.run([f"{build}/derate", *arguments], env=env, check=False,
                              capture_output=True).returncode == 0

    try:
        start("derate", "sim", "serve", "--chip", "V100-SXM2,A100-SXM4,H200", "--gpus", str(gpus))
        wait(lambda: derate("sim", "show"), "simulated GPUs")
        start("derated")
        for i, job in enumerate(JOBS):
            start("derate", "sim", "job", job, "-i", str(i))
        wait(lambda: derate("status"), "derated")
        time.sleep(30)  # the first looks of a policy
        page = start("derate", "ui", "--no-open", stdout=subprocess.PIPE, text=True)
        address = page.stdout.readline().strip()
        done = subprocess.run(["node", str(ROOT / "tests/bench/page_bench.mjs"), address,
                               str(seconds)], env=env, check=False)
        return done.returncode
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=60, help="of watching the fleet")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return measure(arguments.build.resolve(), folder, arguments.gpus, arguments.seconds)


if __name__ == "__main__":
    sys.exit(main())
