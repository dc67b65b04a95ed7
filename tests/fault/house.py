"""One scenario's own machine: simulated GPUs, folders, programs; and what must hold at its end."""

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from foreign import Nvml, Truth

HERE = Path(__file__).resolve().parent
GOVERNED, CAPPED, FOREIGN = 0, 1, 2  # GPUs: by a locked clock, by a power limit, not ours

CONFIG = """[governor]
govern = true
gpus = "0"
policy = "efficient-fix"
"""


class Failure(Exception):
    """What did not hold."""


def check(holds, what):
    if not holds:
        raise Failure(what)


def now():
    return time.monotonic()


# --- processes ------------------------------------------------------------------------------------

def process_fields(pid):
    """The fields of /proc/PID/stat from the state on; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def children(pid):
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


def alive(pid):
    fields = process_fields(pid)
    return fields is not None and fields[0] not in "ZX"


def has_ended(pid):
    """With all its threads, so that all its files are closed; a zombie of one thread, too."""
    try:
        return not alive(pid) and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except FileNotFoundError:
        return True


def session_of(leader):
    """The processes of a session, zombies too."""
    found = []
    for entry in os.listdir("/proc"):
        fields = process_fields(entry) if entry.isdigit() else None
        if fields and int(fields[3]) == leader:
            found.append(int(entry))
    return found


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Program:
    """A started program, its output in files, in a session of its own."""

    def __init__(self, arguments, environment, folder, name, **popen):
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        self.started = now()
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            popen = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err} | popen
            self.process = subprocess.Popen(arguments, env=environment, cwd=folder,
                                            start_new_session=True, **popen)
        self.name, self.pid = name, self.process.pid

    def worker(self):
        """The guard's first child."""
        found = children(self.pid)
        return found[0] if found else None

    def text(self):
        return self.err.read_text(errors="replace") + self.out.read_text(errors="replace")

    def wait(self, limit):
        """The exit code as a shell gives it."""
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} still runs after {limit:g} s") from None
        return 128 - code if code < 0 else code

    def kill_all(self):
        for pid in session_of(self.pid):
            send(pid, signal.SIGCONT)
            send(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


# --- the machine ----------------------------------------------------------------------------------

class DeathWatch(threading.Thread):
    """How long after a process's death the GPUs were as they were found, in milliseconds."""

    def __init__(self, house, pid):
        super().__init__(daemon=True)
        self.house, self.pid, self.ms = house, pid, 0
        self.over = False
        self.start()

    def run(self):
        while alive(self.pid) and not self.over:
            time.sleep(0.002)
        died = now()
        while not self.house.restored() and not self.over:
            time.sleep(0.002)
            self.ms = (now() - died) * 1000

    def end(self):
        self.over = True
        self.join()
        return self.ms


def round_times(records):
    """When a round read GPU 0, in seconds of CLOCK_MONOTONIC, by derated's --records."""
    times = []
    for line in records.read_text().splitlines():
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if record["gpu"] == 0:
                times.append(record["t_s"])
    return times


def described(left):
    """A remaining process of a program, as text: name, state, the call in which it waits,
    arguments."""
    name, pid = left
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        waits = Path(f"/proc/{pid}/wchan").read_text()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return f"{name} {pid}"
    return f"{name} {pid} {state} {waits} {words}"


class House:
    CHIPS = "V100-SXM2"

    def __init__(self, build, seed=1, slow=1.0):
        self.build, self.seed, self.slow = Path(build), seed, slow
        # A socket's name has 107 characters: the folder's stays short.
        self.folder = Path(tempfile.mkdtemp(prefix="dfault-"))
        self.programs, self.names = [], {}
        self.fresh_folders()
        self.library = self.build / "fakenvml/libnvidia-ml.so.1"
        # What no sanitizer's runtime will go into, this interpreter, takes the plain one.
        plain = self.build / "fakenvml/plain/libnvidia-ml.so.1"
        self.foreign_library = plain if plain.exists() else self.library
        self.environment = {
            "PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self.folder),
            "DERATE_SIM": str(self.folder / "sim"), "DERATE_NVML_LIBRARY": str(self.library),
            "DERATE_RUN_DIR": str(self.run_dir), "DERATE_STATE_DIR": str(self.state_dir),
            "DERATE_CONFIG": str(self.config_file)}
        self.environment |= {name: value for name, value in os.environ.items()
                             if name.endswith("SAN_OPTIONS")}
        os.environ["DERATE_SIM"] = str(self.folder / "sim")
        # What a killed guard leaves is ours to wait for, as it is init's on a machine.
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
        self.server = self.probe = None
        self.expected_left = set()  # names of files that the scenario leaves in the journal folder

    def fresh_folders(self):
        self.run_dir, self.state_dir = self.folder / "run", self.folder / "state"
        self.config_file = self.folder / "derate.toml"
        self.run_dir.mkdir(exist_ok=True)
        self.config_file.write_text(CONFIG)

    @property
    def journal_dir(self):
        return self.state_dir / "journal"

    # --- programs

    def start(self, name, *arguments, extra=None, **popen):
        self.names[name] = self.names.get(name, 0) + 1
        program = Program([str(word) for word in arguments], self.environment | (extra or {}),
                          self.folder, f"{name}{self.names[name]}", **popen)
        self.programs.append(program)
        return program

    def derate(self, *arguments, code=0, extra=None, limit=20):
        """Runs the command to its end; its output."""
        done = subprocess.run([str(self.build / "derate"), *map(str, arguments)],
                              env=self.environment | (extra or {}), capture_output=True, text=True,
                              timeout=limit * self.slow, stdin=subprocess.DEVNULL)
        check(code is None or done.returncode == code,
              f"derate {' '.join(map(str, arguments))}: exit code {done.returncode}, "
              f"wanted {code}: {done.stderr}{done.stdout}")
        return done.stdout + done.stderr

    def serve(self, chips=None, gpus=3):
        self.server = self.start("serve", self.build / "derate", "sim", "serve", "--chip",
                                 chips or self.CHIPS, "--gpus", gpus, "--seed", self.seed)
        self.until(lambda: "export" in self.server.text(), 10, "the simulated GPUs are served")
        self.probe = Nvml(str(self.foreign_library))
        document = json.loads(self.derate("sim", "show", "--json"))
        self.uuids = [gpu["uuid"] for gpu in document["gpus"]]

    def furnish(self, *more):
        """What another tool has set before Derate comes; the baseline of all comparisons."""
        self.foreign(*(f"persistence:{gpu}:1" for gpu in range(len(self.uuids))),
                     "power:0:280", "power:1:270", "lock:2:900:1200", "power:2:250", *more)
        self.note_baseline()

    def note_baseline(self):
        self.baseline = [self.settings(gpu) for gpu in range(len(self.uuids))]
        self.foreign_writes = self.writes(FOREIGN) if len(self.uuids) > FOREIGN else 0

    def foreign(self, *operations):
        done = subprocess.run([sys.executable, "-B", str(HERE / "foreign.py"),
                               str(self.foreign_library),
                               *operations], env=self.environment, capture_output=True, text=True)
        check(done.returncode == 0, f"foreign.py {operations}: {done.stderr}")

    def fault(self, *arguments):
        self.derate("sim", "fault", *arguments)

    def job(self, gpu, work="0"):
        return self.start("job", self.build / "derate", "sim", "job", "GeMM", "-i", gpu, "--work",
                          work)

    def daemon(self, *arguments, extra=None, **popen):
        return self.start("derated", self.build / "derated", *arguments, extra=extra, **popen)

    def run(self, *command, options=("--policy", "efficient-fix", "-i", "0"), extra=None, **popen):
        return self.start("run", self.build / "derate", "run", *options, "--", *command,
                          extra=extra, **popen)

    # --- what the simulator knows

    def truth(self, gpu):
        out = Truth(size=ctypes.sizeof(Truth))
        self.probe.call("nvmlDerateSimQuery", self.uuids[gpu].encode(), ctypes.byref(out))
        return out

    def settings(self, gpu):
        """All that a client can set, as a value."""
        t = self.truth(gpu)
        return (t.locked_lowest_mhz, t.locked_highest_mhz, t.power_limit_mw, t.application_sm_mhz,
                t.application_memory_mhz, t.memory_locked_lowest_mhz, t.memory_locked_highest_mhz)

    def writes(self, gpu):
        return self.truth(gpu).writes

    def locked(self, gpu):
        lowest = self.truth(gpu).locked_lowest_mhz
        return None if lowest == 0xFFFFFFFF else lowest

    def watts(self, gpu):
        return self.truth(gpu).power_limit_mw / 1000

    def restored(self, *gpus):
        return all(self.settings(gpu) == self.baseline[gpu]
                   for gpu in (gpus or range(len(self.uuids))))

    # --- waiting

    def until(self, holds, limit, what):
        """Waits until it holds; the time that took in seconds."""
        begin = now()
        while not holds():
            if now() - begin > limit * self.slow:
                raise Failure(f"after {limit:g} s not yet: {what}")
            time.sleep(0.002)
        return now() - begin

    def until_restored(self, limit, *gpus, since=None):
        """Milliseconds from `since`, or from now, until the GPUs have their own settings again."""
        begin = since or now()
        self.until(lambda: self.restored(*gpus), limit, "the settings are as they were found")
        return (now() - begin) * 1000

    # --- what Derate tells

    def state(self):
        try:
            return json.loads((self.run_dir / "state.json").read_text())
        except (OSError, ValueError):
            return {"gpus": []}

    def gpu_state(self, gpu):
        for state in self.state()["gpus"]:
            if state["uuid"] == self.uuids[gpu]:
                return state
        return {}

    def rounds(self):
        return self.state().get("loop", {}).get("rounds", 0)

    def trouble(self, gpu):
        state = self.gpu_state(gpu)
        return state.get("trouble", "") + state.get("error", "")

    def journals(self):
        return sorted(p.name for p in self.journal_dir.glob("*")) if self.journal_dir.exists() \
            else []

    def audit(self):
        """The audit log's entries; every line must parse."""
        path = self.state_dir / "audit.jsonl"
        if not path.exists():
            return []
        try:
            return [json.loads(line) for line in path.read_text().splitlines()]
        except ValueError as error:
            raise Failure(f"the audit log has a line that is no JSON: {error}") from None

    def restorer(self, gpu=GOVERNED):
        """Who restored the GPU last, by the audit log; None where that is not told, or failed: who
        tried after that is told of once the GPU has its settings."""
        for entry in reversed(self.audit()):
            if entry["uuid"] == self.uuids[gpu] and entry["what"] in ("restore", "release"):
                return None if "error" in entry else entry["who"].partition(", pid")[0]
        return None

    # --- the usual situation

    def governing(self, *arguments, extra=None, capped=True, silence=2, **popen):
        """derated that holds GPU 0 at a clock and GPU 1 at a power limit."""
        daemon = self.daemon("--silence", silence, "--restore-time", "2", *arguments, extra=extra,
                             **popen)
        self.until(lambda: self.locked(GOVERNED), 10, "GPU 0 is governed")
        if capped:
            self.until(lambda: self.rounds() > 0, 5, "derated publishes its state")
            self.derate("policy", "set", "power-cap", "-i", CAPPED)
            self.until(lambda: self.watts(CAPPED) == 240, 5, "GPU 1 is governed")
        return daemon

    def running(self, *command, limit=10, **rest):
        """derate run that holds GPU 0 at a clock while the command runs."""
        program = self.run(*(command or ("sleep", "600")), **rest)
        self.until(lambda: self.locked(GOVERNED), limit, "GPU 0 is governed")
        self.until(lambda: "sleep" not in command or self.command_of(program), 5, "it runs")
        return program

    def command_of(self, program):
        """The process of the command that `derate run` governs."""
        worker = program.worker()
        found = children(worker) if worker else []
        return found[0] if found else None

    # --- the end

    def leases_held(self):
        held = []
        for path in self.run_dir.glob("*.lock"):
            with open(path) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    held.append(path.name)
        return held

    def processes_left(self):
        self.reap()
        for program in self.programs:
            program.process.poll()
        return [(program.name, pid) for program in self.programs if program is not self.server
                and not program.name.startswith("job") for pid in session_of(program.pid)]

    def reap(self):
        """Waits for what is ours by adoption."""
        known = {program.pid for program in self.programs}
        for pid in children(os.getpid()):
            if pid not in known:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass

    def check_end(self, governed=(GOVERNED,)):
        """What every scenario must leave behind, however it went."""
        limit = 5
        try:
            self.until(lambda: not self.processes_left(), limit, "every process has ended")
        except Failure as error:
            raise Failure(f"{error}: {', '.join(map(described, self.processes_left()))}") from None
        document = json.loads(self.derate("sim", "show", "--json"))
        for gpu, shown in enumerate(document["gpus"]):
            lowest, _, milliwatts, application = self.baseline[gpu][:4]
            for key, wanted in (("locked_lowest_mhz", lowest),
                                ("application_sm_clock_mhz", application)):
                wanted = None if wanted == 0xFFFFFFFF else wanted
                check(shown.get(key) == wanted, f"GPU {gpu}: {key} is {shown.get(key)} at the end,"
                                                f" and was found as {wanted}")
            check(shown["power_limit_watts"] == milliwatts / 1000,
                  f"GPU {gpu}: {shown['power_limit_watts']} W at the end")
            check(self.settings(gpu) == self.baseline[gpu], f"GPU {gpu}: not as it was found")
        if len(self.uuids) > FOREIGN:
            check(self.writes(FOREIGN) == self.foreign_writes, "GPU 2 was written to")
        left = set(self.journals()) - self.expected_left
        check(not left, f"left in the journal's folder: {sorted(left)}")
        check(not self.leases_held(), f"leases are held: {self.leases_held()}")
        for gpu in governed:
            check(self.restorer(gpu), f"the audit log tells of no restore of GPU {gpu}")

    def close(self):
        for program in reversed(self.programs):
            program.kill_all()
        self.reap()
        if self.state_dir.is_mount():
            subprocess.run(["umount", str(self.state_dir)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
