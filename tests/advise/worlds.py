#!/usr/bin/env python3
"""Worlds whose bottleneck is known, as traces: what a GPU's sensors would show of each.

    worlds.py OUT [--class NAME] [--worlds 20] [--first-seed 1] [--chip H200|A100|V100|A100-DCGM]

writes OUT/CHIP/CLASS/SEED/gpu0.trace (gpu1.trace and so on where a job has several GPUs), in the
format of docs/trace-format.md, and truth.json: class, chip, seed and a sentence. Same arguments,
same bytes. A world is a job (pieces of work and of waiting), a GPU that runs it (clock, power,
heat, limits; a slower clock stretches the work) and sensors that are read. While it runs, lost
time is booked by its cause: a world is drawn again until its class costs at least 9 % of the time
and 1.5 times as much as any other cause, a healthy one until no cause costs 7.5 %.

Measured, in this repository or beside it (../shared):
- H200: activity, power and PCIe traffic by kernel: shared/data/h200/trace.csv; idle 80 W at 345
  MHz, 121 to 130 W with a context, which stays at 1980 MHz and reports "idle" (0x1): the same and
  shared/reference/h200.md. Board watts over idle come out within 10 % or so for those kernels as
  60 SM + 250 integer + 750 tensor + 466 DRAM + 637 FP32 (shares of 1): fitted by hand to them.
- Launches: 83,000 a second from a loop of tiny kernels, 12,000 in GPT-2 training, 28,000 in decode
  (shared/data/h200/launches); about 4 kB of PCIe reads a launch (trace.csv, "small", 75,700 a
  second: 267 MiB/s). That loop showed 36 % GPU utilisation.
- Data move power by 2 and more (tests/fixtures/h200-proxies: a product at 257 to 700 W): "toggle".
- The power-cap bit also comes without the cap: docs/sensors.md, and at the begin of work: run1.
- Sensors: periods, windows and noise: docs/sensors.md, src/device/sim/sim_chip.cc. V100 and A100
  have no GPM, and only nvmlDeviceGetPowerUsage. Memory utilisation is 1.27 to 1.4 x DRAM activity
  on an H200 (trace.csv), 1.1 to 1.25 x on an A100 (shared/data/a100/counters.csv).
- Clocks, voltage, idle power: sim_chip.cc. Watts by activity: A100 and V100 by eye to counters.csv
  and shared/data/v100 (power.csv, utilisation.csv).
Assumed, from experience:
- Software thermal slowdown holds the GPU's highest operating temperature (H200 87, A100 85, V100
  83 degrees); memory too hot does the same at a cooler GPU. Bits 0x20; hardware 0x40 with 0x8;
  a power brake by the board's supply 0x80 with 0x8.
- Spinning NCCL kernels: 100 % utilisation, 4 to 24 % of the SMs, little power.
- Copies by copy engines are no kernel: no utilisation. A link gives 52 (H200), 24 (A100) and 12
  (V100) GB/s pinned, a third or less pageable.
- A context without work keeps its clock on A100 and V100 too, but for idle_context.
- What a cause costs, where it is no waiting: small_batch what is missing of the SMs, launch_bound
  what is missing of kernels, others a flat half of their kernels' time.
"""
import argparse
import json
import math
import random
import sys
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

TICK = 0.02  # seconds; the H200's own power samples come as often
MOST_DRAWS = 60

CLASSES = ("host_bound", "data_loader", "checkpoint", "launch_bound", "small_batch", "pcie_bound",
           "memory_bound", "tensor_idle", "low_occupancy", "thermal", "power_cap", "imbalance",
           "idle_context", "idle_clock_high", "healthy")

IDLE_BIT, SETTING_BIT, CAP_BIT, HW_BIT = 0x1, 0x2, 0x4, 0x8
SW_HEAT_BIT, HW_HEAT_BIT, BRAKE_BIT = 0x20, 0x40, 0x80


class Dice(random.Random):
    between = random.Random.uniform

    def chance(self, share):
        return self.random() < share

    def log_between(self, low, high):
        return math.exp(self.uniform(math.log(low), math.log(high)))

    def near(self, value, spread=0.03):
        return value * max(0.2, self.gauss(1, spread))


# ---------------------------------------------------------------------------------------- chips

@dataclass(frozen=True)
class Chip:
    name: str
    product: str
    architecture: str
    clocks: tuple  # MHz, ascending
    memory_clocks: tuple
    limits: dict  # watts
    slowdown: int  # degrees, the hardware's
    hottest: int  # degrees, where the software slows the clock
    flat_voltage_end: int
    voltage: tuple  # (MHz, relative to the lowest)
    idle: tuple  # (MHz, watts)
    watts: dict  # over idle, for an activity of 1 at the highest clock
    kelvin_per_watt: tuple
    link: float  # bytes/s of PCIe, one way
    bandwidth: float  # bytes/s of DRAM
    memory_factor: tuple  # NVML memory utilisation over DRAM activity
    idle_clocks: tuple  # of an idle context that lets its clock go
    held_clocks: tuple  # of one that does not
    gpm: bool
    dcgm: bool = False  # the counters of one pass, from a host engine, 0.3 s late

    @property
    def top(self):
        return self.clocks[-1]


def clock_grid(low, step, count):
    return tuple(int(low + step * i) for i in range(count))


H200 = Chip(
    "H200", "NVIDIA H200", "hopper", clock_grid(345, 15, 110), (2201, 3201),
    {"lowest": 200, "highest": 700, "factory": 700}, 89, 87, 1005,
    ((1005, 1.0), (1410, 1.26), (1980, 1.50)),
    ((345, 79), (1005, 82), (1200, 87), (1410, 101), (1530, 110), (1680, 118), (1980, 125)),
    {"sm": 60, "integer": 250, "tensor": 750, "dram": 466, "fp64": 600, "fp32": 637, "fp16": 500},
    (0.035, 0.048), 52e9, 4.8e12, (1.27, 1.4),
    (345, 345, 345, 420, 510, 600), (1980, 1980, 1980, 1830, 1755), True)

A100 = Chip(
    "A100", "NVIDIA A100-SXM4-80GB", "ampere", clock_grid(210, 15, 81), (1593,),
    {"lowest": 100, "highest": 400, "factory": 400}, 89, 85, 1110,
    ((1110, 1.0), (1200, 1.05), (1305, 1.126), (1365, 1.177), (1410, 1.235)),
    ((210, 60.3), (600, 61.2), (1110, 65.1), (1200, 68.4), (1305, 73.6), (1410, 82.3)),
    {"sm": 88, "integer": 80, "tensor": 290, "dram": 230, "fp64": 200, "fp32": 115, "fp16": 120},
    (0.085, 0.105), 24e9, 2.0e12, (1.1, 1.25),
    (210, 210, 210, 300, 420), (1410, 1410, 1410, 1275, 1155), False)

V100 = Chip(
    "V100", "Tesla V100-SXM2-16GB", "volta", clock_grid(135, 7.5, 187), (877,),
    {"lowest": 150, "highest": 300, "factory": 300}, 87, 83, 952,
    ((952, 1.0), (1080, 1.049), (1207, 1.127), (1335, 1.209), (1462, 1.308), (1530, 1.354)),
    ((135, 39), (952, 48), (1530, 67)),
    {"sm": 30, "integer": 50, "tensor": 190, "dram": 55, "fp64": 150, "fp32": 150, "fp16": 130},
    (0.09, 0.115), 12e9, 0.9e12, (1.1, 1.2),
    (135, 135, 135, 300, 405), (1530, 1530, 1530, 1380, 1290), False)

A100_DCGM = replace(A100, name="A100-DCGM", dcgm=True)

CHIPS = {chip.name: chip for chip in (H200, A100, V100, A100_DCGM)}


def between_points(points, x):
    if x <= points[0][0]:
        return points[0][1]
    if x >= points[-1][0]:
        return points[-1][1]
    at = bisect_right([p[0] for p in points], x)
    (x0, y0), (x1, y1) = points[at - 1], points[at]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


# ------------------------------------------------------------------------------------ the work

PIPES = ("integer", "tensor", "fp64", "fp32", "fp16")
SHOWN = ("busy", "sm", "occupancy", "integer", "tensor", "dram", "fp64", "fp32", "fp16")
LAUNCH_BYTES = 4000  # of PCIe reads


