"""A cluster of Debian's Slurm on this machine: slurmctld, two slurmd, munge, and on request
slurmdbd with MariaDB. Each node has simulated GPUs of its own and a derated. As root."""

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent.parent
NVIDIA = 195  # the major number of the driver's device files
# Two runs at the same time have nodes and ports of their own.
LANE = int(os.environ.get("DERATE_SLURM_LANE", "0"))
N1, N2 = ("n1", "n2") if LANE == 0 else ("m1", "m2")
PORTS = 16817 + 10 * LANE  # and those after it

SLURM_CONF = """ClusterName=derate
SlurmctldHost=localhost
SlurmctldPort={port}
AuthType=auth/munge
SlurmUser=slurm
StateSaveLocation={folder}/spool/ctld
SlurmdSpoolDir={folder}/spool/%n
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldPidFile={folder}/ctld.pid
SlurmdLogFile={folder}/log/slurmd.%n.log
SlurmctldLogFile={folder}/log/ctld.log
ProctrackType=proctrack/{tracks}
TaskPlugin={tasks}
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
PlugStackConfig={folder}/plugstack.conf
Prolog={folder}/prolog
Epilog={folder}/epilog
PrologFlags=Alloc
KillWait=2
{more}
NodeName={names} NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{nodes}] CPUs={cores} \\
  RealMemory=1000 Gres=gpu:{gpus} State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES MaxTime=10 State=UP OverSubscribe=FORCE:8
"""
CGROUP_CONF = """CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
ConstrainDevices={constrain}
ConstrainCores=no
ConstrainRAMSpace=no
"""
# Says when it ran and what the simulated GPUs had used by then, around the hook that is tested.
HOOK = """#!/bin/bash
exec 2>>{folder}/log/hooks.err
. {folder}/$SLURMD_NODENAME/environment
truth() {{ {build}/derate sim show --json | tr -d "\\n"; }}
note() {{
  printf '{{"hook": "{hook}", "job": %d, "node": "%s", "when": "%s", "at": %s, "sim": %s}}\\n' \\
    "$SLURM_JOB_ID" "$SLURMD_NODENAME" "$1" "$(date +%s.%N)" "$(truth)" >>{folder}/log/hooks
}}
note before
{build}/derate slurm {hook}
code=$?
note after
exit $code
"""
# A job's script: the GPU that it works on is the one whose device file it can open.
WORK = """#!/bin/bash
# work.sh WORKLOAD SECONDS: on every GPU whose device file can be opened here.
. {folder}/$SLURMD_NODENAME/environment
for number in {minors}; do
  cat {folder}/dev/nvidia$number 2>&1 | grep -q 'No such device or address' || continue
  for at in "${{!MINORS[@]}}"; do
    [[ ${{MINORS[at]}} != "$number" ]] || {build}/derate sim job "$1" -i "$at" --work "$2" &
  done
done
wait
"""


class Failure(Exception):
    """What did not hold."""


def check(holds, what):
    if not holds:
        raise Failure(what)


