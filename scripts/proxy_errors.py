#!/usr/bin/env python3
"""How well counters follow the rate of work when the clock of a GPU moves: a trace of derate record
against the rates that derate-bench-cuda or gpu_kernels.py --data printed meanwhile.

    scripts/proxy_errors.py gpu0.trace rates.json [MORE.trace MORE.json ...]

A window is a rate line of about a second that begins a second or more after the data changed. Each
proxy, relative to its median at the highest clock, is compared with the true rate, relative to the
same windows. Errors are in percentage points of performance: above 0 is the unsafe side, the proxy
says that more gets done than does. "fused (plain)" is the mean of the usable proxies' logarithms,
weighted by their precision.
"""
import argparse
import json
import math
import sys
from collections import namedtuple
from datetime import datetime
from itertools import groupby
from statistics import fmean, median, pstdev, stdev

# Name, column, rounding, whether a level is a share of the clock's cycles (else of a second's).
Proxy = namedtuple("Proxy", "name column step of_cycles")
PROXIES = [
    Proxy("memory utilisation", "memory_util_pct", 1.0, False),
    Proxy("DRAM activity", "dram_pct", 0.0, False),
    Proxy("FP64 x clock", "fp64_pct", 0.0, True),
    Proxy("FP32 x clock", "fp32_pct", 0.0, True),
    Proxy("FP16 x clock", "fp16_pct", 0.0, True),
    Proxy("integer x clock", "integer_pct", 0.0, True),
    Proxy("tensor x clock", "tensor_pct", 0.0, True),
    Proxy("SM x clock", "sm_pct", 0.0, True),
]
HEATED = {"tensor_pct", "sm_pct"}  # beside heat these are the heat's
LOWEST, HIGHEST = 3.0, 97.0        # percent: below no signal, from here on saturated
SETTLE = 1.0                       # seconds after a change that no window begins in
SHORTEST = 0.8                     # seconds
SAME_CLOCK = 10.0                  # MHz; clocks are 15 MHz apart

Window = namedtuple("Window", "data rate heat_rate clock watts levels")  # column to mean percent


def read_trace(path):
    """Rows as dicts, column to number, with "time" in Unix seconds."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    start = json.loads(lines[1][1:])["start"]
    start = datetime.fromisoformat(start.replace("Z", "+00:00")).timestamp()
    names, cells, rows = lines[2].split(","), [], []
    for line in lines[3:]:
        if line.startswith("#"):
            continue
        cells = [before if cell == '"' else cell
                 for cell, before in zip(line.split(","), cells or names)]
        row = {name: float(int(cell, 16) if cell.startswith("0x") else cell)
               for name, cell in zip(names, cells) if cell}
        rows.append(row | {"time": start + row["t_us"] / 1e6})
    return rows


def read_runs(path):
    """(name, heated, rate lines) of each run; the heat's rate as "heat_rate" in them."""
    runs, sizes = [], {}
    with open(path, encoding="utf-8") as file:
        for line in map(json.loads, file):
            if line["line"] == "header":
                name, size, heat = line["workload"], line.get("size"), line.get("heat", 0)
                if size != sizes.setdefault(name, size):
                    name += f" of {size}"
                runs.append((name + (f" + heat {heat:g}" if heat else ""), heat > 0, []))
            elif line["line"] == "rate":
                runs[-1][2].append(line)
            elif line["line"] == "heat":
                runs[-1][2][-1]["heat_rate"] = line["rate"]
    return runs


def data_of(rate):
    return rate["data"], rate.get("heat_data")


