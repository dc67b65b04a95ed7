"""Rows in which a guard, a worker or `derate run` could wait before it restores GPUs: messages that
have no reader, a notify socket, a disk, a machine without processes, hung drivers."""

import fcntl
import os
import pty
import resource
import signal
import socket
import subprocess
import termios
import time
from pathlib import Path

from house import CONFIG, GOVERNED, alive, check, now, send, session_of
from scenarios import (G_HANGS, TRAP, Measured, Skip, expect_code, expect_text, leave_locked,
                       restored, row, stop)

G_WAITS = "Nobody listens"
SIZE_LIMIT = 1 << 16


class Ears:
    """A program's standard output and error, of a kind that takes no more bytes."""

    def __init__(self, house, kind):
        self.kind, self.before = kind, None
        if kind == "pipe" or kind == "gone":
            self.reader, self.writer = os.pipe()
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, 4096)
        elif kind == "terminal":
            self.reader, self.writer = pty.openpty()
        else:
            self.writer = os.open(house.folder / "messages", os.O_WRONLY | os.O_CREAT)
            limits = (SIZE_LIMIT, SIZE_LIMIT)
            self.before = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.popen = {"stdout": self.writer, "stderr": self.writer, "preexec_fn": self.before}

    def close(self):
        if self.kind == "pipe":
            full = os.open(f"/proc/self/fd/{self.writer}", os.O_WRONLY | os.O_NONBLOCK)
            try:
                while True:
                    os.write(full, b"x")
            except BlockingIOError:
                os.close(full)
        elif self.kind == "gone":
            os.close(self.writer)
            os.close(self.reader)
        elif self.kind == "terminal":
            termios.tcflow(self.writer, termios.TCOOFF)
        else:
            os.write(self.writer, b"x" * SIZE_LIMIT)


    def go_on(self):
        """Lets a process that waits to write go on, or shows it that there is no reader."""
        if self.kind == "pipe":
            os.close(self.reader)
        elif self.kind == "terminal":
            termios.tcflow(self.writer, termios.TCOON)


KINDS = {"pipe": "a full pipe", "gone": "a pipe whose reader is gone",
         "terminal": "a terminal that was stopped (Ctrl-S)", "size": "a file at its size limit"}


def governed_by(house, who, ears):
    if who == "derated":
        return house.governing(**ears.popen)
    program = house.running("sh", "-c", TRAP, **ears.popen)
    # The GPU is governed before the command begins.
    house.until(lambda: house.command_of(program), 5, "the command runs")
    return program


def end_of(who, program):
    """Ends `derate run`: it lasts as long as its command, which may hang in its own output."""
    for pid in session_of(program.pid) if who == "derate run" else []:
        try:
            command = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
        except OSError:
            continue
        if command in ("sh", "sleep"):
            send(pid, signal.SIGKILL)


def add_silence():
    for who in ("derated", "derate run"):
        short = "derated" if who == "derated" else "run"
        for kind, text in KINDS.items():
            add_silence_of(who, short, kind, text)


