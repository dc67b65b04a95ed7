#!/usr/bin/python3
"""How the sensors of an H200 behave, from a trace of one that was read every 50 ms; beside it, with
--derate, those of the simulated H200. docs/sensors.md explains the rows.

    scripts/sensor_figures.py --data DIR [--derate PROGRAM]

DIR holds h200/trace.csv. Simulated: 60 s of each kernel by `derate record`, 600 s for glitches, and
for the rise of utilisation the beginnings of an experiment's jobs. Needs numpy; some seconds.
"""
import argparse
import csv
import json
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path

import numpy as np

# Alone on the GPU, at 1980 MHz from the first reading to the last.
STEADY = ("gemm_fp32", "copy", "triad", "transpose", "gemv", "sfu", "sort", "decode")
NO_WORK = ("setup", "cool", "idle", "idle_end")
UNSTEADY = ("small", "train", "train_small", "bursty")  # the work itself is
SETTLE_S = 2.0
GLITCH = 0.15  # of the kernel's median

# Ours, the trace's, those of derate record.
COLUMNS = {
    "t": ("t", "t_us", 1e-6),
    "instant": ("p_inst_mw", "power_instant_mw", 1),
    "average": ("p_avg_mw", "power_average_mw", 1),
    "energy": ("energy_mj", "energy_mj", 1),
    "gpu": ("util_gpu", "gpu_util_pct", 1),
    "memory": ("util_mem", "memory_util_pct", 1),
    "temperature": ("temp_c", "temperature_c", 1),
    "graphics": ("gpm_gr", "graphics_pct", 1),
    "sm": ("gpm_sm", "sm_pct", 1),
    "dram": ("gpm_dram", "dram_pct", 1),
}

EXPERIMENT = """
[experiment]
repetitions = 20
[gpus]
chips = ["H200"]
[workloads]
fitted = ["copy", "transpose", "sfu"]
[jobs]
work_s = 3
warm_up_s = 0
idle_s = 5
idle_spread_s = 1
[[policy]]
name = "geepafs"
set = { tick = 0.02 }
"""


def read_trace(path):
    """(label, its readings by column), in order."""
    with path.open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    by_label = groupby(lines, lambda line: line["label"])
    return [(label, {ours: np.array([float(line[theirs]) for line in group])
                     for ours, (theirs, _, _) in COLUMNS.items()})
            for label, group in ((key, list(of)) for key, of in by_label)]


def read_record(path):
    lines = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()[2:]
             if not line.startswith("#")]
    header, *rows = lines
    for above, row in zip(rows, rows[1:]):
        row[:] = [before if cell == '"' else cell for before, cell in zip(above, row)]
    return {ours: np.array([float(row[header.index(theirs)] or "nan") for row in rows]) * unit
            for ours, (_, theirs, unit) in COLUMNS.items()}


def recorded(program, kernel, seconds, folder, seed):
    path = Path(folder) / f"{kernel}.trace"
    subprocess.run([program, "record", "-f", "-o", path, "--sim", "H200", "--app", kernel,
                    "--interval", "50ms", "--for", str(seconds), "--seed", str(seed)],
                   check=True, stdout=subprocess.DEVNULL)
    return read_record(path)


def part(readings, which):
    return {key: values[which] for key, values in readings.items()}


def settled(readings):
    return part(readings, readings["t"] - readings["t"][0] >= SETTLE_S)


def windows(readings):
    """Those at which GPM had a new window: one that is read twice has zeros."""
    return part(readings, readings["graphics"] > 0)


def renewed(values):
    return values[np.r_[True, np.diff(values) != 0]]


def spread(values):
    """In percent of the mean, beside a trend: work gets warm."""
    at = np.arange(len(values))
    return 100 * np.std(values - np.polyval(np.polyfit(at, values, 1), at)) / np.mean(values)


def jitter(values):
    """From one reading to the next, as the standard deviation of one, in percent."""
    return 100 * np.std(np.diff(values)) / np.sqrt(2) / np.mean(values)


def off_median(readings, key):
    shares = windows(readings)[key]
    return shares / np.median(shares) - 1


def glitches(readings):
    """By how much DRAM shares are off that are far off, and of how many windows."""
    off = off_median(readings, "dram")
    return off[np.abs(off) >= GLITCH], len(off)


def period(labelled, key):
    """Time between two changes, and the share of the changes that is a multiple of it."""
    gaps = np.concatenate([np.diff(readings["t"][1:][np.diff(readings[key]) != 0])
                           for _, readings in labelled])
    steps = np.round(gaps / 0.05)
    shortest = 2 if key not in ("gpu", "memory") else 4
    return f"{50 * shortest} ms: {100 * np.mean(steps % shortest == 0):.0f} % of {len(gaps)}"


def onset(readings, begin, full):
    """When work began: the first GPM window that is followed by a full one says for what part."""
    with_work = windows(readings)
    for now, share, after in zip(with_work["t"], with_work["graphics"], with_work["graphics"][1:]):
        if now > begin - 1 and after > 0.9 * full:
            return now - 0.1 * min(1, share / full)
    raise ValueError("no work")


