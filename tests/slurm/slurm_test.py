#!/usr/bin/env python3
"""Derate's hooks and options in a real cluster of Debian's Slurm (cluster.py): two nodes of two
simulated GPUs each on this machine. As root.

    slurm_test.py BUILD [--kills N] [--jobs N] [--orders N] [--hostile N] [--times N]
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from cluster import N1, N2, REPO, Cluster, why_not  # noqa: E402


OPTIONS = argparse.Namespace(build=REPO / "build/dev")
GOVERNED_WITHIN, RESTORED_WITHIN = 2, 3  # seconds
NOBODY = 65534


def accounting_is_there():
    return all(shutil.which(name) or Path(f"/usr/sbin/{name}").exists()
               for name in ("slurmdbd", "mariadbd", "mariadb-install-db"))


def joules(note, index):
    return note["sim"]["gpus"][index]["joules"]


class Case(unittest.TestCase):
    def run(self, result=None):
        begin = time.monotonic()
        out = super().run(result)
        print(f"  {time.monotonic() - begin:.0f} s", file=sys.stderr)
        return out


class OneGpu(Case):
    """The kinds of end of a job that has GPU 1 of node 2."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(OPTIONS.build))
        cls.node = cls.cluster.nodes[1]

    def tearDown(self):
        if sys.exc_info()[0] or self._outcome.result.failures or self._outcome.result.errors:
            print(self.cluster.logs(), file=sys.stderr)
        self.cluster.slurm("scancel", "-u", "root", code=None)

    def run_job(self, *options, seconds=60):
        """A job on GPU 1 of node 2, beside one on GPU 0 that wishes nothing; its number."""
        beside = self.cluster.submit(node=N2, seconds=seconds)
        self.cluster.until(lambda: self.cluster.state(beside) == "RUNNING", 10, "the first runs")
        job = self.cluster.submit("--derate=0.1", *options, node=N2, seconds=seconds)
        self.cluster.until(lambda: self.cluster.hooks(job, "prolog"), 10, "the prolog")
        took = self.cluster.until(lambda: self.node.governed() == [1], GOVERNED_WITHIN,
                                  f"GPU 1 of {N2} is governed: {self.node.jobs()}")
        self.assertEqual(self.cluster.nodes[0].governed(), [])
        print(f"governed after {took:.2f} s", file=sys.stderr)
        # A lock shows that it is not only reported.
        self.cluster.until(lambda: self.node.locked() == [1], 60, "its clock is locked")
        return job

    def restored(self, limit=RESTORED_WITHIN):
        took = self.cluster.until(
            lambda: self.node.locked() == [] and self.node.governed() == [], limit,
            f"GPU 1 is as it was found: {self.node.jobs()}")
        print(f"restored after {took:.2f} s", file=sys.stderr)
        self.assertEqual(self.cluster.nodes[0].locked(), [])

    def idle(self):
        return "drain" not in self.cluster.slurm("sinfo", "-h", "-o", "%T")

    def test_it_alone_is_governed_and_is_given_back(self):
        for _ in range(OPTIONS.kills):
            job = self.run_job()
            self.cluster.slurm("scancel", job)
            self.cluster.until(lambda j=job: self.cluster.hooks(j, "epilog"), 20, "the epilog")
            self.restored()
            self.cluster.slurm("scancel", "-u", "root")

    def test_the_job_is_killed(self):
        for _ in range(OPTIONS.kills):
            job = self.run_job()
            self.cluster.slurm("scancel", "--signal=KILL", "--full", job)
            self.cluster.until(lambda j=job: self.cluster.state(j) != "RUNNING", 20, "it has ended")
            self.restored()
            self.cluster.slurm("scancel", "-u", "root")

    def test_slurmd_is_killed_and_then_the_job_ends(self):
        for _ in range(OPTIONS.kills):
            job = self.run_job(seconds=60)
            self.cluster.until(lambda j=job: self.node.job(j), 5, "the account")
            time.sleep(1.5)  # derated has seen the job's control group
            os.killpg(self.cluster.slurmd[N2].pid, signal.SIGKILL)
            self.cluster.slurmd[N2].wait()
            kill_job(self.cluster, N2, job)
            self.restored()
            self.cluster.start_slurmd(N2)
            self.cluster.until(self.idle, 30, f"{N2} is back")
            self.cluster.slurm("scancel", "-u", "root", code=None)
            time.sleep(3)

    def test_derated_is_killed(self):
        for _ in range(OPTIONS.kills):
            job = self.run_job()
            os.killpg(self.node.daemon.pid, signal.SIGKILL)
            self.node.daemon.wait()
            self.node.derate("restore")
            self.cluster.until(lambda: self.node.locked() == [], RESTORED_WITHIN, "restored")
            self.node.start_daemon()
            self.cluster.until(lambda: self.node.governed() == [1], 5, "the next one goes on")
            self.cluster.slurm("scancel", job)
            self.cluster.until(lambda j=job: self.cluster.hooks(j, "epilog"), 20, "the epilog")
            self.restored()
            self.cluster.slurm("scancel", "-u", "root")

    def test_a_wrong_option_is_refused_where_it_is_submitted(self):
        for option in ("--derate=5", "--derate=maybe", "--derate-policy=a;b", "--derate-job="):
            out = self.cluster.slurm("sbatch", "--gres=gpu:1", option, "--wrap", "true", code=None)
            self.assertIn(option.split("=")[0].lstrip("-"), out)
            self.assertNotIn("Submitted", out)

    def test_options_of_nobody_are_written_in_the_account(self):
        job = self.cluster.submit("--derate=0.1", node=N2, seconds=5, user=NOBODY)
        self.cluster.until(lambda: self.node.job(job), 10, "its account")
        self.assertEqual(self.node.job(job)["job"]["uid"], NOBODY)
        self.cluster.until(lambda: self.cluster.state(job) == "COMPLETED", 30, "it has ended")


