#!/usr/bin/env python3
"""Judges `derate advise` on worlds whose bottleneck is known (worlds.py).

    judge.py BUILD [--worlds 20] [--first-seed 1] [--keep DIR] [--wrong]

Prints a table: of each chip and class, what came first how often; and what was wrong though it was
called sure. What no sensor of a chip tells apart counts as one (ACCEPTED; docs/advise.md has the
table). Exit 1 where fewer than 90 % are right or more than 2 % of what is sure is wrong.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
FEWEST_RIGHT, MOST_WRONG_SURE = 0.90, 0.02

# Without activity counters: what is said where the class itself cannot be told.
WAITING = {"host_bound", "data_loader", "pcie_bound", "checkpoint"}
UNDERUSED = {"launch_bound", "small_batch", "low_occupancy", "pcie_bound"}  # pages of memory, too
ACCEPTED = {"waiting": WAITING, "underused": UNDERUSED, "healthy": {"tensor_idle"}}


def is_right(chip, truth, said):
    if said == truth:
        return True
    return chip != "H200" and truth in ACCEPTED.get(said, ())


def advice(derate, folder):
    """(finding, certainty) of what comes first."""
    traces = sorted(folder.glob("gpu*.trace"))
    command = [derate, "advise", "--json", *(["--one-job"] if len(traces) > 1 else []), *traces]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    first = [told["of_all"]] if "of_all" in told else told["gpus"][0]["advice"]
    return (first[0]["finding"], first[0]["certainty"]) if first else ("healthy", "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--chip", help="only this chip")
    parser.add_argument("--keep", type=Path, help="make the worlds here, and leave them")
    parser.add_argument("--wrong", action="store_true", help="name each world that is wrong")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = options.keep or Path(scratch)
        subprocess.run([sys.executable, HERE / "worlds.py", root, "--worlds", str(options.worlds),
                        "--first-seed", str(options.first_seed),
                        *(["--chip", options.chip] if options.chip else [])], check=True,
                       stdout=subprocess.DEVNULL)
        return judge(options, root)


def judge(options, root):
    said, right, sure, wrong_sure = defaultdict(Counter), Counter(), Counter(), Counter()
    worlds = Counter()
    for truth_file in sorted(root.glob("*/*/*/truth.json")):
        truth = json.loads(truth_file.read_text())
        chip, name = truth["chip"], truth["class"]
        finding, certainty = advice(options.build / "derate", truth_file.parent)
        good = is_right(chip, name, finding)
        said[chip, name][finding] += 1
        worlds[chip] += 1
        right[chip] += good
        sure[chip] += certainty == "sure"
        wrong_sure[chip] += certainty == "sure" and not good
        if options.wrong and not good:
            print(f"{chip} {name} {truth['seed']}: {finding} {certainty}: {truth['note']}")
    print_table(said)
    print("\n| chip | worlds | right first | wrong though sure |\n|---|---|---|---|")
    for chip in sorted(worlds):
        print(f"| {chip} | {worlds[chip]} | {100 * right[chip] / worlds[chip]:.1f} % | "
              f"{wrong_sure[chip]} of {sure[chip]} |")
    share = sum(right.values()) / sum(worlds.values())
    bad = sum(wrong_sure.values()) / max(1, sum(sure.values()))
    print(f"| all | {sum(worlds.values())} | {100 * share:.1f} % | {100 * bad:.1f} % |")
    return 0 if share >= FEWEST_RIGHT and bad <= MOST_WRONG_SURE else 1


def print_table(said):
    chips = sorted({chip for chip, _ in said})
    print("| class | " + " | ".join(chips) + " |\n|---|" + "---|" * len(chips))
    for name in sorted({name for _, name in said}):
        cells = [", ".join(f"{finding} {count}" for finding, count in
                           said[chip, name].most_common()) for chip in chips]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    sys.exit(main())
