#!/usr/bin/env python3
"""Users without rights, and what they do to Derate: each a process of its own under a user number
that nobody has. For the rows of an attacker, scripts/kill-rounds and tests/bench/attack_bench.py.

As a program, `attacker.py FOLDER`, it is the one attack whose environment matters.
"""

import contextlib
import ctypes
import encodings.idna  # noqa: F401: for addresses; these users may not read Python's folder
import fcntl
import itertools
import json
import mmap
import os
import random
import select
import signal
import socket
import string
import struct
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

FRESH, SECOND, THIRD, FOURTH, FIFTH = range(65533, 65528, -1)  # users without account or group

# Where this file lies, other users may not look.
SOURCE = Path(__file__).read_text(encoding="utf-8") if "__file__" in globals() else ""
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


def can_be_others():
    """Only root can start a process of another user."""
    return os.geteuid() == 0


def become(uid):
    if can_be_others():
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


class Attacker:
    """A child process of user `uid` that does `work(tally, *arguments)` until it is ended; `tally`
    is a list of numbers that both see."""

    def __init__(self, uid, work, *arguments):
        self.shared = mmap.mmap(-1, mmap.PAGESIZE)
        self.tally = memoryview(self.shared).cast("q")
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self.be(uid, parent, work, arguments)

    def be(self, uid, parent, work, arguments):
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.setsid()
            become(uid)
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() == parent:
                work(self.tally, *arguments)
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)

    def alive(self):
        try:
            return os.waitpid(self.pid, os.WNOHANG) == (0, 0)
        except ChildProcessError:
            return False

    def cpu_seconds(self):
        """Of the process and the children that it has."""
        ticks = 0
        for pid in [self.pid, *children_of(self.pid)]:
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
                fields = text.rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)


def children_of(pid):
    with contextlib.suppress(OSError):
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


# --- derate-agent --------------------------------------------------------------------------------