def kill_job(cluster, node, job):
    """Its processes, those that watch them, and its control groups."""
    groups = list(Path("/sys/fs/cgroup").glob(f"*/slurm_{node}/uid_0/job_{job}"))
    pids = {int(pid) for group in groups for path in group.rglob("cgroup.procs")
            for pid in path.read_text().split()}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{name}/cmdline").read_text(errors="replace")
            mine = str(cluster.folder) in Path(f"/proc/{name}/environ").read_text(errors="replace")
            if mine and line.startswith(f"slurmstepd: [{job}."):
                pids.add(int(name))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for group in groups:
        remove_group(group)


def remove_group(path):
    """A control group and those below it, once their processes have ended."""
    for below in [*sorted(path.rglob("*"), reverse=True), path]:
        for _ in range(100):
            with contextlib.suppress(OSError):
                if below.is_dir():
                    below.rmdir()
                break
            time.sleep(0.02)


class Kinds(Case):
    """Kinds of jobs, each with what docs/slurm.md says of it."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(
            OPTIONS.build, accounting=accounting_is_there(),
            epilog="epilog --comment --shares \"$SHARES\"",
            more="PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n"
                 "PartitionName=urgent Nodes=ALL PriorityTier=10 State=UP\n"))
        cls.one, cls.two = cls.cluster.nodes

    def tearDown(self):
        if self._outcome.result.failures or self._outcome.result.errors:
            print(self.cluster.logs(), file=sys.stderr)
        self.cluster.slurm("scancel", "-u", "root", code=None)
        self.cluster.until(lambda: not self.cluster.slurm("squeue", "-h").strip(), 30, "no job")

    def ended(self, job, limit=60):
        self.cluster.until(lambda: self.cluster.state(job) in ("COMPLETED", "FAILED", "CANCELLED"),
                           limit, f"job {job} has ended")

    def account(self, job, node=None):
        nodes = [node] if node else self.cluster.nodes
        return next((found for found in (each.job(job) for each in nodes) if found), None)

    def comment(self, shown):
        """What is in the comment of a job or a part of one, by the number that sacct shows."""
        lines = self.cluster.slurm("sacct", "-n", "-P", "-X", "-j", str(shown).split("_")[0].split(
            "+")[0], "--format=JobID,AdminComment").splitlines()
        text = next((line.split("|", 1)[1] for line in lines if line.split("|")[0] == shown), "")
        return json.loads(text.replace("`", '"')).get("derate") if "derate" in text else None

    def test_each_part_has_an_account_of_its_own(self):
        """Tasks of an array and components of a heterogeneous job; the comment, too."""
        first = self.cluster.submit("-A", "a", "--derate=0.1", "--array=7-8", seconds=4)
        het = int(self.cluster.slurm(
            "sbatch", "--parsable", "-A", "a", "-o", "/dev/null", "-n1", "--gres=gpu:1",
            "--derate=0.1", ":", "-n1", "--gres=gpu:2", "--derate=0.2", "--wrap", "sleep 6"
        ).split(";")[0])
        parts = {f"{first}_7": 1, f"{first}_8": 1, f"{het}+0": 1, f"{het}+1": 2}
        self.cluster.until(lambda: self.account(het) and self.account(het + 1), 60, "accounts")
        for at, promise in ((0, 0.9), (1, 0.8)):
            self.cluster.until(lambda a=at, p=promise: all(
                gpu.get("promised_performance_ratio") == p
                for gpu in self.account(het + a)["gpus"]), 5, f"component {at}: {promise}")
        self.cluster.until(lambda: all(self.account(first + at) for at in range(2)), 60,
                           "accounts of the array")
        for shown, gpus in parts.items() if self.cluster.accounting else ():
            self.cluster.until(lambda s=shown: self.comment(s), 60, f"the comment of {shown}")
            self.assertEqual(self.comment(shown)["gpus"], gpus, shown)

    def test_options_reach_the_jobs_programs(self):
        out = self.cluster.folder / "log/options"
        job = int(self.cluster.slurm(
            "sbatch", "--parsable", "-o", out, "-n1", "--gres=gpu:1", "--derate=0.15",
            "--derate-job=bert", "--wrap", "echo $DERATE_DELTA $DERATE_TUNE_JOB").split(";")[0])
        self.ended(job)
        self.assertEqual(out.read_text(), "0.15 bert\n")

    def test_steps_of_a_job_are_one_account(self):
        job = int(self.cluster.slurm(
            "sbatch", "--parsable", "-o", "/dev/null", "-n1", "--gres=gpu:1", "--derate=0.1",
            "--wrap", "srun --overlap sleep 3 & srun --overlap sleep 3; wait; srun sleep 1"
        ).split(";")[0])
        self.ended(job)
        self.cluster.until(lambda: (self.account(job) or {}).get("settled"), 10, "its account")
        self.assertEqual(sum(account["job"]["id"] == str(job) for node in self.cluster.nodes
                             for account in node.jobs()), 1)

    def test_a_requeued_job_has_an_account_each_time(self):
        job = self.cluster.submit("--derate=0.1", node=N1, seconds=30)
        self.cluster.until(lambda: self.one.governed(), 10, "it is governed")
        time.sleep(2)
        self.cluster.slurm("scontrol", "requeue", job)
        self.cluster.until(lambda: self.one.governed() == [], 10, "its GPU is given back")
        self.cluster.until(lambda: self.cluster.state(job) == "PENDING", 30, "it waits")
        time.sleep(5)  # slurmd 22.05 runs no prolog where a job comes back within a second
        self.cluster.slurm("scontrol", "update", f"JobId={job}", "StartTime=now")
        self.cluster.until(lambda: len([1 for each in self.one.jobs()
                                        if each["job"]["id"] == str(job)]) == 2, 180,
                           "its second account")
        self.assertEqual(self.one.governed(), [gpu["index"] for gpu in self.one.job(job)["gpus"]])

    def test_a_preempted_job_gives_its_gpus_back(self):
        low = [self.cluster.submit("--derate=0.1", node=N2, seconds=60) for _ in range(2)]
        self.cluster.until(lambda: self.two.governed() == [0, 1], 20, "both are governed")
        time.sleep(2)
        urgent = self.cluster.submit("-p", "urgent", "--derate=off", node=N2, gpus=2, seconds=8)
        self.cluster.until(lambda: self.cluster.state(urgent) == "RUNNING", 60, "the urgent one")
        self.assertEqual(self.two.locked(), [])
        for job in low:
            self.assertTrue(self.two.job(job)["ended"])

    def test_a_suspended_jobs_gpus_are_released(self):
        job = self.cluster.submit("--derate=0.1", node=N1, seconds=30)
        self.cluster.until(lambda: self.one.governed(), 10, "it is governed")
        time.sleep(2)
        self.cluster.slurm("scontrol", "suspend", job)
        self.cluster.until(lambda: self.one.governed() == [] and self.one.locked() == [], 8,
                           "its GPU is released")
        self.assertEqual(self.one.job(job)["hands_off"], "the job is suspended")
        self.cluster.slurm("scontrol", "resume", job)
        self.cluster.until(lambda: self.one.governed(), 8, "it is governed again")

    def test_nobody_governs_where_slurm_sets_clocks(self):
        job = int(self.cluster.slurm("sbatch", "--parsable", "-o", "/dev/null", "-w", N2, "-n1",
                                     "--gres=gpu:1", "--derate=0.1", "--gpu-freq=low", "--wrap",
                                     "srun sleep 20").split(";")[0])
        self.cluster.until(lambda: "--gpu-freq" in (self.two.job(job) or {}).get("hands_off", ""),
                           10, "hands off")
        self.assertEqual(self.two.governed(), [])

    def test_a_job_of_two_nodes_has_one_comment_with_the_sum(self):
        if not self.cluster.accounting:
            self.skipTest("no slurmdbd or MariaDB (scripts/setup --all)")
        job = self.cluster.submit("-N2", "-n2", "-A", "a", "--derate=0.1", seconds=4)
        self.ended(job)
        self.cluster.until(lambda: "derate" in self.cluster.sacct(job), 40, "the comment")
        energy = json.loads(self.cluster.sacct(job).replace("`", '"'))["derate"]
        each = [node.job(job)["energy_joules"] for node in self.cluster.nodes]
        self.assertEqual((energy["nodes"], energy["of_nodes"], energy["gpus"]), (2, 2, 2))
        self.assertAlmostEqual(energy["joules"], sum(each), delta=0.2)
        report = json.loads(self.one.derate("slurm", "report", "--from", "-1h", "--account", "a",
                                            "--json", more=self.cluster.environment).stdout)
        self.assertTrue(report["of_cluster"])
        self.assertEqual(report["lines"][0]["name"], "a")

    def test_a_comment_keeps_what_was_there(self):
        if not self.cluster.accounting:
            self.skipTest("no slurmdbd or MariaDB (scripts/setup --all)")
        job = self.cluster.submit("-A", "a", node=N1, seconds=5)
        self.cluster.until(lambda: self.cluster.state(job) == "RUNNING", 30, "it runs")
        self.cluster.slurm("scontrol", "update", f"JobId={job}", "AdminComment=site note")
        self.ended(job)
        self.cluster.until(lambda: "derate" in self.cluster.sacct(job), 40, "the comment")
        self.assertTrue(self.cluster.sacct(job).startswith("site note\n"))


class Hostile(Case):
    """Environments and options of a user who wants more than is theirs."""

    def environment(self, draw, cluster, job):
        junk = ["", "-1", "0", "0-3", "1", "0,1", "4294967295", "GPU-0", "$(id)", "a;b", "\n",
                "x" * 4096, "1" * 30000, "0.1", "off", "on", "assure", "../../etc/passwd",
                "\x1b[2J"]
        names = ["SLURM_JOB_ID", "SLURM_JOB_UID", "SLURM_JOB_USER", "SLURM_JOB_GPUS",
                 "SLURMD_NODENAME", "SPANK_DERATE", "SPANK_DERATE_POLICY", "SPANK_DERATE_JOB",
                 "SLURM_NODELIST", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_CONF"]
        out = {"SLURM_JOB_ID": str(job), "SLURM_JOB_UID": "0", "SLURM_JOB_USER": "root",
               "SLURM_JOB_GPUS": "0,1", "SLURMD_NODENAME": N1, "SPANK_DERATE": "0.3"}
        out |= cluster.environment
        for name in draw.sample(names, draw.randrange(0, 5)):
            out[name] = draw.choice(junk)
        return out

    def test_nobody_writes_to_no_gpu(self):
        draw = random.Random(OPTIONS.hostile)
        with Cluster(OPTIONS.build) as cluster:
            node = cluster.nodes[0]
            job = cluster.submit("--derate=0.1", node=N1, seconds=600)
            cluster.until(lambda: node.governed() == [0], 10, "the job's GPU is governed")
            before = [each for each in node.jobs()]
            for number in range(OPTIONS.hostile):
                environment = self.environment(draw, cluster, draw.choice([job, job + 1, 7]))
                done = node.derate("slurm", draw.choice(["prolog", "epilog"]),
                                   more=environment, user=NOBODY)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertLess(len(done.stderr), 2000)
            self.assertEqual([each["job"]["id"] for each in node.jobs()],
                             [each["job"]["id"] for each in before])
            self.assertEqual(node.governed(), [0])
            self.assertLessEqual(set(node.locked()), {0})

    def test_options_of_a_forged_client_reach_the_jobs_gpus_alone(self):
        draw = random.Random(OPTIONS.hostile)
        with Cluster(OPTIONS.build) as cluster:
            node = cluster.nodes[0]
            for number in range(OPTIONS.hostile):
                wish = draw.choice(["0.9", "0.1", "on", "off", "x" * 60000, "1;2", "", "\n0.1"])
                environment = {
                    "SLURM_JOB_ID": str(number + 1), "SLURM_JOB_UID": str(NOBODY),
                    "SLURM_JOB_USER": "nobody", "SLURM_JOB_PARTITION": "p",
                    "SLURM_JOB_GPUS": "1", "SLURMD_NODENAME": N1, "SPANK_DERATE": wish,
                    "SPANK_DERATE_POLICY": draw.choice(["", "assure", "max-freq", "nope", "a b",
                                                        "z" * 30000])} | cluster.environment
                done = node.derate("slurm", "prolog", more=environment)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertLessEqual(set(node.governed()), {1}, environment)
                node.derate("slurm", "epilog", more=environment)
                self.assertEqual(node.governed(), [])


class Absent(Case):
    """derated that is stopped, hangs or is not there holds no job up and drains no node."""

    def test_jobs_go_on(self):
        with Cluster(OPTIONS.build) as cluster:
            node = cluster.nodes[0]
            for case in ("usual", "hangs", "absent"):
                if case == "hangs":
                    os.killpg(node.daemon.pid, signal.SIGSTOP)
                if case == "absent":
                    os.killpg(node.daemon.pid, signal.SIGKILL)
                    node.daemon.wait()
                begin = time.monotonic()
                cluster.slurm("srun", "-w", N1, "--gres=gpu:1", "--derate=on", "true")
                took = time.monotonic() - begin
                print(f"srun with derated {case}: {took:.2f} s", file=sys.stderr)
                for hook in ("prolog", "epilog"):
                    cluster.until(lambda h=hook: len([1 for note in all_hooks(cluster)
                                                      if note["hook"] == h
                                                      and note["when"] == "after"]) >= 1, 10, hook)
                self.assertNotIn("drain", cluster.slurm("sinfo", "-h", "-o", "%T"))
            notes = all_hooks(cluster)
            for before, after in zip(notes[::2], notes[1::2]):
                self.assertLess(after["at"] - before["at"], 2.5)


def all_hooks(cluster):
    out = []
    for line in (cluster.folder / "log/hooks").read_text().splitlines():
        try:
            out.append(json.loads(line))
        except ValueError:
            continue
    return out


class Joules(Case):
    def test_each_job_has_those_of_its_time(self):
        with Cluster(OPTIONS.build) as cluster:
            draw = random.Random(1)
            jobs = []
            for at in range(OPTIONS.jobs):
                options = [f"--derate={draw.choice(['0.1', 'on', 'off'])}"] if at % 2 else []
                jobs.append(cluster.submit(*options, seconds=draw.randrange(20, 26),
                                           work=draw.choice(["GeMM", "BWtest", "VGG19"]),
                                           user=NOBODY if at % 3 == 0 else None))
            cluster.until(lambda: all(cluster.state(job) not in ("PENDING", "RUNNING", "COMPLETING")
                                      for job in jobs), 120 + 30 * len(jobs), "all have ended")
            time.sleep(3)
            for job in jobs:
                notes = {(note["hook"], note["when"]): note for note in cluster.hooks(job)}
                node = next(node for node in cluster.nodes
                            if node.name == notes["prolog", "after"]["node"])
                account = node.job(job)
                self.assertTrue(account["ended"], account)
                for gpu in account["gpus"]:
                    least = joules(notes["epilog", "before"], gpu["index"]) - \
                        joules(notes["prolog", "after"], gpu["index"])
                    most = joules(notes["epilog", "after"], gpu["index"]) - \
                        joules(notes["prolog", "before"], gpu["index"])
                    used = gpu["energy_joules"]
                    print(f"job {job}: {used:.1f} J, truth {least:.1f} to {most:.1f}",
                          file=sys.stderr)
                    self.assertGreater(used, least * 0.98)
                    self.assertLess(used, most * 1.02)
            for node in cluster.nodes:
                self.check_sum(cluster, node)

    def check_sum(self, cluster, node):
        """The accounts of a GPU's jobs and the one without a job are all that it has used since
        the first job. (That they add up exactly to the daemon's reading is in allocation_test.cc.)
        """
        first = next(note for note in all_hooks(cluster) if note["node"] == node.name)
        before = node.gpus()
        answer = json.loads(node.derate("slurm", "jobs", "--json").stdout)
        after = node.gpus()
        for index, gpu in enumerate(before):
            jobs = [each["energy_joules"] for job in answer["allocations"] for each in job["gpus"]
                    if each["index"] == index]
            used = sum(jobs) + next(each["energy_joules"] for each in answer["no_job"]
                                    if each["index"] == index)
            begin = joules(first, index)
            print(f"{node.name} GPU {index}: {len(jobs)} jobs and the time without one: "
                  f"{used:.0f} J, truth {gpu['joules'] - begin:.0f} J", file=sys.stderr)
            self.assertGreater(used, (gpu["joules"] - begin) * 0.99)
            self.assertLess(used, (after[index]["joules"] - begin) * 1.01)


class Times(Case):
    """Prints times; no figure makes it fail."""

    def test_times(self):
        if not OPTIONS.times:
            self.skipTest("--times N")
        with Cluster(OPTIONS.build) as cluster:
            node = cluster.nodes[0]
            environment = {"SLURM_JOB_UID": "0", "SLURM_JOB_USER": "root", "SLURM_JOB_GPUS": "1",
                           "SLURM_JOB_PARTITION": "p", "SLURMD_NODENAME": N1,
                           "SPANK_DERATE": "0.1"} | cluster.environment

            def seconds(*words):
                begin = time.monotonic()
                done = node.derate(*words, more=environment)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                return time.monotonic() - begin
            taken = {"--version": [], "slurm prolog": [], "slurm epilog": []}
            for job in range(OPTIONS.times):
                environment["SLURM_JOB_ID"] = str(1000 + job)
                for words, times in taken.items():
                    times.append(seconds(*words.split()))
            for words, times in taken.items():
                print(f"derate {words}: median {statistics.median(times) * 1e3:.1f} ms",
                      file=sys.stderr)
            self.print_plugin(cluster)

    def print_plugin(self, cluster):
        """srun of 1 and of 16 tasks with the plugin and without it, in turn; the last is a control,
        without it, too."""
        conf = cluster.folder / "plugstack.conf"
        arms = {"with": conf.read_text(), "without": "", "control": "# none\n"}
        for tasks in (1, 16):
            taken = {arm: [] for arm in arms}
            for _ in range(OPTIONS.times):
                for arm, text in arms.items():
                    conf.write_text(text)
                    begin = time.monotonic()
                    cluster.slurm("srun", "-w", N1, "-O", "-n", tasks, "true")
                    taken[arm].append(time.monotonic() - begin)
            more = {arm: statistics.median(a - b for a, b in zip(times, taken["without"])) * 1e3
                    for arm, times in taken.items()}
            print(f"srun of {tasks} tasks without the plugin: "
                  f"{statistics.median(taken['without']) * 1e3:.0f} ms; with it "
                  f"{more['with']:+.1f} ms, control {more['control']:+.1f} ms", file=sys.stderr)
        conf.write_text(arms["with"])


class Orders(Case):
    """Whatever the orders of minor numbers and gres.conf: the right GPU, or none."""

    def test_the_right_gpu_or_none(self):
        draw = random.Random(OPTIONS.orders)
        for number in range((OPTIONS.orders + 1) // 2):  # each node has an order of its own
            minors = [draw.sample(range(4), 4), draw.sample(range(4, 8), 4)]
            gres = [draw.sample(node, 4) for node in minors]
            constrain = number % 3 != 2
            with self.subTest(minors=minors, gres=gres, constrain=constrain):
                with Cluster(OPTIONS.build, minors=minors, gres=gres,
                             constrain=constrain) as cluster:
                    jobs = [cluster.submit("--derate=0.1", gpus=2, seconds=8, node=node.name)
                            for node in cluster.nodes]
                    for job, node in zip(jobs, cluster.nodes):
                        self.check(cluster, job, node, constrain)

    def check(self, cluster, job, node, constrain):
        cluster.until(lambda: node.job(job), 10, "the account of the job")
        account = node.job(job)
        if constrain:
            # The job works on the GPUs whose device files it can open.
            cluster.until(lambda: len(working(node)) == 2, 10, "it works")
            self.assertEqual(sorted(gpu["index"] for gpu in account["gpus"]), working(node))
            self.assertEqual(node.governed(), working(node))
        elif account["gpus"]:
            order = [each.split("nvidia")[-1] for each in (cluster.folder / "gres.conf").read_text()
                     .splitlines() if f"NodeName={node.name} " in each]
            self.assertEqual([int(minor) for minor in order[:2]], [0, 1])
        else:
            self.assertTrue(account["hands_off"])


def working(node):
    return [at for at, gpu in enumerate(node.gpus()) if gpu.get("processes")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--kills", type=int, default=1, help="rounds of each kind of end")
    parser.add_argument("--jobs", type=int, default=4, help="jobs whose joules are compared")
    parser.add_argument("--orders", type=int, default=2, help="random orders of the GPUs")
    parser.add_argument("--times", type=int, default=0, help="rounds of the hooks' times")
    parser.add_argument("--hostile", type=int, default=20, help="environments of a hostile user")
    options, rest = parser.parse_known_args(namespace=OPTIONS)
    options.build = options.build.resolve()
    missing = why_not()
    if missing:
        print(f"skipped: {missing}")
        return 0
    unittest.main(argv=[sys.argv[0], "-v", *rest])


if __name__ == "__main__":
    sys.exit(main())