@dataclass(frozen=True)
class Load:
    """Shares of time at the highest clock, 0 to 1, while it runs; bytes a second over PCIe."""
    busy: float = 0
    sm: float = 0
    occupancy: float = 0
    integer: float = 0
    tensor: float = 0
    dram: float = 0
    fp64: float = 0
    fp32: float = 0
    fp16: float = 0
    tx: float = 0
    rx: float = 0
    clock_bound: float = 0  # share of its time that follows the clock
    toggle: float = 1  # how much its data make the circuits draw
    extra: float = 0  # watts that no counter tells: shared memory, spinning, copy engines

    def thinned(self, share):
        """With gaps too short to be seen: it runs for that share of the time."""
        names = SHOWN + ("tx", "rx", "extra")
        return replace(self, **{name: getattr(self, name) * share for name in names})

    def core_watts(self, chip):
        drawn = sum(getattr(self, name) * chip.watts[name] for name in PIPES)
        return drawn * self.toggle + self.sm * chip.watts["sm"] + self.extra

    def memory_watts(self, chip):
        return self.dram * chip.watts["dram"]

    def board_watts(self, chip):
        return chip.idle[-1][1] + self.core_watts(chip) + self.memory_watts(chip)

    def drawing(self, chip, watts):
        """The same with data that make the board draw so many watts, as far as data can."""
        pipes = replace(self, toggle=1, sm=0, extra=0).core_watts(chip)
        rest = replace(self, toggle=0).board_watts(chip)
        return replace(self, toggle=min(1.6, max(0.3, (watts - rest) / max(1.0, pipes))))

    def at_most(self, chip, watts):
        fitting = self.drawing(chip, watts)
        return fitting if fitting.toggle < self.toggle else self


NOTHING = Load()


@dataclass(frozen=True)
class Piece:
    """Seconds (at the highest clock) of one load; lost: the share that the cause costs."""
    load: Load
    seconds: float
    cause: str = ""
    lost: float = 0
    label: str = ""


def waiting(cause, seconds):
    return Piece(NOTHING, max(0.0, seconds), cause, 1)


def copying(chip, cause, size, rate, to_gpu=True, lost=1.0):
    """A copy by the copy engines: no kernel runs."""
    rate = min(rate, chip.link)
    load = Load(dram=rate / chip.bandwidth, rx=rate if to_gpu else rate * 0.02,
                tx=rate * 0.02 if to_gpu else rate, extra=0.03 * chip.idle[-1][1])
    return Piece(load, size / rate, cause, lost)


def launch_traffic(dice, low, high):
    """PCIe traffic of so many launches a second: the GPU reads commands, and answers a little."""
    rx = dice.log_between(low, high) * LAUNCH_BYTES
    return {"rx": rx, "tx": rx * dice.between(0.1, 0.3)}


def tensor_load(dice, chip, tensor=(0.42, 0.78)):
    """Training in bf16 or TF32: matrix products with what lies between them."""
    load = Load(busy=dice.between(0.985, 1), sm=dice.between(0.87, 0.97),
                occupancy=dice.between(0.13, 0.34), integer=dice.between(0.04, 0.14),
                tensor=dice.between(*tensor), dram=dice.between(0.15, 0.36),
                fp32=dice.between(0.01, 0.045), clock_bound=dice.between(0.75, 0.93),
                toggle=dice.between(0.6, 1), **launch_traffic(dice, 3e3, 16e3))
    return load.at_most(chip, chip.limits["factory"] * dice.between(0.72, 0.96))


def mixed_load(dice, chip):
    """A model of many different kernels, no pipe foremost."""
    load = Load(busy=dice.between(0.96, 0.995), sm=dice.between(0.74, 0.9),
                occupancy=dice.between(0.2, 0.45), integer=dice.between(0.1, 0.24),
                tensor=dice.between(0.2, 0.38), dram=dice.between(0.22, 0.42),
                fp32=dice.between(0.02, 0.09), clock_bound=dice.between(0.6, 0.8),
                toggle=dice.between(0.6, 1), **launch_traffic(dice, 8e3, 22e3))
    return load.at_most(chip, chip.limits["factory"] * dice.between(0.65, 0.92))


def usual_load(dice, chip):
    return tensor_load(dice, chip) if dice.chance(0.6) else mixed_load(dice, chip)


def optimizer_load(dice):
    return Load(busy=0.99, sm=0.97, occupancy=dice.between(0.6, 0.85), integer=0.07, fp32=0.04,
                dram=dice.between(0.7, 0.88), clock_bound=0.05, **launch_traffic(dice, 3e3, 9e3))


def evaluation_load(dice, load):
    """The same model forward only."""
    less = dice.between(0.6, 0.95)
    return replace(load, tensor=load.tensor * less, fp32=load.fp32 * less, dram=load.dram * 0.9,
                   busy=load.busy * 0.98, sm=load.sm * 0.97)


def memory_load(dice, chip):
    """Copy, triad, gather, sparse products, elementwise work, decoding of a language model."""
    kind = dice.choice(("stream", "decode", "sparse", "elementwise", "elementwise"))
    if kind == "stream":
        load = Load(busy=0.996, sm=0.99, occupancy=dice.between(0.75, 0.9),
                    dram=dice.between(0.82, 0.92), integer=dice.between(0.03, 0.09),
                    fp32=dice.between(0, 0.03), clock_bound=0.03)
    elif kind == "decode":
        load = Load(busy=dice.between(0.975, 0.997), sm=dice.between(0.82, 0.9),
                    occupancy=dice.between(0.1, 0.16), dram=dice.between(0.74, 0.9),
                    integer=dice.between(0.005, 0.04), tensor=dice.between(0.02, 0.1),
                    clock_bound=0.06, **launch_traffic(dice, 6e3, 28e3))
    elif kind == "sparse":
        load = Load(busy=0.99, sm=dice.between(0.93, 0.99), occupancy=dice.between(0.4, 0.85),
                    dram=dice.between(0.66, 0.8), integer=dice.between(0.1, 0.25),
                    fp32=dice.between(0.02, 0.08), clock_bound=0.15)
    else:
        load = Load(busy=0.99, sm=dice.between(0.95, 0.99), occupancy=dice.between(0.5, 0.85),
                    dram=dice.between(0.68, 0.88), integer=dice.between(0.05, 0.2),
                    fp32=dice.between(0.05, 0.25), clock_bound=0.08,
                    **launch_traffic(dice, 2e3, 15e3))
    load = replace(load, extra=dice.between(0, 0.06) * chip.limits["factory"])
    return kind, load.at_most(chip, chip.limits["factory"] * 0.93)


def fp32_matrix_load(dice, chip):
    """Matrix products or convolutions in FP32 while the tensor cores stand idle."""
    load = Load(busy=dice.between(0.975, 0.998), sm=dice.between(0.88, 0.97),
                occupancy=dice.between(0.1, 0.38), integer=dice.between(0.04, 0.14),
                fp32=dice.between(0.4, 0.77), dram=dice.between(0.04, 0.33),
                tensor=dice.choice((0, 0, 0, dice.between(0, 0.03))),
                clock_bound=dice.between(0.75, 0.94), toggle=dice.between(0.75, 1.05),
                **launch_traffic(dice, 1e3, 12e3))
    return load.at_most(chip, chip.limits["factory"] * dice.between(0.85, 0.985))


def fp32_full_load(dice, chip):
    """FP32 work that is no matrix product, near its peak: many-body, Monte Carlo, ray tracing."""
    load = Load(busy=dice.between(0.98, 0.999), sm=dice.between(0.95, 0.995),
                occupancy=dice.between(0.45, 0.97), integer=dice.between(0.08, 0.2),
                fp32=dice.between(0.68, 0.9), dram=dice.between(0.005, 0.2),
                clock_bound=dice.between(0.85, 0.98), toggle=dice.between(0.7, 1))
    return load.at_most(chip, chip.limits["factory"] * dice.between(0.8, 0.98))


def fp64_full_load(dice, chip):
    """FP64 near its peak, on the plain pipe or (not on a V100) on the tensor cores."""
    dense = chip is not V100 and dice.chance(0.5)
    load = Load(busy=0.993, sm=dice.between(0.93, 0.97), occupancy=dice.between(0.11, 0.5),
                integer=dice.between(0.05, 0.12), dram=dice.between(0.08, 0.4),
                clock_bound=dice.between(0.85, 0.99), toggle=dice.between(0.6, 0.85))
    share = dice.between(0.62, 0.93)
    load = replace(load, tensor=share) if dense else replace(load, fp64=share)
    return load.at_most(chip, chip.limits["factory"] * dice.between(0.85, 0.98))


def few_warps_load(dice, chip):
    """Each SM has work and few warps to hide its latency: nothing is busy."""
    load = Load(busy=dice.between(0.975, 0.999), sm=dice.between(0.72, 0.995),
                occupancy=dice.between(0.02, 0.12), integer=dice.between(0.02, 0.14),
                fp32=dice.between(0.005, 0.12), fp64=dice.choice((0, 0, dice.between(0, 0.1))),
                dram=dice.between(0.01, 0.2), clock_bound=dice.between(0.6, 0.95))
    return replace(load, extra=dice.between(0, 0.04) * chip.limits["factory"])


def small_load(dice):
    """Kernels of 50 us and more whose grids leave most SMs without a block."""
    sm = dice.between(0.12, 0.58)
    return Load(busy=dice.between(0.93, 0.995), sm=sm, occupancy=sm * dice.between(0.08, 0.3),
                integer=sm * dice.between(0.05, 0.15), tensor=sm * dice.between(0.05, 0.42),
                dram=sm * dice.between(0.1, 0.4), fp32=sm * dice.between(0.01, 0.1),
                clock_bound=dice.between(0.6, 0.9), **launch_traffic(dice, 1.5e3, 11e3))