def add_silence_of(who, short, kind, text):
    @row(f"{short}.{kind}.worker", group=G_WAITS, fault=f"standard error is {text}", who=who,
         when="the worker is killed", by="guard", limit=2, quick=kind in ("pipe", "gone"),
         outcome="the guard restores; the message is left out")
    def _(house):
        ears = Ears(house, kind)
        program = governed_by(house, who, ears)
        worker = program.worker()
        ears.close()
        since = now()
        send(worker, signal.SIGKILL)
        out = restored(house, since, 10)
        end_of(who, program)
        program.wait(10)
        return out

    @row(f"{short}.{kind}.guard", group=G_WAITS, fault=f"standard error is {text}", who=who,
         when="the guard is killed", by="worker", limit=2, quick=kind == "terminal",
         outcome="the worker gives everything back")
    def _(house):
        ears = Ears(house, kind)
        program = governed_by(house, who, ears)
        command = house.command_of(program) if who == "derate run" else None
        ears.close()
        since = now()
        send(program.pid, signal.SIGKILL)
        out = restored(house, since, 10)
        if command:  # its account waits for its reader
            send(command, signal.SIGKILL)
            ears.go_on()
        return out

    @row(f"{short}.{kind}.stopped", group=G_WAITS, fault=f"standard error is {text}", who=who,
         when="the worker hangs (SIGSTOP)", by="guard", limit=3.5 if who == "derated" else 12.5,
         outcome="killed after `--silence` (2 s here; 10 s for `derate run`), the guard restores")
    def _(house):
        ears = Ears(house, kind)
        program = governed_by(house, who, ears)
        worker = program.worker()
        ears.close()
        since = now()
        send(worker, signal.SIGSTOP)
        out = restored(house, since, 20)
        end_of(who, program)
        program.wait(10)
        return out


add_silence()


@row("run.terminal.ends", group=G_WAITS, fault="standard error is a terminal that was stopped",
     who="derate run", when="the command ends by itself; the terminal goes on after 12 s", limit=2,
     by="worker", outcome="given back at once; the account waits for the terminal, the worker is "
     "not killed, the command's exit code is kept")
def _(house):
    ears = Ears(house, "terminal")
    go = house.folder / "go"
    program = house.running("sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done; exit 7",
                            **ears.popen)
    worker = program.worker()
    ears.close()
    since = now()
    go.touch()
    out = restored(house, since, 10)
    time.sleep(12)
    check(alive(worker), "the worker is gone")
    termios.tcflow(ears.writer, termios.TCOON)
    said = b""
    house.until(lambda: not alive(worker), 10, "it ends once the account is taken")
    while b"exit code 7" not in said:
        said += os.read(ears.reader, 65536)
    expect_code(program, 7)
    return out


@row("derated.pipe.full", group=G_WAITS, fault="standard error is a full pipe", who="derated",
     when="while it governs, 11 times another policy", by="worker", limit=2, quick=True,
     outcome="nobody waits and nobody is killed; lines are left out; SIGTERM gives everything back")
def _(house):
    ears = Ears(house, "pipe")
    daemon = house.governing(**ears.popen)
    worker = daemon.worker()
    ears.close()
    for policy in ("max-freq", "efficient-fix") * 5 + ("max-freq",):
        house.derate("policy", "set", policy, "-i", GOVERNED)
    check(daemon.worker() == worker and alive(worker), "the worker is another")
    return stop(house, daemon)


def notify_socket(house, full):
    """A NOTIFY_SOCKET without a reader. Its queue takes some ten messages."""
    path = str(house.folder / "notify")
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.bind(path)
    if full:
        mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            while True:
                mouth.sendto(b"x", path)
        except BlockingIOError:
            pass
    return ear, {"NOTIFY_SOCKET": path}


def add_full_notify(name, number, when, limit, outcome):
    @row(f"derated.notify.{name}", group=G_WAITS, fault="systemd's notify socket is full",
         who="derated", when=when, by="guard", limit=limit, quick=name == "worker",
         outcome=outcome)
    def _(house):
        ear, environment = notify_socket(house, full=True)
        daemon = house.governing(extra=environment)
        since = now()
        send(daemon.worker(), number)
        out = restored(house, since, 10)
        expect_code(daemon, 137)
        ear.close()
        return out


add_full_notify("worker", signal.SIGKILL, "the worker is killed", 2,
                "the guard does not wait for it: it restores, exits 137")
add_full_notify("stopped", signal.SIGSTOP, "the worker hangs (SIGSTOP)", 3.5,
                "killed after `--silence` (2 s here), the guard restores")


@row("derated.notify.ready", group=G_WAITS, fault="systemd's notify socket is full",
     who="derated", when="at its start, then it is read", by="worker", limit=2,
     outcome="READY=1 is sent when there is room")
