#!/usr/bin/env python3
"""The documentation against the program: verbs and options that it names exist, every setting and
policy has its place, and files that it points to are there.

    docs_test.py DERATE [FACTOR]    FACTOR multiplies its limits of time, for slow builds
"""
import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DERATE, LIMIT = "", 60


def derate(*arguments):
    done = subprocess.run([DERATE, *arguments], capture_output=True, text=True, timeout=LIMIT)
    return done.stdout


def listed(*path):
    """The verbs that the help of these words lists."""
    text = derate(*path, "--help")
    if not path:  # in groups, each with a heading
        text = text.partition("Options:\n")[2]
    else:
        text = text.partition("Subcommands:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  ([a-z][a-z-]*)  ", text, re.MULTILINE)


def verbs():
    """The verbs that the help lists, second-level ones with their first word."""
    found = {}
    for verb in listed():
        found[verb] = listed(verb)
    return found


def commands(text):
    """Every `derate ...` that a page shows, as words up to a comment, a pipe or `--`."""
    shown = re.findall(r"`(derate [^`\n]+)`", text)
    shown += re.findall(r"^ {4}(derate .+)$", text, re.MULTILINE)
    for command in shown:
        yield re.split(r"\s+(?:#|\||>|--\s|&)", command + " ")[0].split()[1:]


class Docs(unittest.TestCase):
    def test_experiments_are_sound_and_shown(self):
        data = Path(os.environ.get("DERATE_DATA", ROOT.parent / "shared" / "data"))
        shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
        experiments = sorted((ROOT / "experiments").glob("*.toml"))
        self.assertGreater(len(experiments), 5)
        for experiment in experiments:
            self.assertIn(f"experiments/{experiment.name}", shown)
            text = experiment.read_text(encoding="utf-8")
            imported = re.search(r'^imported = "(.+)"', text, re.MULTILINE)
            if "tables = " in text and not data.is_dir():
                continue
            if imported and not (experiment.parent / imported[1]).is_dir():
                continue  # scripts/promise-table makes it
            done = subprocess.run([DERATE, "lab", "check", experiment, "--data", data],
                                  capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual((done.returncode, done.stderr), (0, ""), experiment.name)

    def test_commands_exist(self):
        known = verbs()
        self.assertIn("show", known["policy"])
        seen = 0
        for page in PAGES:
            for words in commands(page.read_text(encoding="utf-8")):
                if not words or words[0].startswith("-") or words[0].isupper():
                    continue
                verb = words[0]
                self.assertIn(verb, known, f"{page.name}: derate {' '.join(words)}")
                path = [verb]
                if known[verb] and len(words) > 1 and not words[1].startswith("-"):
                    wanted = words[1].split("|")
                    for word in wanted:
                        self.assertIn(word, known[verb], f"{page.name}: {' '.join(words)}")
                    path.append(wanted[0])
                    third = listed(*path)
                    if third and len(words) > 2:
                        self.assertIn(words[2], third, f"{page.name}: {' '.join(words)}")
                        path.append(words[2])
                text = derate(*path, "--help")
                for option in (w.split("=")[0] for w in words if w.startswith("-")):
                    self.assertRegex(text, rf"(^|[\s,]){re.escape(option)}\b",
                                     f"{page.name}: {' '.join(words)}")
                seen += 1
        self.assertGreater(seen, 15)

    def test_every_setting_is_documented(self):
        page = (ROOT / "docs/config.md").read_text(encoding="utf-8")
        settings = json.loads(derate("config", "print", "--json"))
        self.assertEqual(settings.pop("schema"), "derate/config-print/1")
        settings.pop("where", None)
        for section, keys in settings.items():
            self.assertIn(f"`{section}`", page)
            for key in keys:
                self.assertIn(f"`{key}`", page)
        keys = re.findall(r"^# ([a-z_]+) =", derate("config", "print").split("# [[job]]")[1],
                          re.MULTILINE)
        self.assertIn("class", keys)
        self.assertIn("metrics", keys)
        for key in keys:
            self.assertIn(f"`{key}`", page)

    def test_every_field_of_a_job_is_documented(self):
        page = (ROOT / "docs/tune-jobs.md").read_text(encoding="utf-8")
        text = derate("tune", "job", "create", "--help").partition("Options:\n")[2]
        options = re.findall(r"^  (?:-\w,)?--([a-z-]+)", text, re.MULTILINE)
        self.assertIn("max-epochs", options)
        for option in set(options) - {"help", "json", "replace"}:
            self.assertIn(f"`{option.replace('-', '_')}`, `--{option}`", page)

    def test_every_world_of_tenants_is_described(self):
        page = (ROOT / "docs/attribute-results.md").read_text(encoding="utf-8")
        judged = json.loads(derate("lab", "attribution", "--json", "--method", "equal", "--seeds",
                                   "1", "--minutes", "6"))
        self.assertGreater(len(judged["scenarios"]), 10)
        for world in judged["scenarios"]:
            differ = "yes" if world["watts_differ"] else "no"
            row = rf"^\| {world['scenario']} \| {re.escape(world['summary'])}.*\| {differ} \|$"
            self.assertRegex(page, re.compile(row, re.MULTILINE))
            self.assertIn(f"\n{world['scenario']}: {world['summary']}\n", page)

    def test_the_balanced_mode_is_the_default_policy(self):
        listed = json.loads(derate("policy", "list", "--json"))
        balanced = next(mode for mode in listed["modes"] if mode["name"] == "balanced")
        default = json.loads(derate("config", "print", "--json"))["governor"]["policy"]
        self.assertEqual(balanced["policy"], default)
        policy = next(p for p in listed["policies"] if p["name"] == default)
        delta = next(p["default"] for p in policy["params"] if p["name"] == "delta")
        self.assertEqual(balanced["assignments"], [f"delta={delta}"])

    def test_every_verb_stands_in_the_readme_or_the_manual(self):
        manual = derate("manual")
        for verb, seconds in verbs().items():
            for path in [verb, *(f"{verb} {second}" for second in seconds)]:
                self.assertIn(f".SS derate {path}", manual)

    def test_errors_of_proxies_are_those_of_the_recordings(self):
        folder = ROOT / "tests/fixtures/h200-proxies"
        files = [folder / f"run{run}.{kind}" for run in (1, 2, 3) for kind in ("trace", "json")]
        done = subprocess.run([sys.executable, "-B", ROOT / "scripts/proxy_errors.py",
                               "--markdown", *files], capture_output=True, text=True, timeout=LIMIT)
        rows = done.stdout.splitlines()
        self.assertGreater(len(rows), 15, done.stderr)
        page = (ROOT / "docs/real-gpu.md").read_text(encoding="utf-8")
        for row in rows:
            self.assertIn(row, page)

    def test_links_lead_somewhere(self):
        for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "STYLE.md"]:
            for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
                self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")


if __name__ == "__main__":
    DERATE = sys.argv.pop(1)
    LIMIT *= float(sys.argv.pop(1)) if len(sys.argv) > 1 else 1
    unittest.main()
