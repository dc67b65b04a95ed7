#!/usr/bin/python3
"""Fit the simulator's workloads to measured tables: data/workloads.csv.

The model, its weights and what is assumed are described in docs/workloads.md.
Frequencies are in MHz, powers in watts; perf and time are relative to the chip's highest clock.
"""
import argparse
import csv
import io
import itertools
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares, nnls

ROOT = Path(__file__).resolve().parent.parent

COLUMNS = (
    "chip name serial_c knee_k sharpness_n p0_w a_v2perf_w b_perf_w e_v2ghz_w "
    "gpu_util_const_pct gpu_util_cycles_pct mem_util_const_pct mem_util_perf_pct "
    "graphics sm occupancy integer tensor dram fp64 fp32 fp16 "
    "perf_max_err power_max_err efficiency_max_err assumed source"
).split()
TIME_COLUMNS = COLUMNS[2:5]
POWER_COLUMNS = COLUMNS[5:9]
SHOWN_COLUMNS = {"gpu_util": COLUMNS[9:11], "mem_util": COLUMNS[11:13]}
ACTIVITY_COLUMNS = COLUMNS[13:22]
ERROR_COLUMNS = COLUMNS[22:25]
PIPES = ("integer", "tensor", "fp64", "fp32", "fp16")

V100, A100, H200 = "V100-SXM2", "A100-SXM4", "H200"
H100, RTX = "H100-SXM5", "RTX4070-Laptop"

# V/Vmin, linear between the clocks, as in data/chips.
V100_VOLTAGE = {
    952: 1.0, 1012: 1.0213, 1080: 1.0488, 1140: 1.0812, 1207: 1.1274, 1275: 1.1675,
    1335: 1.2087, 1402: 1.2641, 1462: 1.3081, 1530: 1.3539,
}
V100_ROOF_MHZ, V100_ROOF_EXPONENT = 900, 1.75
A100_VMIN_MV = 743.75
H200_VOLTAGE = {1005: 1.0, 1410: 1.26, 1980: 1.50}  # above 1410 MHz assumed

H100_VOLTAGE = {1110: 1.0, 1980: 1.50}  # inferred from the STMV rows below
RTX_VOLTAGE = {1500: 1.0, 2700: 1.50}  # assumed

H100_IDLE_W, H100_HELD_CLOCK_W = 72.1, 47.9  # and 120 W with 1890 MHz and more held
# A laptop of which no clock sweep is public: shapes of the V100's fits, power to meet its 80 W
# where its boost ends. 2475 MHz is the most that published logs reached; all else is assumed.
RTX_LIMIT_W, RTX_IDLE_W, RTX_HELD_CLOCK_W = 80.0, 8.0, 14.0
RTX_HELD_MHZ = {"GeMM": 2250, "BWtest": 2475, "FFT": 2400, "SortNet": 2475, "Walsh": 2475,
                "Reduct": 2475}
RTX_MEMORY_W = {"GeMM": 8.0, "SortNet": 3.0}  # at perf 1; the others
RTX_MEMORY_BOUND_W = 20.0
RTX_SORTNET_MEM_UTIL_PCT = 1.1  # published: it stays in the L2 cache there

H200_LIMIT_W = 700.0
H200_HELD_CLOCK_W = 48.0  # a context without work holds 1980 MHz: 127 W against 79 W idle
H200_DRAM_W = 120.0  # at DRAM activity 1
H200_MEM_UTIL_PER_DRAM = 127.0  # NVML memory utilisation in percent at DRAM activity 1, unclipped
H200_POWER_CAP_REASON = "4"
H200_SETTLE_S = 2.0
# The share of a kernel's time at fmax that follows the clock, timed at 1465..1980 MHz.
# triad is taken to be like copy, gemm_tf32 from its rate, which is proportional to the clock.
H200_CLOCKED_SHARE = {
    "gemm_bf16": 0.94, "gemm_tf32": 1.0, "gemm_fp32": 0.94, "gemm_fp64": 0.99, "copy": 0.03,
    "triad": 0.03, "transpose": 0.09, "gemv": 0.07, "sfu": 0.02, "fft": 0.20, "sort": 0.68,
    "decode": 0.05,
}

