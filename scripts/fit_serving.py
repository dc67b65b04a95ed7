#!/usr/bin/python3
"""Fit the simulator's engines that serve language models to measured tables: data/serving.csv.

The laws, what the tables leave open and what is assumed are described in docs/serving-engines.md.
Frequencies are in MHz, powers in watts, times in seconds.

    scripts/fit_serving.py --data DIR > data/serving.csv
    scripts/fit_serving.py --data DIR --errors
"""
import argparse
import csv
import sys
import tomllib
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares, nnls

ROOT = Path(__file__).resolve().parents[1]
TOP = 1300.0  # of the tables of the V100
STEP_TOKENS = 2048  # vLLM's default for `max_num_batched_tokens`
# Requests in flight of the rows whose column says 16. Column `throughput_tps` of both mixes is that
# of 64 requests (64 x 512 tokens in 91.8 s), and the table of phases agrees with 64 alone.
IN_FLIGHT = 64
PARTS = ("host", "weights", "small", "sequences", "kv", "prompt", "prefill")
GUESS = np.log([.004, .014, .007, 2e-4, 1e-6, 2.7e-4, .02])
GUESS_WEIGHT = 0.02  # what the rows do not say stays near the guess
FIRST_TOKENS = 16  # of a prompt in the table of phases
NAMES = ("host_s", "weights_s", "small_s", "per_sequence_s", "per_kv_token_s", "per_prompt_token_s",
         "prefill_step_s")


class Chip:
    def __init__(self, name):
        chip = tomllib.loads((ROOT / f"data/chips/{name}.toml").read_text())
        self.roof = chip.get("memory_roof")
        self.idle = lambda mhz: np.interp(mhz, *zip(*chip["idle"]["watts"]))
        self.volts = lambda mhz: np.interp(mhz, *zip(*chip["voltage"]["curve"]))

    def memory_slowdown(self, mhz):
        if self.roof is None:
            return 1.0
        return max(1.0, self.roof["full_from_mhz"] / mhz)**self.roof["exponent"]


V100 = Chip("v100-sxm2")


def parts_of_step(law, mhz, sequences, kv_tokens, prompt_tokens):
    """Seconds of each of PARTS."""
    slower = TOP / mhz
    scale = np.array([
        1, V100.memory_slowdown(mhz), slower, slower * sequences, slower * kv_tokens,
        slower * prompt_tokens, slower * (prompt_tokens > 0)])
    return law * scale


def wave(law, mhz, requests, prompt, generated):
    """All requests come at once. Mean TTFT, mean TPOT, seconds of each part until the last."""
    left = [prompt] * requests
    context, done = [0] * requests, [0] * requests
    first, last = np.zeros(requests), np.zeros(requests)
    spent = np.zeros(len(PARTS))
    while True:
        decoding = [i for i in range(requests) if left[i] == 0 and done[i] < generated]
        room, chunks = STEP_TOKENS - len(decoding), []
        for i in range(requests):
            if left[i] > 0 and room > 0:
                chunks.append((i, min(room, left[i])))
                room -= chunks[-1][1]
        if not decoding and not chunks:
            break
        # Steps that differ in the context alone are taken eight at once.
        steps = 1 if chunks else min(8, min(generated - done[i] for i in decoding))
        kv_tokens = sum(context[i] for i in decoding) + (steps - 1) / 2 * len(decoding)
        spent += steps * parts_of_step(law, mhz, len(decoding), kv_tokens,
                                       sum(tokens for _, tokens in chunks))
        now = spent.sum()
        for i in decoding:
            done[i] += steps
            context[i] += steps
            last[i] = now
        for i, tokens in chunks:
            left[i] -= tokens
            context[i] += tokens
            if left[i] == 0:
                done[i] = 1
                first[i] = last[i] = now
    return first.mean(), ((last - first) / (generated - 1)).mean(), spent


class Row:
    def __init__(self, row, in_flight):
        self.mix, self.mhz = row["workload"], float(row["frequency_mhz"])
        self.one = row["concurrency"] == "1"
        self.requests = 1 if self.one else in_flight
        self.prompt = int(row["input_tokens_target"])
        self.generated = int(row["output_tokens_target"])
        self.ttft, self.tpot = float(row["ttft_s"]), float(row["tpot_s"])
        self.watts = float(row["total_energy_j"]) / float(row["duration_s"])
        # With one request at a time the highest reading is that of reading its prompt.
        self.prompt_watts = float(row["peak_power_w"]) if self.one else None

    def run(self, law):
        return wave(law, self.mhz, self.requests, self.prompt, self.generated)

    def errors(self, law):
        ttft, tpot, _ = self.run(law)
        return [np.log(ttft / self.ttft), np.log(tpot / self.tpot)]


