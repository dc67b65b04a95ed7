#!/usr/bin/env python3
"""Breaks derated and derate run in every way we know, on simulated GPUs, and reads from the
simulator whether every GPU was left as it was found. Real processes, nothing mocked; a scenario
has its own GPUs, folders and configuration. The scenarios are in scenarios.py, what they stand on
in house.py; README.md says how to write one.

    fault_matrix.py --build build/dev                        all of it, some 5 minutes
    fault_matrix.py --build build/dev --quick                what CI runs, about a minute
    fault_matrix.py --build build/dev --only derated.SIGTERM
    fault_matrix.py --build build/dev --table docs/faults.md
"""

import argparse
import multiprocessing
import os
import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path

import attacks  # noqa: F401: its rows come after those of scenarios.py
import waits  # noqa: F401: and then these
from house import Failure, House
from scenarios import ROWS, Skip

PATIENCE = 400  # seconds a scenario may take


# --- one scenario ---------------------------------------------------------------------------------

def perform(row, options):
    """("passed" | "failed" | "skipped", Measured or why) of one row."""
    house = House(options.build, options.seed, options.slow)
    try:
        if not row.bare:
            house.serve(row.chips or None)
            house.furnish()
        measured = row.run(house)
        if not row.bare:
            house.check_end(measured.governed)
        wrong = judge(row, measured, options.slow)
        return ("failed", wrong) if wrong else ("passed", measured)
    except Skip as why:
        return "skipped", str(why)
    except Exception as error:
        text = str(error) if isinstance(error, Failure) else traceback.format_exc()
        return "failed", text + told_by(house)
    finally:
        house.close()


def judge(row, measured, slow):
    if measured.ms > row.limit * 1000 * slow:
        return f"restored after {measured.ms:.0f} ms; the limit is {row.limit * 1000:.0f}"
    if measured.by != row.by:
        return f"restored by {measured.by}, wanted {row.by}"
    return None


def told_by(house):
    """The last words of the scenario's programs."""
    out = ""
    for program in house.programs:
        if program is not house.server:
            lines = program.text().splitlines()[-12:]
            out += "".join(f"\n  {program.name}: {line}" for line in lines)
    return out


def perform_in_process(row, options, pipe):
    if not options.verbose:
        sys.stderr = open(os.devnull, "w")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dreport-") as reports:
        if options.sanitized:
            common = f"log_path={reports}/report"
            for name in ("TSAN_OPTIONS", "ASAN_OPTIONS", "UBSAN_OPTIONS"):
                os.environ[name] = f"{os.environ.get(name, '')} {common}".strip()
        outcome, detail = perform(row, options)
        if written := sorted(Path(reports).glob("report*")):
            outcome, detail = "failed", written[0].read_text(errors="replace")
    pipe.send((outcome, detail, time.monotonic() - began))


# --- all of them ----------------------------------------------------------------------------------

def run_rows(rows, options, tell):
    """{name: (outcome, detail, seconds)}, `jobs` scenarios at a time, the long ones first."""
    waiting = sorted(rows, key=lambda row: row.quick)
    context = multiprocessing.get_context("fork")
    running, done = {}, {}
    while waiting or running:
        while waiting and len(running) < options.jobs:
            row = waiting.pop(0)
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=perform_in_process, args=(row, options, sender))
            process.start()
            sender.close()
            running[row.name] = (row, process, receiver, time.monotonic())
        for name, (row, process, receiver, began) in list(running.items()):
            result = None
            if receiver.poll(0.01):
                try:
                    result = receiver.recv()
                except EOFError:
                    result = ("failed", "the scenario's process died", 0)
            elif time.monotonic() - began > PATIENCE * options.slow:
                process.terminate()
                result = ("failed", f"still at it after {PATIENCE} s", PATIENCE)
            if result:
                process.join(30)
                del running[name]
                done[name] = result
                tell(row, *result)
    return done


def tell_outcome(row, outcome, detail, seconds):
    text = detail
    if outcome == "passed":
        text = f"{detail.ms:.0f} ms by {detail.by}" + (f" ({detail.note})" if detail.note else "")
    print(f"{row.name}: {outcome}: {text} [{seconds:.1f} s]", flush=True)


# --- the table ------------------------------------------------------------------------------------

HEAD = Path(__file__).resolve().parent / "faults.md.in"


def machine_class():
    memory = "?"
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal"):
            memory = f"{int(line.split()[1]) / 2**20:.0f}"
    return (f"Measured on a shared virtual machine with {os.cpu_count()} {platform.machine()} "
            f"cores and {memory} GiB,\nother work running beside it; a time below some 20 ms says "
            "\"at once\".")


def table_text(rows, done):
    rows = [row for row in rows if not row.name.endswith(".few")]  # a part of another row
    out = [HEAD.read_text().replace("{machine}", machine_class())]
    for group in dict.fromkeys(row.group for row in rows):
        out.append(f"\n## {group}\n")
        out.append("| fault | when | who | what Derate does | restored by | ms | limit |")
        out.append("|---|---|---|---|---|---|---|")
        for row in rows:
            if row.group != group:
                continue
            outcome, detail, _ = done[row.name]
            ms, by, note = "not run here", row.by, ""
            if outcome == "passed":
                ms = f"{detail.ms:.0f}" if detail.ms > 0 else "-"
                note = f" ({detail.note})" if detail.note else ""
            elif outcome == "failed":
                ms = "**FAILED**"
            out.append(f"| {row.fault} | {row.when} | {row.who} | {row.outcome}{note} | {by} "
                       f"| {ms} | {row.limit:g} s |")
    counts = [done[row.name][0] for row in rows]
    out.append(f"\n{len(rows)} rows: {counts.count('passed')} passed, {counts.count('failed')} "
               f"failed, {counts.count('skipped')} not run.")
    return "\n".join(out) + "\n"


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, help="the folder with derate and derated in it")
    parser.add_argument("--list", action="store_true", help="only print the rows' names")
    parser.add_argument("--only", action="append", metavar="NAME",
                        help="only this row, or those that begin with NAME*; may be repeated")
    parser.add_argument("--quick", action="store_true", help="the rows that CI runs")
    parser.add_argument("--sanitized", action="store_true",
                        help="the rows for a build with a sanitizer, whose reports are failures")
    parser.add_argument("--jobs", type=int, default=3, help="scenarios at a time")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the table there")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments")
    parser.add_argument("--slow", type=float, default=1, help="factor of every limit")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(arguments)


def chosen(row, options):
    if options.only:
        return any(row.name == name or name.endswith("*") and row.name.startswith(name[:-1])
                   for name in options.only)
    return row.tsan if options.sanitized else row.quick or not options.quick


def main(arguments):
    options = parse_arguments(arguments)
    rows = [row for row in ROWS if chosen(row, options)]
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    if not rows:
        print("fault_matrix.py: there is no such row", file=sys.stderr)
        return 1
    if not options.build or not os.access(options.build / "derated", os.X_OK):
        print(f"fault_matrix.py: no derated in {options.build}: name the build with --build",
              file=sys.stderr)
        return 1
    options.build = options.build.resolve()
    began = time.monotonic()
    done = run_rows(rows, options, tell_outcome)
    counts = [outcome for outcome, _, _ in done.values()]
    print(f"{counts.count('passed')} passed, {counts.count('failed')} failed, "
          f"{counts.count('skipped')} skipped in {time.monotonic() - began:.0f} s")
    if options.table:
        options.table.write_text(table_text(rows, done))
    return 1 if "failed" in counts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