class Node:
    """A node's simulated GPUs and its derated. `minors`: of its GPUs, by NVML's index."""

    def __init__(self, cluster, name, minors, config):
        self.cluster, self.name, self.minors = cluster, name, minors
        self.folder = cluster.folder / name
        for part in ("run", "state", "sim"):
            (self.folder / part).mkdir(parents=True)
        (cluster.folder / "shares").mkdir(exist_ok=True)
        self.config = self.folder / "derate.toml"
        self.config.write_text(config)
        build = cluster.build
        self.environment = {
            "DERATE_SIM": f"{self.folder}/sim", "DERATE_RUN_DIR": f"{self.folder}/run",
            "DERATE_STATE_DIR": f"{self.folder}/state", "DERATE_CONFIG": str(self.config),
            "DERATE_NVML_LIBRARY": f"{build}/fakenvml/libnvidia-ml.so.1"}
        lines = [f"export {name}={value}" for name, value in self.environment.items()]
        lines.append(f"SHARES={cluster.folder}/shares")
        lines.append(f"MINORS=({' '.join(map(str, minors))})")
        (self.folder / "environment").write_text("\n".join(lines) + "\n")
        self.server = self.daemon = None

    def start(self):
        self.server = self.cluster.start(
            f"serve.{self.name}", [self.cluster.build / "derate", "sim", "serve", "--chip",
                                   self.cluster.chip, "--gpus", len(self.minors), "--minors",
                                   ",".join(map(str, self.minors))], self.environment)
        self.cluster.until(lambda: self.derate("sim", "show").returncode == 0, 20,
                           f"the GPUs of {self.name}")
        self.start_daemon()

    def start_daemon(self):
        self.daemon = self.cluster.start(f"derated.{self.name}", [self.cluster.build / "derated"],
                                         self.environment)
        self.cluster.until(lambda: self.derate("slurm", "jobs").returncode == 0, 20,
                           f"derated of {self.name}")

    def derate(self, *arguments, more=None, user=None):
        """Runs it; `more`: of its environment; `user`: another than root."""
        as_user = ["setpriv", f"--reuid={user}", "--regid=65534", "--clear-groups"] if user else []
        return subprocess.run([*as_user, str(self.cluster.build / "derate"),
                               *map(str, arguments)],
                              env=os.environ | self.environment | (more or {}),
                              capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL)

    def gpus(self):
        """As the simulator has them."""
        return json.loads(self.derate("sim", "show", "--json").stdout)["gpus"]

    def locked(self):
        """The indices of GPUs whose clock is locked."""
        return [at for at, gpu in enumerate(self.gpus()) if "locked_highest_mhz" in gpu]

    def jobs(self):
        return json.loads(self.derate("slurm", "jobs", "--json").stdout)["allocations"]

    def job(self, number):
        return next((each for each in self.jobs() if each["job"]["id"] == str(number)), None)

    def governed(self):
        """The indices of GPUs that a running job has governed."""
        return sorted(gpu["index"] for each in self.jobs() if not each["ended"]
                      for gpu in each["gpus"] if gpu["governed"])


