#!/usr/bin/env python3
"""libderate_progress.so on a real GPU, under programs that know nothing of it: what it counts
against their own steps, the tools that look into programs, and what it costs. It only computes.

    gpu_test.py LIBRARY OUT [--pairs N]      exit 77 (skipped) where there is no GPU or no PyTorch

Leaves recordings in OUT and prints what it measured.
"""
import argparse
import csv
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from launch_listener import preloading, record

HERE = Path(__file__).resolve().parent
WORK = [sys.executable, str(HERE / "torch_work.py")]
WINDOW_S = 2.0


def at(times, values, when):
    """Between two of them on a line; None outside."""
    for i in range(1, len(times)):
        if times[i - 1] <= when <= times[i]:
            share = (when - times[i - 1]) / max(1e-9, times[i] - times[i - 1])
            return values[i - 1] + share * (values[i] - values[i - 1])
    return None


def compared(steps_file, launches_file, settled_s=3.0):
    """Launches a step in windows: mean, relative sd, second half against the first, windows."""
    with open(steps_file, encoding="utf-8") as file:
        rows = [(float(row["time_s"]), float(row["steps"])) for row in csv.DictReader(file)]
    steps_at, steps = zip(*rows)
    with open(launches_file, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    launches_at = [line["time_s"] for line in lines]
    launches = [line["launches"] for line in lines]
    ratios, when = [], steps_at[0] + settled_s
    while when + WINDOW_S < min(steps_at[-1], launches_at[-1]):
        step_0, step_1 = (at(steps_at, steps, t) for t in (when, when + WINDOW_S))
        launch_0, launch_1 = (at(launches_at, launches, t) for t in (when, when + WINDOW_S))
        ratios.append((launch_1 - launch_0) / (step_1 - step_0))
        when += WINDOW_S
    mean = statistics.mean(ratios)
    half = len(ratios) // 2
    drift = statistics.mean(ratios[half:]) / statistics.mean(ratios[:half]) - 1
    return mean, statistics.stdev(ratios) / mean, drift, len(ratios)


def progress(library, out, seconds, kinds):
    print(f"launches a step, windows of {WINDOW_S:.0f} s:")
    for kind in kinds:
        steps, launches = out / f"{kind}_steps.csv", out / f"{kind}_launches.jsonl"
        code = record(library, launches, [*WORK, kind, str(seconds), str(steps)])
        if code != 0:
            print(f"  {kind}: exit code {code}")
            continue
        mean, sd, drift, windows = compared(steps, launches)
        print(f"  {kind:9} {mean:10.2f}   sd {100 * sd:.2f} %   second half against the first"
              f" {100 * drift:+.2f} %   {windows} windows", flush=True)


def of_bench(library, out, seconds, program):
    """Of each workload of bench-cuda: launches against its own count of work."""
    listed = subprocess.run([program, "list", "--json"], check=True, capture_output=True, text=True)
    for kind in [json.loads(line)["workload"] for line in listed.stdout.splitlines()]:
        steps, launches = out / f"{kind}_steps.csv", out / f"{kind}_launches.jsonl"
        told = out / "told.jsonl"
        with open(told, "w", encoding="utf-8") as file:
            record(library, launches, [program, kind, "--seconds", str(seconds)], file)
        with open(told, encoding="utf-8") as file, open(steps, "w", encoding="utf-8") as rows:
            rows.write("time_s,steps\n")
            for line in map(json.loads, file):
                if line["line"] == "rate":
                    rows.write(f"{line['monotonic_seconds']},{line['work_total']}\n")
        try:
            mean, sd, drift, windows = compared(steps, launches)
            print(f"  {kind:16} {mean:12.4g}   sd {100 * sd:.2f} %   second half against the first"
                  f" {100 * drift:+.2f} %   {windows} windows", flush=True)
        except (IndexError, ZeroDivisionError, statistics.StatisticsError, TypeError) as error:
            print(f"  {kind:16} {error!r}", flush=True)


def with_and_without(library, command):
    """Of each, the exit code, the output and stderr."""
    with tempfile.TemporaryDirectory() as folder:
        for env in (None, preloading(library, folder)):
            done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False,
                                  env=env)
            yield done.returncode, done.stdout, done.stderr


PROFILED = """
import torch
x = torch.randn(1024, 1024, device="cuda")
def work():
    y = x
    for _ in range(25):
        y = torch.relu(y @ x)
    torch.cuda.synchronize()
work()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
    work()
for event in sorted(seen.key_averages(), key=lambda e: e.key):
    print(event.key, event.count)
"""


