"""The machine of one random environment: simulated GPUs with drawn UUIDs and PCI addresses, a real
derated, other jobs, and the programs that are run in that environment."""

import contextlib
import ctypes
import json
import os
import shlex
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "fault"))

from foreign import Truth  # noqa: E402
from house import Failure, Program, check, now, send  # noqa: E402

USER, OTHER = 65521, 65520  # of no other test: run_test.py kills what its user has started
CONFIG = """[run]
users = "everyone"
[sampling]
processes_every_s = 0.1
[attribute]
interval_s = 0.2
"""
# Other users may not read the folder of this interpreter.
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
WORK = {"V100-SXM2": "GeMM", "A100-SXM4": "nw", "H100-SXM5": "gemm_bf16", "H200": "gemm_bf16"}
PARTITION, MAGIC, VERSION = 22, 0x31514644, 2  # fakenvml/protocol.h
VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES",
             "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SUDO_UID", "SUDO_USER", "DERATE_CLIENT_SOCKET",
             "DERATE_SIM_VIEW")
WINDOW = """import json, derate
with derate.window("w") as w:
    pass
print(json.dumps([gpu.uuid for gpu in w.gpus]))"""


class EnvironmentHouse:
    """`copies`: a folder with the programs and the Python package, which other users may read."""

    def __init__(self, build, copies, slow):
        self.build, self.copies, self.slow = build, copies, slow
        self.temporary = tempfile.TemporaryDirectory(prefix="denv-")
        self.folder = Path(self.temporary.name)
        self.folder.chmod(0o755)
        (self.folder / "run").mkdir()
        (self.folder / "out").mkdir()
        (self.folder / "out").chmod(0o777)
        (self.folder / "derate.toml").write_text(CONFIG)
        clean = {name: text for name, text in os.environ.items() if name not in VARIABLES}
        self.environment = clean | {
            "DERATE_RUN_DIR": str(self.folder / "run"), "DERATE_STATE_DIR": str(self.folder / "s"),
            "DERATE_SIM": str(self.folder / "sim"),
            "DERATE_CONFIG": str(self.folder / "derate.toml"),
            "DERATE_NVML_LIBRARY": str(copies / "libnvidia-ml.so.1"),
            "PYTHONPATH": str(copies / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        self.programs, self.server, self.daemon, self.nvml = [], None, None, None

    def until(self, holds, what, program, limit=15):
        end = now() + limit * self.slow
        while not holds():
            check(now() < end and program.process.poll() is None, f"{what}: {program.text()}")
            time.sleep(0.02)

    def start(self, name, *words, environment=None, uid=0):
        who = {"user": uid, "group": uid, "extra_groups": []} if uid else {}
        program = Program([str(word) for word in words], environment or self.environment,
                          self.folder, f"{name}-{len(self.programs)}", **who)
        self.programs.append(program)
        return program

    # --- the GPUs ---------------------------------------------------------------------------------

    def serve(self, gpus, layouts):
        """`gpus`: of reachable.py, without instances; `layouts`: {number: profiles} for MIG.
        Returns the instances' UUIDs by GPU."""
        self.server = self.start("serve", self.copies / "derate", "sim", "serve", "--chip",
                                 ",".join(gpu.kind for gpu in gpus))
        self.until(lambda: "export DERATE_SIM" in self.server.text(), "no GPUs", self.server)
        for number, layout in layouts.items():
            self.partition(number, layout)
        self.name_gpus(gpus)
        os.environ["DERATE_SIM"] = str(self.folder / "sim")
        for name in VARIABLES:
            os.environ.pop(name, None)
        self.nvml = ctypes.CDLL(str(self.copies / "libnvidia-ml.so.1"))
        check(self.nvml.nvmlInit_v2() == 0, "the simulated GPUs do not answer")
        return {number: self.instances_of(gpus[number].uuid) for number in layouts}

    def partition(self, number, layout):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
            one.connect(str(self.folder / "sim/socket"))
            one.send(struct.pack("8Id64s512s80s", MAGIC, VERSION, PARTITION, number, 0, 0, 0, 0,
                                 0.0, layout.encode(), b"", b""))
            code = struct.unpack_from("3I", one.recv(4096))[2]
            check(code == 0, f"GPU {number} cannot be cut into {layout}: NVML error {code}")

    def name_gpus(self, gpus):
        """Writes UUIDs and PCI addresses into the file that shows the GPUs to their clients: those
        of simulated GPUs ascend, and differ in the last digit alone."""
        with open(self.folder / "sim/state", "r+b") as file:
            text = file.read()
            for gpu in gpus:
                was = b"GPU-51a00000-0000-0000-0000-%012x\0" % gpu.number
                check(text.count(was) == 1, f"GPU {gpu.number} is shown {text.count(was)} times")
                at = text.index(was)  # GpuIdentity (fakenvml/shared_state.h): uuid[96], pci_bus_id
                file.seek(at)
                file.write(gpu.uuid.encode())
                file.seek(at + 96)
                file.write(gpu.pci.encode())

    def instances_of(self, uuid):
        handle, out = ctypes.c_void_p(), []
        check(self.nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) == 0, uuid)
        for at in range(8):
            instance, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            if self.nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, at, ctypes.byref(instance)):
                continue
            check(self.nvml.nvmlDeviceGetUUID(instance, text, 96) == 0, "a MIG instance's UUID")
            out.append(text.value.decode())
        return tuple(out)

    def writes(self, uuid):
        """How often the GPU's settings were written, as the simulator counts."""
        truth = Truth(size=ctypes.sizeof(Truth))
        check(self.nvml.nvmlDerateSimQuery(uuid.encode(), ctypes.byref(truth)) == 0, uuid)
        return truth.writes

    def job_words(self, gpu):
        instance = ["--instance", "1"] if gpu.instances else []
        return [str(self.copies / "derate"), "sim", "job", WORK[gpu.kind], "-i",
                str(gpu.number), *instance]

    # --- derated ----------------------------------------------------------------------------------

    def start_daemon(self):
        self.daemon = self.start("derated", self.copies / "derated")
        self.until(lambda: self.state() is not None, "no state of derated", self.daemon)

    def state(self):
        """{uuid: its part of state.json}."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            text = (self.folder / "run/state.json").read_text()
            return {gpu["uuid"]: gpu for gpu in json.loads(text)["gpus"]}
        return None

    def governed(self):
        return {uuid for uuid, gpu in (self.state() or {}).items() if "policy" in gpu}

    def stop_daemon(self):
        send(self.daemon.pid, signal.SIGTERM)
        check(self.daemon.wait(20 * self.slow) == 0, f"derated: {self.daemon.text()}")

    def billed(self):
        """{pid: UUIDs of the GPUs whose energy is on its bill}."""
        out = {}
        with contextlib.closing(sqlite3.connect(self.folder / "s/usage.db")) as file:
            for pid, gpu in file.execute("SELECT pid, gpu FROM tenant JOIN usage ON tenant = id"):
                out.setdefault(pid, set()).add(gpu)
        return out

    # --- programs in the environment -------------------------------------------------------------

    def measured_by_energy(self, environment, options):
        """UUIDs; None: refused."""
        file = self.folder / "out/energy.json"
        done = self.start("energy", self.copies / "derate", "energy", *options, "--json", "-o",
                          file, "--", "true", environment=environment, uid=USER)
        return lambda: self.account_of(done, file)

    def measured_by_window(self, environment):
        """A window of the Python package at derated: UUIDs; None: it measured nothing and the
        program reported why. The package waits 1 s for derated: on a busy machine it is too late
        now and then, and the program is run again."""
        begin = lambda: self.start("window", PYTHON, "-c", WINDOW, environment=environment,
                                   uid=USER)
        first, end = begin(), now() + 30 * self.slow

        def result():
            done = first
            while True:
                check(done.wait(30 * self.slow) == 0, f"a window: {done.text()}")
                uuids, said = json.loads(done.out.read_text()), done.err.read_text()
                if uuids or "hides every GPU" in said:
                    return set(uuids)
                if "_VISIBLE_DEVICES=" in said or "_GPUS=" in said:
                    return None
                check("for now" in said and now() < end, f"no window: {said}")
                done = begin()
        return result

    def account_of(self, program, file):
        code = program.wait(60 * self.slow)
        if code == 125:
            return None
        check(code == 0, f"{program.name} ended with {code}: {program.text()}")
        return {gpu["uuid"] for gpu in json.loads(file.read_text())["gpus"]}

    def command(self, name, works_on):
        """Words of a command that works on these GPUs until a file is there."""
        here = shlex.quote(f"{self.folder}/out/{name}")
        jobs = [f"{shlex.join(self.job_words(gpu))} > /dev/null & echo $! >> {here}.pids"
                for gpu in works_on]
        end = [f"kill $(cat {here}.pids)", "wait"] if jobs else []
        return ["sh", "-c", "\n".join([*jobs, f": > {here}.started",
                                       f"until [ -e {here}.stop ]; do sleep 0.05; done", *end,
                                       "exit 0"])]

    def pids_of(self, name):
        file = self.folder / f"out/{name}.pids"
        return {int(pid) for pid in file.read_text().split()} if file.exists() else set()

    def run(self, name, environment, options, works_on, uid, governed, hopes_for):
        """`derate run` of a command that works on some GPUs. Returns (UUIDs in its account, UUIDs
        that `governed` named in the meantime); None: refused. derated lists processes once a
        second: while it still lists those of root's command, which has ended, a run of a user is
        refused for these, and is begun again."""
        end = now() + 10 * self.slow
        while True:
            run, done = self.run_once(name, environment, options, works_on, uid, governed,
                                      hopes_for)
            listed = "a process of user 0 works there" in run.text()
            if done is not None or uid == 0 or not listed or now() > end:
                return done
            time.sleep(0.5)

    def run_once(self, name, environment, options, works_on, uid, governed, hopes_for):
        file, seen = self.folder / f"out/{name}.json", set()
        run = self.start(name, self.copies / "derate", "run", *options, "--no-launches", "--json",
                         "-o", file, "--", *self.command(name, works_on), environment=environment,
                         uid=uid)
        started, stop = (self.folder / f"out/{name}.{word}" for word in ("started", "stop"))
        end, hold = now() + 12 * self.slow, None
        while run.process.poll() is None:
            seen |= governed()
            if hold is None and started.exists() and (seen >= hopes_for or now() > end):
                hold = now() + (0.5 if hopes_for else 1)
            if hold and now() > hold and not stop.exists():
                stop.touch()
            check(now() < end + 30 * self.slow, f"{name} does not end: {run.text()}")
            time.sleep(0.02)
        account = self.account_of(run, file)
        return run, None if account is None else (account, seen | governed())

    def said(self):
        """The last lines of the programs that were run in the environment, and of derated."""
        return "".join(f"\n  {program.name}: {line}" for program in self.programs
                       if not program.name.startswith(("serve", "other"))
                       for line in program.text().splitlines()[-6:])

    def close(self):
        for program in reversed(self.programs):
            program.kill_all()
        self.temporary.cleanup()


__all__ = ["EnvironmentHouse", "Failure", "OTHER", "USER", "check"]
