#!/usr/bin/python3
"""Fit what `assure` knows before it has seen anything: src/model/curve_rows.inc.

Of each measured application, over the upper part of its chip's clocks, with x = log(fmax / f):

    log performance            = a x + b x^2
    log power                  = p x + q x^2
    log of a counter, relative = log performance + c x + d x^2

(a, b), (p, q) and (c, d) by least squares. A counter that shows little at the highest clock is left
out. Pipes are activity x clock, of the busiest pipe.

    scripts/fit_curve_priors.py --data DIR > src/model/curve_rows.inc
"""
import argparse
import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

DEEPEST = 0.55  # of x: the flat-voltage region's end and a little more
# NVML's memory utilisation comes in whole percents: a tenth less of 10 % is one of them.
LEAST_SHARE = {"memory": 0.1, "dram": 0.03, "pipe": 0.03}
PIPES = ("fp64_active", "fp32_active", "fp16_active", "tensor_activity")


def clock_table(path):
    rows = list(csv.reader(path.open()))
    clocks = np.array([float(cell) for cell in rows[0][1:]])
    return clocks, {row[0]: np.array([float(cell) for cell in row[1:]]) for row in rows[1:]}


def curve(x, values):
    """Coefficients of log(values / values at x = 0) = c x + d x^2."""
    use = (x > 0) & (x <= DEEPEST)
    terms = np.stack([x[use], x[use] ** 2], axis=1)
    return np.linalg.lstsq(terms, values[use], rcond=None)[0]


def relative(values):
    return np.log(values / values[-1])


def v100(folder):
    clocks, performance = clock_table(folder / "performance.csv")
    _, power = clock_table(folder / "power.csv")
    memory = defaultdict(dict)
    for row in csv.DictReader((folder / "utilisation.csv").open()):
        memory[row["app"]][float(row["set_mhz"])] = float(row["mem_bw_util_pct"]) / 100
    x = np.log(clocks[-1] / clocks)
    for name, perf in performance.items():
        yield "V100-SXM2", name, x, perf, power[name], {
            "memory": np.array([memory[name][clock] for clock in clocks])}


def a100(folder):
    apps = defaultdict(dict)
    for row in csv.DictReader((folder / "counters.csv").open()):
        apps[row["application"]][float(row["sm_app_clock"])] = row
    for name, by_clock in apps.items():
        clocks = np.array(sorted(by_clock))

        def column(key):
            return np.array([float(by_clock[clock][key]) for clock in clocks])

        pipe = max(PIPES, key=lambda key: column(key)[-1])
        yield "A100-SXM4", name, np.log(clocks[-1] / clocks), 1 / column("run_time"), column(
            "power_usage"), {
                "memory": column("mem_copy_utilization") / 100,
                "dram": column("dram_active"),
                "pipe": column(pipe) * clocks / clocks[-1]}


def row(chip, name, x, performance, power, counters):
    perf = curve(x, relative(performance))
    cells = [f'"{chip}"', f'"{name}"', pair(perf), pair(curve(x, relative(power)))]
    for kind in ("memory", "dram", "pipe"):
        values = counters.get(kind)
        if values is None or values[-1] < LEAST_SHARE[kind]:
            cells.append("{}")
            continue
        bias = curve(x, relative(values) - relative(performance))
        cells.append(f"CounterRow{{{values[-1]:.3f}, {pair(bias)}}}")
    return "    {" + ", ".join(cells) + "},"


def pair(values):
    return "{" + ", ".join(f"{value:.4f}" for value in values) + "}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    data = parser.parse_args().data
    if not data.is_dir():
        sys.exit(f"no tables at {data}")
    print("// By scripts/fit_curve_priors.py: our own coefficients, fitted to public tables.")
    print("// chip, application, performance, power, memory utilisation, DRAM activity, "
          "pipe x clock")
    for application in (*v100(data / "v100"), *a100(data / "a100")):
        print(row(*application))


if __name__ == "__main__":
    main()