def tiny_load(dice):
    """One tiny kernel after the other, as fast as the CPU launches them."""
    launches = dice.log_between(20e3, 90e3)
    busy = dice.between(0.9, 0.99) if dice.chance(0.35) else dice.between(0.3, 0.88)
    sm = busy * dice.log_between(0.01, 0.4)
    rx = launches * dice.between(3400, 4600)
    return launches, Load(
        busy=busy, sm=sm, occupancy=sm * dice.between(0.05, 0.25),
        integer=sm * dice.between(0.02, 0.1), tensor=sm * dice.choice((0, 0, 0.1, 0.18)),
        fp32=sm * dice.between(0, 0.06), dram=sm * dice.between(0.0, 0.2),
        clock_bound=dice.between(0.1, 0.4), rx=rx, tx=rx * dice.between(0.09, 0.14),
        extra=dice.between(0, 12))


def spinning_load(dice, chip):
    """NCCL's kernels that wait for another GPU."""
    sm = dice.between(0.04, 0.24)
    return Load(busy=1, sm=sm, occupancy=sm * dice.between(0.25, 0.4),
                integer=sm * dice.between(0.05, 0.15), dram=dice.between(0.001, 0.015),
                extra=dice.between(0.02, 0.07) * chip.limits["factory"], rx=4e6, tx=3e6)


# ------------------------------------------------------------------------------------- the jobs

@dataclass(frozen=True)
class Conditions:
    """What the GPU runs under; watts, MHz, degrees, seconds."""
    limit: float
    ceiling: float
    inlet: float
    kelvin_per_watt: float
    start_watts: float  # it was at rest with so much before
    hottest: float  # the software slows the clock there
    hidden_heat: float = 0  # what the memory is hotter than the GPU
    swing: bool = False  # the thermal regulator goes up and down in big steps
    warm_air: tuple = ()  # (from, to, degrees): hot air now and then
    brake: tuple = ()  # (from, to, share of the clock): the supply's power brake
    capped_bit_share: float = 0  # of the time, the power-cap bit without the cap
    idle_clock: float = 0  # where the clock goes when nothing runs; 0: it stays
    tenants: int = 1


@dataclass
class Plan:
    """One GPU's part of a world."""
    pieces: object  # of Piece, without end
    conditions: Conditions


@dataclass
class World:
    plans: list
    note: str


def usual_conditions(dice, chip, **changes):
    watts = chip.idle[-1][1] + dice.between(0, 0.6) * chip.limits["factory"]
    usual = Conditions(limit=chip.limits["factory"], ceiling=chip.top,
                       inlet=dice.between(24, 34), start_watts=watts,
                       kelvin_per_watt=dice.between(*chip.kelvin_per_watt),
                       hottest=chip.hottest,
                       capped_bit_share=dice.choice((0, 0, 0, dice.between(0, 0.04))),
                       tenants=dice.choice((1, 1, 1, 1, 1, 2)))
    return replace(usual, **changes)


@dataclass(frozen=True)
class Step:
    """One training step: forward, backward in two kinds, the optimizer over all weights."""
    parts: tuple  # of Load
    optimizer: Load
    seconds: float
    optimizer_share: float
    cause: str = ""
    lost: float = 0

    def pieces(self, dice, spread=0.025):
        seconds = dice.near(self.seconds, spread)
        for load in self.parts:
            yield Piece(load, seconds * (1 - self.optimizer_share) / len(self.parts), self.cause,
                        self.lost)
        if self.optimizer_share > 0:
            yield Piece(self.optimizer, seconds * self.optimizer_share)


def parts_of(dice, load):
    """The kernels of one step are not all alike; their mean is the load."""
    spread = dice.choice((0, dice.between(0.02, 0.18)))
    names = ("integer", "tensor", "fp64", "fp32", "occupancy")

    def part(more):
        changes = {name: min(0.95, getattr(load, name) * (1 + more)) for name in names}
        return replace(load, dram=load.dram * (1 - more), **changes)
    parts = [part(spread), part(-spread), load]
    dice.shuffle(parts)
    return tuple(parts)


def usual_step(dice, load, low=0.06, high=1.5, **more):
    return Step(parts_of(dice, load), optimizer_load(dice), dice.log_between(low, high),
                dice.choice((0, dice.between(0.02, 0.1))), **more)


def started(dice, chip, pieces, seconds):
    """With what often comes first, up to a twelfth of the trace: context, weights, warm-up."""
    if dice.chance(0.45):
        yield from pieces
        return
    left = seconds * dice.between(0.02, 0.08)
    yield Piece(NOTHING, left * dice.between(0.2, 0.6), "start", 1, "start")
    rate = chip.link * dice.between(0.08, 0.5)
    upload = copying(chip, "start", rate * left * dice.between(0.05, 0.2), rate)
    yield upload
    for _ in range(3):
        yield Piece(mixed_load(dice, chip), left * 0.06)
        yield Piece(NOTHING, left * dice.between(0.02, 0.08), "start", 1)
    first = True
    for piece in pieces:
        yield replace(piece, label="run") if first else piece
        first = False


def interrupted(dice, pieces, seconds, other):
    """With another phase of 6 to 11 s, once or twice, as an evaluation is."""
    moments = sorted(dice.between(0.2, 0.9) * seconds for _ in range(dice.choice((1, 1, 2))))
    done = 0.0
    for piece in pieces:
        yield piece
        done += piece.seconds
        if moments and done >= moments[0]:
            moments.pop(0)
            span = dice.between(6, 11)
            for number in range(int(span / 0.5)):
                yield Piece(other, dice.near(0.5), label="" if number else "evaluation")
                if dice.chance(0.3):
                    yield Piece(NOTHING, dice.between(0.01, 0.05))
            yield Piece(NOTHING, dice.between(0.05, 0.4), label="run")


def with_small_gaps(dice, pieces, every, low, high):
    """Now and then the host is late for a moment: no job is without."""
    due = dice.near(every, 0.3)
    for piece in pieces:
        yield piece
        due -= piece.seconds
        if due <= 0:
            due = dice.near(every, 0.4)
            yield waiting("host_bound", dice.log_between(low, high))


def dressed(dice, chip, pieces, seconds, load, evaluation=0.3):
    """A job as it comes: with a start, small gaps, another phase."""
    if dice.chance(0.6):
        pieces = with_small_gaps(dice, pieces, dice.between(3, 15), 0.03, 0.3)
    if dice.chance(evaluation):
        pieces = interrupted(dice, pieces, seconds, evaluation_load(dice, load))
    return started(dice, chip, pieces, seconds)


def warm_moment(dice, chip, conditions, load, seconds):
    """Hot air for some seconds: heat slows it for a moment, which is not what holds it back."""
    watts = load.board_watts(chip)
    rise = conditions.hottest + 5 - conditions.inlet - watts * conditions.kelvin_per_watt
    begin = dice.between(0.2, 0.7) * seconds
    return replace(conditions, warm_air=((begin, begin + dice.between(8, 12), max(0.0, rise)),))


def barely_capped(dice, chip, conditions, load):
    """In some worlds a power limit that bites a little, which is not what holds it back."""
    limit = load.board_watts(chip) * dice.between(0.93, 0.99)
    if limit < chip.limits["lowest"] or dice.chance(0.8):
        return conditions
    return replace(conditions, limit=limit)


def one_gpu(pieces, conditions, note):
    return World([Plan(pieces, conditions)], note)


# ----------------------------------------------------------------- classes: something is waited for

def host_bound(dice, chip, seconds):
    kind = dice.choice(("each step", "each step", "now and then", "uneven", "simulation",
                        "rare", "fine"))
    load = usual_load(dice, chip)
    conditions = barely_capped(dice, chip, usual_conditions(dice, chip), load)
    share = dice.between(0.12, 0.78)
    if kind == "fine":
        pieces, note = host_fine(dice, load, share)
    elif kind == "rare":
        pieces, note = host_rare(dice, load, seconds)
    elif kind == "simulation":
        pieces, note = host_simulation(dice, load, share)
    else:
        pieces, note = host_gaps(dice, load, share, kind)
    return one_gpu(dressed(dice, chip, pieces, seconds, load), conditions, note)


def host_gaps(dice, load, share, kind):
    step = usual_step(dice, load, 0.04, 0.9)
    every = dice.randint(5, 40) if kind == "now and then" else 1
    gap = step.seconds * every * share / (1 - share)
    if every > 1:
        gap = min(gap, dice.between(2, 5))
        every = max(2, round(gap * (1 - share) / share / step.seconds))
    spread = 0.7 if kind == "uneven" else 0.1

    def pieces():
        while True:
            for _ in range(every):
                yield from step.pieces(dice)
            tiny = Load(tx=dice.between(1e6, 5e6), rx=dice.between(1e6, 8e6))  # a loss, some ids
            length = gap * dice.lognormvariate(-spread * spread / 2, spread)
            yield Piece(tiny, length, "host_bound", 1)
    what = {"each step": "Python between the steps", "uneven": "tokenisation on the CPU",
            "now and then": "logging every few steps"}[kind]
    return pieces(), (f"Steps of {step.seconds:.2f} s; {what} keeps the GPU waiting for about "
                      f"{gap:.2f} s each {f'{every} steps' if every > 1 else 'step'}")


