#!/usr/bin/env python3
"""A derated that finds what an older one has kept:

- tests/fixtures/state-before-history: the databases of a version without a history, API and
  events, after 150 s of two simulated H200 under assure, one of them at work, and a tuning job;
- tests/fixtures/state-0.1.0: journal, history, usage, models, tokens and configuration of 0.1.0,
  100 s after the start of two such GPUs, as SIGKILL of guard and worker left them. Its answers for
  the same time are beside them: bill.json and history.json.

    upgrade_test.py BUILD [SLOWNESS]
"""
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import unittest
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import service_machine as service  # noqa: E402
from energy_test import wait_for  # noqa: E402
from service_machine import ROOT, ask  # noqa: E402

KEPT = ROOT / "tests/fixtures/state-before-history"
END = "2026-11-25T02:17"  # of what was kept, in UTC
DATABASES = ("usage", "tune", "models-simulated")


def facts(bill):
    """All joules and times of a bill by GPU, as 0.1.0 and later versions have them: later ones
    count what a GPU used idle in its own line, and the share saved of all its energy."""
    total, saving = bill["total"], bill["total"]["saving"]

    def of_lines(key):
        return round(sum(line[key] or 0 for line in bill["lines"]), 3)
    return {key: bill[key] for key in ("by", "from_unix_seconds", "to_unix_seconds",
                                       "first_unix_seconds", "last_unix_seconds",
                                       "by_power_joules", "seconds", "lost_seconds", "losses")} | {
        "total": (total["energy_joules"], total["energy_kwh"], total["prior_joules"]),
        "lines": round(of_lines("energy_joules") + bill["unallocated"]["energy_joules"], 3),
        "saved": (saving["method"], saving["energy_joules"], saving["energy_at_highest_joules"],
                  saving["saved_joules"]),
        "saved of the governed part": saving.get("governed_saving_ratio",
                                                 saving["energy_saving_ratio"]),
        "of tenants": [of_lines(key) for key in ("context_joules", "dynamic_joules",
                                                 "energy_sigma_joules", "prior_joules",
                                                 "seconds")]}


class Upgrade(service.Machine):
    def setUp(self):
        super().setUp()
        os.environ["TZ"] = "UTC"
        self.state = self.folder / "s"
        self.state.mkdir()
        for path in KEPT.iterdir():
            if path.name != "bill.json":
                shutil.copy(path, self.state)
        # However long ago that was.
        (self.folder / "derate.toml").write_text(
            '[governor]\npolicy = "assure"\ngovern = true\n[attribute]\nkeep_days = 36500\n')

    def derate(self, *arguments):
        done = subprocess.run([str(service.energy_test.BUILD / "derate"), *arguments], text=True,
                              capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, (arguments, done.stderr))
        # A notice says that no daemon runs.
        self.assertRegex(done.stderr, r"^(derate: derated is not running; this is what .*\n)?$")
        return json.loads(done.stdout)

    def bill(self):
        return self.derate("bill", "--from", "2026-11-25T02:00", "--to", END, "--by", "gpu",
                           "--json")

    def rows(self, database, table):
        with closing(sqlite3.connect(self.state / f"{database}.db")) as db:
            return db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]

    def test_what_was_kept_is_there_and_goes_on(self):
        was = json.loads((KEPT / "bill.json").read_text())
        self.assertGreater(was["total"]["energy_joules"], 80000)
        # Rows from before checksums do not count as broken.
        bill = self.bill()
        self.assertEqual(bill["broken_rows"], 0)
        self.assertEqual(facts(bill), facts(was))
        models = self.rows("models-simulated", "model")
        self.assertEqual(models, 1)

        self.start("derate", "sim", "serve", "--chip", "H200", "--gpus", "2")
        wait_for(lambda: subprocess.run(
            [str(service.energy_test.BUILD / "derate"), "sim", "show"],
            capture_output=True).returncode == 0, "simulated GPUs")
        self.start("derate", "sim", "job", "fft", "-i", "0")
        daemon = self.start("derated")
        wait_for(self.is_ready, "derated is ready")
        jobs = self.derate("tune", "job", "list", "--json")["jobs"]
        self.assertEqual([job["spec"]["name"] for job in jobs], ["bert"])

        def has_seconds():
            answer = ask(self.folder / "run/api.sock", "/v1/history")
            series = json.loads(answer.body).get("series", [])
            return len(series) >= 2 and len(series[0]["begin_unix_seconds"]) >= 5
        wait_for(has_seconds, "the first seconds of a history")
        daemon.terminate()
        self.assertEqual(daemon.wait(20), 0)

        since = self.derate("bill", "--from", END, "--json")
        self.assertGreater(since["total"]["energy_joules"], 0)
        # Rows from before checksums do not count as broken.
        bill = self.bill()
        self.assertEqual(bill["broken_rows"], 0)
        self.assertEqual(facts(bill), facts(was))
        self.assertGreaterEqual(self.rows("models-simulated", "model"), models)
        for name in DATABASES:
            with closing(sqlite3.connect(self.state / f"{name}.db")) as db:
                self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",), name)
        aside = [path.name for path in self.state.iterdir() if ".aside" in path.name]
        self.assertEqual(aside, [], self.errors())
        audit = (self.state / "audit.jsonl").read_text()
        self.assertTrue(audit.startswith((KEPT / "audit.jsonl").read_text()), "the audit log")