def _(house):
    ear, environment = notify_socket(house, full=True)
    daemon = house.governing(extra=environment)
    said = b""
    ear.settimeout(5)
    begin = now()
    while b"READY=1" not in said and now() - begin < 10:
        said += ear.recv(100)
    check(b"READY=1" in said, f"systemd is sent {said}")
    out = stop(house, daemon)
    ear.close()
    return out


def pids_group(house):
    """A control group whose limit of processes can be reached."""
    for root, name in (("/sys/fs/cgroup/pids", "v1"), ("/sys/fs/cgroup", "v2")):
        group = Path(root) / ("derate-" + house.folder.name)
        try:
            group.mkdir()
            (group / "pids.max").read_text()
            return group
        except OSError:
            try:
                group.rmdir()
            except OSError:
                pass
    raise Skip("no control group of processes may be made here")


PIDS = {"worker": ("the worker is killed", "guard", 2, signal.SIGKILL,
                   "the guard restores by itself, one GPU after the other"),
        "stopped": ("the worker hangs (SIGSTOP)", "guard", 12.5, signal.SIGSTOP,
                    "killed after `--silence`; the guard restores by itself"),
        "guard": ("the guard is killed", "worker", 2, signal.SIGKILL,
                  "the worker gives everything back")}


def add_pids():
    for who in ("derated", "derate run"):
        for kind in PIDS:
            add_pids_of(who, kind)


def add_pids_of(who, kind):
    short = "derated" if who == "derated" else "run"
    when, by, limit, blow, outcome = PIDS[kind]

    @row(f"{short}.pids.{kind}", group=G_WAITS, fault="no process can be made (pids.max)",
         who=who, when=when, by=by, limit=limit, quick=kind == "worker", outcome=outcome)
    def _(house):
        group = pids_group(house)
        try:
            enter = {"preexec_fn":
                     lambda: (group / "cgroup.procs").write_text(str(os.getpid()))}
            program = (house.governing(**enter) if who == "derated"
                       else house.running("sleep", "600", **enter))
            worker = program.worker()
            (group / "pids.max").write_text("1")
            since = now()
            command = house.command_of(program) if who == "derate run" else None
            send(program.pid if kind == "guard" else worker, blow)
            out = restored(house, since, 20)
            if command:
                send(command, signal.SIGKILL)
            program.wait(10)
            house.until(lambda: not (group / "cgroup.procs").read_text(), 5, "all have ended")
            return out
        finally:
            (group / "pids.max").write_text("max")
            house.reap()
            try:
                group.rmdir()
            except OSError:
                pass


add_pids()


class FrozenDisk:
    """An ext4 for the state folder, on a loop device. While frozen, it acts as a disk that
    hangs."""

    def __init__(self, house):
        self.state, self.frozen = house.state_dir, False
        image = house.folder / "image"
        with open(image, "wb") as file:
            file.truncate(32 << 20)
        self.state.mkdir()
        for command in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, self.state],
                        ["fsfreeze", "-f", self.state], ["fsfreeze", "-u", self.state]):
            try:
                done = subprocess.run(command, capture_output=True, text=True)
            except OSError as error:
                raise Skip(f"{command[0]}: {error.strerror}") from None
            if done.returncode != 0:
                raise Skip(f"no disk can be frozen here: {done.stderr.strip()}")

    def freeze(self):
        subprocess.run(["fsfreeze", "-f", self.state], check=True)
        self.frozen = True

    def thaw(self):
        if self.frozen:
            subprocess.run(["fsfreeze", "-u", self.state], check=True)
        self.frozen = False