def http(port, text):
    """The status of the answer to these bytes; 0 if none came."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(text)
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
    except OSError:
        answer = b""
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0


def get(path, token=None):
    field = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{field}Connection: close\r\n\r\n".encode()


def exchange(port, code):
    """The request in which a browser exchanges the code of an address for a token."""
    return (f"POST /ui/session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Origin: http://127.0.0.1:{port}\r\nConnection: close\r\n"
            f"Content-Length: {len(code)}\r\n\r\n{code}").encode()


def command_lines_with(text):
    """The processes whose command line contains the text. Every user may read command lines."""
    out = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in path.read_bytes():
                out.append(int(path.parent.name))
    return out


def take_page(tally, port, code):
    """Uses the code, however the attacker got it. The tally has the tries, the answers of 200, and
    the command lines that had the code."""
    while True:
        tally[1] += http(port, exchange(port, code)) == 200
        tally[1] += http(port, get("/metrics")) == 200
        tally[2] += len(command_lines_with(code))
        tally[0] += 1


def poison_gate(tally, port):
    """Sends wrong tokens in heads that fit the agent's limit, but not derated's after the agent
    adds its fields."""
    for number in itertools.count():
        end = f"\r\nHost:localhost\r\nAuthorization:Bearer wrong{number % 64:05}\r\n\r\n"
        line = "GET /v1/gpus?gpus={} HTTP/1.1"
        http(port, line.format("a" * (8190 - len(end) - len(line) + 2)).encode() + end.encode())
        tally[0] += 1
        if number < 64:
            time.sleep(0.02)


def guess_tokens(tally, port):
    """Sends wrong tokens as fast as possible, on connections that stay open as long as they may."""
    for number in itertools.count():
        http(port, get("/v1/gpus", f"wrong{number:05}"))
        tally[0] += 1


def dial_as(uid, port, text):
    """A connection of this user id on which these bytes were sent; None if it was refused. Root
    plays newuidmap(1)."""
    os.seteuid(uid)
    try:
        one = socket.create_connection(("127.0.0.1", port), timeout=0.5)
        one.setblocking(False)
        one.send(text)
        return one
    except OSError:
        return None
    finally:
        os.seteuid(0)


def hold_agent(tally, port, first, count):
    """Holds a connection of each of `count` user ids, with half a request, and opens lost ones
    again. The tally has the connections that were opened, the rounds, and those held now."""
    held = {}
    while True:
        for uid in range(first, first + count):
            if uid in held and not hung_up(held[uid]):
                continue
            held[uid] = dial_as(uid, port, b"GET /livez HTTP/1.1\r\n")
            tally[0] += held[uid] is not None
            if held[uid] is None:
                del held[uid]
        tally[1] += 1
        tally[2] = len(held)
        time.sleep(0.02)


def guess_as_ids(tally, port, first, count, at_once=50):
    """Sends each wrong token under another user id, and waits for fifty answers at a time. The
    tally has the tries, and the answers of 401, which derated gives, and of 429, which the agent
    gives."""
    waiting = []
    for number in itertools.count():
        one = dial_as(first + number % count, port, get("/v1/gpus", f"wrong{number:05}"))
        if one is None:
            time.sleep(0.01)
            continue
        tally[0] += 1
        waiting.append(one)
        for one in select.select(waiting, [], [], 0 if len(waiting) < at_once else 1)[0]:
            answer = b""
            with contextlib.suppress(OSError):
                answer = one.recv(4096)
            tally[1] += answer.startswith(b"HTTP/1.1 401")
            tally[2] += answer.startswith(b"HTTP/1.1 429")
            one.close()
            waiting.remove(one)
        if len(waiting) >= at_once:
            waiting.pop(0).close()
        time.sleep(0.002)  # leaves processors to others


def use_agent(tally, port, *tokens):
    """Asks as others do: for metrics, and for GPUs with each token. The tally has the answers of
    200, and the others."""
    while True:
        for text in (get("/metrics"), *(get("/v1/gpus", token) for token in tokens)):
            tally[http(port, text) != 200] += 1
        time.sleep(0.1)


# --- the run folder -------------------------------------------------------------------------------

def hold(path, tally):
    """Waits for a lock on the file, and keeps it for ever."""
    for flags in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY):
        try:
            file = os.open(path, flags | os.O_CLOEXEC)
        except OSError:
            continue
        tally[0] += 1  # opened: has it, or gets it at the moment that the holder lets go

        def wait():
            fcntl.flock(file, fcntl.LOCK_EX)
            tally[1] += 1
        threading.Thread(target=wait, daemon=True).start()


def squat(tally, folder):
    """Opens and locks whatever lock there is, holds connections open and sends halves of lines."""
    known, open_ones = set(), []
    while True:
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                if entry.name.endswith(".lock"):
                    key = (entry.inode(), entry.stat().st_mode)
                    if key not in known:
                        known.add(key)
                        hold(entry.path, tally)
                        tally[2] += 1  # seen
        for name in ("client.sock", "control.sock"):
            if len(open_ones) < 32:
                with contextlib.suppress(OSError):
                    one = socket.socket(socket.AF_UNIX)
                    one.setblocking(False)
                    open_ones.append(one)
                    one.connect(f"{folder}/{name}")
                    one.send(b'{"command": "gp')
        with contextlib.suppress(OSError), datagrams() as out:
            out.sendto(b"done=1", f"{folder}/beat.sock")
        open_ones[:] = [one for one in open_ones if not hung_up(one)]
        time.sleep(0.001)


def hung_up(one):
    try:
        if one.recv(1 << 16, socket.MSG_DONTWAIT) != b"":
            return False
    except BlockingIOError:
        return False
    except OSError:
        pass
    one.close()
    return True


# --- the beat socket ------------------------------------------------------------------------------

def datagrams():
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


def beats(tally, folder, text="done=1", a_second=None):
    """Datagrams at a rate, or as fast as they go; counts those sent and those that had no room."""
    with datagrams() as out:
        for count in itertools.count():
            try:
                out.sendto(text.encode(), f"{folder}/beat.sock")
                tally[0] += 1
            except BlockingIOError:
                tally[1] += 1
                if a_second is None:
                    select.select([], [out], [], 0.001)
            except OSError:
                tally[2] += 1
                time.sleep(0.01)
            if a_second:
                time.sleep(1 / a_second)
            elif count % 64 == 0:
                time.sleep(0)


def beats_of_many(tally, folder, depth=60):
    """Each of a process of its own, below many ancestors: nothing that is known helps."""
    for _ in range(depth):
        if os.fork() != 0:
            while True:
                time.sleep(60)
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if os.fork() == 0:
            with contextlib.suppress(OSError), datagrams() as out:
                out.sendto(b"done=1", f"{folder}/beat.sock")
                tally[0] += 1
                time.sleep(0.5)  # for the daemon to find who spoke
            os._exit(0)
        time.sleep(0.001)


def empty_environment(tally, folder):
    """Beats of a process whose environment is more than a mebibyte of NULs."""
    environment = {f"V{i}": "x" * 120_000 for i in range(14)}
    # The interpreter that runs this may lie where other users cannot look, as this file may.
    python = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
    program = subprocess.Popen([python, "-B", "-c", SOURCE, str(folder)], env=environment,
                               preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
    tally[3] = program.pid
    program.wait()


def be_empty_environment(folder):
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[47]), int(fields[48])
    ctypes.memset(begin, 0, end - begin)
    beats([0] * 8, folder, a_second=200)


def busy_memory(_, folder, gibibytes=8):
    """Beats that name a process of the same user, whose memory map is locked most of the time."""
    LIBC.mmap.restype = ctypes.c_void_p
    LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    LIBC.madvise.argtypes = LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t,
                                                      ctypes.c_int]
    size = gibibytes << 30
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    at = LIBC.mmap(None, size, mmap.PROT_READ, flags, -1, 0)
    LIBC.madvise(at, size, 15)  # MADV_NOHUGEPAGE: a page table entry for each zero page
    LIBC.madvise(at, size, 22)  # MADV_POPULATE_READ
    pid = os.getpid()
    if os.fork() == 0:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        LIBC.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
        beats([0] * 8, folder, f"done=1 pid={pid}", 200)
    while True:
        LIBC.mprotect(at, size, 0)
        LIBC.mprotect(at, size, mmap.PROT_READ)


# --- files that are sent along --------------------------------------------------------------------

def lingering(listener):
    """A connection whose last close waits ten minutes for a peer that does not read. Its buffer is
    small: connections of a few MB by many users exhaust the kernel's memory for TCP (tcp_mem), and
    then every program's connections fail."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    one.connect(listener.getsockname())
    peer, _ = listener.accept()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
    one.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            one.send(bytes(1 << 16))
    return one, peer


