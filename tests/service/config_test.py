#!/usr/bin/env python3
"""A running derated whose settings and tokens are changed by `derate config` and `derate token`,
in the order in which an admin would, and killed between.

    config_test.py BUILD [SLOWNESS]
"""
import json
import os
import signal
import stat
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import service_machine as service  # noqa: E402
from energy_test import wait_for  # noqa: E402
from service_machine import ask  # noqa: E402

NO_PERMISSION, USAGE, NOT_FOUND = 4, 2, 6


class Config(service.Machine):
    def setUp(self):
        super().setUp()
        self.socket = self.folder / "run/api.sock"
        self.file = self.folder / "derate.toml"
        self.set_file = self.folder / "derate.toml.d/90-set.toml"
        self.file.write_text('[safety]\nidle_after_s = 2\n')
        self.start("derate", "sim", "serve", "--chip", "H200", "--gpus", "1")
        wait_for(lambda: self.derate("sim", "show").returncode == 0, "simulated GPUs")
        self.derated = self.begin_derated()

    def begin_derated(self):
        out = self.start("derated")
        wait_for(lambda: self.status("/readyz") == 200, "derated is ready")
        return out

    def status(self, path, **fields):
        try:
            return ask(self.socket, path, **fields).status
        except OSError:
            return None

    def derate(self, *arguments, **how):
        return subprocess.run([str(service.energy_test.BUILD / "derate"), *arguments],
                              capture_output=True, text=True, timeout=60, **how)

    def said(self, *arguments):
        done = self.derate(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def policy(self):
        state = self.folder / "run/state.json"  # written after the first round
        wait_for(state.exists, "derated publishes its state")
        return json.loads(state.read_text())["gpus"][0].get("policy")

    def test_set_diff_unset(self):
        self.assertIn("nothing is written: 2 settings have changed",
                      self.said("config", "set", "governor.govern=true",
                                "governor.policy=efficient-fix", "--dry-run"))
        self.assertFalse(self.set_file.exists())
        told = json.loads(self.said("config", "set", "governor.govern=true",
                                    "governor.policy=efficient-fix", "--json"))
        self.assertEqual([each["key"] for each in told["changes"]],
                         ["governor.policy", "governor.govern"])
        wait_for(lambda: self.policy() == "efficient-fix", "it is governed")
        self.assertEqual(self.set_file.read_text().partition("\n\n")[2],
                         '[governor]\npolicy = "efficient-fix"\ngovern = true\n')
        self.assertEqual(stat.S_IMODE(self.set_file.stat().st_mode), 0o644)
        self.assertIn(f"# from {self.set_file}:5:10\n", self.said("config", "print"))
        self.assertEqual(self.said("config", "diff"), "the files say what is in force\n")
        # What is wrong changes nothing, and says what was meant.
        before = self.set_file.read_text()
        for words, code, message in (
                (["safety.idle_after_s=0"], USAGE, "wanted a number in [0.1, 3600] s"),
                (["safety.idle_aftr_s=1"], USAGE, "did you mean 'safety.idle_after_s'?"),
                (["safety.stale_after_s=9"], USAGE, "must not be less than stale_after_s 9"),
                (["--unset", "safety.idle_after_s"], NOT_FOUND, "was not set by")):
            done = self.derate("config", "set", *words)
            self.assertEqual(done.returncode, code, done)
            self.assertIn(message, done.stderr)
        # What is valid and ends governing is said.
        done = self.derate("config", "set", "envelope.lowest_clock_mhz=1", "--dry-run")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("derate: GPU 0 is not governed: ", done.stderr)
        self.assertEqual(self.set_file.read_text(), before)
        # A file that is changed by hand is told, and taken in by a reload.
        self.file.write_text('[safety]\nidle_after_s = 3\n')
        wait_for(lambda: "safety.idle_after_s" in self.said("config", "diff"), "the difference")
        self.derated.send_signal(signal.SIGHUP)
        wait_for(lambda: "1 setting has changed: safety.idle_after_s" in self.errors(), "reload")
        self.derated.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded: nothing has changed" in self.errors(), "second reload")
        self.assertIn("governor.govern",
                      self.said("config", "set", "--unset", "governor.govern", "--unset",
                                "governor.policy"))
        wait_for(lambda: self.policy() is None, "it is given back")
        self.assertFalse(self.set_file.exists())
        audit = (self.folder / "s/audit.jsonl").read_text()
        self.assertIn('"what":"setting governor.govern","before":"false","after":"true"', audit)

    def test_what_was_set_outlives_a_kill(self):
        self.said("config", "set", "governor.govern=true", "governor.policy=efficient-fix")
        worker = json.loads((self.folder / "run/state.json").read_text())["pid"]
        self.derated.kill()
        self.derated.wait()
        # Without its guard the worker gives the GPUs back and ends.
        wait_for(lambda: not Path(f"/proc/{worker}").exists(), "the worker ends")
        self.assertEqual(self.derate("config", "check").returncode, 0)
        self.derated = self.begin_derated()
        wait_for(lambda: self.policy() == "efficient-fix", "it is governed")

    def test_with_the_api_switched_off_and_on_again(self):
        told = self.said("config", "set", "api.enabled=false")
        self.assertIn("at the next start: api.enabled", told)
        self.derated.terminate()
        self.derated.wait()
        self.derated = self.start("derated")
        wait_for(lambda: self.derate("config", "diff").returncode == 0, "derated")
        self.assertIsNone(self.status("/readyz"))
        self.said("config", "set", "--unset", "api.enabled")

    @unittest.skipUnless(os.geteuid() == 0, "only root can become others")
    def test_who_is_no_admin_is_refused(self):
        os.chmod(self.folder, 0o755)
        done = self.derate("config", "set", "governor.govern=true", user=65534, group=65534,
                           extra_groups=[])
        self.assertEqual(done.returncode, NO_PERMISSION, done)
        self.assertIn("wants the role admin", done.stderr)
        self.assertFalse(self.set_file.exists())

    def test_tokens(self):
        self.assertEqual(self.said("token", "list"), "there are no tokens\n")
        done = self.derate("token", "create", "grafana", "--days", "2")
        token = done.stdout.strip()
        self.assertRegex(done.stdout, r"^derate_[A-Za-z0-9_-]{43}\n$")
        self.assertIn("the token 'grafana' allows what a reader may until", done.stderr)
        bearer = {"Authorization": f"Bearer {token}"}
        self.assertEqual(self.status("/v1/status", **bearer), 200)
        self.assertEqual(self.status("/v1/token-list", **bearer), 403)
        self.assertEqual(self.status("/v1/status", Authorization="Bearer derate_x"), 401)
        listed = self.said("token", "list")
        self.assertIn("grafana", listed)
        self.assertIn("1 wrong tokens", listed)
        file = self.folder / "s/tokens.json"
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        for path in (self.folder / "errors", self.folder / "s/audit.jsonl"):
            self.assertNotIn(token, path.read_text())
        self.assertNotIn(token, listed)
        # Another one for somebody else to have read it.
        file.chmod(0o640)
        self.derated.send_signal(signal.SIGHUP)
        wait_for(lambda: self.status("/v1/status", **bearer) == 401, "it is not believed")
        self.assertIn("wanted is 0600", self.derate("token", "create", "b").stderr)
        file.chmod(0o600)
        self.derated.send_signal(signal.SIGHUP)
        wait_for(lambda: self.status("/v1/status", **bearer) == 200, "it is believed")
        self.said("token", "revoke", "grafana")
        self.assertEqual(self.status("/v1/status", **bearer), 401)
        self.assertEqual(self.derate("token", "revoke", "grafana").returncode, NOT_FOUND)
        self.assertEqual(self.derate("token", "create", "x", "--role", "admin").returncode, USAGE)


if __name__ == "__main__":
    service.begin(sys.argv)
    unittest.main(verbosity=2)
