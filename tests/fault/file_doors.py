"""Attacks of scripts/attacks by files, environments, process names and PIDs, and on programs with
the preloaded library."""

import contextlib
import ctypes
import itertools
import mmap
import os
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

import attacker
from attacker import LIBC, PR_SET_PDEATHSIG, become
from doors import GAINED, OWN_GPU, Page, attack, child, hold_step, no_zombies, sim_job

# --- environments and processes on GPUs -----------------------------------------------------------


def end_of_own_environment():
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return int(fields[47]), int(fields[48])  # env_start, env_end


def hold(place, gpu=OWN_GPU, before=lambda: None):
    """Holds a job on a GPU until its attacker ends."""
    before()
    work = sim_job(place, gpu)
    while work.fileno() >= 0:
        time.sleep(60)


@attack("files", "churn", "jobs that begin and end without a pause on the attacker's own GPU")
def _(tally, place):
    no_zombies()

    def once():
        with contextlib.suppress(OSError), sim_job(place):
            time.sleep(0.3)
            tally[0] += 1
    while True:
        child(once)
        place.rest(0.03)
        time.sleep(0.02)


@attack("files", "crowd", "two hundred processes with a job on one GPU")
def _(tally, place):
    for _ in range(place.share(200) if not place.many else 2):
        child(hold, place)
        tally[0] += 1
        time.sleep(0.01)
    time.sleep(3600)