def send_files(tally, folder, name="beat.sock"):
    """Messages that carry the last reference to such a connection: who takes it in and lets go of
    it waits, unless it sees to it that it does not."""
    kind = socket.SOCK_DGRAM if name == "beat.sock" else socket.SOCK_STREAM
    text = b"done=1" if name == "beat.sock" else request("gpus")
    peers = []
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        while True:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as out:
                out.connect(f"{folder}/{name}")
                one, peer = lingering(listener)
                peers.append(peer)
                try:
                    socket.send_fds(out, [text], [one.fileno()])
                    tally[0] += 1
                except OSError:  # the kernel was told to let no files through
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
                    tally[1] += 1
                one.close()
                if kind == socket.SOCK_STREAM:
                    out.settimeout(5)
                    out.recv(1 << 16)
            time.sleep(0.2)


def linger(tally, folder, name="launches.sock", most=150):
    """Sends as many lingering connections as the socket takes, each once; then nothing more."""
    peers = []
    with socket.socket() as listener, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        out.connect(f"{folder}/{name}")
        out.setblocking(False)
        while True:
            if tally[0] < most:
                one, peer = lingering(listener)
                peers.append(peer)
                with contextlib.suppress(OSError):
                    socket.send_fds(out, [b"launches"], [one.fileno()])
                    tally[0] += 1
                # If the receiver has closed its own first, this close is the last one, and waits.
                threading.Thread(target=one.close, daemon=True).start()
            else:
                time.sleep(0.1)
            tally[1] += 1