def rises(labelled):
    """Seconds from the begin of work to a GPU utilisation of 95 % of the settled one."""
    found = []
    for (_, before), (label, readings) in zip(labelled, labelled[1:]):
        if label in NO_WORK + UNSTEADY:
            continue
        end = settled(readings)
        both = {key: np.concatenate([before[key][-20:], readings[key]]) for key in COLUMNS}
        begin = onset(both, readings["t"][0], np.median(windows(end)["graphics"]))
        there = (both["gpu"] >= 0.95 * np.median(end["gpu"])) & (both["t"] >= begin)
        found.append(both["t"][there][0] - begin)
    return found


def simulated_rises(program, folder):
    toml, results = Path(folder) / "rise.toml", Path(folder) / "rise.lab"
    toml.write_text(EXPERIMENT, encoding="utf-8")
    subprocess.run([program, "lab", "run", "--threads", "1", toml], check=True, cwd=folder,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found, job = [], 0
    while True:
        job += 1
        answer = subprocess.run([program, "report", results, "--job", str(job), "--json"],
                                capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            return found
        told = json.loads(answer.stdout)
        if told["policy"] == "geepafs":
            found.append(next(tick["time_seconds"] for tick in told["ticks"]
                              if tick["gpu_utilisation_ratio"] >= 0.95))


def of_range(values, unit):
    return f"{min(values):.2f} to {max(values):.2f} {unit}, median {np.median(values):.2f}"


def noise_rows(kernels):
    instant = {name: spread(renewed(one["instant"])) for name, one in kernels.items()}
    watts = [instant[name] / 100 * np.mean(one["instant"]) / 1000 for name, one in kernels.items()]
    worst = max(instant, key=instant.get)
    average = [renewed(one["average"]) for one in kernels.values()]
    yield "field 186, sd", of_range(list(instant.values()), "%") + f" (most: {worst})"
    yield "field 186, sd in watts", of_range(watts, "W")
    yield "field 185, sd beside a trend", of_range([spread(one) for one in average], "%")
    yield "field 185, from one reading to the next", of_range([jitter(one) for one in average], "%")
    for key, name in (("sm", "GPM, SM share, sd"), ("dram", "GPM, DRAM share, sd, no glitches")):
        off = [off_median(one, key) for one in kernels.values()]
        yield name, of_range([100 * np.std(one[np.abs(one) < GLITCH]) for one in off], "%")
    for key in ("gpu", "memory"):
        points = {name: np.std(one[key]) for name, one in kernels.items()}
        clipped = [name for name, one in kernels.items() if np.min(one[key]) == 100]
        yield f"{key} utilisation, sd", of_range(list(points.values()), "points") + (
            f"; always 100: {len(clipped)} of {len(kernels)}")


def glitch_row(found):
    sizes = np.concatenate([100 * off for off, _ in found])
    return f"{len(sizes)} of {sum(of for _, of in found)} windows: " + ", ".join(
        f"{size:+.0f} %" for size in sizes)


def measured(path):
    labelled = read_trace(path)
    kernels = {name: settled(one) for name, one in labelled if name in STEADY}
    yield from noise_rows(kernels)
    yield "DRAM glitches, steady kernels", glitch_row([glitches(one) for one in kernels.values()])
    yield "DRAM glitches, all but UNSTEADY", glitch_row(
        [glitches(settled(one)) for name, one in labelled if name not in NO_WORK + UNSTEADY])
    for key in ("instant", "average", "energy", "gpu", "memory", "temperature", "sm"):
        # GPM's zeros stand between two windows.
        yield f"renewed, {key}", period([(name, windows(one) if key == "sm" else one)
                                         for name, one in labelled], key)
    yield "GPU utilisation to 95 %", of_range(rises(labelled), "s")


def simulated(program):
    with tempfile.TemporaryDirectory() as folder:
        kernels = {name: settled(recorded(program, name, 60, folder, seed))
                   for seed, name in enumerate(STEADY)}
        yield from noise_rows(kernels)
        # Of half of the bandwidth: nothing is cut off at 100 %.
        yield "DRAM glitches, sort", glitch_row(
            [glitches(recorded(program, "sort", 600, folder, 100))])
        labelled = list(kernels.items())
        # Energy is recorded once a second, and utilisation stands still.
        for key in ("instant", "average", "temperature", "sm"):
            yield f"renewed, {key}", period([(name, windows(one) if key == "sm" else one)
                                             for name, one in labelled], key)
        yield "GPU utilisation to 95 %", of_range(simulated_rises(program, folder), "s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the measured tables")
    parser.add_argument("--derate", help="the program: simulates an H200 and compares")
    options = parser.parse_args()
    trace = options.data / "h200/trace.csv"
    if not trace.exists():
        sys.exit(f"no trace at {trace}")
    columns = {"measured": measured(trace)}
    if options.derate:
        columns["simulated"] = simulated(Path(options.derate).resolve())
    for title, rows in columns.items():
        print(title)
        for name, figure in rows:
            print(f"  {name:55s} {figure}")


if __name__ == "__main__":
    main()