@attack("files", "environ", "an environment that changes while it is read: other promises, no ends")
def _(tally, place):
    begin, end = end_of_own_environment()
    no_zombies()

    def change():
        with contextlib.suppress(OSError), sim_job(place):
            texts = [b"DERATE_DELTA=0.5", b"DERATE_DELTA=\n<0>x", b"SLURM_JOB_ID=1", b"=" * 30]
            until = time.monotonic() + 1
            for at in itertools.count():
                text = texts[at % 4] + (b"\0" if at % 3 else b"")
                size = (end - begin) // len(text) * len(text)
                ctypes.memmove(begin, text * (size // len(text)), size)
                tally[0] += 1
                if at % 100 == 0 and time.monotonic() > until:
                    return
                place.rest()
    while True:
        child(change)
        time.sleep(0.2)


@attack("files", "environ-fuse", "processes on a GPU whose environment lies in a file of a FUSE "
        "file system that never answers", by_root=True, seconds=8, ends=True)
def _(tally, place):
    file = Path(place.scratch, f"environ-{place.uid}-{os.getpid()}")
    file.write_bytes(bytes(8192))
    file.chmod(0o666)
    kernel = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={kernel},rootmode=100666,user_id={place.uid},group_id={place.uid}"
    if LIBC.mount(b"x", str(file).encode(), b"fuse", 6, options.encode()):
        tally[3] = 1
        time.sleep(3600)
    become(place.uid)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    child(answer_all_but_reads, kernel, tally)
    os.close(kernel)
    for _ in range(place.share(10) if not place.many else 1):
        child(hold, place, OWN_GPU, lambda: cover_environment(file))
        tally[0] += 1
    time.sleep(3600)


def cover_environment(file):
    """Maps the file over the pages of this process's environment, so that reads of
    /proc/PID/environ wait."""
    begin, end = end_of_own_environment()
    first = begin & ~(mmap.PAGESIZE - 1)
    size = (end - first + mmap.PAGESIZE - 1) & ~(mmap.PAGESIZE - 1)
    backed = os.open(file, os.O_RDONLY)
    LIBC.mmap.restype = ctypes.c_void_p
    LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    at = LIBC.mmap(first, size, mmap.PROT_READ, mmap.MAP_PRIVATE | 0x10, backed, 0)  # MAP_FIXED
    if at != first:
        raise OSError("the environment cannot be covered")


def answer_all_but_reads(kernel, tally):
    """Serves a file whose reads get no answer. tally[2]: reads that wait."""
    answers = {
        26: struct.pack("<4I2H2I2H2I6I", 7, 31, 0, 0, 0, 0, 4096, 0, 0, 0, 0, 0, 0, *[0] * 5),
        3: struct.pack("<Q2I6Q3I7I", 60, 0, 0, 1, 1 << 20, *[0] * 4, *[0] * 3, 0o100666, 1,
                       *[0] * 5),
        14: struct.pack("<Q2I", 0, 0, 0), 18: b"", 25: b""}  # OPEN, RELEASE, FLUSH
    while True:
        asked = os.read(kernel, 1 << 17)
        _, opcode, unique, *_ = struct.unpack("<2I2Q3I", asked[:36])
        if opcode == 15:
            tally[2] += 1
        elif opcode in answers:
            os.write(kernel, struct.pack("<IiQ", 16 + len(answers[opcode]), 0, unique)
                     + answers[opcode])
        elif opcode not in (2, 36):
            os.write(kernel, struct.pack("<IiQ", 16, -38, unique))


@attack("files", "names", "processes on a GPU called as helpers of the driver, or as fields of "
        "/proc/PID/stat")
def _(tally, place):
    names = [b"x) R 1 1 1 1 1 1", b"Xorg", b"nvidia-cuda-mps", b"a\n<0>b", b"\x1b[2J\x9b31m",
             b"\xff\xfe", b") (", b"derated"]

    def rename():
        work = sim_job(place)
        for at in itertools.count():
            LIBC.prctl(15, names[at % len(names)], 0, 0, 0)  # PR_SET_NAME
            tally[0] += work.fileno() >= 0
            time.sleep(0.01)
    for _ in range(place.share(8) if not place.many else 1):
        child(rename)
    time.sleep(3600)


@attack("files", "stopped", "stopped and traced processes on a GPU, and some that are half gone")
def _(tally, place):
    no_zombies()

    def stop_itself():
        with contextlib.suppress(OSError), sim_job(place):
            if tally[0] % 2:
                LIBC.ptrace(0, 0, 0, 0)  # PTRACE_TRACEME
            tally[0] += 1
            os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        some = [child(stop_itself) for _ in range(4)]
        time.sleep(1)
        for pid in some:
            os.kill(pid, signal.SIGKILL)


@attack("files", "cgroups", "processes on a GPU in deep control groups with names of pods, jobs "
        "and containers", by_root=True)
def _(tally, place):
    root = Path("/sys/fs/cgroup", f"x{place.uid}")
    names = ["job_12", "step_0", "kubepods-burstable-pod" + "f" * 32,
             "docker-" + "a" * 64 + ".scope", "line\nbreak", "a" * 255, "\x1b[2J"]
    deep = root
    for name in names * 3:
        with contextlib.suppress(OSError):
            (deep / name).mkdir(parents=True, exist_ok=True)
            deep = deep / name
    with contextlib.suppress(OSError):
        (deep / "cgroup.procs").write_text(str(os.getpid()))
    become(place.uid)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    no_zombies()
    while True:
        child(lambda: brief(tally, place))
        time.sleep(0.2)


def brief(tally, place):
    with contextlib.suppress(OSError), sim_job(place):
        tally[0] += 1
        time.sleep(2)


def remove_groups():
    for root in Path("/sys/fs/cgroup").glob("x[0-9]*"):
        for folder, _, _ in os.walk(root, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


@attack("files", "locks", "every file of the run folder opened, locked, watched and mapped",
        known="locks")
def _(tally, place):
    watch = LIBC.inotify_init1(0)
    LIBC.inotify_add_watch(watch, place.folder.encode(), 0xFFF)
    kept = []

    def look():
        for entry in os.scandir(place.folder):
            with contextlib.suppress(OSError, ValueError):
                with open(entry.path, "rb") as file:
                    attacker.fcntl.flock(file, attacker.fcntl.LOCK_EX | attacker.fcntl.LOCK_NB)
                    kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
                    tally[GAINED] += entry.name.endswith(".lock")
    while True:
        look()
        del kept[:-200]
        tally[0] += 1
        with contextlib.suppress(OSError):
            os.set_blocking(watch, False)
            os.read(watch, 1 << 16)
        place.rest(0.002)


@attack("files", "paths", "sockets, links and folders in the places where Derate looks when it has "
        "none of its own")
def _(tally, place):
    for at in itertools.count():
        for uid in (65531, place.uid):
            base = Path("/tmp", f"derate-{uid}")
            with contextlib.suppress(OSError):
                base.mkdir(mode=0o777)
            for name in ("beat.sock", "launches.sock", "state.json", "ui.html"):
                with contextlib.suppress(OSError):
                    os.symlink(place.path("state.json"), base / name)
            with contextlib.suppress(OSError):
                os.link(place.path("state.json"), Path(place.scratch, f"link-{place.uid}-{at}"))
        tally[0] += 1
        place.rest(0.05)


# --- numbers of processes -------------------------------------------------------------------------

@attack("files", "pid-pages", "pages of processes that have ended, whose numbers another user's "
        "jobs get; root chooses the numbers", known="3", seconds=18, again=True, by_root=True)
def _(tally, place):
    pages = []
    for at, (uuid, pid) in enumerate(zip(place.uuids, place.victims[:2])):
        if at % place.count == place.number:
            pages.append(Page())
            pages[-1].gpu(0, uuid)
            with_number(pid, place.uid, lambda page=pages[-1]: hand_over(page, place))
    become(place.uid)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    tally[7] += 1  # the PIDs are free again
    hold_step(tally, pages)


def hand_over(page, place):
    page.send(place)
    time.sleep(0.4)


def with_number(pid, uid, work):
    """Does the work in a process with that PID, which then ends."""
    numbers = (ctypes.c_int * 1)(pid)
    args = attacker.CloneArgs(exit_signal=17, set_tid=ctypes.addressof(numbers), set_tid_size=1)
    made = LIBC.syscall(435, ctypes.byref(args), ctypes.sizeof(args))
    if made == 0:
        try:
            become(uid)
            work()
        finally:
            os._exit(0)
    if made > 0:
        os.waitpid(made, 0)


@attack("files", "pid-run", "a run of a user whose job ends just before another user's job gets "
        "its number; root chooses the number", known="6", seconds=8, again=True, by_root=True)
def _(tally, place):
    pid = place.victims[-1]
    if place.number:
        tally[7] += 1
        time.sleep(3600)

    def work_for_a_while():
        with sim_job(place, 5):
            time.sleep(2.5)
    runner = os.fork()
    if runner == 0:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        become(place.uid)
        run_there(tally, place)
    with_number(pid, place.uid, work_for_a_while)
    tally[7] += 1
    time.sleep(3600)


def run_there(tally, place):
    with contextlib.suppress(OSError, ValueError):
        asker = attacker.Asker(place.folder)
        time.sleep(0.5)
        asker.ask("run-begin", policy="assure", gpus="5", set=["delta=0.3"])
        while True:
            shown = asker.ask("run-show")
            tally[0] += 1
            tally[3] = int(bool(shown.get("ok") and shown["gpus"][0]["governed"]))
            time.sleep(0.05)


# --- programs with the preloaded library ----------------------------------------------------------

def stub_program(place, way, count, **extra):
    """A program with the preloaded library, which launches on a stub driver that only counts."""
    folder = Path(place.scratch, "progress")
    return subprocess.Popen(
        [str(folder / "launch_client"), way, str(count)], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={
            "LD_PRELOAD": str(folder / "libderate_progress.so"), "LD_LIBRARY_PATH": str(folder),
            "DERATE_RUN_DIR": place.folder, "PATH": "/usr/bin:/bin", **extra})


def again(tally, place, way, count=100_000, most=4, **extra):
    running = []
    while True:
        for one in [one for one in running if one.poll() is not None]:
            running.remove(one)
            tally[0] += 1
            tally[4] += one.returncode < 0
        while len(running) < (1 if place.many else most):
            running.append(stub_program(place, way, count, **extra))
        time.sleep(0.02)


def programs_that_launch():
    for name, way, what in (
            ("starts", "dlsym", "programs that begin, launch and end without a pause"),
            ("threads", "crowd", "programs with a crowd of threads that launch"),
            ("kernels", "many", "programs with thousands of kernels"),
            ("graphs", "many-graphs", "programs with thousands of graphs"),
            ("collectives", "collectives", "programs that launch collectives only")):
        @attack("library", name, what)
        def _(tally, place, way=way):
            again(tally, place, way, 1000)


programs_that_launch()


@attack("library", "queue", "the socket's queue kept full while other programs begin", known="11")
def _(tally, place):
    with attacker.datagrams() as out:
        out.connect(place.path("launches.sock"))
        for at in itertools.count():
            with contextlib.suppress(OSError):
                for _ in range(64):
                    out.send(b"launches")
                    tally[0] += 1
            if at % 100 == 0:
                Page().send(place)
            place.rest(0.001)


@attack("library", "decoy", "sockets of that name in folders that programs are sent to")
def _(tally, place):
    folder = Path(place.scratch, f"ear-{place.uid}")
    folder.mkdir(mode=0o777, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        with contextlib.suppress(OSError):
            ear.bind(str(folder / "launches.sock"))
        again(tally, place, "dlsym", 1000, 2,
              DERATE_LAUNCHES_SOCKET=str(folder / "launches.sock"))