def host_fine(dice, load, share):
    load = load.thinned(1 - share)

    def pieces():
        while True:
            drift = dice.between(0.93, 1.05)
            yield Piece(load.thinned(min(1, drift)), dice.between(0.2, 1.5), "host_bound", share)
    return pieces(), "After each short burst of kernels the CPU decides for milliseconds"


def host_rare(dice, load, seconds):
    step = usual_step(dice, load, 0.1, 1.2)
    every = dice.between(0.18, 0.4) * seconds
    stop = every * dice.between(0.15, 0.6)

    def pieces():
        left = dice.between(0.3, 0.9) * every
        while True:
            while left > 0:
                for piece in step.pieces(dice):
                    left -= piece.seconds
                    yield piece
            yield waiting("host_bound", dice.near(stop, 0.1))
            left = dice.near(every, 0.1)
    return pieces(), f"Each {every:.0f} s metrics are computed on the CPU for {stop:.0f} s"


def host_simulation(dice, load, share):
    learn = dice.log_between(0.5, 4)
    act = learn * share / (1 - share)
    policy = replace(load, rx=10e6, tx=3e6).thinned(dice.between(0.01, 0.06))

    def pieces():
        while True:
            yield Piece(policy, dice.near(act, 0.1), "host_bound", 1)
            yield Piece(load, dice.near(learn, 0.05))
    return pieces(), f"An environment is simulated on the CPU for {act:.1f} s between learning"