# Weights of the V100 points at 757, 825, 885 and 952 MHz; every higher clock counts 1.
V100_WEIGHTS = [0.4, 0.4, 0.6, 2.6]
A100_WEIGHT_BELOW_1110 = 0.4
POWER_AT_FMAX_WEIGHT = 10  # where P(fmax) is held to the table
SERIAL_MAX = 0.98  # some part of every application follows the clock
KNEE_MAX, SHARPNESS_MAX = 4.0, 32.0

# Our columns and what the tables call them.
A100_COUNTERS = {
    "gpu_util": "gpu_utilization", "mem_util": "mem_copy_utilization",
    "graphics": "gr_engine_active", "sm": "sm_active", "occupancy": "sm_occupancy",
    "tensor": "tensor_activity", "dram": "dram_active", "fp64": "fp64_active",
    "fp32": "fp32_active", "fp16": "fp16_active",
}
H200_COUNTERS = {
    "graphics": "gpm_gr", "sm": "gpm_sm", "occupancy": "gpm_occ", "integer": "gpm_int",
    "tensor": "gpm_tensor", "dram": "gpm_dram", "fp64": "gpm_fp64", "fp32": "gpm_fp32",
    "fp16": "gpm_fp16",
}

FRONTIER_MHZ = (952, 1080, 1207, 1335)


@dataclass
class Chip:
    name: str
    fmax: float
    voltage_mhz: np.ndarray
    voltage: np.ndarray  # V/Vmin, linear between the clocks
    # Below roof_mhz memory and caches slow down too: knees grow with (roof_mhz/f)^roof_exponent.
    roof_mhz: float = 0.0
    roof_exponent: float = 0.0

    def v2(self, mhz):
        return np.interp(mhz, self.voltage_mhz, self.voltage) ** 2


@dataclass
class Sweep:
    """One application's measurements by clock, ascending; the weights of its points in the fit."""
    name: str
    mhz: np.ndarray
    perf: np.ndarray
    power: np.ndarray
    weight: np.ndarray
    judged: np.ndarray  # the points that the error columns speak of
    noisy_fmax: bool  # the point at fmax is as noisy as any: which perf counts as 1 is fitted too
    counters: dict = field(default_factory=dict)


# ---- the model -----------------------------------------------------------------------------------

def kernel_rate(chip, mhz, knee_k, sharpness_n):
    """g(1)/g(x): how fast the part that runs in kernels goes."""
    mhz = np.asarray(mhz, float)
    log_x = np.log(chip.fmax / mhz)
    log_roof = chip.roof_exponent * np.log(np.maximum(1, chip.roof_mhz / mhz))
    log_roof = np.minimum(log_roof, log_x)  # memory slows down by no more than the clock
    log_knee, n = np.log(max(knee_k, 1e-12)), sharpness_n
    log_time = np.logaddexp(n * log_x, n * (log_knee + log_roof)) / n
    log_time_at_fmax = np.logaddexp(0, n * log_knee) / n
    return np.exp(log_time_at_fmax - log_time)


def relative_perf(chip, mhz, serial_c, knee_k, sharpness_n):
    return 1 / (serial_c + (1 - serial_c) / kernel_rate(chip, mhz, knee_k, sharpness_n))


def power_terms(chip, mhz, perf):
    """Columns: what p0, a, b and e multiply."""
    v2 = chip.v2(mhz)
    return np.stack([np.ones_like(v2), v2 * perf, perf, v2 * np.asarray(mhz) / 1000], axis=-1)


def curves(chip, mhz, row):
    """perf and power by clock of one line of the file."""
    perf = relative_perf(chip, mhz, *(row[c] for c in TIME_COLUMNS))
    return perf, power_terms(chip, mhz, perf) @ [row[c] for c in POWER_COLUMNS]


def shown_basis(name, chip, mhz, perf):
    """What NVML's utilisation is linear in: of the GPU the work per cycle, of memory the work."""
    return perf * chip.fmax / mhz if name == "gpu_util" else perf


def clipped_line(basis, const_pct, slope_pct):
    return np.clip(const_pct + slope_pct * basis, 0, 100)


def shown(name, chip, mhz, row):
    """NVML's utilisation by clock of one line of the file."""
    perf, _ = curves(chip, mhz, row)
    coefficients = (row[c] for c in SHOWN_COLUMNS[name])
    return clipped_line(shown_basis(name, chip, mhz, perf), *coefficients)