FUSE_INIT, FUSE_GETATTR, FUSE_OPEN, FUSE_RELEASE, FUSE_FLUSH = 26, 3, 14, 18, 25


def answer_fuse(kernel, own, tally):
    """A file system of one file. It answers FLUSH only to the process `own`: any other process that
    closes the file waits, and no signal ends that. tally[2]: how many wait."""
    answers = {
        FUSE_INIT: struct.pack("<4I2H2I2H2I6I", 7, 31, 0, 0, 0, 0, 4096, 0, 0, 0, 0, 0, *[0] * 6),
        FUSE_GETATTR: struct.pack("<Q2I6Q3I7I", 0, 0, 0, 1, *[0] * 5, *[0] * 3,
                                  0o100666, 1, *[0] * 5),
        FUSE_OPEN: struct.pack("<Q2I", 0, 0, 0), FUSE_RELEASE: b"", FUSE_FLUSH: b""}
    while True:
        asked = os.read(kernel, 1 << 17)
        _, opcode, unique, _, _, _, pid = struct.unpack("<2I2Q3I", asked[:36])
        if opcode == FUSE_FLUSH and pid != own:
            tally[2] += 1
        elif opcode in answers:
            os.write(kernel, struct.pack("<IiQ", 16 + len(answers[opcode]), 0, unique)
                     + answers[opcode])
        elif opcode not in (2, 36):  # FORGET, INTERRUPT
            os.write(kernel, struct.pack("<IiQ", 16, -38, unique))


def hang(tally, folder, file, uid, name="launches.sock", most=12):
    """The user sends files whose last close hangs. Root plays fusermount(1). tally[3]: there is no
    FUSE."""
    try:
        kernel = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={kernel},rootmode=100666,user_id={uid},group_id={uid}"
        failed = LIBC.mount(b"x", str(file).encode(), b"fuse", 6, options.encode())
    except OSError:
        failed = True
    if failed:
        tally[3] = 1
        time.sleep(60)
    become(uid)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    own = os.getpid()
    if os.fork() == 0:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        answer_fuse(kernel, own, tally)
    os.close(kernel)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.connect(f"{folder}/{name}")
        out.setblocking(False)
        while True:
            if tally[0] < most:
                one = os.open(file, os.O_RDONLY)
                with contextlib.suppress(OSError):
                    socket.send_fds(out, [b"launches"], [one])
                    tally[0] += 1
                os.close(one)
            time.sleep(0.05)


