#!/usr/bin/python3
"""Make tables that `derate lab import` takes from the public counters of an A100.

Each clock was run once, and one run time scatters by some percent: every column is smoothed by a
straight line through the clocks within 60 MHz, and performance is relative to the highest clock
after that.

    scripts/a100_tables.py --data DIR OUT
"""
import argparse
import csv
import sys
from collections import defaultdict
from pathlib import Path

NEAR = 60  # MHz
PERCENT = {
    "gr_engine_active": "graphics_pct",
    "sm_active": "sm_pct",
    "sm_occupancy": "occupancy_pct",
    "tensor_activity": "tensor_pct",
    "dram_active": "dram_pct",
    "fp64_active": "fp64_pct",
    "fp32_active": "fp32_pct",
    "fp16_active": "fp16_pct",
}


def smooth(clocks, values):
    out = []
    for centre in clocks:
        near = [(c - centre, v) for c, v in zip(clocks, values) if abs(c - centre) <= NEAR]
        mean_c = sum(c for c, _ in near) / len(near)
        mean_v = sum(v for _, v in near) / len(near)
        spread = sum((c - mean_c)**2 for c, _ in near)
        slope = sum((c - mean_c) * (v - mean_v) for c, v in near) / spread
        out.append(mean_v - slope * mean_c)
    return out


def read(path):
    rows = defaultdict(dict)
    for row in csv.DictReader(path.open()):
        rows[row["application"]][int(row["sm_app_clock"])] = row
    return rows


def columns(by_clock):
    clocks = sorted(by_clock)

    def column(key):
        return smooth(clocks, [float(by_clock[clock][key]) for clock in clocks])

    speed = smooth(clocks, [1 / float(by_clock[clock]["run_time"]) for clock in clocks])
    out = {
        "performance": [value / speed[-1] for value in speed],
        "power": column("power_usage"),
        "gpu_util_pct": column("gpu_utilization"),
        "mem_bw_util_pct": column("mem_copy_utilization"),
    }
    for key, name in PERCENT.items():
        out[name] = [100 * value for value in column(key)]
    for name in out:
        if name.endswith("_pct"):
            out[name] = [min(100.0, max(0.0, value)) for value in out[name]]
    return clocks, out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    counters = arguments.data / "a100" / "counters.csv"
    if not counters.is_file():
        sys.exit(f"no tables at {arguments.data}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    apps = {name: columns(by_clock) for name, by_clock in read(counters).items()}
    clocks = next(iter(apps.values()))[0]
    for kind in ("performance", "power"):
        with (arguments.out / f"{kind}.csv").open("w") as file:
            print("frequency(MHz)", *clocks, sep=",", file=file)
            for name, (_, column) in apps.items():
                print(name, *(f"{value:.5g}" for value in column[kind]), sep=",", file=file)
    shares = ["gpu_util_pct", "mem_bw_util_pct", *PERCENT.values()]
    with (arguments.out / "utilisation.csv").open("w") as file:
        print("app", "set_mhz", *shares, sep=",", file=file)
        for name, (at, column) in apps.items():
            for i, clock in enumerate(at):
                print(name, clock, *(f"{column[key][i]:.4g}" for key in shares), sep=",", file=file)


if __name__ == "__main__":
    main()