def windows_of(rates, rows):
    for data, level in groupby(rates, data_of):
        level = list(level)
        settled = level[0]["time_unix_seconds"] - level[0]["seconds"] + SETTLE
        for rate in level:
            end, begin = rate["time_unix_seconds"], rate["time_unix_seconds"] - rate["seconds"]
            inside = [row for row in rows if begin < row["time"] <= end]
            if begin < settled - 0.01 or rate["seconds"] < SHORTEST or len(inside) < 3:
                continue
            clock = fmean(row["sm_clock_mhz"] for row in inside)
            watts = fmean(row["power_average_mw"] for row in inside) / 1e3
            levels = {}
            for proxy in PROXIES:
                seen = [row[proxy.column] for row in inside if proxy.column in row]
                if seen:
                    levels[proxy.column] = fmean(seen)
            yield Window(data, rate["rate"], rate.get("heat_rate"), clock, watts, levels)


def signal(proxy, window):
    """The number that is to be proportional to the rate of work; None where it was not read."""
    level = window.levels.get(proxy.column)
    return level and level * (window.clock if proxy.of_cycles else 1)


def usable(proxy, window):
    return LOWEST <= window.levels.get(proxy.column, 0) < HIGHEST


class Reference:
    """The windows with the data that leave the highest clock: what each ratio is relative to."""

    def __init__(self, windows):
        clocks = {data: fmean(w.clock for w in windows if w.data == data)
                  for data in {w.data for w in windows}}
        top = {data for data, clock in clocks.items()
               if clock > max(clocks.values()) - SAME_CLOCK}
        self.windows = [w for w in windows if w.data in top]
        self.clock = median(w.clock for w in self.windows)
        self.rate = median(w.rate for w in self.windows)
        self.heat_rate = median(w.heat_rate or 0 for w in self.windows)

    def level(self, proxy):
        seen = [w.levels[proxy.column] for w in self.windows if proxy.column in w.levels]
        return median(seen) if seen else 0.0

    def signal(self, proxy):
        return median(signal(proxy, w) or 0 for w in self.windows)

    def unsteady(self):
        """How far the rate strays there, in percent."""
        return 100 * pstdev(w.rate for w in self.windows) / self.rate

    def spread(self, proxy):
        """Of one window's signal, relative: noise, and what the operands do to it."""
        signals = [signal(proxy, w) or 0 for w in self.windows]
        return stdev(signals) / fmean(signals) if len(signals) > 1 else 0.01

    def variance(self, proxy, window):
        """Of the logarithm of a ratio: noise and rounding, now and at the reference."""
        rounding = [proxy.step / math.sqrt(12) / level
                    for level in (window.levels[proxy.column], self.level(proxy))]
        return self.spread(proxy) ** 2 + sum(r * r for r in rounding) + 1e-6


def fused_ratio(proxies, window, reference):
    total = weights = 0.0
    for proxy in proxies:
        if usable(proxy, window):
            weight = 1 / reference.variance(proxy, window)
            total += weight * math.log(signal(proxy, window) / reference.signal(proxy))
            weights += weight
    return math.exp(total / weights) if weights else None


def points(value):
    return f"{round(value, 1) + 0.0:+.1f}"  # + 0.0: no -0.0


class Errors:
    """Of one proxy, in percentage points of performance."""

    def __init__(self, name, level, errors, note=""):
        self.name, self.level, self.errors, self.note = name, level, errors, note

    def line(self):
        if not self.errors:
            return f"  {self.name:22}{self.level:>7}  no window"
        return (f"  {self.name:22}{self.level:>7}{points(fmean(self.errors)):>8}"
                f"{pstdev(self.errors):8.1f}{points(max(self.errors)):>8}"
                f"{points(min(self.errors)):>8}{len(self.errors):5}  {self.note}").rstrip()

    def cell(self):
        if not self.errors:
            return "-"
        return (f"{points(fmean(self.errors))} ({points(min(self.errors))} to "
                f"{points(max(self.errors))})" + (", " + self.note if self.note else ""))