class UpgradeFrom010(service.Machine):
    KEPT = ROOT / "tests/fixtures/state-0.1.0"
    BILL = ("--from", "2026-11-26T22:20", "--to", "2026-11-26T22:28")
    HISTORY = ("--from", "2026-11-26T22:25", "--to", "2026-11-26T22:28", "--points", "30")

    def setUp(self):
        super().setUp()
        os.environ["TZ"] = "UTC"
        self.state = self.folder / "s"
        shutil.copytree(self.KEPT, self.state)
        (self.state / "tokens.json").chmod(0o600)
        shutil.move(self.state / "derate.toml", self.folder / "derate.toml")
        for path in (self.state / "journal").iterdir():
            journal = json.loads(path.read_text())
            path.write_text(json.dumps(journal | {"boot_id": "of another boot"}))

    def derate(self, *arguments):
        done = subprocess.run([str(service.energy_test.BUILD / "derate"), *arguments], text=True,
                              capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def check_answers(self, leave_out=()):
        was = json.loads((self.KEPT / "bill.json").read_text())
        self.assertGreater(was["total"]["energy_joules"], 30000)
        bill = self.derate("bill", *self.BILL, "--by", "gpu", "--json")
        self.assertEqual(bill["broken_rows"], 0)
        kept, now = facts(was), facts(bill)
        for key in leave_out:
            kept.pop(key), now.pop(key)
        self.assertEqual(now, kept)
        self.check_history()

    def check_history(self):
        history = json.loads((self.KEPT / "history.json").read_text())
        self.assertEqual(len(history["series"]), 2)
        now = self.derate("history", *self.HISTORY, "--json")
        history["last_unix_seconds"] = now["last_unix_seconds"]  # of all that is kept
        self.assertEqual(now, history)

    def test_nothing_is_lost(self):
        self.check_answers()
        self.start("derate", "sim", "serve", "--chip", "H200", "--gpus", "2")
        wait_for(lambda: subprocess.run(
            [str(service.energy_test.BUILD / "derate"), "sim", "show"],
            capture_output=True).returncode == 0, "simulated GPUs")
        daemon = self.start("derated")
        wait_for(self.is_ready, "derated is ready")
        secret = (self.KEPT / "token.secret").read_text().strip()
        _, port = self.agent()
        with_token = {"Authorization": f"Bearer {secret}"}
        wait_for(lambda: ask(port, "/v1/status", **with_token).status == 200, "the token")
        self.assertEqual(ask(port, "/v1/status", Authorization="Bearer no").status, 401)
        tokens = self.state / "tokens.json"
        wait_for(lambda: secret not in tokens.read_text(), "tokens without their secrets")
        daemon.terminate()
        self.assertEqual(daemon.wait(20), 0)
        # The next daemon writes down the seconds that the kill has lost, as 0.1.0 did.
        self.check_answers(leave_out=("last_unix_seconds", "lost_seconds", "losses"))
        # The journal is of another boot: nothing of it may be applied, and it is not thrown away.
        self.assertEqual(list((self.state / "journal").glob("*.json")), [])
        self.assertIn("is of an earlier boot", self.errors())


if __name__ == "__main__":
    service.begin(sys.argv)
    unittest.main(argv=sys.argv[:1])