def knock(tally, folder, name="launches.sock"):
    """Sends a message each 20 ms. Counts how many were taken, and how many found the queue full."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.connect(f"{folder}/{name}")
        out.setblocking(False)
        while True:
            try:
                out.send(b"x")
                tally[0] += 1
            except OSError:
                tally[1] += 1
            time.sleep(0.02)


def subordinate_ids(tally, folder, first, count):
    """A connection of each of `count` user ids, as from a user namespace with subordinate ids. Root
    plays newuidmap(1). Lost connections are opened again."""
    held = {}
    while True:
        for uid in range(first, first + count):
            one = held.get(uid)
            if one is not None and not hung_up(one):
                continue
            os.seteuid(uid)
            try:
                held[uid] = socket.socket(socket.AF_UNIX)
                held[uid].connect(f"{folder}/client.sock")
                tally[0] += 1
            except OSError:
                held.pop(uid, None)
            finally:
                os.seteuid(0)
        tally[1] += 1
        time.sleep(0.02)


# --- a number that was another's ------------------------------------------------------------------

class CloneArgs(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls",
        "set_tid", "set_tid_size", "cgroup")]


def start_as(uid, words, environment, folder, pid=None):
    """Starts a program as that user, in a session of its own, with the PID `pid` if it is given
    (only root can choose it). Returns its PID; None if that PID cannot be had."""
    SYS_CLONE3, SIGCHLD = 435, 17
    wanted = (ctypes.c_int * 1)(pid or 0)
    args = CloneArgs(exit_signal=SIGCHLD)
    if pid:
        args.set_tid, args.set_tid_size = ctypes.addressof(wanted), 1
    child = LIBC.syscall(SYS_CLONE3, ctypes.byref(args), ctypes.sizeof(args))
    if child == 0:
        try:
            os.setsid()
            os.chdir(folder)
            null = os.open("/dev/null", os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            become(uid)
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            os.execve(words[0], words, environment)
        finally:
            os._exit(127)
    return child if child > 0 else None


def run_on(tally, folder, gpu):
    """Requests a run on that GPU. Records whether the GPU is governed for it."""
    asker = Asker(folder)
    begun = asker.ask("run-begin", policy="assure", gpus=gpu)
    tally[1] = 1 if begun.get("ok") else -1
    while True:
        shown = asker.ask("run-show")
        tally[0] = 1 if shown.get("ok") and shown["gpus"][0]["governed"] else 0
        time.sleep(0.05)


# --- the client socket ----------------------------------------------------------------------------

def request(command, **fields):
    return json.dumps({"command": command} | fields).encode() + b"\n"


class Asker:
    """One connection that asks and waits for the answer."""

    def __init__(self, folder, patience=20):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(patience)
        self.socket.connect(f"{folder}/client.sock")
        self.rest = b""

    def ask(self, command, **fields):
        self.socket.sendall(request(command, **fields))
        while b"\n" not in self.rest:
            more = self.socket.recv(1 << 16)
            if not more:
                raise OSError("the line was closed")
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)


class Flood:
    """Connections that send the same text again and again, and begin anew when they are closed."""

    def __init__(self, tally, folder, text, connections, reads=True, name="client.sock"):
        self.tally, self.path, self.text = tally, f"{folder}/{name}", text
        self.reads, self.left = reads, {}
        self.poll = select.epoll()
        self.wanted = connections

    def connect(self):
        one = socket.socket(socket.AF_UNIX)
        one.setblocking(False)
        try:
            one.connect(self.path)
        except OSError:
            one.close()
            self.tally[1] += 1
            time.sleep(0.001)
            return
        self.left[one.fileno()] = [one, memoryview(self.text)]
        self.poll.register(one.fileno(), select.EPOLLOUT | (select.EPOLLIN if self.reads else 0))

    def turn(self, fd, what):
        one, left = self.left[fd]
        try:
            if what & (select.EPOLLHUP | select.EPOLLERR):
                raise ConnectionResetError
            if what & select.EPOLLIN:
                answer = one.recv(1 << 18)
                if not answer:
                    raise ConnectionResetError
                self.tally[3] += answer.count(b"\n")
            if what & select.EPOLLOUT:
                sent = one.send(left)
                self.tally[2] += sent
                left = left[sent:]
                self.tally[0] += not left
                self.left[fd][1] = left or memoryview(self.text)
        except BlockingIOError:
            pass
        except OSError:
            self.tally[4] += 1
            del self.left[fd]
            one.close()

    def go(self):
        while True:
            for _ in range(self.wanted - len(self.left)):
                self.connect()
            for fd, what in self.poll.poll(0.1):
                self.turn(fd, what)


def flood(tally, folder, text, connections=64, reads=True, name="client.sock"):
    Flood(tally, folder, text, connections, reads, name).go()


def http_get(path, **fields):
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode()


def http_flood(tally, folder, path="/v1/status", connections=64):
    flood(tally, folder, http_get(path), connections, name="api.sock")


def http_use(tally, folder, a_second=200, streams=10, scrapes_a_second=0.2):
    """What a page and a script ask for: requests one after the other on a connection that is kept,
    streams of events that are read, and a scrape at times."""
    def connected():
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(20)
        one.connect(f"{folder}/api.sock")
        return one

    readers = [connected() for _ in range(streams)]
    for one in readers:
        one.sendall(http_get("/v1/events", Accept="text/event-stream"))
        one.setblocking(False)
    asks, begun, scraped = connected(), time.monotonic(), 0
    for number in itertools.count():
        time.sleep(max(0.0, begun + number / a_second - time.monotonic()))
        scrapes = (time.monotonic() - begun) * scrapes_a_second > scraped
        scraped += scrapes
        try:
            asks.sendall(http_get("/metrics" if scrapes else "/v1/status"))
            tally[0] += read_answer(asks)
        except OSError:
            tally[4] += 1
            asks = connected()
        for one in select.select(readers, [], [], 0)[0] if number % 50 == 0 else ():
            with contextlib.suppress(BlockingIOError):
                tally[3] += one.recv(1 << 16).count(b"\n\n")


def read_answer(one):
    """Whether it is a 200."""
    text = b""
    while b"\r\n\r\n" not in text:
        more = one.recv(1 << 16)
        if not more:
            raise ConnectionResetError
        text += more
    head, _, body = text.partition(b"\r\n\r\n")
    left = int(head.lower().partition(b"content-length:")[2].split()[0]) - len(body)
    while left > 0:
        more = one.recv(min(left, 1 << 16))
        if not more:
            raise ConnectionResetError
        left -= len(more)
    return head.split()[1] == b"200"


def wide(keys=8000):
    names = map("".join, itertools.islice(
        itertools.product(string.ascii_letters + string.digits, repeat=3), keys))
    return b'{"command":"gpus",' + b",".join(b'"%s":1' % name.encode() for name in names) + b"}\n"


def deep(levels=65000):
    return b"[" * levels + b"\n"


def garbage(size=60_000, seed=1):
    return bytes(random.Random(seed).choices([b for b in range(256) if b != 10], k=size)) + b"\n"


def windows(tally, folder, connections=4):
    """Windows of energy, begun and ended in a loop."""
    flood(tally, folder, request("window-begin", name="w") + request("window-cancel", name="w"),
          connections)


def job_spec(name):
    return {"name": name, "batch_sizes": [8, 16], "default": 8, "target": 0.9, "max_epochs": 3,
            "knob": "none"}


def until_it_listens(folder):
    while True:
        with contextlib.suppress(OSError):
            return Asker(folder)
        time.sleep(0.01)


def job_lists(tally, folder, trials=1000):
    """A hundred jobs, some trials, then nothing but lists of them on 64 connections; tally[7] says
    that the lists have begun."""
    asker = until_it_listens(folder)
    with contextlib.suppress(OSError, ValueError):
        for at in range(100):
            tally[5] += asker.ask("tune-job-create", spec=job_spec(f"j{at}")).get("ok", False)
        for _ in range(trials):
            end_trial(asker, asker.ask("tune-trial-begin", job="j0", gpus="3"))
    tally[7] = 1
    flood(tally, folder, request("tune-job-list"))


def end_trial(asker, begun):
    if not begun.get("ok") or "trial" not in begun:
        return False
    return asker.ask("tune-trial-end", trial=begun["trial"], token=begun.get("token", ""),
                     outcome="missed").get("ok", False)


def trials(tally, folder):
    """Trials begun, reported of and ended as fast as it goes."""
    name = f"t{os.getuid()}"
    while True:
        with contextlib.suppress(OSError, ValueError):
            asker = Asker(folder)
            asker.ask("tune-job-create", spec=job_spec(name))
            while True:
                begun = asker.ask("tune-trial-begin", job=name, gpus="3")
                tally[0] += begun.get("ok", False)
                tally[1] += not begun.get("ok", False)
                for epoch in range(1, 3):
                    if "trial" in begun:
                        asker.ask("tune-trial-report", trial=begun["trial"], epoch=epoch,
                                  token=begun.get("token", ""), metric=0.1)
                end_trial(asker, begun)
        time.sleep(0.01)


def connects(tally, folder, most=75_000):
    """Connections that are closed at once; tally[0] tries, tally[1] that were let in."""
    for _ in range(most):
        one = socket.socket(socket.AF_UNIX)
        one.setblocking(False)
        with contextlib.suppress(OSError):
            one.connect(f"{folder}/client.sock")
            tally[1] += 1
        one.close()
        tally[0] += 1
    tally[2] = 1
    time.sleep(3600)


if __name__ == "__main__":
    be_empty_environment(sys.argv[1])