def tools(library, build):
    print("tools, without and with it:")
    (without, with_it) = with_and_without(library, [sys.executable, "-c", PROFILED])
    print(f"  torch.profiler: {'the same' if without[:2] == with_it[:2] else 'DIFFERENT'},"
          f" {len(with_it[1].splitlines())} kinds of events")
    source, program = build / "small.cu", build / "small"
    source.write_text("""
        #include <cstdio>
        __global__ void twice(float* x) { x[threadIdx.x] *= 2; }
        __global__ void more(float* x) { x[threadIdx.x] += 1; }
        int main() {
          float* x;
          cudaMalloc(&x, 128);
          for (int i = 0; i < 5; ++i) { twice<<<1, 32>>>(x); more<<<1, 32>>>(x); }
          std::printf("%d\\n", (int)cudaDeviceSynchronize());
        }""")
    subprocess.run(["nvcc", "-g", "-G", "-o", program, source], check=True)
    for name, command, pattern in (
            ("ncu", ["ncu", "--clock-control", "none", "--metrics", "launch__grid_size", program],
             r"^\s+(\w+\(float \*\).*)$"),
            ("compute-sanitizer", ["compute-sanitizer", program], r"^=+ (ERROR.*)$"),
            ("cuda-gdb", ["cuda-gdb", "-batch", "-ex", "break more", "-ex", "run",
                          "-ex", "info cuda kernels", "-ex", "continue", program],
             r"(more<<<.*>>>|Breakpoint \d+, \w+)")):
        if shutil.which(name) is None:
            print(f"  {name}: not here")
            continue
        told = [(code, re.findall(pattern, text, re.MULTILINE)) for code, text, _ in
                with_and_without(library, command)]
        print(f"  {name}: {'the same' if told[0] == told[1] else f'DIFFERENT: {told}'};"
              f" exit code {told[1][0]}, {len(told[1][1])} lines: {told[1][1][:2]}", flush=True)


def cost(library, pairs, seconds, kind, out):
    def rate(env):
        steps = out / "cost_steps.csv"
        subprocess.run([*WORK, kind, str(seconds), str(steps)], check=True, env=env,
                       capture_output=True)
        with open(steps, encoding="utf-8") as file:
            rows = [(float(row["time_s"]), int(row["steps"])) for row in csv.DictReader(file)]
        return (rows[-1][1] - rows[2][1]) / (rows[-1][0] - rows[2][0])

    slower = []
    with tempfile.TemporaryDirectory() as folder:
        env = preloading(library, folder)
        for i in range(pairs):
            first, second = rate(env if i % 2 else None), rate(None if i % 2 else env)
            plain, counted = (second, first) if i % 2 else (first, second)
            slower.append(1 - counted / plain)
            print(f"  {kind}, pair {i + 1}: {plain:.3f} steps a second without, {counted:.3f} with:"
                  f" {100 * slower[-1]:+.2f} %", flush=True)
    mean = statistics.mean(slower)
    half = 1.96 * statistics.stdev(slower) / math.sqrt(pairs)
    print(f"cost, {kind}: {100 * mean:+.2f} % slower, 95 % interval {100 * (mean - half):+.2f} to"
          f" {100 * (mean + half):+.2f} ({pairs} pairs of {seconds} s)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=25, help="of each kind of work")
    parser.add_argument("--pairs", type=int, default=0, help="runs with and without it, in turn")
    parser.add_argument("--parts", default="progress,tools")
    parser.add_argument("--kinds", default="train,lengths,decode,compiled,tiny,generate")
    parser.add_argument("--bench", help="derate-bench-cuda, whose workloads are counted, too")
    parser.add_argument("--cost-of", default="tiny,train", help="kinds of work for --pairs")
    arguments = parser.parse_args()
    there = subprocess.run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"],
                           capture_output=True, check=False)
    if there.returncode != 0:
        print("skipped: no GPU, or no PyTorch")
        return 77
    library = arguments.library.resolve()
    arguments.out.mkdir(exist_ok=True, parents=True)
    begun = time.monotonic()
    if "progress" in arguments.parts:
        progress(library, arguments.out, arguments.seconds, arguments.kinds.split(","))
    if arguments.bench is not None:
        of_bench(library, arguments.out, arguments.seconds, arguments.bench)
    if "tools" in arguments.parts:
        with tempfile.TemporaryDirectory() as build:
            tools(library, Path(build))
    for kind in arguments.cost_of.split(",") if arguments.pairs > 0 else ():
        cost(library, arguments.pairs, 4, kind, arguments.out)
    print(f"{time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
