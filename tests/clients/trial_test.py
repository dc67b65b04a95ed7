#!/usr/bin/env python3
"""Trials of jobs that recur, from Python and C, against a real derated and a real `derate tune run`
on simulated GPUs.

    trial_test.py BUILD TRIAL_CLIENT [SLOWNESS]
"""
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import unittest
import warnings
from pathlib import Path

import energy_test
from energy_test import ROOT, Machine, wait_for

import derate_client
from derate_client import Trial

BUILD, CLIENT, SLOW = Path(), "", 1.0
LEASE_S = 2
EXAMPLE = ROOT / "clients/python/examples/train_with_trial.py"


class OutOfMemoryError(RuntimeError):
    """As torch.cuda's."""


class Jobs(Machine):
    def setUp(self):
        super().setUp()
        for name in ("DERATE_TRIAL", "DERATE_TRIAL_TOKEN", "DERATE_BATCH_SIZE"):
            os.environ.pop(name, None)
        (self.folder / "derate.toml").write_text(f"[tune]\nlease_s = {LEASE_S}\n")
        self.addCleanup(derate_client._daemon.close)
        derate_client._daemon.close()

    def house(self):
        self.serve_gpus()
        self.derated = self.daemon()
        self.create()

    def create(self, name="bert", **more):
        wanted = {"batch_sizes": [8, 16, 32], "default": 16, "target": 0.6, "max_epochs": 9,
                  "knob": "none", "policy": "zeus"}
        return derate_client.create_job(name, **(wanted | more))

    def history(self, job="bert"):
        return derate_client._daemon.ask("tune-job-show", job=job)["history"]

    def states(self):
        return [trial["state"] for trial in self.history()]

    def tune_run(self, script, *options, code=0):
        """What `derate tune run` did with a Python script: the tries, its output, its errors."""
        done = subprocess.run(
            [str(BUILD / "derate"), "tune", "run", "--job", "bert", "-i", "0", "--json", "-o",
             str(self.folder / "account"), *options, "--", sys.executable, "-B", "-c",
             textwrap.dedent(script)], capture_output=True, text=True, timeout=60 * SLOW)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        tries = json.loads((self.folder / "account").read_text())["tries"]
        return tries, done.stdout, done.stderr


