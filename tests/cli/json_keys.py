#!/usr/bin/env python3
"""Runs the verbs with --json and compares the keys that occur with those of docs/json.md.

usage: json_keys.py --derate build/dev/derate [--write]
--write brings the page's lists of keys up to date; a new key's meaning is to be written by hand.
Exit 1 where page and programs differ.
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PAGE = REPO / "docs" / "json.md"

# What is run, in this order, in one folder; "-o it.json" is read where a verb writes there.
COMMANDS = [
    "exit-codes --json",
    "doctor --json",
    "demo --job-seconds 10 --apps --json",
    "demo serve --load 0.15 --seeds 1 --json",
    "run --sim V100-SXM2 --app GeMM --json -o it.json -- sleep 3",
    "run --sim V100-SXM2 --app GeMM --policy geepafs --dry-run --json -o it.json -- sleep 2",
    "run --sim H200 --policy power-cap --json -o it.json -- sleep 1",
    "energy --sim V100-SXM2 --json -o it.json -- true",
    "energy --sim H200 --app copy --for 1s --json",
    "compare --sim H200 --app copy --pairs 4 --warm-up 0 --json -- true --vs 'sleep 0.1'",
    "tune run --sim V100-SXM2 --app GeMM --json -o it.json -- sleep 6",
    "status --json",
    "history --file h.db --from 2025-11-01T10:00Z --to 2025-11-01T10:01Z --json",
    "history --file h.db --from 2025-11-01T10:00Z --to 2025-11-01T10:01Z --tenants --json",
    "savings --file h.db --from 2025-11-01 --to 2025-11-02 --by gpu --price 0.3 --co2 400 --json",
    "savings --file h.db --from 2025-11-01 --to 2025-11-02 --prices p.csv --json",
    "why --file h.db -i 0 --at 2025-11-01T10:00:30Z --json",
    "events --file h.db --from 2025-11-01 --json",
    "attribute --sim H200 --for 2s --json",
    "attribute methods --json",
    "policy list --json",
    "policy show geepafs --json",
    "policy show assure --json",
    "policy models --simulated --json",
    "policy forget --simulated --all --json",
    "restore --json",
    "config check --json",
    "config print --json",
    "record -o a.trace --sim V100-SXM2 --app GeMM --for 5s --json",
    "replay --json a.trace",
    "advise --sim H200 --app copy --for 20s --json",
    "advise --list --json",
    "sim list V100 --json",
    "sim list H200 --json",
    "sim show --dir served --json",
    "sim job --dir served --work 1s --json",
    "lab workloads --json",
    "lab check small.toml --json",
    "lab run small.toml --json",
    "lab show small.lab --json",
    "lab export small.lab files --json",
    "report small.lab --json",
    "report small.lab --job 1 --json",
    "lab attribution --scenario A --method equal --seeds 1 --minutes 6 --json",
]

SMALL = """[experiment]
name = "small"
[gpus]
chips = ["V100-SXM2"]
[workloads]
fitted = ["GeMM", "FFT"]
[jobs]
work_s = 5
[[policy]]
name = "efficient-fix"
[[policy]]
name = "gpu-activity"
"""



def keys_of(value, path=""):
    """The paths of all keys in a document: "gpus[].index"."""
    found = set()
    if isinstance(value, dict):
        for key, item in value.items():
            found |= {f"{path}{key}"} | keys_of(item, f"{path}{key}.")
    elif isinstance(value, list):
        for item in value:
            found |= keys_of(item, path[:-1] + "[].")
    return found


def documents(text):
    """The JSON documents of a text, one after the other."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        value, at = decoder.raw_decode(text, at)
        yield value