class Run:
    """One workload's windows, judged."""

    def __init__(self, name, heated, windows):
        self.name, self.windows, self.reference = name, windows, Reference(windows)
        self.lower = [w for w in windows if w not in self.reference.windows]
        mine = [p for p in PROXIES if not (heated and p.column in HEATED)]
        self.silent = [p.name for p in mine if self.reference.level(p) < LOWEST]
        seen = [p for p in mine if p.name not in self.silent]
        self.errors = [self.errors_of(p) for p in seen] + [self.fused_errors(seen)]
        if heated:
            self.errors += [self.errors_of(p) for p in PROXIES if p.column == "tensor_pct"]
            self.errors[-1].name = "heat: tensor x clock"

    def errors_of(self, proxy):
        reference = self.reference
        level = reference.level(proxy)

        def true_ratio(window):
            if proxy.column in HEATED and window.heat_rate:
                return window.heat_rate / reference.heat_rate
            return window.rate / reference.rate

        errors = [100 * (signal(proxy, w) / reference.signal(proxy) - true_ratio(w))
                  for w in self.lower if signal(proxy, w)]
        return Errors(proxy.name, f"{level:.1f} %", errors,
                      "saturated" if level >= HIGHEST else "")

    def fused_errors(self, proxies):
        known = [p for p in proxies if self.reference.level(p) < HIGHEST]
        ratios = [(fused_ratio(known, w, self.reference), w.rate / self.reference.rate)
                  for w in self.lower]
        errors = [100 * (ratio - true) for ratio, true in ratios if ratio]
        return Errors("fused (plain)", "", errors)

    def slowest(self):
        return min(self.windows, key=lambda w: w.clock)

    def describe(self):
        lowest, highest = min(w.watts for w in self.windows), max(w.watts for w in self.windows)
        yield (f"{self.name}: {self.reference.clock:.0f} to {self.slowest().clock:.0f} MHz, "
               f"{lowest:.0f} to {highest:.0f} W, rate 100 to "
               f"{100 * self.slowest().rate / self.reference.rate:.1f} %, "
               f"{len(self.reference.windows)} windows at the highest clock, their rate within "
               f"{self.reference.unsteady():.1f} % (sd)")
        if not self.lower:
            yield "  the clock did not move"
            return
        yield from (errors.line() for errors in self.errors)
        yield f"  no signal: {', '.join(self.silent) or 'none'}"

    def row(self):
        """For a page; only where the clock moved."""
        of = {errors.name: errors.cell() for errors in self.errors}
        pipes = [f"{name.split()[0]} {of[name]}" for name in of
                 if name.endswith(" x clock") and not name.startswith(("SM", "heat"))]
        cells = [self.name, f"{self.reference.clock:.0f} to {self.slowest().clock:.0f}",
                 f"{100 * self.slowest().rate / self.reference.rate:.1f} %",
                 f"{self.reference.unsteady():.1f} %", str(len(self.lower)),
                 of.get("memory utilisation", "-"), of.get("DRAM activity", "-"),
                 "; ".join(pipes) or "-", of.get("SM x clock", "-"), of["fused (plain)"],
                 of.get("heat: tensor x clock", "-")]
        return f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true",
                        help="a row a workload: mean error (lowest to highest)")
    parser.add_argument("files", nargs="+", metavar="TRACE RATES")
    options = parser.parse_args()
    if len(options.files) % 2:
        parser.error("a trace and its rates, in pairs")
    if not options.markdown:
        print(f"{'':24}{'level':>7}{'mean':>8}{'sd':>8}{'over':>8}{'under':>8}{'n':>5}")
    for trace, rates_file in zip(options.files[::2], options.files[1::2]):
        rows = read_trace(trace)
        for name, heated, rates in read_runs(rates_file):
            windows = list(windows_of(rates, rows))
            if not windows:
                sys.exit(f"{name}: no window: the trace and the rates are of other times")
            run = Run(name, heated, windows)
            if not options.markdown:
                print(*run.describe(), sep="\n")
            elif run.lower:
                print(run.row())


if __name__ == "__main__":
    main()
