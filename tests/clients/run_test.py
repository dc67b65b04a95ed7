#!/usr/bin/env python3
"""`derate run` of a user who may set no clocks, by a real derated on simulated GPUs.

    run_test.py BUILD [SLOWNESS]
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import energy_test
from energy_test import Machine, wait_for

BUILD, SLOW = Path(), 1.0
USER, OTHER, GROUP = 65534, 65533, 4242


@unittest.skipIf(os.geteuid() != 0, "only root can become others")
class OfAnotherUser(Machine):
    def setUp(self):
        super().setUp()
        # The build may lie where others do not come.
        for name in ("derate", "fakenvml/libnvidia-ml.so.1"):
            shutil.copy(BUILD / name, self.folder)
        os.environ["DERATE_NVML_LIBRARY"] = str(self.folder / "libnvidia-ml.so.1")
        (self.folder / "derate.toml").write_text(f'[run]\nusers = "{GROUP}"\n')
        self.start("derate", "sim", "serve", "--chip", "V100-SXM2", "--gpus", "2")
        wait_for(lambda: self.derate("sim", "show").returncode == 0, "simulated GPUs")
        self.derated = self.daemon()

    def as_user(self, uid=USER, groups=(GROUP,)):
        return {"user": uid, "group": uid, "extra_groups": list(groups), "cwd": self.folder}

    def derate(self, *arguments, **how):
        return subprocess.run([str(self.folder / "derate"), *arguments], capture_output=True,
                              text=True, timeout=90 * SLOW, **how)

    def job(self, gpu=0, work=30):
        return [str(self.folder / "derate"), "sim", "job", "BWtest", "-i", str(gpu), "--work",
                f"{work}s"]

    def begin(self, *arguments, **how):
        """A program of a user that goes on beside the test."""
        process = subprocess.Popen([str(self.folder / "derate"), *arguments], text=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **how)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def state(self, gpu=0):
        return json.loads((self.folder / "run/state.json").read_text())["gpus"][gpu]

    def wait_governed(self, gpu=0, governed=True):
        wait_for(lambda: ("policy" in self.state(gpu)) == governed,
                 f"GPU {gpu} governed: {governed}")

    def test_its_own_gpu_is_governed_and_the_saving_told(self):
        done = self.derate("run", "--", *self.job(work=12), **self.as_user())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"GPU 0 .* policy assure\n")
        self.assertNotIn("GPU 1", done.stderr)  # the command left it alone
        self.assertRegex(done.stderr, r"\nSaved about \d+ % \(.*; promise [a-z ]+\.\n$")
        self.wait_governed(governed=False)

    # A job that sees the node's GPU 1 alone, as its GPU 0 (found/field.md, kind B).
    def test_numbers_mean_the_gpus_of_the_command_s_own_view(self):
        self.begin(*self.job(gpu=0, work=60)[1:], **self.as_user())  # another job of that user
        for variables in ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "1"},
                          {"SLURM_JOB_GPUS": "1"}, {}):
            options = [] if variables else ["-i", "0"]
            env = os.environ | variables | {"DERATE_SIM_VIEW": "1"}
            done = self.derate("run", *options, "--", *self.job(gpu=1, work=5), env=env,
                               **self.as_user())
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r"GPU 1 .* policy assure\n", variables)
            self.assertNotIn("GPU 0", done.stderr, variables)
            self.assertNotIn("policy", self.state(0), variables)
            time.sleep(5)  # a GPU's next run begins 5 s after the last
        # The other job is of the same user, so derated would govern its GPU.
        foreign = "GPU-51a00000-0000-0000-0000-000000000000"
        done = self.derate("run", "-i", foreign, "--", "touch", "started", env=env,
                           **self.as_user())
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn(f"GPU '{foreign}' is not here", done.stderr)
        self.assertFalse((self.folder / "started").exists())

    def test_work_on_gpus_that_were_not_chosen_is_reported(self):
        self.begin(*self.job(gpu=0, work=60)[1:], **self.as_user())
        env = os.environ | {"CUDA_VISIBLE_DEVICES": "0"}
        for how in (self.as_user(), {"cwd": self.folder}):
            options = [] if "user" in how else ["--shared"]
            done = self.derate("run", *options, "--", *self.job(gpu=1, work=4), env=env, **how)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r"GPU 1 \(GPU-.*\): a process of the command works "
                                          "there; the GPU was not chosen")
            self.assertRegex(done.stderr,
                             "GPU 0: no process of the command was seen there; (its|this)")
            self.assertNotRegex(done.stderr, r"energy +[0-9.]+ k?J")

    def test_who_may_not_is_told_before_the_command_starts(self):
        done = self.derate("run", "--", "touch", "started", **self.as_user(groups=()))
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stderr, r"user 65534 may not have GPUs governed: .*'4242'")
        done = self.derate("run", "--delta", "0.4", "--", "touch", "started", **self.as_user())
        self.assertEqual(done.returncode, 125)
        self.assertIn("allowed are 30 %", done.stderr)
        done = self.derate("run", "--records", "r", "--", "touch", "started", **self.as_user())
        self.assertEqual(done.returncode, 125)
        self.assertFalse((self.folder / "started").exists())

    def test_beside_another_users_process_it_is_refused(self):
        self.begin(*self.job(gpu=1, work=60)[1:], **self.as_user(OTHER))
        time.sleep(2 * SLOW)
        done = self.derate("run", "-i", "1", "--", "touch", "started", **self.as_user())
        self.assertEqual(done.returncode, 125)
        self.assertIn("GPU 1: a process of user 65533 works there, too", done.stderr)
        # Of root as well, who may all the same.
        done = self.derate("run", "-i", "1", "--", "touch", "started")
        self.assertEqual(done.returncode, 125)
        self.assertIn("--shared", done.stderr)
        self.assertFalse((self.folder / "started").exists())
        done = self.derate("run", "-i", "1", "--shared", "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_it_ends_with_its_process(self):
        run = self.begin("run", "--", *self.job(work=60), **self.as_user())
        self.wait_governed()
        run.kill()
        self.wait_governed(governed=False)
        subprocess.run(["pkill", "-KILL", "-u", str(USER)], check=False)

    def test_a_daemon_that_is_gone_costs_the_command_nothing(self):
        run = self.begin("run", "--", *self.job(work=20), **self.as_user())
        self.wait_governed()
        self.derated.send_signal(signal.SIGKILL)
        self.derated.wait()
        self.daemon()
        self.wait_governed()
        errors = run.communicate(timeout=60 * SLOW)[1]
        self.assertEqual(run.returncode, 0, errors)
        self.assertRegex(errors, "the command goes on, and derated is asked again")
        self.assertRegex(errors, r"GPU 0 .* policy assure\n")

    def test_signals_and_exit_codes_are_the_commands(self):
        self.assertEqual(self.derate("run", "--", "sh", "-c", "exit 7",
                                     **self.as_user()).returncode, 7)
        self.assertEqual(self.derate("run", "--", "sh", "-c", "kill -TERM $$",
                                     **self.as_user()).returncode, 143)
        run = self.begin("run", "--", "sleep", "60", **self.as_user())
        time.sleep(1 * SLOW)
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(20 * SLOW), 143)
        done = self.derate("run", "--", "/no/such/command", **self.as_user())
        self.assertEqual(done.returncode, 127, done.stderr)

    def test_root_without_a_choice_governs_where_the_command_works(self):
        self.stop(self.derated)
        done = self.derate("run", "--", *self.job(gpu=1, work=5))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"GPU 1 .* policy assure\n")
        self.assertNotIn("GPU 0", done.stderr)
        done = self.derate("run", "--", "true")
        self.assertRegex(done.stderr, r"GPU 0: not governed: no process of the command")

    def test_who_runs_it_releases_it(self):
        run = self.begin("run", "--", *self.job(work=10), **self.as_user())
        self.wait_governed()
        done = self.derate("release", "-i", "0", **self.as_user())
        self.assertEqual((done.returncode, done.stdout), (0, "GPU 0 is given back\n"), done.stderr)
        self.wait_governed(governed=False)
        self.assertIn("its user has released it", run.communicate(timeout=60 * SLOW)[1])
        self.assertEqual(run.returncode, 0)
        done = self.derate("policy", "set", "assure", **self.as_user())
        self.assertEqual(done.returncode, 4, done.stderr)


if __name__ == "__main__":
    BUILD = Path(sys.argv[1]).resolve()
    energy_test.BUILD = BUILD
    SLOW = energy_test.SLOW = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    unittest.main(argv=sys.argv[:1])