# Seconds from the freeze to the kill. After some seconds threads of the worker wait for the disk:
# if a thread waits in the kernel, its killed process cannot be waited for.
FROZEN = {"worker": ("the worker is killed", "guard", 3, 0, signal.SIGKILL),
          "worker.late": ("the worker is killed 3 s later, `--silence 10`", "guard", 3, 3,
                          signal.SIGKILL),
          "stopped": ("the worker hangs (SIGSTOP)", "guard", 15, 0, signal.SIGSTOP),
          "guard": ("the guard is killed", "worker", 3, 0, signal.SIGKILL)}


def add_frozen():
    for who in ("derated", "derate run"):
        for kind in FROZEN:
            add_frozen_of(who, kind)


def add_frozen_of(who, kind):
    short = "derated" if who == "derated" else "run"
    when, by, limit, wait, blow = FROZEN[kind]

    @row(f"{short}.frozen.{kind}", group=G_WAITS, who=who, by=by, limit=limit, when=when,
         fault="the disk of the state folder does not answer (fsfreeze)",
         outcome=f"the {by} restores all GPUs; the journals go when the disk is back")
    def _(house):
        disk = FrozenDisk(house)
        try:
            program = (house.governing(silence=10) if who == "derated"
                       else house.running("sleep", "600"))
            command = house.command_of(program) if who == "derate run" else None
            worker = program.worker()
            disk.freeze()
            time.sleep(wait)
            since = now()
            send(program.pid if kind == "guard" else worker, blow)
            ms = house.until_restored(20, since=since)
        finally:
            disk.thaw()
        if command:
            send(command, signal.SIGKILL)
        house.until(lambda: not [name for name, _ in house.processes_left()], 20,
                    "all have ended once the disk is back")
        house.derate("restore", "--wait", "5")
        return Measured(ms, by, governed=())


add_frozen()


@row("derated.frozen.governs", group=G_WAITS, who="derated", by="worker", limit=2,
     fault="the disk of the state folder does not answer (fsfreeze)", when="while it governs",
     outcome="a policy that writes again and again goes on: the audit log waits on its own thread")
def _(house):
    disk = FrozenDisk(house)
    try:
        house.config_file.write_text(CONFIG.replace("efficient-fix", "geepafs"))
        house.job(GOVERNED)
        daemon = house.daemon("--silence", "2", "--restore-time", "2")
        house.until(lambda: house.locked(GOVERNED), 20, "GPU 0 is governed")
        worker = daemon.worker()
        disk.freeze()
        rounds, writes = house.rounds(), house.writes(GOVERNED)
        house.until(lambda: house.writes(GOVERNED) > writes, 40, "another write to GPU 0")
        house.until(lambda: house.rounds() > rounds + 20, 20, "the loop goes on")
        check(alive(worker) and daemon.worker() == worker, "the worker is another")
    finally:
        disk.thaw()
    return stop(house, daemon)


# --- hung drivers are waited for together ---------------------------------------------------------

@row("derated.hang.many", group=G_HANGS, fault="the driver of 24 GPUs hangs", who="derated",
     when="as the configuration is loaded anew, and policies are set; `--silence 2`", by="worker",
     limit=3, quick=True, bare=True,
     outcome="the loop is not killed: the GPUs are waited for together; given back at the end")
def _(house):
    house.serve(gpus=24)
    house.furnish()
    house.config_file.write_text(CONFIG.replace('gpus = "0"', 'gpus = "0,1,3-23"'
                                                .replace("3-23", ",".join(map(str, range(3, 24))))))
    daemon = house.daemon("--silence", "2", "--restore-time", "5")
    house.until(lambda: house.locked(GOVERNED) and house.locked(23), 20, "they are governed")
    worker = daemon.worker()
    ours = [gpu for gpu in range(24) if gpu != 2]

    def reload():
        house.config_file.write_text(
            house.config_file.read_text().replace("efficient-fix", "max-freq"))
        send(daemon.pid, signal.SIGHUP)
        time.sleep(3)

    def command():
        # By UUID: for an index `derate` would have to query the driver, which hangs.
        named = ",".join(house.uuids[gpu] for gpu in ours)
        house.derate("policy", "set", "efficient-fix", "-i", named, code=None, limit=30)

    for ask, policy in ((reload, "max-freq"), (command, "efficient-fix")):
        send(house.server.pid, signal.SIGSTOP)
        try:
            ask()
        finally:
            send(house.server.pid, signal.SIGCONT)
        check(alive(worker) and daemon.worker() == worker, f"worker killed: {daemon.text()}")
        house.until(lambda: all(house.gpu_state(gpu).get("policy") == policy for gpu in ours), 30,
                    f"each GPU is governed by {policy}")
    out = stop(house, daemon, limit=20)
    house.check_end(())
    return out