class PhaseRow:
    """Decode alone, at the top clock."""

    def __init__(self, row):
        self.batch, self.tpot = int(row["batch_size"]), float(row["mean_tpot_s"])
        self.one = self.batch == 1
        self.watts = float(row["avg_power_w"])

    def parts(self, law):
        kv_tokens = self.batch * (FIRST_TOKENS + 256 / 2)
        return parts_of_step(law, TOP, self.batch, kv_tokens, 0)

    def errors(self, law):
        return [np.log(self.parts(law).sum() / self.tpot)]


def fit_times(rows):
    def errors(logs):
        law = np.exp(logs)
        return np.concatenate([np.concatenate([row.errors(law) for row in rows]),
                               (logs - GUESS) * GUESS_WEIGHT])

    return np.exp(least_squares(errors, GUESS, max_nfev=40).x)


def power_terms(parts, mhz, exponent):
    """Of each part, its share of the time times how its power follows clock and voltage."""
    slower = TOP / mhz
    follows = np.where(np.arange(len(PARTS)) == 1, 1.0, 1 / slower)
    return parts / parts.sum() * follows * V100.volts(mhz)**exponent


def fit_power(law, rows, phases, exponent):
    """Watts of each part above the idle power, at the top clock and the lowest voltage."""
    terms, wanted = [], []
    for row in rows:
        terms.append(power_terms(row.run(law)[2], row.mhz, exponent) / row.watts)
        wanted.append(1 - V100.idle(row.mhz) / row.watts)
    for row in phases:
        terms.append(power_terms(row.parts(law), TOP, exponent) / row.watts)
        wanted.append(1 - V100.idle(TOP) / row.watts)
    for row in rows:
        if row.prompt_watts is not None:
            parts = parts_of_step(law, row.mhz, 0, 0, row.prompt)
            terms.append(power_terms(parts, row.mhz, exponent) / row.prompt_watts)
            wanted.append(1 - V100.idle(row.mhz) / row.prompt_watts)
    terms, wanted = np.array(terms), np.array(wanted)
    watts = nnls(terms, wanted)[0]
    return watts, terms @ watts - wanted


EXPONENTS = np.arange(1.0, 6.01, 0.25)


def best_power(law, rows, phases):
    fits = [(exponent, *fit_power(law, rows, phases, exponent)) for exponent in EXPONENTS]
    return min(fits, key=lambda fit: np.square(fit[2]).sum())


def text_of(errors):
    size = np.abs(errors)
    return f"mean {size.mean():.1%}, largest {size.max():.1%}"


def times_text(rows, law):
    errors = [row.errors(law) for row in rows if isinstance(row, Row)]
    out = f"TTFT {text_of([e[0] for e in errors])}; TPOT {text_of([e[1] for e in errors])}"
    phases = [row.errors(law)[0] for row in rows if isinstance(row, PhaseRow)]
    return out + (f"; decode alone {text_of(phases)}" if phases else "")


def print_errors(folder):
    for in_flight in (IN_FLIGHT, 16):
        rows, phases = tables(folder, in_flight)
        law = fit_times(rows)
        print(f"{in_flight} requests in flight, fitted to the table of clocks:")
        print("  ", times_text(rows, law))
        alone = text_of([phase.errors(law)[0] for phase in phases])
        print("   not fitted, decode alone at 1 to 16:", alone)
    rows, phases = tables(folder, IN_FLIGHT)
    everything = rows + phases
    halves = {
        "mix LL and one at a time": lambda row: row.one or getattr(row, "mix", "") == "LL",
        "mix SS and many at a time": lambda row: not row.one or getattr(row, "mix", "") == "SS"}
    for name, within in halves.items():
        fitted = [row for row in everything if within(row)]
        others = [row for row in everything if not within(row)]
        law = fit_times(fitted)
        print(f"fitted to {name}:\n   fitted  {times_text(fitted, law)}")
        print(f"   others  {times_text(others, law)}")
        waves = [row for row in fitted if isinstance(row, Row)]
        exponent, watts, errors = best_power(
            law, waves, [row for row in fitted if isinstance(row, PhaseRow)])
        held = [power_terms(row.run(law)[2], row.mhz, exponent) @ watts + V100.idle(row.mhz)
                for row in others if isinstance(row, Row)]
        true = [row.watts for row in others if isinstance(row, Row)]
        print(f"   power fitted {text_of(errors)}; others {text_of(np.log(np.array(held) / true))}")
    law = fit_times(everything)
    exponent, _, errors = best_power(law, rows, phases)
    print(f"fitted to everything:\n   {times_text(everything, law)}")
    ends = [len(rows), len(rows) + len(phases)]
    print(f"   power {text_of(errors[:ends[0]])}; decode alone {text_of(errors[ends[0]:ends[1]])}; "
          f"reading a prompt {text_of(errors[ends[1]:])}; "
          f"voltage to the power of {exponent}")