def data_loader(dice, chip, seconds):
    kind = dice.choice(("each step", "each step", "workers", "workers", "storage", "fine"))
    load = usual_load(dice, chip)
    step = (usual_step(dice, load, 0.03, 0.08) if kind == "fine" else
            usual_step(dice, load, 0.08, 0.8))
    share = dice.between(0.14, 0.75)
    pinned = dice.chance(0.5)
    rate = chip.link * (dice.between(0.5, 0.95) if pinned else dice.between(0.07, 0.25))
    longest_copy = step.seconds * share * 0.4
    size = min(dice.log_between(2e7, 8e8), rate * longest_copy)
    copy = copying(chip, "data_loader", size, rate)
    every = dice.randint(3, 16) if kind == "workers" else dice.randint(8, 40)
    late = step.seconds * share / (1 - share)

    def batch(wait):
        if wait > 0:
            yield waiting("data_loader", wait)
        yield copy
        yield from step.pieces(dice)

    def steady():
        while True:
            yield from batch(max(0.0, dice.near(late, 0.35) - copy.seconds))

    def falling_behind():  # what the workers have read is used up, then one waits for them all
        while True:
            for number in range(every):
                yield from batch(dice.near(late * every, 0.3) if number == 0 else 0)

    def stalls():
        while True:
            for number in range(max(2, dice.randint(every // 2, every * 2))):
                wait = late * every * dice.lognormvariate(-0.3, 0.8) if number == 0 else 0
                yield from batch(min(wait, 6))
    pieces = {"workers": falling_behind, "storage": stalls}.get(kind, steady)()
    what = {"workers": f"every {every} steps the loader's workers have fallen behind",
            "storage": "slow storage stalls the loader now and then"}.get(
                kind, "each step waits for its batch")
    note = f"Steps of {step.seconds:.2f} s with batches of {size / 1e6:.0f} MB; {what}"
    conditions = barely_capped(dice, chip, usual_conditions(dice, chip), load)
    return one_gpu(dressed(dice, chip, pieces, seconds, load), conditions, note)


def checkpoint(dice, chip, seconds):
    once = seconds > 120 and dice.chance(0.3)
    every = seconds if once else dice.between(20, min(60, seconds * 0.45))
    stop = (dice.between(0.12, 0.22) * seconds if once else every * dice.between(0.11, 0.4))
    load = usual_load(dice, chip)
    step = usual_step(dice, load, 0.1, 1.5)
    style = dice.choice(("at once", "by tensor", "by tensor", "all along"))
    pinned = chip.link * dice.between(0.3, 0.85)
    pageable = chip.link * dice.between(0.04, 0.15)

    def stopped(length):
        if style == "at once":  # copied fast, then written
            share = dice.between(0.08, 0.35)
            yield copying(chip, "checkpoint", pinned * length * share, pinned, False)
            yield waiting("checkpoint", length * (1 - share))
        elif style == "all along":
            yield copying(chip, "checkpoint", pageable * length * 0.9, pageable, False)
            yield waiting("checkpoint", length * 0.1)
        else:
            left = length * 0.85
            while left > 0:
                part = copying(chip, "checkpoint", pageable * dice.between(0.05, 0.5), pageable,
                               False)
                pause = dice.between(0.1, 0.8)
                yield part
                yield waiting("checkpoint", pause)
                left -= part.seconds + pause
            yield waiting("checkpoint", length * 0.15)

    def pieces():
        left = dice.between(0.25, 0.6) * every
        while True:
            while left > 0:
                for piece in step.pieces(dice):
                    left -= piece.seconds
                    yield piece
            yield from stopped(dice.near(stop, 0.06))
            left = dice.near(every - stop, 0.03)
    often = "once in some minutes" if once else f"each {every:.0f} s"
    note = f"Training stops {often} for {stop:.0f} s to copy its state out ({style}) and write it"
    job = started(dice, chip, pieces(), seconds)
    conditions = barely_capped(dice, chip, usual_conditions(dice, chip), load)
    return one_gpu(job, conditions, note)


def pcie_bound(dice, chip, seconds):
    kind = dice.choice(("offload", "offload", "streamed weights", "pageable", "pageable", "paging"))
    conditions = usual_conditions(dice, chip)
    load = usual_load(dice, chip)
    pieces, note = {"offload": offload, "streamed weights": streamed_weights,
                    "pageable": pageable_batches, "paging": paging}[kind](dice, chip, load)
    return one_gpu(started(dice, chip, pieces, seconds), conditions, note)


def offload(dice, chip, load):
    rate = chip.link * dice.between(0.3, 0.95)
    compute, out = dice.between(0.2, 1.2), dice.between(0.15, 1.2)
    into = out * dice.between(0.7, 1.3)

    def pieces():
        while True:
            yield Piece(load, dice.near(compute))
            yield copying(chip, "pcie_bound", rate * dice.near(out), rate, False)
            yield waiting("host_bound", (out + into) * dice.between(0, 0.25))  # the CPU's optimizer
            yield copying(chip, "pcie_bound", rate * dice.near(into), rate)
    return pieces(), (f"Gradients go out and weights come in at {rate / 1e9:.1f} GB/s for "
                      f"{out + into:.1f} s around {compute:.1f} s of kernels")


def streamed_weights(dice, chip, load):
    rate, running = chip.link * dice.between(0.75, 0.97), dice.between(0.06, 0.5)
    layer = replace(load.thinned(running), rx=rate, tx=rate * 0.02, clock_bound=0)

    def pieces():
        while True:
            yield Piece(layer, dice.between(0.3, 2), "pcie_bound", 1 - running)
            if dice.chance(0.1):
                yield Piece(load, dice.between(0.02, 0.15))
    return pieces(), f"Each layer's weights are streamed in while the one before runs, at " \
                     f"{rate / 1e9:.0f} GB/s"


def pageable_batches(dice, chip, load):
    rate = chip.link * dice.between(0.06, 0.3)
    run = dice.log_between(0.03, 0.8)
    into = run * dice.between(0.3, 2.5)
    back = into * dice.choice((0.1, dice.between(0.3, 1)))

    def pieces():
        while True:
            yield copying(chip, "pcie_bound", rate * dice.near(into), rate)
            yield Piece(load, dice.near(run, 0.05))
            yield copying(chip, "pcie_bound", rate * dice.near(back), rate, False)
    return pieces(), f"Arrays go in and results out through pageable memory, {rate / 1e9:.1f} GB/s"


def paging(dice, chip, load):
    rate = chip.link * dice.between(0.12, 0.5)
    slow = Load(busy=dice.between(0.93, 1), sm=dice.between(0.5, 0.97), integer=0.02,
                occupancy=dice.between(0.3, 0.85), dram=2.5 * rate / chip.bandwidth, rx=rate,
                tx=rate * dice.between(0.2, 0.9), clock_bound=0.02, fp32=dice.between(0.01, 0.05))

    def pieces():
        while True:
            yield Piece(slow.thinned(dice.between(0.9, 1)), dice.between(0.3, 2), "pcie_bound", 0.7)
            if dice.chance(0.3):
                yield Piece(load, dice.between(0.05, 0.5))
    return pieces(), f"Managed memory does not fit: kernels wait for pages, {rate / 1e9:.1f} GB/s"


# ------------------------------------------------------------ classes: kernels that use it badly

def launch_bound(dice, chip, seconds):
    launches, load = tiny_load(dice)
    lost = max(1 - load.busy, dice.between(0.3, 0.6))

    def pieces():
        while True:
            now = dice.between(0.9, 1) * (dice.between(0.8, 1) if dice.chance(0.1) else 1)
            now = max(now, 0.97) if load.busy > 0.9 else now
            yield Piece(load.thinned(now), dice.between(0.1, 1.5), "launch_bound", lost)
            if dice.chance(0.03):
                yield waiting("host_bound", dice.log_between(0.03, 0.4))
    note = (f"{launches / 1000:.0f} thousand tiny kernels a second, as fast as the CPU launches: "
            f"{load.busy:.0%} of the time one runs, on {load.sm / load.busy:.0%} of the SMs")
    return one_gpu(started(dice, chip, pieces(), seconds), usual_conditions(dice, chip), note)


def small_batch(dice, chip, seconds):
    load = small_load(dice)
    step = Step(parts_of(dice, load), optimizer_load(dice), dice.log_between(0.02, 0.5),
                dice.choice((0, 0, dice.between(0.01, 0.06))), "small_batch", 1 - load.sm)

    def pieces():
        while True:
            yield from step.pieces(dice)
            if dice.chance(0.3):
                yield waiting("host_bound", step.seconds * dice.between(0.005, 0.05))
    job = dressed(dice, chip, pieces(), seconds, load, 0.2)
    return one_gpu(job, usual_conditions(dice, chip),
                   f"A batch so small that kernels fill {load.sm:.0%} of the SMs")


def low_occupancy(dice, chip, seconds):
    load = few_warps_load(dice, chip)
    other = fp32_full_load(dice, chip) if dice.chance(0.3) else None
    part = dice.between(0.05, 0.2)
    cycle = dice.between(0.3, 4)

    def pieces():
        while True:
            yield Piece(load, dice.near(cycle), "low_occupancy", 0.5)
            if other:
                yield Piece(other, dice.near(cycle * part))
    job = dressed(dice, chip, pieces(), seconds, load, 0.1)
    return one_gpu(job, usual_conditions(dice, chip),
                   f"Kernels of many registers: {load.occupancy:.0%} of the warps on "
                   f"{load.sm:.0%} of the SMs wait for latency and no pipe is busy")


def memory_bound(dice, chip, seconds):
    kind, load = memory_load(dice, chip)
    share = dice.between(0.7, 1) if dice.chance(0.5) else 1
    other = tensor_load(dice, chip)
    cycle = dice.log_between(0.2, 3)
    event = dice.choice(("", "", "", "warm moment", "capped"))
    conditions = usual_conditions(dice, chip)
    if event == "warm moment":
        conditions = warm_moment(dice, chip, conditions, load, seconds)
    if event == "capped":  # the clock falls, the work hardly slows
        share = 1
        least = max(chip.limits["lowest"], load.board_watts(chip) * dice.between(0.86, 0.95))
        conditions = replace(conditions, limit=least)

    def pieces():
        while True:
            yield Piece(load, dice.near(cycle), "memory_bound", 0.5)
            if share < 1:
                yield Piece(other, dice.near(cycle * (1 - share) / share))
    note = f"{kind} work at {load.dram:.0%} of the DRAM bandwidth for {share:.0%} of the time"
    if event:
        note += {"warm moment": ", with some hot seconds",
                 "capped": f", under a power limit of {conditions.limit:.0f} W that costs it little"
                 }[event]
    job = dressed(dice, chip, pieces(), seconds, load, 0.2)
    return one_gpu(job, conditions, note)


def tensor_idle(dice, chip, seconds):
    load = fp32_matrix_load(dice, chip)
    step = usual_step(dice, load, 0.1, 2, cause="tensor_idle", lost=0.5)

    def pieces():
        while True:
            yield from step.pieces(dice)
            if dice.chance(0.2):
                yield waiting("host_bound", step.seconds * dice.between(0.01, 0.08))
    job = dressed(dice, chip, pieces(), seconds, load)
    conditions = barely_capped(dice, chip, usual_conditions(dice, chip), load)
    if dice.chance(0.15):
        conditions = warm_moment(dice, chip, conditions, load, seconds)
    return one_gpu(job, conditions,
                   f"Matrix products in plain FP32 ({load.fp32:.0%} of its peak) that the tensor "
                   "cores could do")


# ------------------------------------------------------------------- classes: limits of the board

def clock_bound_load(dice, chip):
    load = dice.choice((tensor_load, tensor_load, fp32_full_load, fp64_full_load))(dice, chip)
    return replace(load, clock_bound=max(0.85, load.clock_bound))


def steady_steps(dice, load, low=0.1, high=1.2):
    step = usual_step(dice, load, low, high)
    while True:
        yield from step.pieces(dice)


def thermal(dice, chip, seconds):
    kind = dice.choice(("steady", "steady", "swinging", "growing", "hot memory", "hardware"))
    load = clock_bound_load(dice, chip)
    load = load.drawing(chip, chip.limits["factory"] * dice.between(0.7, 0.94))
    inlet = dice.between(30, 46)
    too_much = dice.between(0.14, 0.45)  # of its power that the cooler cannot carry
    hidden = dice.between(9, 22) if kind == "hot memory" else 0
    hottest = 200 if kind == "hardware" else chip.hottest
    goal = (chip.slowdown if kind == "hardware" else hottest) - hidden - inlet
    watts = load.board_watts(chip) * 0.97
    hot = watts * (1 - too_much)
    conditions = usual_conditions(
        dice, chip, inlet=inlet, hottest=hottest, hidden_heat=hidden, swing=kind == "swinging",
        kelvin_per_watt=goal / hot,
        start_watts=hot * (dice.between(0.6, 0.8) if kind == "growing" else 0.98))
    what = {"steady": "is held at a lower clock by heat", "swinging": "goes up and down with heat",
            "growing": "grows hot and then slows down", "hot memory":
            "is slowed by its hot memory while the GPU itself is cooler",
            "hardware": "is slowed to half its clock again and again by the hardware"}[kind]
    pieces = dressed(dice, chip, steady_steps(dice, load), seconds, load, 0.15)
    return one_gpu(pieces, conditions, f"The cooler carries {hot:.0f} of {watts:.0f} W: the GPU "
                   f"{what}")


def power_cap(dice, chip, seconds):
    kind = dice.choice(("factory", "lowered", "lowered", "lowered", "brake"))
    load = clock_bound_load(dice, chip)
    limits = chip.limits
    if kind == "brake":
        load = load.at_most(chip, limits["factory"] * 0.92)
        spans, at = [], dice.between(0, 0.2) * seconds
        while at < seconds:
            end = at + dice.between(2, 14)
            spans.append((at, end, dice.choice((0.5, dice.between(0.45, 0.8)))))
            at = end + dice.between(1, 12)
        conditions = usual_conditions(dice, chip, brake=tuple(spans))
        note = "The supply's power brake slows the GPU again and again"
    else:
        watts = limits["factory"] * dice.between(0.8, 1)
        limit = max(limits["lowest"] * 0.95 + 10, watts * dice.between(0.42, 0.82))
        if kind == "factory":
            limit = limits["factory"]
            watts = limit * dice.between(1.2, 1.7)
            load = replace(load, tensor=min(0.93, load.tensor * 1.25))
        load = load.drawing(chip, watts)
        conditions = usual_conditions(dice, chip, limit=limit)
        note = f"The work would draw {load.board_watts(chip):.0f} W and may draw {limit:.0f}"
    pieces = dressed(dice, chip, steady_steps(dice, load), seconds, load)
    return one_gpu(pieces, conditions, note)


# --------------------------------------------------------------------- classes: several GPUs, none

def ranks_of_steps(dice, seconds, loads, spin, step_of, exchange, per_rank):
    """A list of pieces a rank: all begin a step together; who is done waits in a spinning kernel.
    step_of(rank): seconds of wall time; per_rank(rank, seconds): its pieces of work."""
    ranks = [[] for _ in loads]
    wall = 0.0
    while wall < seconds + 5:
        times = [step_of(rank) for rank in range(len(loads))]
        last = max(times)
        together = Piece(exchange, dice.near(0.02 * last))
        for rank, time in enumerate(times):
            ranks[rank] += per_rank(rank, time)
            ranks[rank] += [Piece(spin, last - time, "imbalance", 1), together]
        wall += last + together.seconds
    return ranks


def exchange_load(dice, chip):
    return replace(spinning_load(dice, chip), dram=dice.between(0.08, 0.25),
                   extra=dice.between(0.06, 0.12) * chip.limits["factory"])


def imbalance(dice, chip, seconds):
    kind = dice.choice(("more work", "more work", "slower clock", "slower clock", "varying"))
    count = dice.choice((2, 4, 4, 4, 8))
    load = usual_load(dice, chip).at_most(chip, chip.limits["factory"] * 0.85)
    load = replace(load, clock_bound=max(0.8, load.clock_bound))
    step = dice.log_between(0.12, 2.5)
    slow = dice.randrange(count)
    factor = dice.between(1.16, 2.0)
    ceilings = [chip.top] * count
    if kind == "slower clock":
        ceilings[slow] = chip.clocks[int(len(chip.clocks) * dice.between(0.4, 0.75))]
        factor = 1 + load.clock_bound * (chip.top / ceilings[slow] - 1)

    def step_of(rank):
        if kind == "varying":
            return step * dice.lognormvariate(0, 0.22)
        return dice.near(step * (factor if rank == slow else 1), 0.02)

    def per_rank(rank, wall):
        own = factor if kind == "slower clock" and rank == slow else 1
        return [Piece(load, wall / own)]  # at the highest clock
    ranks = ranks_of_steps(dice, seconds, ceilings, spinning_load(dice, chip), step_of,
                           exchange_load(dice, chip), per_rank)
    plans = [Plan(iter(pieces), usual_conditions(dice, chip, ceiling=ceiling, tenants=1,
                                                 capped_bit_share=0))
             for pieces, ceiling in zip(ranks, ceilings)]
    what = {"more work": f"GPU {slow} has {factor - 1:.0%} more work",
            "slower clock": f"GPU {slow} is held at {ceilings[slow]} MHz",
            "varying": "each step another has the longest sequences"}[kind]
    return World(plans, f"{count} GPUs of one job, steps of {step:.2f} s: {what}, the others spin")


def idle_pieces(dice, chip, seconds):
    """Nothing; in some worlds a job that ends early, before."""
    if dice.chance(0.3):
        load = usual_load(dice, chip)
        yield Piece(load, dice.between(0.03, 0.12) * seconds, label="run")
        yield Piece(NOTHING, 1.0)
    while True:
        yield Piece(NOTHING, 10.0)


def idle_context(dice, chip, seconds):
    clock = dice.choice(chip.idle_clocks)
    conditions = usual_conditions(dice, chip, idle_clock=clock, tenants=dice.choice((1, 1, 2, 3)),
                                  start_watts=chip.idle[0][1], capped_bit_share=0)
    return one_gpu(idle_pieces(dice, chip, seconds), conditions,
                   f"{conditions.tenants} process(es) hold a context, nothing runs, {clock} MHz")


def idle_clock_high(dice, chip, seconds):
    clock = dice.choice(chip.held_clocks)
    conditions = usual_conditions(dice, chip, ceiling=clock, tenants=dice.choice((1, 1, 2, 3)),
                                  start_watts=chip.idle[-1][1], capped_bit_share=0)
    return one_gpu(idle_pieces(dice, chip, seconds), conditions,
                   f"{conditions.tenants} process(es) hold a context, nothing runs, at {clock} MHz")


def healthy(dice, chip, seconds):
    kind = dice.choice(("training", "training", "training", "fp32", "fp64", "several GPUs"))
    if kind == "several GPUs":
        return healthy_ranks(dice, chip, seconds)
    border = dice.choice(("", "small waits", "small stops", "at the limit", "warm moment",
                          "much memory" if kind == "training" else ""))
    load = {"training": tensor_load, "fp32": fp32_full_load, "fp64": fp64_full_load}[kind](
        dice, chip)
    conditions = usual_conditions(dice, chip)
    if border == "much memory":
        load = replace(load, dram=dice.between(0.4, 0.52)).at_most(
            chip, chip.limits["factory"] * 0.95)
    if border == "at the limit":
        load = load.drawing(chip, chip.limits["factory"] * dice.between(1.0, 1.06))
    if border == "warm moment":
        conditions = warm_moment(dice, chip, conditions, load, seconds)
    step = usual_step(dice, load, 0.1, 1.5)
    every = dice.randint(1, 12)
    lost = dice.between(0.03, 0.065) if border == "small waits" else dice.between(0, 0.015)
    stop_at = dice.between(0.3, 0.8) * seconds if border == "small stops" else math.inf
    stop = dice.between(0.02, 0.06) * seconds

    def pieces():
        number, done = 0, 0.0
        while True:
            number += 1
            for piece in step.pieces(dice):
                done += piece.seconds
                yield piece
            if number % every == 0:
                yield waiting("data_loader", step.seconds * every * lost)
            if done > stop_at:
                done = -math.inf
                yield copying(chip, "checkpoint", chip.link * 0.2 * stop, chip.link * 0.4, False)
                yield waiting("checkpoint", stop / 2)
    note = f"{kind}: well used" + (f" ({border})" if border else "")
    phase = 0.4 if kind == "training" else 0
    job = interrupted(dice, pieces(), seconds, evaluation_load(dice, load)) if dice.chance(
        phase) else pieces()
    return one_gpu(started(dice, chip, job, seconds), conditions, note)


def healthy_ranks(dice, chip, seconds):
    count = dice.choice((2, 4, 4))
    load = tensor_load(dice, chip).at_most(chip, chip.limits["factory"] * 0.85)
    step = dice.log_between(0.15, 2)
    pieces = ranks_of_steps(dice, seconds, range(count), spinning_load(dice, chip),
                            lambda rank: dice.near(step, dice.between(0.004, 0.03)),
                            exchange_load(dice, chip), lambda rank, wall: [Piece(load, wall)])
    plans = [Plan(iter(own), usual_conditions(dice, chip, tenants=1)) for own in pieces]
    return World(plans, f"{count} GPUs of one job that finish their steps together")


BUILDERS = {builder.__name__: builder for builder in (
    host_bound, data_loader, checkpoint, launch_bound, small_batch, pcie_bound, memory_bound,
    tensor_idle, low_occupancy, thermal, power_cap, imbalance, idle_context, idle_clock_high,
    healthy)}


# --------------------------------------------------------------------------------- the GPU, running

@dataclass
class Log:
    """By tick."""
    activity: list = field(default_factory=list)  # as SHOWN, then tx and rx
    watts: list = field(default_factory=list)
    clock: list = field(default_factory=list)
    temperature: list = field(default_factory=list)
    bits: list = field(default_factory=list)
    labels: list = field(default_factory=list)  # (tick, text)
    lost: dict = field(default_factory=dict)  # seconds by cause


class Job:
    """Goes through the pieces, faster or slower with the clock."""
    # How each activity follows it: 0 not, 1 as work per cycle, 2 as work per second.
    KINDS = tuple(1 if name in PIPES else 2 if name in ("dram", "tx", "rx") else 0
                  for name in SHOWN + ("tx", "rx"))

    def __init__(self, chip, pieces, log):
        self.chip, self.pieces, self.log = chip, pieces, log
        self.vectors = {}
        self.next(0)

    def next(self, tick):
        self.piece = next(self.pieces, None) or Piece(NOTHING, 3600.0)
        self.left = self.piece.seconds
        if self.piece.label:
            self.log.labels.append((tick, self.piece.label))

    def vector(self, load):
        known = self.vectors.get(id(load))
        if known is None:
            values = [getattr(load, name) for name in SHOWN + ("tx", "rx")]
            known = (load, values, load.core_watts(self.chip), load.memory_watts(self.chip))
            self.vectors[id(load)] = known  # holds the load, so that its id stays its own
        return known

    def run(self, tick, slower, holder):
        """One tick at a clock `slower` times below the highest: activity, core and DRAM watts."""
        mix, core, memory, room = [0.0] * (len(SHOWN) + 2), 0.0, 0.0, TICK
        while room > 1e-9:
            piece = self.piece
            load, values, load_core, load_memory = self.vector(piece.load)
            rate = 1 / (1 + load.clock_bound * (slower - 1))
            span = min(room, self.left / rate)
            share = span / TICK
            by_kind = (share, share * slower * rate, share * rate)
            for at, kind in enumerate(self.KINDS):
                if values[at]:
                    mix[at] += values[at] * by_kind[kind]
            core += share * load_core * rate
            memory += share * load_memory * rate
            self.book(piece.cause, span * piece.lost)
            self.book(holder, span * (1 - rate))
            self.left -= span * rate
            room -= span
            if self.left <= 1e-9:
                self.next(tick)
        return mix, core, memory

    def book(self, cause, seconds):
        if cause and seconds > 0:
            self.log.lost[cause] = self.log.lost.get(cause, 0.0) + seconds


class Gpu:
    """Clock, power and heat of one GPU."""
    FAST_S, SLOW_S, FAST_SHARE = 1.2, 22.0, 0.35  # heat: the die, then the cooler

    def __init__(self, chip, conditions, dice):
        self.chip, self.conditions, self.dice = chip, conditions, dice
        self.step = chip.clocks[1] - chip.clocks[0]
        self.cap = self.heat_clock = float(conditions.ceiling)
        self.clock = conditions.idle_clock or conditions.ceiling
        warm = conditions.start_watts * conditions.kelvin_per_watt
        self.fast, self.slow = warm * self.FAST_SHARE, warm * (1 - self.FAST_SHARE)
        self.air = 0.0
        self.smooth = conditions.start_watts
        self.too_hot = False
        self.resting = 60.0  # seconds without work
        self.onset = 0  # ticks of the dip at the begin of work
        self.wobble = 0.0
        self.false_cap = 0
        self.by_clock = {}

    def board(self, clock):
        """Idle watts and core watts relative to the highest clock's, per unit of rate."""
        if clock not in self.by_clock:
            volts = between_points(self.chip.voltage, clock)
            top = between_points(self.chip.voltage, self.chip.top)
            self.by_clock[clock] = (between_points(self.chip.idle, clock), (volts / top) ** 2)
        return self.by_clock[clock]

    def warm_up(self, watts, now):
        heat = watts * self.conditions.kelvin_per_watt
        self.fast += (heat * self.FAST_SHARE - self.fast) * TICK / self.FAST_S
        self.slow += (heat * (1 - self.FAST_SHARE) - self.slow) * TICK / self.SLOW_S
        air = sum(rise for begin, end, rise in self.conditions.warm_air if begin <= now < end)
        self.air += (air - self.air) * TICK / 2.5
        return self.conditions.inlet + self.fast + self.slow + self.air

    def regulate_power(self, watts):
        limit = self.conditions.limit
        self.smooth += (watts - self.smooth) * 0.3
        if self.smooth > limit:
            self.cap = min(self.cap, self.clock) * (1 - 0.12 * min(1, self.smooth / limit - 1))
            self.cap -= self.step * 0.5
        elif self.smooth < limit * 0.985:
            self.cap += self.step * (1 if self.smooth > limit * 0.9 else 3)
        if self.cap < self.conditions.ceiling:
            self.cap += self.dice.gauss(0, self.step * 0.6)
        lowest = self.chip.clocks[0]
        self.cap = min(max(self.cap, lowest), self.conditions.ceiling + self.step)

    def regulate_heat(self, temperature):
        c = self.conditions
        over = temperature + c.hidden_heat - c.hottest + 0.7  # it is foresighted
        step = max(self.step, 15)
        if c.swing:
            if over > 0.7:
                self.heat_clock -= step * 3
            elif over < -3:
                self.heat_clock += step * 4
        elif over > 0:
            self.heat_clock -= step * min(6, 1 + int(3 * over))
        elif over < -0.8:
            self.heat_clock += step
        self.heat_clock = min(max(self.heat_clock, self.chip.top * 0.35), c.ceiling)
        if temperature >= self.chip.slowdown:
            self.too_hot = True
        elif temperature < self.chip.slowdown - 6:
            self.too_hot = False

    def choose_clock(self, now):
        """The clock of the next tick, the bits that say why and who holds it below its ceiling."""
        c = self.conditions
        clock, bits, holder = float(c.ceiling), 0, ""
        if self.resting > 1.0 and c.idle_clock:
            fall = (self.resting - 1.0) / 1.2  # within two seconds or so, in steps
            falling = c.ceiling * (1 - fall) ** 2 if fall < 1 else 0
            return self.on_grid(max(c.idle_clock, falling)), IDLE_BIT, ""
        if self.resting > 0.06:
            return self.on_grid(min(clock, self.cap, self.heat_clock)), IDLE_BIT, ""
        if c.ceiling < self.chip.top:
            bits |= SETTING_BIT
        if self.cap < clock - self.step * 0.5:
            clock, bits, holder = self.cap, bits | CAP_BIT, "power_cap"
        if self.heat_clock < c.ceiling - self.step * 0.5:
            bits |= SW_HEAT_BIT
            if self.heat_clock < clock:
                clock, holder = self.heat_clock, "thermal"
        if self.too_hot:
            bits |= HW_BIT | HW_HEAT_BIT
            clock, holder = min(clock, c.ceiling * 0.5), "thermal"
        for begin, end, share in c.brake:
            if begin <= now < end:
                bits |= HW_BIT | BRAKE_BIT
                clock, holder = min(clock, c.ceiling * share), "power_cap"
        return self.stray_bits(clock, bits, holder)

    def stray_bits(self, clock, bits, holder):
        """The power-cap bit without the cap, as measured."""
        if self.onset > 0:
            self.onset -= 1
            clock, bits = min(clock, self.conditions.ceiling - self.step), bits | CAP_BIT
        if self.false_cap > 0:
            self.false_cap -= 1
            bits |= CAP_BIT
        elif self.dice.random() < self.conditions.capped_bit_share * TICK / 0.5:
            self.false_cap = 25
        return self.on_grid(clock), bits, holder

    def on_grid(self, clock):
        at = bisect_right(self.chip.clocks, clock) - 1
        return self.chip.clocks[max(0, at)]

    def run(self, pieces, seconds):
        log = Log()
        job = Job(self.chip, iter(pieces), log)
        temperature = self.conditions.inlet + self.fast + self.slow
        for tick in range(int(seconds / TICK)):
            now = tick * TICK
            self.clock, bits, holder = self.choose_clock(now)
            mix, core, memory = job.run(tick, self.chip.top / self.clock, holder)
            idle, volts = self.board(self.clock)
            self.wobble += (self.dice.gauss(0, 0.012) - self.wobble) * 0.1
            watts = idle + (core * volts + memory) * (1 + self.wobble)
            if mix[0] > 0.002:
                if self.resting > 0.5 and mix[1] > 0.3 and self.dice.chance(0.3):
                    self.onset = self.dice.randint(3, 9)
                self.resting = 0.0
            else:
                self.resting += TICK
            temperature = self.warm_up(watts, now)
            self.regulate_power(watts)
            if tick % 12 == 0:
                self.regulate_heat(temperature)
            log.activity.append(mix)
            log.watts.append(watts)
            log.clock.append(self.clock)
            log.temperature.append(temperature)
            log.bits.append(bits)
        return log


# ------------------------------------------------------------------------------------- the sensors

COLUMNS = ("t_us", "power_usage_mw", "power_instant_mw", "power_average_mw", "energy_mj",
           "sm_clock_mhz", "memory_clock_mhz", "gpu_util_pct", "memory_util_pct", "temperature_c",
           "throttle_bits", "graphics_pct", "sm_pct", "occupancy_pct", "integer_pct", "tensor_pct",
           "dram_pct", "fp64_pct", "fp32_pct", "fp16_pct", "pcie_tx_bytes_per_s",
           "pcie_rx_bytes_per_s", "tenants")
ABSENT_WITHOUT_GPM = COLUMNS[11:22] + ("power_instant_mw", "power_average_mw")
IDLE_TX, IDLE_RX = 1.05e6, 0.69e6  # bytes/s of reading the sensors themselves
IDLE_DRAM_PCT = 0.0004  # refresh
DCGM_LATE = 15  # ticks
# graphics, sm, occupancy, tensor, dram, fp64, PCIe: one pass of an A100, by EAR's table.
DCGM_SHARES = (0, 1, 2, 4, 5, 6, 9, 10)


class Sensors:
    """Reads a log as NVML would show it."""

    def __init__(self, chip, log, conditions, dice):
        self.chip, self.log, self.conditions, self.dice = chip, log, conditions, dice
        self.gain = dice.between(0.96, 1.04)  # the power sensor's own
        self.phase = dice.randrange(5)  # ticks
        self.memory_factor = dice.between(*chip.memory_factor)
        self.busy_factor = dice.between(0.985, 1.0)
        slow = 10 if chip is H200 else 8 if chip.name.startswith("A100") else dice.choice((5, 8))
        self.util_every = slow
        self.util_window = 1 if slow == 5 else slow
        self.energy_base = dice.between(1e6, 4e9)  # joules
        self.sums = {
            "watts": [0.0, *accumulate(log.watts)],
            "busy": [0.0, *accumulate(a[0] for a in log.activity)],
            "memory": [0.0, *accumulate(min(1, a[5] * self.memory_factor) for a in log.activity)]}
        self.cached = {}
        self.gpm_end = None
        self.glitch = 0.0

    def mean(self, what, begin, end):
        begin, end = max(0, begin), max(1, end)
        sums = self.sums[what]
        return (sums[end] - sums[begin]) / max(1, end - begin)

    def published(self, tick, every):
        return max(0, (tick - self.phase) // every * every + self.phase)

    def once(self, key, make):
        """A published value stays what it is until the next."""
        name, at = key
        if self.cached.get(name, (None, None))[0] != at:
            self.cached[name] = (at, make())
        return self.cached[name][1]

    def power(self, tick):
        """usage, instant, average in mW."""
        if self.chip is not H200:
            every, noise = (5, 1.0) if self.chip.name.startswith("A100") else (1, 0.5)
            at = self.published(tick, every)
            usage = self.once(("usage", at), lambda: self.gain * self.log.watts[max(0, at - 1)]
                              + self.dice.gauss(0, noise))
            return round(usage * 1000), None, None
        at = self.published(tick, 5)
        instant = self.once(("instant", at), lambda: self.log.watts[max(0, at - 1)]
                            * self.dice.gauss(1, 0.008 if self.log.activity[at][0] else 0.003))
        average = self.once(("average", at), lambda: self.mean("watts", at - 50, at)
                            * self.dice.gauss(1, 0.0008))
        average = round(average * self.gain * 1000)
        return average, round(instant * self.gain * 1000), average

    def energy(self, tick):
        at = self.published(tick, 5 if self.chip is not V100 else 1)
        return round((self.energy_base + self.gain * self.sums["watts"][at] * TICK) * 1000)

    def utilisation(self, tick):
        at = self.published(tick, self.util_every)

        def make():
            shares = [self.mean(what, at - self.util_window, at) for what in ("busy", "memory")]
            gpu = shares[0] * 100 * self.busy_factor
            if 0 < gpu:
                gpu += self.dice.gauss(0, 0.5)
            return (min(100, max(0, round(gpu))), min(100, round(shares[1] * 100)))
        return self.once(("utilisation", at), make)

    def activity(self, tick):
        """GPM: the mean since the reading before, in percent; bytes/s for PCIe."""
        end = self.published(tick - DCGM_LATE if self.chip.dcgm else tick, 5)
        begin, self.gpm_end = self.gpm_end, end
        if begin is None or end - begin < 5:
            return [None] * 11
        rows = self.log.activity[begin:end]
        means = [sum(column) / len(rows) for column in zip(*rows)]
        noise = self.dice.gauss(1, 0.003)
        cells = []
        for at, mean in enumerate(means[:9]):
            value = 100 * mean * noise * self.dice.gauss(1, 0.002)
            value = min(value, 99.95)
            if at == 5:
                value = max(value * self.dram_glitch(), IDLE_DRAM_PCT)
            cells.append(round(value, 4 if value < 0.1 else 2))
        for base, mean in ((IDLE_TX, means[9]), (IDLE_RX, means[10])):
            read = base * (self.dice.between(1.4, 1.9) if self.dice.chance(0.08) else 1)
            cells.append(round(read * self.dice.gauss(1, 0.01) + mean * noise, -2))
        return cells

    def dram_glitch(self):
        """About one window of 300 is off, half of it made up by the next."""
        if self.glitch:
            made_up, self.glitch = 1 - self.glitch / 2, 0.0
            return made_up
        if self.dice.random() < 1 / 300:
            self.glitch = self.dice.choice((-1, 1)) * self.dice.between(0.19, 0.51)
        return 1 + self.glitch

    def row(self, time, slow):
        tick = min(int(time / TICK), len(self.log.watts) - 1)
        usage, instant, average = self.power(tick)
        gpu, memory = self.utilisation(tick)
        gpm = [None] * 11
        if self.chip.dcgm:
            gpm = [c if at in DCGM_SHARES else None for at, c in enumerate(self.activity(tick))]
        elif self.chip.gpm:
            gpm = [None if c is None else int(c) if c == int(c) else c for c in self.activity(tick)]
        return [int(time * 1e6), usage, instant, average, self.energy(tick) if slow else None,
                self.log.clock[tick], self.chip.memory_clocks[-1], gpu, memory,
                round(self.log.temperature[self.published(tick, 5)]), hex(self.log.bits[tick]),
                *gpm, self.conditions.tenants if slow else None]


def reading_times(dice, seconds, interval):
    """Each interval, hardly late; now and then one reading takes long and the next is missed."""
    number, offset = 0, dice.between(0.001, 0.009)
    while (number + 1) * interval < seconds:
        late = dice.expovariate(1 / 0.0001)
        if dice.random() < 0.002 and interval < 1:
            late += dice.between(0.01, 0.08)
            yield number, number * interval + offset + late
            number += 2
            continue
        yield number, number * interval + offset + min(late, 0.002)
        number += 1


def header_of(chip, dice, index, interval):
    uuid = f"GPU-{dice.getrandbits(32):08x}-0000-0000-0000-{dice.getrandbits(48):012x}"
    return {
        "gpu": {"index": index, "uuid": uuid, "pci_bus_id": f"00000000:{0x10 + index:02X}:00.0",
                "name": chip.product},
        "architecture": chip.architecture, "sm_clocks_mhz": list(chip.clocks),
        "memory_clocks_mhz": list(chip.memory_clocks), "power_limits_watts": chip.limits,
        "slowdown_temperature_celsius": chip.slowdown,
        "flat_voltage_end_mhz": chip.flat_voltage_end, "energy_counter": True,
        "instant_power": chip.gpm, "averaged_power": chip.gpm, "activity_counters": chip.gpm,
        "process_list": True, "start": "2026-03-02T08:00:00.000000Z",
        "interval_seconds": interval, "tags": {"host": "node"}}


def trace_text(header, rows, labels, columns):
    """As src/device/replay writes it: a ditto mark for a cell of two characters or more again."""
    lines = ["#derate-trace 1", "#" + json.dumps(header, separators=(",", ":")), ",".join(columns)]
    wanted = [COLUMNS.index(name) for name in columns]
    before, pending = [""] * len(wanted), list(labels)
    for row in rows:
        while pending and pending[0][0] * TICK <= row[0] / 1e6:
            lines.append(f"#label {pending.pop(0)[1]}")
        cells = ["" if row[at] is None else str(row[at]) for at in wanted]
        shown = ['"' if i and len(cell) > 1 and cell == before[i] else cell
                 for i, cell in enumerate(cells)]
        lines.append(",".join(shown))
        before = cells
    return "\n".join(lines) + "\n"


def trace_of(chip, log, conditions, dice, index, interval, seconds, labelled, all_columns):
    sensors = Sensors(chip, log, conditions, dice)
    each_second = max(1, round(1 / interval))
    rows, due = [], 0
    for number, time in reading_times(dice, seconds, interval):
        slow = number >= due
        if slow:
            due = number + each_second
        rows.append(sensors.row(time, slow))
    columns = COLUMNS if chip.gpm or chip.dcgm or all_columns else tuple(
        name for name in COLUMNS if name not in ABSENT_WITHOUT_GPM)
    return trace_text(header_of(chip, dice, index, interval), rows,
                      log.labels if labelled else (), columns)


# -------------------------------------------------------------------------------------- the worlds

IDLE_CLASSES = ("idle_context", "idle_clock_high")


def costs_of(logs, seconds):
    """The share of time that each cause costs, mean over the GPUs."""
    costs = {}
    for log in logs:
        for cause, lost in log.lost.items():
            if cause in CLASSES:
                costs[cause] = costs.get(cause, 0) + lost / seconds / len(logs)
    return costs


def is_clear(name, costs):
    if name in IDLE_CLASSES:
        return True
    if name == "healthy":
        return all(cost < 0.075 for cost in costs.values()) and sum(costs.values()) < 0.1
    others = max((cost for cause, cost in costs.items() if cause != name), default=0)
    return costs.get(name, 0) >= 0.09 and costs[name] >= 1.5 * others


def drawn_world(name, chip, seed):
    """The first draw of which the class is what an expert would name."""
    for draw in range(MOST_DRAWS):
        dice = Dice(f"{chip.name}/{name}/{seed}/{draw}")
        interval = 1.0 if dice.chance(0.15) else 0.1
        seconds = dice.between(120, 180) if interval == 1.0 else dice.between(60, 180)
        world = BUILDERS[name](dice, chip, seconds)
        logs = [Gpu(chip, plan.conditions, dice).run(plan.pieces, seconds) for plan in world.plans]
        costs = costs_of(logs, seconds)
        if is_clear(name, costs):
            return world, logs, costs, dice, interval, seconds
    raise SystemExit(f"worlds.py: no clear world in {MOST_DRAWS} draws: {chip.name} {name} {seed}")


def write_world(out, name, chip, seed):
    world, logs, costs, dice, interval, seconds = drawn_world(name, chip, seed)
    folder = Path(out) / chip.name / name / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    labelled, all_columns = dice.chance(0.3), dice.chance(0.6)
    for index, (plan, log) in enumerate(zip(world.plans, logs)):
        text = trace_of(chip, log, plan.conditions, dice, index, interval, seconds, labelled,
                        all_columns)
        (folder / f"gpu{index}.trace").write_text(text, encoding="ascii")
    note = world.note
    if name not in IDLE_CLASSES + ("healthy",):
        note += f"; this costs about {costs[name]:.0%} of the time"
    truth = {"class": name, "chip": chip.name, "seed": seed, "note": note + "."}
    (folder / "truth.json").write_text(json.dumps(truth) + "\n", encoding="ascii")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", metavar="OUT", help="folder to write to")
    parser.add_argument("--class", dest="name", choices=CLASSES, help="only this class")
    parser.add_argument("--worlds", type=int, default=20, help="seeds a class (default 20)")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--chip", choices=tuple(CHIPS), help="only this chip")
    options = parser.parse_args()
    for chip in [CHIPS[options.chip]] if options.chip else CHIPS.values():
        for name in [options.name] if options.name else CLASSES:
            for seed in range(options.first_seed, options.first_seed + options.worlds):
                write_world(options.out, name, chip, seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