def run_all(derate):
    """By schema the paths of the keys that occur."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "LC_ALL": "C",
                       "DERATE_RUN_DIR": folder + "/run", "DERATE_STATE_DIR": folder + "/state",
                       "DERATE_NVML_LIBRARY": "/nonexistent/libnvidia-ml.so.1"}
        Path(folder, "small.toml").write_text(SMALL)
        Path(folder, "p.csv").write_text("time,price_per_kwh\n2025-11-02,1\n")
        subprocess.run([derate.parent / "make_history", Path(folder, "h.db"), "2025-11-01T10:00Z",
                        "60"], check=True)
        place = {"cwd": folder, "env": environment, "text": True, "stdin": subprocess.DEVNULL}
        server = subprocess.Popen([derate, "sim", "serve", "--dir", "served", "--json"],
                                  stdout=subprocess.PIPE, **place)
        time.sleep(1)
        governor = subprocess.Popen([derate, "run", "--sim", "H200", "--", "sleep", "600"],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **place)
        texts = []
        try:
            for command in COMMANDS:
                ended = subprocess.run([derate, *shlex.split(command)], capture_output=True,
                                       timeout=300, check=False, **place)
                written = Path(folder, "it.json")
                text = ended.stdout if not written.exists() else written.read_text()
                written.unlink(missing_ok=True)
                if not text.strip():
                    print(f"derate {command}: printed nothing, exit code {ended.returncode}: "
                          f"{ended.stderr.strip()}")
                    found.setdefault("failed", set()).add(command)
                texts.append((command, text))
        finally:
            governor.send_signal(signal.SIGTERM)
            server.send_signal(signal.SIGTERM)
            texts.append(("sim serve", server.communicate()[0]))
            governor.wait()
    for command, text in texts:
        for document in documents(text):
            schema = next(iter(document), None) == "schema" and document["schema"]
            if not schema or not re.fullmatch(r"derate/[a-z-]+/\d+", schema):
                print(f"derate {command}: the first key is not a schema")
                found.setdefault("failed", set()).add(command)
                continue
            found.setdefault(schema, set()).update(keys_of(document))
    return found


def last(path):
    return path.rsplit(".", 1)[-1].replace("[]", "")


def page_keys(text):
    """The lists of keys by schema, and the dictionary of their meanings."""
    lists = {}
    for schema, body in re.findall(r"^### `(derate/[^`]+)`\n(.*?)(?=^##|\Z)", text, re.M | re.S):
        lists[schema] = set(re.findall(r"`([^`]+)`", body))
    meanings = dict(re.findall(r"^\| `([^`]+)` \| (.*?) \|$", text, re.M))
    return lists, meanings


def written_list(paths):
    out, line = [], ""
    for path in sorted(paths):
        item = f"`{path}` "
        if len(line) + len(item) > 110:
            out.append(line.rstrip())
            line = ""
        line += item
    return "\n".join([*out, line.rstrip()])


def settings_meanings(derate):
    """What the program says of each setting: "# summary" above "key = value"."""
    text = subprocess.run([derate, "config", "print"], capture_output=True, text=True, check=True,
                          env={"DERATE_CONFIG": "/dev/null"}).stdout
    return dict((key, what) for what, key in re.findall(r"^# (.*)\n(?:# )?(\w+) =", text, re.M))


def write(found, derate):
    text = PAGE.read_text()
    _, meanings = page_keys(text)
    elsewhere = {last(path) for schema, paths in found.items() for path in paths
                 if not schema.startswith("derate/config-")}
    for key, what in settings_meanings(derate).items():
        if key not in elsewhere:
            meanings[key] = what.replace("|", "or")
    head = text[:text.index("## The keys of each verb")]
    body = "## The keys of each verb\n\n"
    for schema in sorted(found):
        body += f"### `{schema}`\n{written_list(found[schema])}\n\n"
    words = sorted({last(path) for paths in found.values() for path in paths})
    body += "## What the keys mean\n\n| key | means |\n|---|---|\n"
    body += "".join(f"| `{word}` | {meanings.get(word, '')} |\n" for word in words)
    PAGE.write_text(head + body)


def differences(found):
    lists, meanings = page_keys(PAGE.read_text())
    out = []
    for schema in sorted(set(found) | set(lists)):
        have, told = found.get(schema, set()), lists.get(schema, set())
        out += [f"{schema}: {path} occurs and is not in the page" for path in sorted(have - told)]
        out += [f"{schema}: {path} is in the page and does not occur"
                for path in sorted(told - have)]
    words = {last(path) for paths in found.values() for path in paths}
    out += [f"{word} has no meaning in the page" for word in sorted(words)
            if not meanings.get(word, "").strip()]
    out += [f"{word} is explained and does not occur" for word in sorted(set(meanings) - words)]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--derate", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = run_all(options.derate.resolve())
    failed = found.pop("failed", set())
    if options.write:
        write(found, options.derate.resolve())
    wrong = differences(found)
    for line in wrong:
        print(line)
    print(f"{len(found)} schemas, {sum(map(len, found.values()))} keys, {len(wrong)} differences")
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())