class OfPython(Jobs):
    def setUp(self):
        super().setUp()
        self.house()

    def test_a_run_to_its_target(self):
        with Trial("bert", gpus=0) as trial:
            self.assertEqual((trial.batch_size, trial.state, trial.should_stop),
                             (16, "running", False))
            self.assertFalse(trial.step(100))
            time.sleep(0.3)
            self.assertFalse(trial.epoch(0.5))
            self.assertTrue(trial.on_epoch_end(0.7))
            self.assertTrue(trial.should_stop)
            self.assertTrue(trial.on_step_end())
        self.assertEqual((trial.state, trial.verdict, trial.epochs, trial.may_retry),
                         ("reached", "reached", 2, False))
        self.assertGreater(trial.joules, 0)
        (told,) = self.history()
        self.assertEqual((told["state"], told["epochs"], told["metric"], told["cost_joules"]),
                         ("reached", 2, 0.7, trial.cost))
        trial.epoch(0.9)  # it is over, and nobody is told
        self.assertEqual(self.history(), [told])

    def test_stop_as_an_exception_ends_the_block(self):
        with Trial("bert", gpus=0, raises=True) as trial:
            for _ in range(8):
                trial.epoch(0.2 * trial.epochs)
            self.fail("it was to stop")
        self.assertEqual((trial.state, trial.epochs), ("reached", 4))

    def test_what_an_exception_means(self):
        cause = RuntimeError("it does not work")
        cause.__cause__ = OutOfMemoryError("tried to allocate 2 GiB")
        for error, state in ((ValueError("mine"), "lost"), (KeyboardInterrupt(), "lost"),
                             (SystemExit(1), "lost"), (SystemExit(0), "missed"),
                             (RuntimeError("CUDA out of memory. Tried to"), "infeasible"),
                             (OutOfMemoryError(), "infeasible"), (cause, "infeasible")):
            with self.subTest(error=repr(error)):
                derate_client._daemon.ask("tune-job-remove", job="bert")
                self.create()
                with self.assertRaises(type(error)):
                    with Trial("bert", gpus=0) as trial:
                        raise error
                self.assertEqual((trial.state, self.states()), (state, [state]))
        self.assertFalse(derate_client.is_out_of_memory(MemoryError("of the host")))

    def test_the_next_try(self):
        with Trial("bert", gpus=0) as first:
            trial_ends = first.end
        trial_ends()  # once is enough
        self.assertEqual((first.state, first.may_retry), ("missed", True))
        with Trial("bert", gpus=0, retry_of=first) as second:
            second.epoch(0.7)
        self.assertEqual([(t["recurrence"], t["attempt"]) for t in self.history()],
                         [(0, 1), (0, 2)])
        with self.assertRaisesRegex(derate_client.Refused, "has reached the target"):
            with Trial("bert", gpus=0, retry_of=second):
                self.fail("it has begun")

    def test_tries_until_the_target(self):
        sizes = []
        for trial in derate_client.tries("bert", gpus=0):
            with trial:
                sizes.append(trial.batch_size)
                if len(sizes) == 1:
                    raise RuntimeError("CUDA out of memory")
                trial.epoch(0.1 if len(sizes) == 2 else 0.6)
        self.assertEqual(self.states(), ["infeasible", "missed", "reached"])
        self.assertEqual([t["batch_size"] for t in self.history()], sizes)
        self.assertNotIn(sizes[0], sizes[1:])
        with self.assertRaises(ValueError):
            for trial in derate_client.tries("bert", gpus=0):
                with trial:
                    raise ValueError("mine")
        self.assertEqual(self.states()[3:], ["lost"])

    def test_what_makes_no_sense(self):
        with self.assertRaisesRegex(derate_client.Refused, "default 24: allowed are"):
            self.create("other", default=24)
        with self.assertRaisesRegex(derate_client.Refused, "is there with another target"):
            self.create(target=0.7)
        self.assertEqual(self.create()["trials"], 0)
        with self.assertRaisesRegex(derate_client.Refused,
                                    "there is no job 'gpt'; there are bert") as caught:
            with Trial("gpt", gpus=0):
                self.fail("it has begun")
        self.assertEqual((caught.exception.code, caught.exception.exit_code), ("not_found", 6))
        with self.assertRaisesRegex(derate_client.Refused, "which GPUs"):
            with Trial("bert"):
                self.fail("it has begun")
        with Trial("bert", gpus=0) as trial:
            with self.assertRaisesRegex(derate_client.Error, "for one block"):
                with trial:
                    self.fail("it has begun twice")

    def test_a_metric_that_is_no_number_is_told_and_not_counted(self):
        with Trial("bert", gpus=0) as trial:
            trial.epoch(0.2)
            with self.assertWarnsRegex(UserWarning, "metric nan: allowed is a finite number"):
                trial.epoch(float("nan"))
            self.assertEqual(self.history()[0]["metric"], 0.2)
            self.assertEqual(self.history()[0]["epochs"], 2)

    def test_silence_does_not_end_it(self):
        with Trial("bert", gpus=0) as trial:
            time.sleep(2.5 * LEASE_S)
            self.assertEqual(self.states(), ["running"])
            trial.epoch(0.7)
        self.assertEqual(self.states(), ["reached"])

    def test_who_is_killed_leaves_it_lost(self):
        script = """
            import os, signal, derate_client
            with derate_client.Trial("bert", gpus=0) as trial:
                trial.epoch(0.1)
                os.kill(os.getpid(), signal.SIGKILL)
            """
        done = subprocess.run([sys.executable, "-B", "-c", textwrap.dedent(script)])
        self.assertEqual(done.returncode, -signal.SIGKILL)
        wait_for(lambda: self.states() == ["lost"], "its lease runs out")

    def test_one_that_is_given_up_is_told_and_the_training_goes_on(self):
        with Trial("bert", gpus=0) as trial:
            trial._over.set()  # its thread has died
            wait_for(lambda: self.states() == ["lost"], "its lease runs out")
            with self.assertWarnsRegex(UserWarning, "was given up"):
                trial.epoch(0.7)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertFalse(trial.epoch(0.8))
        self.assertEqual((trial.state, self.states()), ("lost", ["lost"]))

    def test_a_restart_of_the_daemon_loses_no_epoch(self):
        with Trial("bert", gpus=0) as trial:
            trial.epoch(0.1)
            self.stop(self.derated)
            self.assertFalse(trial.epoch(0.3))
            self.daemon()
            wait_for(lambda: self.history()[0]["epochs"] == 2, "what was not told is told")
            self.assertEqual(self.history()[0]["metric"], 0.3)
            self.assertTrue(trial.epoch(0.6))
        self.assertEqual(self.states(), ["reached"])

    def test_a_child_trains_nothing(self):
        with Trial("bert", gpus=0) as trial:
            trial.epoch(0.1)

            def work():
                trial.step(10)
                trial.epoch(0.9)
                trial.end("infeasible")
                return "done"
            self.assertEqual(self.in_a_child(work), "done")
            self.assertEqual((self.states(), self.history()[0]["epochs"]), (["running"], 1))

    def test_the_limit_is_tuned_by_steps(self):
        self.create("tuned", knob="power-limit")
        with Trial("tuned", gpus=0) as trial:
            for _ in range(5):
                trial.step(10)
                time.sleep(0.3)
            wait_for(lambda: "reading 1" in self.history("tuned")[0].get("knob", ""),
                     "it is measured")
            trial.epoch(0.7)

    def test_the_example(self):
        derate_client.create_job("example", [16, 32, 64], 16, 0.9, 50, knob="none")
        for _ in range(2):
            done = subprocess.run([sys.executable, "-B", str(EXAMPLE), "--gpus", "0",
                                   "--no-torch"], capture_output=True, text=True,
                                  timeout=120 * SLOW)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            self.assertRegex(done.stdout, r"batch size \d+: reached after \d+ epochs, \d+ J")
        reached = [trial for trial in self.history("example") if trial["state"] == "reached"]
        self.assertEqual([trial["recurrence"] for trial in reached], [0, 1])