def activity_basis(name, chip, mhz, row):
    """How an activity moves with the clock, 1 at fmax: DRAM with the kernels' rate, pipes with
    their rate per cycle. Counters speak of the time inside kernels."""
    rate = kernel_rate(chip, mhz, row["knee_k"], row["sharpness_n"])
    if name == "dram":
        return rate
    return rate * chip.fmax / mhz if name in PIPES else np.ones_like(rate)


# ---- fits ----------------------------------------------------------------------------------------

def fit_curves(chip, sweep, emphasis):
    """The seven coefficients: performance first, then power beside it.

    What a clock costs is what a promise is judged by, and a voltage that is slightly wrong near
    fmax must not be paid for with it. emphasis > 1 raises residuals to that power, which lowers the
    worst error, not the mean one. Unless the point at fmax is noisy, performance is 1 there.
    """
    time = fit_time(chip, sweep, emphasis)
    return dict(zip(TIME_COLUMNS, time)) | dict(zip(POWER_COLUMNS, fit_power(
        chip, sweep, relative_perf(chip, sweep.mhz, *time), emphasis)))


def emphasised(percent, emphasis):
    return np.sign(percent) * np.abs(percent) ** emphasis


def fit_time(chip, sweep, emphasis):
    def residuals(p):
        perf_error = np.log(relative_perf(chip, sweep.mhz, *p[:3]) * p[3] / sweep.perf)
        # Many coefficient sets fit a flat curve alike: a faint pull picks the ordinary one.
        pull = [np.log(p[2] / 8), p[1] - 1]
        return np.concatenate([emphasised(100 * sweep.weight * perf_error, emphasis), pull])

    slack = 0.1 if sweep.noisy_fmax else 1e-9
    bounds = ([0, 0, 1, 1 - slack], [SERIAL_MAX, KNEE_MAX, SHARPNESS_MAX, 1 + slack])

    def fit_from(c, k, n):
        return least_squares(residuals, [c, k, n, 1.0], bounds=bounds, x_scale=[0.3, 0.5, 5, 0.1],
                             max_nfev=400)

    starts = itertools.product((0.05, 0.5, 0.95), (0.7, 1.2, 1.6), (4, 12))
    return min((fit_from(*start) for start in starts), key=lambda found: found.cost).x[:3]


def fit_power(chip, sweep, perf, emphasis):
    """The four coefficients beside a given performance; unless the point at fmax is noisy, power is
    the table's there."""
    terms, top = power_terms(chip, sweep.mhz, perf), sweep.power[-1]
    weight = sweep.weight.copy()
    if not sweep.noisy_fmax:
        weight[-1] *= POWER_AT_FMAX_WEIGHT

    def residuals(p):
        return emphasised(100 * weight * np.log(terms @ p / sweep.power), emphasis)

    # Linear in the coefficients: least squares that may not be negative is where to start from.
    start = nnls(terms * (weight / sweep.power)[:, None], weight)[0]
    start = np.clip(start, 1e-6 * top, top)
    bounds = ([0] * 4, [2 * top] * 4)
    return least_squares(residuals, start, bounds=bounds, x_scale=[20] * 4, max_nfev=400).x


def perf_reference(sweep, perf):
    """The measured performance that counts as 1 beside the modelled `perf`."""
    if not sweep.noisy_fmax:
        return 1.0
    return np.exp(np.average(np.log(sweep.perf / perf), weights=sweep.weight ** 2))


def errors(chip, sweep, row):
    """Relative errors by clock of performance, power and efficiency (its gain over fmax, unless
    the point there is noisy)."""
    perf, power = curves(chip, sweep.mhz, row)
    perf_ratio = perf * perf_reference(sweep, perf) / sweep.perf
    power_ratio = power / sweep.power
    efficiency_ratio = perf_ratio / power_ratio
    if not sweep.noisy_fmax:
        efficiency_ratio = efficiency_ratio / efficiency_ratio[-1]
    return np.array([perf_ratio, power_ratio, efficiency_ratio]) - 1


def max_errors(chip, sweep, row):
    worst = np.abs(errors(chip, sweep, row)[:, sweep.judged]).max(axis=1)
    return dict(zip(ERROR_COLUMNS, worst))