# --- leases that somebody removes -----------------------------------------------------------------

@row("leases.removed", group="Other tools and governors", who="derated", by="worker", limit=2,
     fault="the lock files of the run folder are removed", quick=True,
     when="while it governs; then a second derated, `derate run` and `derate restore`",
     outcome="taken anew within 2 s and logged; nobody else writes to its GPUs")
def _(house):
    daemon = house.governing()
    before = house.writes(GOVERNED)
    for path in house.run_dir.glob("*.lock"):
        path.unlink()
    second = house.daemon()
    check(second.wait(10) == 75, f"the second derated: {second.text()}")
    house.derate("restore", code=75)
    check(house.writes(GOVERNED) == before and house.locked(GOVERNED), "GPU 0 was written to")
    house.until(lambda: "run folder: taken anew" in daemon.text(), 5, "they are taken anew")
    expect_code(house.run("true"), 125)
    check(house.writes(GOVERNED) == before, "GPU 0 was written to")
    return stop(house, daemon)


# --- journals that cannot be used -----------------------------------------------------------------

@row("journal.copy", group="The disk and its journals", who="derated", by="`derate restore`",
     fault="a journal that is cut, flipped, empty or a folder", limit=2, quick=True,
     when="guard and worker are gone", outcome="restored from its second copy in the run folder")
def _(house):
    out = None
    for spoil in (lambda path: os.truncate(path, path.stat().st_size // 2),
                  lambda path: os.truncate(path, 0),
                  lambda path: path.write_text(path.read_text().replace("280", "180")),
                  lambda path: (path.unlink(), path.mkdir())):
        leave_locked(house)
        spoil(house.journal_dir / (house.uuids[GOVERNED] + ".json"))
        since = now()
        told = house.derate("restore")
        check("second copy is used" in told, told)
        out = restored(house, since, 5)
    house.expected_left = {house.uuids[GOVERNED] + ".json.aside"}
    return out


@row("journal.lost", group="The disk and its journals", who="derated", limit=2, quick=True,
     fault="a journal and its copy that cannot be used", when="guard and worker are gone",
     by="`derate restore`", outcome="`derate restore`, `doctor`, `status` and derated's end say "
     "so, exit code not 0; it is not governed; `derate restore --reset` resets the lock")
def _(house):
    leave_locked(house)
    name = house.uuids[GOVERNED] + ".json"
    for path in (house.journal_dir / name, house.run_dir / "journal" / name):
        path.write_text("half")
    writes = house.writes(GOVERNED)
    for _ in range(2):
        told = house.derate("restore", code=1)
        check("derate restore --reset" in told, told)
    check("derate restore --reset" in house.derate("doctor", code=2), "doctor does not say so")
    check("derate restore --reset" in house.derate("status"), "status does not say so")
    daemon = house.daemon()
    house.until(lambda: "derate restore --reset" in house.trouble(GOVERNED), 10, "status says so")
    send(daemon.pid, signal.SIGTERM)
    check(daemon.wait(10) not in (0, 128 + 15), f"a clean end: {daemon.text()}")
    check(house.writes(GOVERNED) == writes, "GPU 0 was written to")
    since = now()
    house.derate("restore", "--reset")
    ms = house.until_restored(2, since=since)
    house.derate("restore")
    house.expected_left = {name + ".aside"}
    return Measured(ms, "`derate restore`", governed=())


def fill(folder):
    for size in (65536, 4096, 0):
        for number in range(60):
            try:
                (folder / f"ballast{size}-{number}").write_bytes(bytes(size))
            except OSError:
                break


def small_run_folder(house):
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k,nr_inodes=40", "none",
                           house.run_dir], capture_output=True, text=True)
    if done.returncode != 0:
        raise Skip("no tmpfs may be mounted here: " + done.stderr.strip())