DBD_CONF = """AuthType=auth/munge
DbdHost=localhost
DbdPort={dbd}
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=x
StorageLoc=slurm_acct_db
LogFile={folder}/log/dbd.log
PidFile={folder}/dbd.pid
"""
ACCOUNTING = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={dbd}
AccountingStorageTRES=gres/gpu
"""


class Cluster:
    def __init__(self, build, minors=((0, 1), (2, 3)), gres=None, constrain=True, cgroups=True,
                 chip="V100-SXM2", config='[governor]\npolicy = "assure"\n', more="",
                 prolog="prolog", epilog="epilog", accounting=False):
        """`minors`: of the two nodes' GPUs by NVML's index; `gres`: their order in gres.conf."""
        self.build, self.chip = Path(build).resolve(), chip
        self.folder = Path(tempfile.mkdtemp(prefix="dslurm-"))
        self.folder.chmod(0o755)
        self.programs = []
        for part in ("log", "dev", "spool"):
            (self.folder / part).mkdir()
        for part in ("log", "spool"):
            shutil.chown(self.folder / part, "slurm")
        self.all_minors = sorted({minor for node in minors for minor in node})
        for minor in self.all_minors:
            os.mknod(self.folder / f"dev/nvidia{minor}", 0o666 | stat.S_IFCHR,
                     os.makedev(NVIDIA, minor))
            (self.folder / f"dev/nvidia{minor}").chmod(0o666)
        self.nodes = [Node(self, name, list(node), config)
                      for name, node in zip((N1, N2), minors)]
        self.accounting = accounting
        if accounting:
            more += ACCOUNTING.format(dbd=PORTS + 3)
        self.write_files(gres or minors, constrain, cgroups, more)
        self.write_hooks(prolog, epilog)
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def write_files(self, gres, constrain, cgroups, more):
        write = lambda name, text: (self.folder / name).write_text(text)  # noqa: E731
        counts = {len(node.minors) for node in self.nodes}
        check(len(counts) == 1, "both nodes have the same number of GPUs")
        write("slurm.conf", SLURM_CONF.format(
            folder=self.folder, port=PORTS, names=f"{N1},{N2}", nodes=f"{PORTS + 1}-{PORTS + 2}",
            cores=os.cpu_count(), gpus=counts.pop(), more=more,
            tracks="cgroup" if cgroups else "linuxproc",
            tasks="task/cgroup" if cgroups else "task/none"))
        write("cgroup.conf", CGROUP_CONF.format(constrain="yes" if constrain else "no"))
        lines = ["AutoDetect=off"]
        for node, order in zip(self.nodes, gres):
            lines += [f"NodeName={node.name} Name=gpu File={self.folder}/dev/nvidia{minor}"
                      for minor in order]
        write("gres.conf", "\n".join(lines) + "\n")
        plugin = self.build / "plugins/slurm/libderate_spank.so"
        write("plugstack.conf", f"optional {plugin}\n" if plugin.exists() else "")

    def write_hooks(self, prolog, epilog):
        for hook, verb in (("prolog", prolog), ("epilog", epilog)):
            path = self.folder / hook
            path.write_text(HOOK.format(folder=self.folder, build=self.build, hook=verb))
            path.chmod(0o755)
        work = self.folder / "work.sh"
        work.write_text(WORK.format(folder=self.folder, build=self.build,
                                    minors=" ".join(map(str, self.all_minors))))
        work.chmod(0o755)
        (self.folder / "log/hooks").touch()

    # --- programs

    def start(self, name, arguments, environment=None):
        with open(self.folder / f"log/{name}.out", "ab") as out:
            program = subprocess.Popen([str(word) for word in arguments],
                                       env=os.environ | (environment or self.environment),
                                       stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                       cwd=self.folder, start_new_session=True)
        self.programs.append(program)
        return program

    def start_accounting(self):
        """MariaDB with a folder of its own, and slurmdbd; account `a` of root and nobody."""
        data = self.folder / "mysql"
        subprocess.run(["mariadb-install-db", "--user=mysql", f"--datadir={data}",
                        "--skip-test-db", "--auth-root-authentication-method=normal"],
                       check=True, capture_output=True)
        self.start("mariadb", ["mariadbd", "--no-defaults", "--user=mysql", f"--datadir={data}",
                               f"--socket={data}/sock", f"--port={PORTS + 4}",
                               "--bind-address=127.0.0.1", "--skip-log-bin"])
        ask = ["mariadb", "--no-defaults", f"--socket={data}/sock", "-u", "root", "-e"]
        self.until(lambda: subprocess.run([*ask, "select 1"], capture_output=True,
                                          check=False).returncode == 0, 30, "MariaDB")
        subprocess.run([*ask, "create database slurm_acct_db; create user slurm@'127.0.0.1' "
                        "identified by 'x'; create user slurm@localhost identified by 'x'; grant "
                        "all on slurm_acct_db.* to slurm@'127.0.0.1'; grant all on "
                        "slurm_acct_db.* to slurm@localhost"], check=True, capture_output=True)
        path = self.folder / "slurmdbd.conf"
        path.write_text(DBD_CONF.format(folder=self.folder, dbd=PORTS + 3, database=PORTS + 4))
        path.chmod(0o600)
        shutil.chown(path, "slurm")
        self.start("dbd", ["slurmdbd", "-D"])
        self.until(lambda: "derate" in self.slurm("sacctmgr", "-i", "add", "cluster", "derate",
                                                  code=None), 30, "slurmdbd")
        self.slurm("sacctmgr", "-i", "add", "account", "a")
        self.slurm("sacctmgr", "-i", "add", "user", "root", "account=a")
        self.slurm("sacctmgr", "-i", "add", "user", "nobody", "account=a")

    def sacct(self, job):
        """AdminComment of a job."""
        return self.slurm("sacct", "-n", "-P", "-X", "-j", job, "--format=AdminComment",
                          code=None).strip()

    def up(self):
        start_munge()
        for node in self.nodes:
            node.start()
        if self.accounting:
            self.start_accounting()
        conf = self.folder / "slurm.conf"
        self.controller = self.start("ctld", ["slurmctld", "-D", "-f", conf])
        self.slurmd = {}
        for node in self.nodes:
            self.start_slurmd(node.name)
        self.until(lambda: self.slurm("sinfo", "-h", "-o", "%T").split().count("idle") == 1
                   and "2" in self.slurm("sinfo", "-h", "-o", "%D").split(), 30,
                   "both nodes are idle")
        return self

    def start_slurmd(self, name):
        self.slurmd[name] = self.start(
            f"slurmd.{name}", ["slurmd", "-D", "-N", name, "-f", self.folder / "slurm.conf"])

    def slurm(self, *words, code=0, user=None, limit=60):
        """Runs a command of Slurm; its output, with standard error where it fails."""
        as_user = ["setpriv", f"--reuid={user}", "--regid=65534", "--clear-groups"] if user else []
        done = subprocess.run([*as_user, *map(str, words)], env=os.environ | self.environment,
                              capture_output=True, text=True, timeout=limit, cwd=self.folder,
                              stdin=subprocess.DEVNULL)
        if code is not None:
            check(done.returncode == code, f"{' '.join(map(str, words))}: exit code "
                                           f"{done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout if code == 0 else done.stdout + done.stderr

    def submit(self, *options, work="GeMM", seconds=20, node=None, gpus=1, user=None):
        """A batch job that works on its GPUs; its number."""
        words = ["sbatch", "--parsable", "-n1", f"--gres=gpu:{gpus}", "-o",
                 f"{self.folder}/log/job.%j.out" if not user else "/dev/null",
                 *([f"--nodelist={node}"] if node else []), *options,
                 "--wrap", f"{self.folder}/work.sh {work} {seconds}s"]
        return int(self.slurm(*words, user=user).split(";")[0])

    def state(self, job):
        out = self.slurm("scontrol", "show", "job", job, code=None)
        return next((word[9:] for word in out.split() if word.startswith("JobState=")), "GONE")

    def until(self, holds, limit, what):
        """Waits until it holds; how long that took in seconds."""
        begin = time.monotonic()
        while not holds():
            if time.monotonic() - begin > limit:
                raise Failure(f"after {limit:g} s not yet: {what}")
            time.sleep(0.05)
        return time.monotonic() - begin

    def hooks(self, job, hook=None):
        """What was noted around the hooks of a job."""
        out = []
        for line in (self.folder / "log/hooks").read_text().splitlines():
            with contextlib.suppress(ValueError):
                note = json.loads(line)
                if note["job"] == job and hook in (None, note["hook"]):
                    out.append(note)
        return out

    def logs(self, lines=12):
        """The ends of the logs, for who looks for a fault."""
        out = ""
        for path in sorted((self.folder / "log").iterdir()):
            if path.name == "hooks" or path.name.startswith(("serve", f"slurmd.{N1}.out",
                                                             f"slurmd.{N2}.out", "ctld.out")):
                continue
            text = path.read_text(errors="replace").splitlines()[-lines:]
            out += "".join(f"\n  {path.name}: {line[:300]}" for line in text)
        return out

    def down(self):
        for program in reversed(self.programs):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGTERM)
        end = time.monotonic() + 5
        for program in self.programs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(max(0.1, end - time.monotonic()))
        for program in self.programs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        subprocess.run(["pkill", "-KILL", "-f", f"slurmstepd.*{self.folder.name}"], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        try:
            return self.up()
        except BaseException:
            print(self.logs(), file=sys.stderr)
            self.down()
            raise

    def __exit__(self, kind, *_):
        if kind is not None:
            print(self.logs(), file=sys.stderr)
        self.down()


def start_munge():
    if subprocess.run(["pgrep", "-x", "munged"], capture_output=True, check=False).returncode == 0:
        return
    Path("/run/munge").mkdir(exist_ok=True)
    shutil.chown("/run/munge", "munge", "munge")
    # Another cluster's may have the socket by now: that there is one is enough.
    subprocess.run(["su", "munge", "-s", "/bin/sh", "-c", "/usr/sbin/munged"], check=False)
    subprocess.run(["munge", "-n"], stdout=subprocess.DEVNULL, check=True, timeout=20)


def why_not():
    """Why no cluster can be made here; None: it can."""
    if os.geteuid() != 0:
        return "only root can start Slurm's daemons"
    for program in ("slurmctld", "slurmd", "munged", "setpriv"):
        if shutil.which(program) is None and not Path(f"/usr/sbin/{program}").exists():
            return f"{program} is not installed (scripts/setup --all installs it)"
    return None