def fit_shown(chip, sweep, row):
    """Both of NVML's utilisations: lines, clipped to 0..100."""
    perf, _ = curves(chip, sweep.mhz, row)
    found = {}
    for name, columns in SHOWN_COLUMNS.items():
        basis = shown_basis(name, chip, sweep.mhz, perf)
        found |= dict(zip(columns, fit_clipped_line(basis, sweep.counters[name], sweep.weight)))
    return found


def fit_clipped_line(basis, percent, weight):
    design = np.stack([np.ones_like(basis), basis], axis=-1)
    below = percent < 99  # a slope explains only what is below saturation
    line = np.linalg.lstsq(design[below], percent[below], rcond=None)[0]
    flat = np.array([np.average(percent, weights=weight), 0.0])

    def fit_from(start):
        return least_squares(lambda p: weight * (clipped_line(basis, *p) - percent), start)

    return min(map(fit_from, (line, flat)), key=lambda found: found.cost).x


def proportion(basis, values, weight):
    """The one coefficient of values = coefficient * basis."""
    return float((weight * basis) @ (weight * values) / ((weight * basis) @ (weight * basis)))


# ---- V100 ----------------------------------------------------------------------------------------

def v100_chip():
    mhz, voltage = np.array(list(V100_VOLTAGE.items()), float).T
    return Chip(V100, 1530, mhz, voltage, V100_ROOF_MHZ, V100_ROOF_EXPONENT)


def read_wide(path):
    with path.open() as file:
        header, *lines = csv.reader(file)
    return np.array(header[1:], float), {name: np.array(values, float) for name, *values in lines}


