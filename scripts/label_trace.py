#!/usr/bin/env python3
"""Puts the phases that scripts/gpu_kernels.py printed into a trace of derate record, as labels.

    scripts/label_trace.py gpu0.trace phases.json > labelled.trace
"""
import json
import sys
from datetime import datetime


def labels(phases):
    """(Unix time, text), ascending: each phase's name at its begin, "idle" at its end."""
    for phase in phases:
        yield phase["begin"], phase["phase"]
        yield phase["end"], "idle"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = file.read().splitlines()
    with open(sys.argv[2], encoding="utf-8") as file:
        waiting = list(labels([json.loads(line) for line in file]))
    header = json.loads(lines[1][1:])
    start = datetime.fromisoformat(header["start"].replace("Z", "+00:00")).timestamp()
    print(*lines[:3], sep="\n")
    for line in lines[3:]:
        if not line.startswith("#"):
            time = start + int(line.split(",")[0]) / 1e6
            while waiting and waiting[0][0] <= time:
                print(f"#label {waiting.pop(0)[1]}")
        print(line)


if __name__ == "__main__":
    main()
