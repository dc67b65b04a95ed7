#!/usr/bin/env python3
"""Runs *.case files against the real derate binary; README.md describes the format."""

import argparse
import json
import operator
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
KEYS = ("RUN", "EXIT", "EXPECT", "EXPECT_NOT", "EXPECT_ERR", "EXPECT_JSON", "FILE", "ENV",
        "TIMEOUT", "NEEDS")
# `await 'COMMANDS'`: again and again until they succeed; the case's own limit ends it.
PRELUDE = 'await() { until eval "$1"; do sleep 0.05; done; }\n'


class BadCase(Exception):
    pass


# --- reading --------------------------------------------------------------------------------------

class Case:
    def __init__(self, where, name):
        self.where, self.name = where, name
        self.lines = {key: [] for key in KEYS}  # each value with the lines that continue it

    def all(self, key):
        return [first for first, _ in self.lines[key]]

    def last(self, key, default):
        return (self.all(key) or [default])[-1]

    def command(self):
        return PRELUDE + "\n".join("\n".join([first, *more]) for first, more in self.lines["RUN"])

    def files(self):
        return {name: "".join(line + "\n" for line in more) for name, more in self.lines["FILE"]}


def read_cases(path):
    """The cases of one file, in order; their names start with the file's."""
    cases, current = [], None
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        where = f"{path}:{number}"
        if line.startswith("|"):
            if current is None:
                raise BadCase(f"{where}: a | line continues a RUN or FILE line; there is none")
            current.append(line[1:].removeprefix(" "))
            continue
        if not line.strip() or line.startswith("#"):
            continue
        key, _, value = line.partition(" ")
        value = value.strip()
        if key == "NAME":
            cases.append(Case(where, f"{Path(path).stem}.{value.replace(' ', '_')}"))
            current = None
        elif key not in KEYS or not cases or not value:
            raise BadCase(f"{where}: expected NAME first, then one of {', '.join(KEYS)}")
        else:
            more = []
            cases[-1].lines[key].append((value, more))
            current = more if key in ("RUN", "FILE") else None
    names = [case.name for case in cases]
    for case in cases:
        if not case.lines["RUN"]:
            raise BadCase(f"{case.where}: the case has no RUN line")
        if names.count(case.name) > 1:
            raise BadCase(f"{case.where}: two cases are called {case.name}")
    return cases


# --- checking -------------------------------------------------------------------------------------

STEP = re.compile(r'\.?([^.\[\]]+)|\[(-?\d+)\]|\["([^"]*)"\]')
JSON_CHECK = re.compile(r'(?P<path>(?:\["[^"]*"\]|[^=!<>\s])+)\s*'
                        r'(?:(?P<op>=|!=|>=|<=|>|<)\s*(?P<value>.+))?')
OPERATORS = {"=": operator.eq, "!=": operator.ne, ">=": operator.ge, "<=": operator.le,
             ">": operator.gt, "<": operator.lt}


def look_up(document, path):
    """What lies at a path such as gpus[0].chip; KeyError when nothing does."""
    at = 0
    while at < len(path):
        step = STEP.match(path, at)
        if not step:
            raise BadCase(f"not a JSON path: {path}")
        at = step.end()
        name, index, quoted = step.groups()
        try:
            document = document[int(index)] if index else document[quoted if name is None else name]
        except (KeyError, IndexError, TypeError):
            raise KeyError(path[:at]) from None
    return document


def check_json(document, check):
    """What is wrong, or None."""
    match = JSON_CHECK.fullmatch(check)
    if not match:
        raise BadCase(f"not a JSON check: {check}")
    try:
        found = look_up(document, match["path"])
    except KeyError as missing:
        return f"{missing.args[0]} is not there"
    if match["op"] is None:
        return f"{match['path']} is null" if found is None else None
    wanted = json.loads(match["value"])
    length = isinstance(found, list) and isinstance(wanted, (int, float))
    try:
        holds = OPERATORS[match["op"]](len(found) if length else found, wanted)
    except TypeError:
        holds = False
    shown = f"{len(found)} long" if length else json.dumps(found)
    return None if holds else f"{match['path']} is {shown}, wanted {match['op']} {wanted!r}"


def parse_json(text):
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")
    return json.loads(text, parse_constant=refuse)


def check_output(case, status, out, err):
    """What is wrong with a run's outcome, one line each."""
    wanted = int(case.last("EXIT", "0"))
    if status != wanted:
        yield f"exit code {status}, wanted {wanted}"
    for key, text, stream in (("EXPECT", out, "stdout"), ("EXPECT_ERR", err, "stderr")):
        for pattern in case.all(key):
            if not re.search(pattern, text, re.MULTILINE):
                yield f"no line of {stream} matches {pattern}"
    for pattern in case.all("EXPECT_NOT"):
        if match := re.search(pattern, out, re.MULTILINE):
            yield f"stdout has {match[0]!r}, which matches {pattern}"
    if case.lines["EXPECT_JSON"]:
        try:
            document = parse_json(out)
        except ValueError as error:
            yield f"stdout is not JSON: {error}"
            return
        for check in case.all("EXPECT_JSON"):
            if wrong := check_json(document, check):
                yield wrong


# --- running --------------------------------------------------------------------------------------