class UnderTuneRun(Jobs):
    SCRIPT = """
        import json, os, time, derate_client
        with derate_client.Trial("bert") as trial:
            for epoch in range(5):
                if trial.epoch(epoch * 0.25):
                    break
        print(trial.id, trial.batch_size, trial.state, flush=True)
        """

    def setUp(self):
        super().setUp()
        self.house()

    def test_it_is_the_trial_that_was_begun(self):
        tries, out, errors = self.tune_run(self.SCRIPT)
        self.assertEqual(out, "1 16 reached\n")
        self.assertEqual([(t["trial"], t["state"], t["epochs"]) for t in tries],
                         [(1, "reached", 4)])
        self.assertNotIn("has ended", errors)
        self.assertEqual(self.states(), ["reached"])

    def test_what_comes_after_training_is_neither_measured_nor_ended(self):
        # Longer than the renewals of `derate tune run` and its patience.
        tries, out, errors = self.tune_run(textwrap.dedent(self.SCRIPT) + "time.sleep(4)\n"
                                           "print('exported')\n", "--grace", "1")
        self.assertEqual(out, "1 16 reached\nexported\n")
        self.assertLess(tries[0]["time_seconds"], 4)
        self.assertNotIn("has ended", errors)

    def test_an_error_that_was_caught_is_still_one(self):
        tries, out, _ = self.tune_run("""
            import derate_client
            try:
                with derate_client.Trial("bert") as trial:
                    if trial.batch_size == 16:
                        raise RuntimeError("no CUDA" + " out of memory")
                    trial.epoch(0.7)
            except RuntimeError:
                print("caught")
            """)
        self.assertEqual(out, "caught\n")
        self.assertEqual([t["state"] for t in tries], ["infeasible", "reached"])

    def test_another_job_is_an_error(self):
        _, _, errors = self.tune_run("""
            import derate_client
            with derate_client.Trial("gpt"):
                pass
            """, code=1)
        self.assertRegex(errors, "began a trial of job 'bert', and this one is of job 'gpt'")

    def test_who_may_not_report_prints(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become others")
        tries, out, _ = self.tune_run("""
            import os, time, derate_client
            os.setgroups([]); os.setgid(65534); os.setuid(65534)
            with derate_client.Trial("bert") as trial:
                for epoch in range(4):
                    trial.epoch(0.25 * epoch)
                time.sleep(20)
            """)
        self.assertIn("derate: epoch=4 metric=0.75\n", out)
        self.assertEqual([t["state"] for t in tries], ["reached"])


    def test_a_command_that_is_not_there_leaves_no_trial(self):
        done = subprocess.run([str(BUILD / "derate"), "tune", "run", "--job", "bert", "-i", "0",
                               "--", "/no/such/command"], capture_output=True, text=True,
                              timeout=60 * SLOW)
        self.assertEqual(done.returncode, 127, done.stderr)
        self.assertIn("batch size 16: lost after 0 epochs", done.stderr)
        self.assertNotIn("running after", done.stderr)
        self.assertEqual(self.states(), ["lost"])

    def test_every_line_of_a_quick_command_counts(self):
        tries, _, _ = self.tune_run("""
            for epoch in range(1, 9):
                print(f"derate: epoch={epoch} metric={0.7 if epoch == 5 else 0.1}")
            """)
        self.assertEqual(tries[0]["state"], "reached")


class WhenNobodyAnswers(Jobs):
    """A daemon that began a trial and says no more: it hangs, and is not gone."""

    def setUp(self):
        super().setUp()
        self.heard, self.over = [], threading.Event()
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(self.folder / "run/client.sock"))
        server.listen(64)
        self.addCleanup(server.close)
        thread = threading.Thread(target=self.serve, args=(server,), daemon=True)
        thread.start()
        self.addCleanup(self.over.set)

    def serve(self, server):
        answers = {"gpus": {"ok": True, "gpus": []},
                   "tune-trial-begin": {"ok": True, "trial": 1, "token": "t", "state": "running",
                                        "stop": False, "job": "bert", "batch_size": 16,
                                        "lease_seconds": 60}}
        kept = []
        while not self.over.is_set():
            try:
                line, _ = server.accept()
            except OSError:
                return
            request = json.loads(line.makefile("r").readline() or "{}")
            self.heard.append(request.get("command"))
            if self.heard[-1] in answers:
                line.sendall(json.dumps(answers[self.heard[-1]]).encode() + b"\n")
            kept.append(line)

    def begin(self, script):
        process = subprocess.Popen(
            [str(BUILD / "derate"), "tune", "run", "--job", "bert", "--", sys.executable, "-B",
             "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, cwd=self.folder)
        self.addCleanup(process.kill)
        return process

    def test_the_output_goes_on_and_the_training_with_it(self):
        process = self.begin("""
            for epoch in range(1, 3001):
                print(f"derate: epoch={epoch} metric=0.1", "x" * 100)
            """)
        out, errors = process.communicate(timeout=60 * SLOW)
        self.assertEqual((process.returncode, out.count("derate: epoch=")), (0, 3000), errors)
        self.assertEqual(self.heard[:2], ["gpus", "tune-trial-begin"])
        self.assertGreater(len(self.heard), 2)  # and was asked more, in vain

    def test_a_signal_is_seen_at_once(self):
        process = self.begin("""
            import pathlib, signal, sys, time
            def stop(*_):
                pathlib.Path("stopped").touch()
                sys.exit(3)
            signal.signal(signal.SIGINT, stop)
            print("derate: epoch=1 metric=0.1", flush=True)
            pathlib.Path("ready").touch()
            while True:
                time.sleep(0.1)
            """)
        wait_for(lambda: (self.folder / "ready").exists() and len(self.heard) > 2,
                 "it trains, and a request is not answered")
        process.send_signal(signal.SIGINT)
        wait_for((self.folder / "stopped").exists, "the command is told")
        process.communicate(timeout=60 * SLOW)
        self.assertEqual(process.returncode, 3)


class OfC(Jobs):
    def client(self, **environment):
        process = subprocess.Popen([CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True, env=os.environ | environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)

        def ask(line):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            return process.stdout.readline().rstrip("\n")
        return ask

    def test_a_run(self):
        self.house()
        ask = self.client()
        self.assertRegex(ask("begin gpt 0"), "^3 there is no job 'gpt'; there are bert$")
        self.assertEqual(ask("code"), "not_found")
        self.assertRegex(ask("begin bert 0"), "^0 running 16 0 0 ")
        self.assertRegex(ask("report 1 120.5 -0.25"), "^0 running 16 0 0 ")
        (told,) = self.history()
        self.assertEqual((told["epochs"], told["metric"]), (1, -0.25))
        self.assertRegex(ask("report nan 121 nan"), "^0 running 16 0 0 ")
        self.assertRegex(ask("report 0.5 nan nan"), "^3 epoch 0.5: it was 1 before")
        self.stop(self.derated)
        self.assertRegex(ask("renew"), "^1 nobody measures here")
        self.daemon()
        self.assertRegex(ask("renew"), "^0 running 16 0 0 ")
        self.assertRegex(ask("report 2 200 0.7"), "^0 running 16 1 0 ")
        self.assertRegex(ask("end well"), "^3 outcome 'well'")
        code, state, *_, joules, cost, seconds = ask("end missed").split()
        self.assertEqual((code, state), ("0", "reached"))
        (told,) = self.history()
        self.assertAlmostEqual(float(cost), told["cost_joules"], places=3)
        self.assertGreater(float(joules), 0)
        self.assertGreater(float(seconds), 0)
        self.assertRegex(ask("renew"), "^3 trial 1 has ended: reached")
        ask("begin bert 0")
        self.assertRegex(ask("end infeasible"), r"^0 infeasible \d+ 0 1 ")

    def test_the_trial_of_tune_run(self):
        self.house()
        tries, out, _ = self.tune_run(f"""
            import subprocess
            subprocess.run(["{CLIENT}"], text=True,
                           input="begin whatever\\nreport 1 10 0.7\\nend missed\\n")
            """)
        self.assertEqual([line.split()[:4] for line in out.splitlines()],
                         [["0", "running", "16", "0"], ["0", "running", "16", "1"],
                          ["0", "reached", "16", "1"]])
        self.assertEqual([(t["trial"], t["state"]) for t in tries], [(1, "reached")])

    def test_nobody(self):
        self.assertRegex(self.client()("begin bert"), "^1 nobody measures here")


class OfNobody(Jobs):
    def test_that_is_an_error_unless_one_can_do_without(self):
        with self.assertRaisesRegex(derate_client.NobodyListens, "derated is not running: '.*/run"):
            with Trial("bert"):
                self.fail("it has begun")
        with self.assertRaises(derate_client.NobodyListens):
            self.create()
        with Trial("bert", without=32) as trial:
            self.assertEqual((trial.batch_size, trial.step(), trial.epoch(0.9)), (32, False, False))
        self.assertEqual((trial.state, trial.joules, trial.epochs), (None, None, 1))

    def test_the_example(self):
        done = subprocess.run([sys.executable, "-B", str(EXAMPLE), "--no-torch"],
                              capture_output=True, text=True, timeout=120 * SLOW)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertRegex(done.stdout, "nobody tunes: batch size 16, \\d+ epochs")


if __name__ == "__main__":
    BUILD, CLIENT = Path(sys.argv[1]).resolve(), sys.argv[2]
    SLOW = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
    energy_test.BUILD, energy_test.SLOW = BUILD, SLOW
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