def tables(folder, in_flight):
    with (folder / "v100_clock_load.csv").open() as file:
        rows = [Row(row, in_flight) for row in csv.DictReader(file)]
    with (folder / "v100_phase_batch.csv").open() as file:
        decode = [PhaseRow(row) for row in csv.DictReader(file) if row["phase"] == "decode"]
    return rows, decode


H100_MODEL = "meta-llama/Llama-3.1-8B-Instruct"
H100_TOP, H100_CAP_W = 1980, 680  # rows above draw what the power limit leaves
H100_CONTEXT = 300  # tokens of a sequence, mean of the chat: assumed, half of 400 and a prompt


def h100_row(folder):
    """Times and watts by batch, all measured at the top clock; how they follow it is assumed."""
    chip = Chip("h100-sxm5")
    with (folder / "h100_batch.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["model_id"] == H100_MODEL]
    batch = np.array([float(row["avg_batch_size"]) for row in rows])
    itl = np.array([float(row["median_itl_ms"]) for row in rows]) / 1000
    watts = np.array([float(row["avg_power_watts"]) for row in rows])
    slope, base = np.polyfit(batch, itl, 1, w=1 / itl)
    free = watts < H100_CAP_W
    shares = np.stack([base / (base + slope * batch), slope * batch / (base + slope * batch)], 1)
    scale = chip.volts(H100_TOP)**2
    power = nnls(shares[free] * scale, watts[free] - chip.idle(H100_TOP))[0]
    kv_share = 0.5  # of what a sequence takes: assumed
    times = [0.001, base - 0.002, 0.001, slope * (1 - kv_share), slope * kv_share / H100_CONTEXT,
             3.2e-5, 0.002]
    parts = [0, power[0], power[0], power[1], power[1], power[1], power[1]]
    return ["H100-SXM5", "llama-8b",
            "ML.ENERGY leaderboard v3: Llama-3.1-8B on one H100 by batch; prefill and the clock's "
            "part assumed", 1, H100_TOP, 0.8, *times, *parts, 2, 400000, 8192]


def write_rows(folder, out):
    rows, phases = tables(folder, IN_FLIGHT)
    law = fit_times(rows + phases)
    exponent, watts, _ = best_power(law, rows, phases)
    print("# Engines that serve language models on simulated GPUs, by scripts/fit_serving.py.\n"
          "# Equations, errors, sources: docs/serving-engines.md. No measured row is kept here.\n"
          "# assumed 1: how times and power follow the clock was not measured.", file=out)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["chip", "name", "source", "assumed", "top_mhz", "memory_share", *NAMES,
                     *(part + "_w" for part in PARTS), "voltage_exponent", "kv_tokens",
                     "step_tokens"])
    v100 = ["V100-SXM2", "mistral-7b",
            "Slowist-Lee/log_vllm @ 91b6998: Mistral-7B; vLLM 0.17.1; V100-SXM2-32GB", 0, int(TOP),
            0, *law, *watts, exponent, 100000, STEP_TOKENS]
    for row in (v100, h100_row(folder)):
        writer.writerow([f"{cell:.4g}" if isinstance(cell, float) else cell for cell in row])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument("--errors", action="store_true", help="print the errors of the fits")
    options = parser.parse_args()
    folder = options.data / "serving"
    if options.errors:
        print_errors(folder)
    else:
        write_rows(folder, sys.stdout)


if __name__ == "__main__":
    main()