def sanitized(program):
    """Whether a sanitizer's runtime is in it, which will not be loaded into a foreign program."""
    return any(mark in Path(program).read_bytes() for mark in (b"__asan_init", b"__tsan_init"))


def unmet_need(case, data, derate):
    """Why the case cannot run here, or None."""
    for need in case.all("NEEDS"):
        if need == "data":
            if not Path(data).is_dir():
                return f"no tables at {data}"
        elif need in ("root", "nonroot"):
            if (need == "root") != (os.geteuid() == 0):
                return f"wants {'root' if need == 'root' else 'a user other than root'}"
        elif need == "unsanitized":
            if sanitized(derate):
                return "built with a sanitizer"
        elif not shutil.which(need):
            return f"no {need} on this machine"
    return None


def run(case, folder, variables, timeout):
    """Runs the case's command in `folder`; (exit code, stdout, stderr), code None at a timeout."""
    kept = {name: value for name, value in os.environ.items()
            if name == "PATH" or name.endswith("SAN_OPTIONS")}
    environment = kept | variables | {"HOME": folder, "XDG_RUNTIME_DIR": folder, "TMPDIR": folder,
                                      "DERATE_RUN_DIR": f"{folder}/run",
                                      "DERATE_STATE_DIR": f"{folder}/state",
                                      "LC_ALL": "C"}
    environment |= dict(pair.split("=", 1) for pair in case.all("ENV"))
    for name, text in case.files().items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    # Files, not pipes: what the command leaves running would hold a pipe open.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(["bash", "-c", case.command()], cwd=folder, env=environment,
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   start_new_session=True)
        try:
            status = process.wait(timeout)
            status = 128 - status if status < 0 else status
        except subprocess.TimeoutExpired:
            status = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read())
    return status, *texts


def run_case(case, variables, data, timeout_factor):
    """("passed" | "failed" | "skipped", details)."""
    if why := unmet_need(case, data, variables["DERATE"]):
        return "skipped", [why]
    if Path(data).is_dir():
        variables = variables | {"DERATE_DATA": str(data)}
    timeout = float(case.last("TIMEOUT", "10")) * timeout_factor
    with tempfile.TemporaryDirectory(prefix="derate-case-") as folder:
        status, out, err = run(case, folder, variables, timeout)
    if status is None:
        wrong = [f"still running after {timeout:g} s"]
    else:
        wrong = list(check_output(case, status, out, err))
    if not wrong:
        return "passed", []
    for stream, text in (("stdout", out), ("stderr", err)):
        wrong += [f"  {stream}: {line}" for line in text.splitlines()[:40]]
    return "failed", wrong


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="default: those beside this script")
    parser.add_argument("--derate", help="the binary")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="a further variable for the commands")
    parser.add_argument("--case", help="only the case of this name")
    parser.add_argument("--list", action="store_true", help="only print the cases' names")
    parser.add_argument("--timeout-factor", type=float, default=1, help="for slow builds")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="each case's result, as XML")
    return parser.parse_args(arguments)


def write_junit(path, results):
    """As googletest writes it: one testcase a case, of the file's suite."""
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", name="cases")
    for case, outcome, details, seconds in results:
        one = ElementTree.SubElement(suite, "testcase", classname="", time=f"{seconds:.3f}",
                                     name=case.name.partition(".")[2])
        if outcome != "passed":
            kind = "skipped" if outcome == "skipped" else "failure"
            text = "\n".join(details)
            # XML has no control characters.
            ElementTree.SubElement(one, kind).text = re.sub(r"[^\t\n\x20-\ufffd]", "?", text)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def run_all(cases, variables, data, options):
    """(case, outcome, details, seconds) of each, in order, as soon as it is known."""
    def run_one(case):
        begin = time.monotonic()
        outcome, details = run_case(case, variables, data, options.timeout_factor)
        return case, outcome, details, time.monotonic() - begin
    with ThreadPoolExecutor(options.jobs) as pool:
        yield from pool.map(run_one, cases)


def main(arguments):
    options = parse_arguments(arguments)
    files = options.files or sorted(Path(__file__).parent.glob("*.case"))
    data = Path(os.environ.get("DERATE_DATA") or REPO.parent / "shared/data")
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    try:
        cases = [case for file in files for case in read_cases(file)]
        if options.list:
            print("\n".join(case.name for case in cases))
            return 0
        cases = [case for case in cases if options.case in (None, case.name)]
        if not cases:
            raise BadCase("there is no such case")
        if not options.derate or not os.access(options.derate, os.X_OK):
            raise BadCase(f"no binary at {options.derate}: build it, then name it with --derate")
        variables = dict(pair.split("=", 1) for pair in options.set)
        variables |= {"DERATE": str(Path(options.derate).resolve()), "REPO": str(REPO)}
        results = []
        for result in run_all(cases, variables, data, options):
            results.append(result)
            case, outcome, details, _ = result
            counts[outcome] += 1
            reason = f": {details[0]}" if outcome == "skipped" else ""
            print(f"{case.name}: {outcome}{reason}", flush=True)
            for detail in details if outcome == "failed" else []:
                print(f"    {detail}")
        if options.junit:
            write_junit(options.junit, results)
    except (BadCase, ValueError, re.error, OSError) as error:
        print(f"run_cases.py: {error}", file=sys.stderr)
        return 1
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