@row("run.folder.full.governed", group="The disk and its journals", who="derated", limit=2,
     fault="the run folder is full, and the lock files are gone", when="while it governs; then "
     "`derate restore`", by="worker", outcome="left to it, exit code 75; nothing is written")
def _(house):
    small_run_folder(house)
    try:
        daemon = house.governing(capped=False)
        fill(house.run_dir)
        for path in house.run_dir.glob("*.lock"):
            path.unlink()
        fill(house.run_dir)
        writes = house.writes(GOVERNED)
        house.derate("restore", code=75)
        check(house.writes(GOVERNED) == writes, "GPU 0 was written to")
        return stop(house, daemon)
    finally:
        subprocess.run(["umount", "-l", house.run_dir], check=False)


@row("run.folder.readonly", group="The disk and its journals", who="derated", limit=2,
     fault="the run folder cannot be written (read-only)", when="guard and worker are gone",
     by="`derate restore`", outcome="restored all the same, exit code 0")
def _(house):
    small_run_folder(house)
    try:
        leave_locked(house)
        subprocess.run(["mount", "-o", "remount,ro", house.run_dir], check=True)
        since = now()
        house.derate("restore")
        return restored(house, since, 5)
    finally:
        subprocess.run(["umount", "-l", house.run_dir], check=False)


@row("run.folder.full", group="The disk and its journals", who="derated", limit=2, quick=True,
     fault="the run folder is full, and the lock files are gone", when="guard and worker are gone",
     by="`derate restore`", outcome="restored all the same, exit code 0")
def _(house):
    small_run_folder(house)
    try:
        leave_locked(house)
        for path in house.run_dir.glob("*.lock"):
            path.unlink()
        fill(house.run_dir)
        since = now()
        house.derate("restore")
        return restored(house, since, 5)
    finally:
        subprocess.run(["umount", "-l", house.run_dir], check=False)


@row("journal.found.impossible", group="The disk and its journals", who="derated", limit=2,
     fault="[found] names clocks that the GPU does not have", when="at the start", quick=True,
     by="nobody: nothing was written", outcome="nothing is written, reported in `derate status`")
def _(house):
    house.config_file.write_text(
        CONFIG + "[found]\nlocked_lowest_mhz = 1000\nlocked_highest_mhz = 9000\n")
    before = house.writes(GOVERNED)
    daemon = house.daemon()
    house.until(lambda: "[found]" in house.trouble(GOVERNED), 10, "status says so")
    check(house.writes(GOVERNED) == before, "GPU 0 was written to")
    send(daemon.pid, signal.SIGTERM)
    expect_code(daemon, 0)
    return Measured(0, "nobody: nothing was written", governed=())


@row("journal.found.between", group="The disk and its journals", who="derated", limit=2,
     fault="[found] names clocks between the GPU's steps", when="then it ends", by="worker",
     quick=True, outcome="logged; restored to the steps that the driver had taken")
def _(house):
    house.foreign("lock:0:1000:1304")
    house.note_baseline()
    house.config_file.write_text(
        CONFIG + "[found]\nlocked_lowest_mhz = 1000\nlocked_highest_mhz = 1304\n")
    daemon = house.daemon()
    house.until(lambda: house.settings(GOVERNED) != house.baseline[GOVERNED], 10, "it is governed")
    expect_text(daemon, "is taken as")
    return stop(house, daemon)