def read_long(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def v100_sweeps(data):
    mhz, perf = read_wide(data / "v100/performance.csv")
    _, power = read_wide(data / "v100/power.csv")
    utilisation = {name: [] for name in perf}
    for line in read_long(data / "v100/utilisation.csv"):
        pair = float(line["gpu_util_pct"]), float(line["mem_bw_util_pct"])
        utilisation[line["app"]].append(pair)
    weight = np.select([mhz < 800, mhz < 850, mhz < 900, mhz == 952], V100_WEIGHTS, 1.0)
    return [Sweep(name, mhz, perf[name], power[name], weight, mhz >= 952, noisy_fmax=False,
                  counters=dict(zip(SHOWN_COLUMNS, np.array(utilisation[name]).T)))
            for name in perf]


def fit_v100(chip, sweep):
    row = fit_curves(chip, sweep, emphasis=2)
    return {"chip": V100, "name": sweep.name, **row, **fit_shown(chip, sweep, row),
            **max_errors(chip, sweep, row), "assumed": 0, "source": "clock sweep"}


# ---- A100 ----------------------------------------------------------------------------------------

def a100_chip(data):
    volts = json.loads((data / "a100/a100_sxm_voltage.json").read_text())
    mhz, millivolts = np.array([(float(f), v) for f, v in volts.items()]).T
    return Chip(A100, 1410, mhz, millivolts / A100_VMIN_MV)


def a100_sweeps(data):
    by_app = {}
    for line in read_long(data / "a100/counters.csv"):
        by_app.setdefault(line["application"], []).append(line)
    return [a100_sweep(name, lines) for name, lines in sorted(by_app.items())]


def a100_sweep(name, lines):
    lines = sorted(lines, key=lambda line: float(line["sm_app_clock"]))

    def column(key):
        return np.array([float(line[key]) for line in lines])

    mhz, seconds = column("sm_app_clock"), column("run_time")
    counters = {ours: column(theirs) for ours, theirs in A100_COUNTERS.items()}
    weight = np.where(mhz >= 1110, 1.0, A100_WEIGHT_BELOW_1110)
    return Sweep(name, mhz, seconds[-1] / seconds, column("power_usage"), weight, mhz >= 1110,
                 noisy_fmax=True, counters=counters)


def fit_a100(chip, sweep):
    row = fit_curves(chip, sweep, emphasis=1)
    return {"chip": A100, "name": sweep.name, **row, **fit_shown(chip, sweep, row),
            **fit_activities(chip, sweep, row), **max_errors(chip, sweep, row),
            "assumed": 0, "source": "clock sweep"}


def fit_activities(chip, sweep, row):
    names = [name for name in ACTIVITY_COLUMNS if name in sweep.counters]
    return {name: proportion(activity_basis(name, chip, sweep.mhz, row), sweep.counters[name],
                             sweep.weight) for name in names}


# ---- H200 ----------------------------------------------------------------------------------------

def h200_chip():
    mhz, voltage = np.array(list(H200_VOLTAGE.items()), float).T
    return Chip(H200, 1980, mhz, voltage)


def h200_time(clocked_share):
    """A share of the time follows the clock, the rest is memory's: c + (1-c) x as g(x) = x + k."""
    return {"serial_c": 0.0, "knee_k": 1 / clocked_share - 1, "sharpness_n": 1.0}


def h200_kernels(data):
    """Per label of the trace: settled power, clock, utilisations and counters, and whether the
    power cap held it."""
    labels = {}
    for line in read_long(data / "h200/trace.csv"):
        labels.setdefault(line["label"], []).append(line)
    return {label: summarise(lines) for label, lines in labels.items()}


def summarise(lines):
    begin = float(lines[0]["t"])
    settled = [line for line in lines if float(line["t"]) - begin >= H200_SETTLE_S]
    # A window read twice gives 0 or NaN.
    valid = [line for line in settled if float(line["gpm_gr"]) > 0]

    def mean(key):
        return np.mean([float(line[key]) for line in settled])

    def median(key):
        return float(np.nanmedian([float(line[key]) for line in valid])) / 100 if valid else 0.0

    capped = np.mean([line["reasons"] == H200_POWER_CAP_REASON for line in settled]) > 0.5
    return {"power": mean("p_avg_mw") / 1000, "mhz": mean("sm_mhz"), "capped": capped,
            "gpu_util": mean("util_gpu"), "mem_util": mean("util_mem"),
            "activity": {ours: median(theirs) for ours, theirs in H200_COUNTERS.items()}}


def held_clock_e(chip, watts=H200_HELD_CLOCK_W):
    """The part of e that a context without work draws."""
    return watts / (chip.v2(chip.fmax) * chip.fmax / 1000)


def split_power(chip, mhz, perf, dynamic_w, dram_at_fmax):
    """a, b and e that draw dynamic_w at one clock.

    DRAM traffic goes to b, the held clock to e, the rest to a and e such that they draw alike
    at fmax.
    """
    b = H200_DRAM_W * dram_at_fmax
    _, a_term, b_term, e_term = power_terms(chip, mhz, perf)
    rest = dynamic_w - b * b_term - held_clock_e(chip) * e_term
    a = rest / (a_term + e_term * 1000 / chip.fmax)
    return {"a_v2perf_w": a, "b_perf_w": b, "e_v2ghz_w": held_clock_e(chip) + a * 1000 / chip.fmax}


def fit_h200(data):
    chip, kernels = h200_chip(), h200_kernels(data)
    idle_w = kernels["idle"]["power"]
    rows = [h200_row(chip, name, kernels[name], idle_w, share)
            for name, share in H200_CLOCKED_SHARE.items()]
    return rows + [h200_dgemm(chip, data, idle_w), h200_stmv(chip, data, idle_w)]


def h200_row(chip, name, kernel, idle_w, clocked_share):
    time, mhz = h200_time(clocked_share), kernel["mhz"]
    perf = relative_perf(chip, mhz, *time.values())
    activities = {key: min(1.0, value / activity_basis(key, chip, mhz, time))
                  for key, value in kernel["activity"].items()}
    power = H200_LIMIT_W if kernel["capped"] else kernel["power"]
    mem_util_per_perf = kernel["mem_util"] / perf
    if kernel["mem_util"] > 99:
        mem_util_per_perf = H200_MEM_UTIL_PER_DRAM * activities["dram"]
    return {"chip": H200, "name": name, **time, "p0_w": idle_w,
            **split_power(chip, mhz, perf, power - idle_w, activities["dram"]),
            "gpu_util_const_pct": kernel["gpu_util"], "gpu_util_cycles_pct": 0.0,
            "mem_util_const_pct": 0.0, "mem_util_perf_pct": mem_util_per_perf, **activities,
            "assumed": 1, "source": f"trace at {mhz:.0f} MHz; power split assumed"}


def hopper_sweep(data, gpu, workload, unusable=()):
    lines = [line for line in read_long(data / "hopper/clock_sweeps.csv")
             if line["gpu"] == gpu and line["workload"] == workload and line["power_w"]
             and not any(word in line["note"] for word in unusable)]
    keys = ("sm_set_mhz", "perf", "power_w")
    mhz, perf, power = np.array([[float(line[key]) for key in keys] for line in lines]).T
    return Sweep(workload.lower(), mhz, perf, power, np.ones_like(mhz), mhz > 0, noisy_fmax=True)


def h200_dgemm(chip, data, idle_w):
    """Time is proportional to 1/f, so v^2 perf and v^2 f have one shape: their sum is fitted,
    the split assumed."""
    sweep = hopper_sweep(data, H200, "FIRESTARTER_DGEMM", unusable=("OUTLIER", "held near 600"))
    shape = chip.v2(sweep.mhz) * sweep.mhz / chip.fmax
    core_w = proportion(shape, sweep.power - idle_w, 1 / sweep.power) * chip.v2(chip.fmax)
    row = {"chip": H200, "name": "firestarter_dgemm", **h200_time(1.0), "p0_w": idle_w,
           **split_power(chip, chip.fmax, np.float64(1.0), core_w, 0.0),
           "assumed": 1, "source": "clock sweep to 1305 MHz; split of a and e assumed"}
    return {**row, **max_errors(chip, sweep, row)}


def h200_stmv(chip, data, idle_w):
    """Two clocks fix the time and, with the idle and held-clock power given, a and b exactly."""
    sweep = hopper_sweep(data, H200, "AMBER_STMV_NVE")
    by_share = np.stack([np.ones(2), chip.fmax / sweep.mhz], axis=-1)
    fixed, clocked = np.linalg.solve(by_share, 1 / sweep.perf)
    time = h200_time(clocked / (fixed + clocked))
    terms = power_terms(chip, sweep.mhz, relative_perf(chip, sweep.mhz, *time.values()))
    held_e = held_clock_e(chip)
    a, b = np.linalg.solve(terms[:, 1:3], sweep.power - idle_w - held_e * terms[:, 3])
    return {"chip": H200, "name": "amber_stmv", **time, "p0_w": idle_w,
            "a_v2perf_w": a, "b_perf_w": b, "e_v2ghz_w": held_e, "assumed": 1,
            "source": "two clocks 1020 and 1395 MHz; idle and held clock assumed"}


# ---- H100 and RTX 4070 Laptop ------------------------------------------------------------------

def h100_chip():
    mhz, voltage = np.array(list(H100_VOLTAGE.items()), float).T
    return Chip(H100, 1980, mhz, voltage)


def fit_h100(data):
    """STMV at four clocks; at the fifth the clock was not in force. Power: a and b, not below 0."""
    chip = h100_chip()
    sweep = hopper_sweep(data, "H100-94GB", "AMBER_STMV_NVE", unusable=("effective clock",))
    by_share = np.stack([sweep.perf, sweep.perf * chip.fmax / sweep.mhz], axis=-1)
    fixed, clocked = np.linalg.lstsq(by_share, np.ones_like(sweep.perf), rcond=None)[0]
    time = h200_time(clocked / (fixed + clocked))
    terms = power_terms(chip, sweep.mhz, relative_perf(chip, sweep.mhz, *time.values()))
    held_e = held_clock_e(chip, H100_HELD_CLOCK_W)
    rest = sweep.power - H100_IDLE_W - held_e * terms[:, 3]
    a, b = nnls(terms[:, 1:3] / sweep.power[:, None], rest / sweep.power)[0]
    row = {"chip": H100, "name": "amber_stmv", **time, "p0_w": H100_IDLE_W, "a_v2perf_w": a,
           "b_perf_w": b, "e_v2ghz_w": held_e, "assumed": 1,
           "source": "four clocks 1035 to 1710 MHz of a 94 GB card; voltage inferred from them"}
    return [{**row, **max_errors(chip, sweep, row)}]


def rtx_chip():
    mhz, voltage = np.array(list(RTX_VOLTAGE.items()), float).T
    return Chip(RTX, 2700, mhz, voltage)


def assume_rtx(v100_rows):
    """The V100's shapes over the laptop's clocks, its power drawn at the clock that it holds."""
    chip, rows = rtx_chip(), []
    for shape in v100_rows:
        name = shape["name"]
        if name not in RTX_HELD_MHZ:
            continue
        held = np.float64(RTX_HELD_MHZ[name])
        time = {c: shape[c] for c in TIME_COLUMNS}
        perf = relative_perf(chip, held, *time.values())
        b, e = RTX_MEMORY_W.get(name, RTX_MEMORY_BOUND_W), held_clock_e(chip, RTX_HELD_CLOCK_W)
        _, a_term, b_term, e_term = power_terms(chip, held, perf)
        a = (RTX_LIMIT_W - RTX_IDLE_W - b * b_term - e * e_term) / a_term
        utilisation = {c: shape[c] for columns in SHOWN_COLUMNS.values() for c in columns}
        if name == "SortNet":
            utilisation |= {"mem_util_const_pct": RTX_SORTNET_MEM_UTIL_PCT,
                            "mem_util_perf_pct": 0.0}
        rows.append({"chip": RTX, "name": name, **time, "p0_w": RTX_IDLE_W, "a_v2perf_w": a,
                     "b_perf_w": b, "e_v2ghz_w": e, **utilisation, "assumed": 1,
                     "source": f"assumed: shape of the V100's; 80 W at {held:.0f} MHz"})
    return rows


# ---- the file ------------------------------------------------------------------------------------

HEADER = """\
# Workloads of the simulated GPUs, by scripts/fit_workloads.py.
# Equations, errors and sources: docs/workloads.md.
# Fitted to public clock sweeps (V100, A100, H100) and to measurements of our own (H200);
# no measured row is kept here. A chip may run another's besides (src/device/sim/sim_chip.h, Kin).
# assumed 1: measured at one clock or two or at none, so that power is assumed. Empty: not known.
"""


def fit_all(data):
    v100, a100 = v100_chip(), a100_chip(data)
    v100_rows = [fit_v100(v100, sweep) for sweep in v100_sweeps(data)]
    return (v100_rows + [fit_a100(a100, sweep) for sweep in a100_sweeps(data)]
            + fit_h200(data) + fit_h100(data) + assume_rtx(v100_rows))


def as_text(value):
    if isinstance(value, (float, np.floating)):
        return f"{value:.5g}" if abs(value) > 5e-5 else "0"
    return str(value)


def render(rows):
    out = io.StringIO()
    out.write(HEADER)
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: as_text(value) for key, value in row.items()} for row in rows)
    return out.getvalue()


def parse(text):
    """The file's lines with numbers as numbers; what is empty is left out."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    words = ("chip", "name", "source")
    return [{key: value if key in words else float(value) for key, value in line.items() if value}
            for line in csv.DictReader(lines)]


# ---- reports -------------------------------------------------------------------------------------

def report(data, rows):
    by_name = {(row["chip"], row["name"]): row for row in rows}
    v100 = [(sweep, by_name[V100, sweep.name]) for sweep in v100_sweeps(data)]
    print("V100-SXM2: largest error in percent from 952 MHz; below;"
          " of utilisation in points from 952; below")
    report_errors(v100_chip(), v100)
    report_frontier(v100_chip(), v100)
    a100 = [(sweep, by_name[A100, sweep.name]) for sweep in a100_sweeps(data)]
    print("\nA100-SXM4: the same, from 1110 MHz; below 1110; utilisation likewise")
    report_errors(a100_chip(data), a100)
    report_activities(a100_chip(data), a100)
    report_h200([row for row in rows if row["chip"] == H200])


def report_errors(chip, fits):
    print(f"{'':12s} perf power  eff | perf power  eff | gpu  mem | gpu  mem")
    below = []
    for sweep, row in fits:
        relative = 100 * np.abs(errors(chip, sweep, row))
        points = np.abs([shown(name, chip, sweep.mhz, row) - sweep.counters[name]
                         for name in SHOWN_COLUMNS])
        groups = [table[:, part].max(axis=1) for table in (relative, points)
                  for part in (sweep.judged, ~sweep.judged)]
        texts = [" ".join(f"{value:4.1f}" for value in group) for group in groups]
        print(f"{sweep.name:12s} " + " | ".join(texts))
        below.append(relative[:, ~sweep.judged])
    rms = np.sqrt(np.mean(np.concatenate(below, axis=1) ** 2, axis=1))
    print("rms of the lower clocks: " + " ".join(f"{value:.1f}" for value in rms))


def report_frontier(chip, fits):
    measured = [(sweep.mhz, sweep.perf, sweep.power) for sweep, _ in fits]
    modelled = [(sweep.mhz, *curves(chip, sweep.mhz, row)) for sweep, row in fits]
    print("\nV100-SXM2 at one fixed clock: mean efficiency gain / mean loss / worst loss, percent")
    for mhz in FRONTIER_MHZ:
        print(f"{mhz:5d}  fit {frontier(modelled, mhz)}   tables {frontier(measured, mhz)}")
    best = [[mhz[np.argmax(perf / power)] for mhz, perf, power in side]
            for side in (measured, modelled)]
    moved = [f"{sweep.name} {ours:.0f} for {theirs:.0f}"
             for (sweep, _), theirs, ours in zip(fits, *best) if ours != theirs]
    print(f"clock of best efficiency elsewhere than in the table: {len(moved)}: {', '.join(moved)}")


def frontier(swept, mhz):
    gains, losses = [], []
    for clocks, perf, power in swept:
        at = list(clocks).index(mhz)
        gains.append(100 * (perf[at] / power[at] * power[-1] / perf[-1] - 1))
        losses.append(100 * (1 - perf[at] / perf[-1]))
    return f"{np.mean(gains):+.1f} / {np.mean(losses):.1f} / {max(losses):.1f}"


def report_activities(chip, fits):
    print("\nA100-SXM4 activities: largest error in points, from 1110 MHz / from 510 MHz")
    for sweep, row in fits:
        texts = []
        for name in (name for name in ACTIVITY_COLUMNS if name in row):
            modelled = np.minimum(1, row[name] * activity_basis(name, chip, sweep.mhz, row))
            gap = 100 * np.abs(modelled - sweep.counters[name])
            if gap.max() >= 0.5:
                texts.append(f"{name} {gap[sweep.judged].max():.1f}/{gap.max():.1f}")
        print(f"{sweep.name:12s} " + " ".join(texts))


def report_h200(rows):
    print("\nH200: power at the highest clock, and where 700 W holds the clock")
    mhz = np.arange(345, 1981, 15)
    for row in rows:
        _, power = curves(h200_chip(), mhz, row)
        held = mhz[power <= H200_LIMIT_W + 5].max()
        print(f"{row['name']:20s} {power[-1]:6.0f} W, held at {held} MHz")


def differences(chips, committed, refitted):
    """What moved between two sets of lines. Coefficients can slide along a valley, so their
    curves are compared."""
    names = [(row["chip"], row["name"]) for row in committed]
    if names != [(row["chip"], row["name"]) for row in refitted]:
        return ["the workloads themselves"]
    return [f"{old['chip']} {old['name']} {what}" for old, new in zip(committed, refitted)
            for what, gap in gaps(chips[old["chip"]], old, new).items() if gap > 1]


def gaps(chip, old, new):
    """How far two lines lie apart, in units of what --check allows."""
    mhz = np.linspace(0.5, 1, 20) * chip.fmax
    (old_perf, old_power), (new_perf, new_power) = curves(chip, mhz, old), curves(chip, mhz, new)
    found = {"perf": np.abs(new_perf / old_perf - 1).max() / 0.003,
             "power": np.abs(new_power / old_power - 1).max() / 0.003}
    for name, columns in SHOWN_COLUMNS.items():
        if columns[0] in old:
            apart = np.abs(shown(name, chip, mhz, new) - shown(name, chip, mhz, old))
            found[name] = apart.max() / 0.5
    for name in (name for name in ACTIVITY_COLUMNS if name in old):
        found[name] = abs(new[name] - old[name]) / 0.003
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data",
                        help="folder of the measured tables")
    parser.add_argument("--out", type=Path, default=ROOT / "data/workloads.csv")
    parser.add_argument("--check", action="store_true",
                        help="refit and compare with the file, write nothing")
    options = parser.parse_args()

    if not (options.data / "v100/performance.csv").exists():
        print(f"skipped: no tables at {options.data}")
        return 0 if options.check else 1

    text = render(fit_all(options.data))
    rows = parse(text)
    if options.check:
        chips = {V100: v100_chip(), A100: a100_chip(options.data), H200: h200_chip(),
                 H100: h100_chip(), RTX: rtx_chip()}
        moved = differences(chips, parse(options.out.read_text()), rows)
        agrees = f"{options.out.name}: the refit agrees, {len(rows)} workloads"
        print("moved: " + "; ".join(moved) if moved else agrees)
        return 1 if moved else 0
    options.out.write_text(text)
    report(options.data, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
