"""Attacks of scripts/attacks on the doors that need no HTTP: the sockets of beats, launches and
requests, files and environments. Those over HTTP are in web_doors.py.

An attack is a function (tally, place) that goes on until its process is killed. tally[0] counts
tries, tally[GAINED] what no attacker may get: a forbidden answer, another's file. In the control
the same function runs at a place that is not Derate's.
"""

import contextlib
import ctypes
import encodings.idna  # noqa: F401: other users may not come where it lies
import fcntl
import itertools
import mmap
import os
import random
import resource
import select
import signal
import socket
import struct
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import attacker
from attacker import LIBC, PR_SET_PDEATHSIG, Asker, become, request

SUBORDINATES = 200_000  # the first of 65,536 ids of one user
GAINED = 6              # in the tally
OWN_GPU = 3             # where the attackers have a job of their own


# --- where, and who -------------------------------------------------------------------------------

@dataclass
class Place:
    """The target of an attack. In the control all of it belongs to the decoy server and to
    simulated GPUs that are not governed."""
    folder: str               # the sockets' folder
    sim: str                  # folder of the simulated GPUs
    ports: dict               # of the agent and of the page: {"agent": 1, "ui": 2}
    uuids: list               # of the GPUs
    victims: list = field(default_factory=list)  # PIDs of another user's jobs
    code: str = ""            # the page's code: assumed to be known
    scratch: str = "/tmp"     # a folder where every user may write
    uid: int = 0              # this process's user
    number: int = 0           # this process's number among `count` attackers
    count: int = 1
    many: bool = False        # subordinate ids: each process makes a small part of the attack

    def share(self, most):
        """This process's share of `most` connections, files or processes of a user."""
        return most if not self.many else max(1, 4 * most // self.count)

    def rest(self, seconds=0.0):
        time.sleep(max(seconds, 0.05) if self.many else seconds)

    def path(self, name):
        return f"{self.folder}/{name}"

    def dial(self, door, patience=5, receive_buffer=None):
        """A connection to an HTTP server or to client.sock."""
        kind = socket.AF_INET if door in self.ports else socket.AF_UNIX
        one = socket.socket(kind)
        one.settimeout(patience)
        if receive_buffer:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            one.connect(("127.0.0.1", self.ports[door]) if door in self.ports
                        else self.path(f"{door}.sock"))
        except OSError:
            one.close()
            raise
        return one


@dataclass
class Attack:
    door: str
    name: str
    what: str
    work: object
    known: str = ""       # its number in found/attack.md; empty: it is new
    seconds: float = 0    # its shortest duration
    by_root: bool = False  # root plays what a set-user-id program would do, before the attacker
    again: bool = False   # the victims' jobs are started again for each spell
    ends: bool = False    # derated is always stopped under it

    @property
    def title(self):
        return f"{self.door}.{self.name}"


ATTACKS = []


def attack(door, name, what, **rest):
    def add(work):
        ATTACKS.append(Attack(door, name, what, work, **rest))
        return work
    return add


def many_files():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))


def alone(tally, work, by_root, place):
    many_files()
    if not by_root:
        become(place.uid)
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    work(tally, place)


def as_many(tally, work, by_root, place):
    """Runs one process for each subordinate id, as in a rootless container. Root plays
    newuidmap(1)."""
    os.nice(10)
    for number in range(place.count):
        if os.fork() == 0:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            with contextlib.suppress(Exception):
                alone(tally, work, by_root, replace(place, uid=place.uid + number, number=number))
            os._exit(1)
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                tally[2] += 1  # it ended by itself
        time.sleep(0.5)


def child(work, *arguments):
    """Runs the work in a process that ends with this attacker, or when the work is done."""
    pid = os.fork()
    if pid == 0:
        try:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            work(*arguments)
        finally:
            os._exit(0)
    return pid


def no_zombies():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


# --- jobs on simulated GPUs -----------------------------------------------------------------------

SIM_REQUEST = struct.Struct("<8Id64s512s80s")  # fakenvml/protocol.h
SIM_MAGIC, SIM_VERSION = 0x31514644, 2


def sim_job(place, gpu=OWN_GPU, workload=b"fft"):
    """Puts work of this process on a GPU until the returned connection closes."""
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.settimeout(5)
    one.connect(f"{place.sim}/socket")
    for operation, number in ((0, 0xFFFFFFFF), (20, gpu)):
        one.send(SIM_REQUEST.pack(SIM_MAGIC, SIM_VERSION, operation, number, 0, 0, 0, 0, 0,
                                  workload, b"", b""))
        one.recv(4096)
    return one


# --- pages of launches ----------------------------------------------------------------------------

ROWS, KERNELS, ROW, PAGE, HEAD = 32, 128, 3368, 107_840, 64  # wire/launch_page.h
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
COLLECTIVE = 1 << 63


class Page:
    def __init__(self, name="page", seals=SEALS, size=PAGE):
        self.file = os.memfd_create(name, os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(self.file, size)
        if seals:
            fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, seals)
        self.memory = mmap.mmap(self.file, PAGE)
        struct.pack_into("<8sIIq", self.memory, 0, b"DRTL0001", PAGE, ROWS, os.getpid())

    def gpu(self, row, uuid):
        struct.pack_into("<16sQ", self.memory, HEAD + row * ROW, uuid_bytes(uuid), 2)

    def put(self, row, kernel, name, launches, blocks=0):
        struct.pack_into("<QQQ", self.memory, HEAD + row * ROW + 40 + 24 * kernel, name,
                         launches & (2**64 - 1), blocks)

    def send(self, place, out=None):
        own = out or attacker.datagrams()
        try:
            own.connect(place.path("launches.sock"))
            socket.send_fds(own, [b"launches"], [self.file])
            return True
        except OSError:
            return False
        finally:
            if out is None:
                own.close()

    def close(self):
        self.memory.close()
        os.close(self.file)


def uuid_bytes(text):
    return bytes.fromhex(text.partition("-")[2].replace("-", ""))[:16]


# --- files that a message may carry ---------------------------------------------------------------

def in_queues(depth):
    """A socket whose queue holds a socket whose queue holds another, and so on."""
    inner = os.open("/dev/null", os.O_RDONLY)
    for _ in range(depth):
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with contextlib.suppress(OSError):
            socket.send_fds(left, [b"x"], [inner])
        os.close(inner)
        left.close()
        inner = right.detach()
    return inner


def nested_epoll(depth):
    inner = select.epoll()
    for _ in range(depth):
        outer = select.epoll()
        outer.register(inner.fileno(), select.EPOLLIN)
        inner.close()
        inner = outer
    return os.dup(inner.fileno())


def own_end(kind):
    """A socket that is in its own queue: only the kernel's garbage collector frees it."""
    left, right = socket.socketpair(socket.AF_UNIX, kind)
    for one in (left, right):
        with contextlib.suppress(OSError):
            socket.send_fds(one, [b"x"], [left.fileno(), right.fileno()])
    right.close()
    return left.detach()


def full_pipe():
    out, into = os.pipe()
    os.set_blocking(into, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(into, bytes(65536))
    os.close(into)
    return out


def opened(name, flags=os.O_RDONLY):
    return lambda: os.open(name, flags)


MAKERS = [
    lambda: in_queues(4), lambda: nested_epoll(3), lambda: own_end(socket.SOCK_DGRAM),
    lambda: own_end(socket.SOCK_STREAM), full_pipe, lambda: os.pidfd_open(os.getpid()),
    lambda: LIBC.syscall(425, 8, (ctypes.c_char * 120)()),  # io_uring_setup(2)
    lambda: LIBC.inotify_init1(0), lambda: LIBC.eventfd(0, 0), lambda: LIBC.timerfd_create(1, 0),
    lambda: LIBC.syscall(323, 1),  # userfaultfd(2)
    lambda: os.memfd_create("x"), lambda: Page(seals=0).file, lambda: Page(size=4096).file,
    lambda: Page(size=1 << 40).file, lambda: os.memfd_create("x", 4),  # MFD_HUGETLB
    opened("/proc/self/mem"), opened("/proc/self/ns/user"), opened("/", os.O_PATH),
    opened("/dev/urandom"), opened("/dev/ptmx", os.O_RDWR), opened("/proc/self/environ"),
    lambda: socket.socket().detach(), lambda: socket.socket(38, socket.SOCK_SEQPACKET).detach(),
]


def a_file(at):
    for step in range(len(MAKERS)):
        with contextlib.suppress(OSError, ValueError):
            file = MAKERS[(at + step) % len(MAKERS)]()
            if file >= 0:
                return file
    return os.open("/dev/null", os.O_RDONLY)


def send_zoo(tally, place, name, kind, text):
    """Sends messages with one to sixteen files of all kinds."""
    for at in itertools.count():
        files = [a_file(at + step) for step in range(1 + at % 16)]
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as out:
            out.settimeout(0.5)
            out.connect(place.path(name))
            socket.send_fds(out, [text], files)
            tally[0] += 1
            if kind == socket.SOCK_STREAM:
                out.recv(4096)
        for file in files:
            os.close(file)
        place.rest(0.002)


def files_of_all_kinds():
    for door, text in (("beat", b"done=1"), ("launches", b"launches"),
                       ("client", request("gpus")),
                       ("api", b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")):
        kind = socket.SOCK_DGRAM if door in ("beat", "launches") else socket.SOCK_STREAM

        @attack(door, "zoo", "messages with files of all kinds: sockets in queues of sockets, "
                "io_uring, pidfds, chains of epoll, huge memory")
        def _(tally, place, name=f"{door}.sock", kind=kind, text=text):
            send_zoo(tally, place, name, kind, text)


def lingering_files():
    for door in ("beat", "client", "api"):
        @attack(door, "linger", "messages with a connection whose last close waits ten minutes",
                known="2")
        def _(tally, place, name=f"{door}.sock"):
            attacker.send_files(tally, place.folder, name)


files_of_all_kinds()
lingering_files()


# --- beat.sock ------------------------------------------------------------------------------------

@attack("beat", "flood", "as fast as they go", known="11")
def _(tally, place):
    attacker.beats(tally, place.folder, a_second=20 if place.many else None)


@attack("beat", "forks", "each beat by a process of its own that has gone when it is read",
        known="beats")
def _(tally, place):
    no_zombies()
    while True:
        child(beat_once, tally, place, f"done=1 pid={os.getppid()}".encode())
        place.rest(0.002)


def beat_once(tally, place, text):
    with contextlib.suppress(OSError), attacker.datagrams() as out:
        out.sendto(text, place.path("beat.sock"))
        tally[0] += 1


@attack("beat", "iovecs", "of 1024 pieces, of none, of 200 kB, of 4096 bytes without a key")
def _(tally, place):
    pieces = [[b"d"] * 1024, [b""] * 1024, [bytes(200_000)], [b"done=1 " * 585], [b""],
              [b"done=1" + b"0" * 505]]
    with attacker.datagrams() as out:
        for at in itertools.count():
            try:
                out.sendmsg(pieces[at % len(pieces)], [], 0, place.path("beat.sock"))
                tally[0] += 1
            except OSError:
                select.select([], [out], [], 0.001)
            place.rest()


@attack("beat", "waiters", "300 connected sockets that all wait for room in the queue")
def _(tally, place):
    some, poll = {}, select.epoll()
    for _ in range(place.share(300)):
        one = attacker.datagrams()
        one.connect(place.path("beat.sock"))
        some[one.fileno()] = one
        poll.register(one.fileno(), select.EPOLLOUT)
    while True:
        for number, _ in poll.poll(0.1):
            with contextlib.suppress(OSError):
                some[number].send(b"done=1")
                tally[0] += 1
        place.rest()


@attack("beat", "others", "for other users' processes and GPUs: counts, phases and promises")
def _(tally, place):
    with attacker.datagrams() as out:
        for at in itertools.count():
            pid = place.victims[at % len(place.victims)] if place.victims else 1
            gpu = place.uuids[at % len(place.uuids)]
            text = (f"done={at * 1e6} pid={pid}", f"max_loss=0.5 pid={pid}",
                    f"max_loss=0.5 gpu={gpu}", f"done={at} gpu={at % 3} phase=p{at}",
                    f"delta=0.5 pid={pid}", f"max_loss=0 gpu={gpu} pid={pid}")[at % 6]
            with contextlib.suppress(OSError):
                out.sendto(text.encode(), place.path("beat.sock"))
                tally[0] += 1
            place.rest(0.004)


@attack("beat", "credentials", "as root, as another process, from user namespaces")
def _(tally, place):
    no_zombies()

    def forge():
        LIBC.unshare(0x10000000)  # CLONE_NEWUSER
        for uid in (0, place.uid, 65531):
            for pid in (1, os.getpid(), *place.victims[:2]):
                with contextlib.suppress(OSError), attacker.datagrams() as out:
                    out.sendmsg([b"max_loss=0.5 gpu=0,1,2"],
                                [(socket.SOL_SOCKET, 2, struct.pack("3i", pid, uid, uid))], 0,
                                place.path("beat.sock"))
                    tally[0] += 1
    while True:
        child(forge)
        place.rest(0.01)


# --- launches.sock --------------------------------------------------------------------------------

@attack("launches", "flood", "texts without a file, as fast as they go", known="11")
def _(tally, place):
    with attacker.datagrams() as out:
        out.connect(place.path("launches.sock"))
        while True:
            try:
                out.send(b"x")
                tally[0] += 1
            except OSError:
                select.select([], [out], [], 0.001)
            place.rest()


@attack("launches", "linger", "150 files whose last close waits ten minutes", known="2", ends=True)
def _(tally, place):
    attacker.linger(tally, place.folder, most=place.share(150))


@attack("launches", "fuse", "files of a FUSE file system that never answers", known="2",
        by_root=True, ends=True)
def _(tally, place):
    file = Path(place.scratch, f"fuse-{place.uid}-{os.getpid()}")
    file.touch(mode=0o666)
    attacker.hang(tally, place.folder, file, place.uid, most=place.share(12))


@attack("launches", "wide", "64 pages of a user, each with 32 rows of 128 kernels that change",
        known="5")
def _(tally, place):
    pages = [Page() for _ in range(place.share(64))]
    for page in pages:
        for row in range(ROWS):
            page.gpu(row, "GPU-" + os.urandom(16).hex())

    def hand_over(page):
        page.send(place)
        time.sleep(3600)
    for page in pages:
        child(hand_over, page)
    for at in itertools.count():
        page = pages[at % len(pages)]
        for row in range(ROWS):
            for kernel in range(KERNELS):
                page.put(row, kernel, random.getrandbits(63) if at % 7 == 0 else kernel + 1,
                         at * kernel, COLLECTIVE if kernel == 0 else 0)
        tally[0] += 1
        place.rest(0.01)


@attack("launches", "step", "pages with other users' GPUs, which count equal collectives",
        seconds=16)
def _(tally, place):
    pages = []
    for uuid in place.uuids[:4]:
        pages.append(Page())
        pages[-1].gpu(0, uuid)

    def hand_over(page):
        while True:
            page.send(place)
            time.sleep(1)
    for page in pages:
        child(hand_over, page)
    hold_step(tally, pages)


def hold_step(tally, pages):
    for at in itertools.count():
        for page in pages:
            page.put(0, 0, 77, 8 * at, COLLECTIVE)
            page.put(0, 1, 78, 32 * at)
        tally[0] += 1
        time.sleep(0.02)


@attack("launches", "garbage", "sealed pages whose content changes while it is read")
def _(tally, place):
    page = Page()
    for row in range(ROWS):
        page.gpu(row, place.uuids[row % len(place.uuids)])
    noise = os.urandom(2 * PAGE)
    for at in itertools.count():
        if at % 50 == 0:
            page.send(place)
        begin = random.randrange(PAGE)
        page.memory[HEAD:] = noise[begin:begin + PAGE - HEAD]
        page.memory[:8] = b"DRTL0001" if at % 3 else os.urandom(8)
        fallocate_hole(page.file)
        tally[0] += 1
        place.rest(0.001)


def fallocate_hole(file):
    LIBC.fallocate(file, 3, ctypes.c_long(0), ctypes.c_long(PAGE))  # a hole, the size stays


@attack("launches", "churn", "a new page with each message, a new process with each")
def _(tally, place):
    no_zombies()

    def once():
        page = Page()
        page.gpu(0, place.uuids[OWN_GPU % len(place.uuids)])
        for _ in range(4):
            tally[0] += page.send(place)
    while True:
        child(once)
        place.rest(0.005)


@attack("launches", "dead", "processes hand over a page and end; another one counts on in it",
        known="3", seconds=16)
def _(tally, place):
    pages = []
    for uuid in place.uuids[:2]:
        pages.append(Page())
        pages[-1].gpu(0, uuid)
    no_zombies()
    for page in pages:
        for _ in range(place.share(60)):
            child(page.send, place)
    hold_step(tally, pages)


@attack("launches", "tenant", "of a process with a job, for its own GPU and for others': 32 rows")
def _(tally, place):
    work = sim_job(place)
    page = Page()
    for row in range(ROWS):
        page.gpu(row, place.uuids[row % len(place.uuids)])
    for at in itertools.count():
        if at % 500 == 0:
            page.send(place)
        for row in range(ROWS):
            page.put(row, at % 5, 7 + at % 5, at * at, COLLECTIVE)
        tally[0] += work.fileno() >= 0
        time.sleep(0.01)


# --- client.sock ----------------------------------------------------------------------------------

def floods_of_requests():
    for name, text, count in (("wide", attacker.wide(), 32), ("deep", attacker.deep(), 64),
                              ("attribution", request("attribution"), 64),
                              ("bytes", attacker.garbage(), 64)):
        @attack("client", name, f"{count} connections with requests: {name}", known="5")
        def _(tally, place, text=text, count=count):
            attacker.flood(tally, place.folder, text, place.share(count))


floods_of_requests()


@attack("client", "places", "as many connections as a user gets, held and taken again", known="5")
def _(tally, place):
    held = []
    while True:
        held = [one for one in held if not attacker.hung_up(one)]
        while len(held) < place.share(64):
            try:
                held.append(place.dial("client"))
                tally[0] += 1
            except OSError:
                break
        time.sleep(0.05)


@attack("client", "jobs", "all jobs that there may be, and their names", known="5")
def _(tally, place):
    while True:
        with contextlib.suppress(OSError, ValueError):
            asker = Asker(place.folder)
            for at in range(100):
                asker.ask("tune-job-create", spec=attacker.job_spec(f"{place.uid}-{at}"))
                tally[0] += 1
                place.rest()
        time.sleep(0.2)


@attack("client", "drips", "requests that come a byte at a time, one half of a line")
def _(tally, place):
    held = {}
    for at in itertools.count():
        for number in range(place.share(64)):
            if number not in held or attacker.hung_up(held[number]):
                with contextlib.suppress(OSError):
                    held[number] = place.dial("client")
            with contextlib.suppress(OSError, KeyError):
                held[number].send(request("gpus")[at % 17:][:1])
                tally[0] += 1
        time.sleep(0.05)


@attack("client", "hang-up", "requests whose sender hangs up before the answer, with half a next")
def _(tally, place):
    while True:
        with contextlib.suppress(OSError), place.dial("client") as one:
            one.sendall(request("attribution") * 8 + b'{"comm')
            if tally[0] % 2:
                one.shutdown(socket.SHUT_RD)
            tally[0] += 1
        place.rest()


@attack("client", "orphans", "connections of processes that have ended, used by another one")
def _(tally, place):
    no_zombies()
    while True:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with here, there, contextlib.suppress(OSError, ValueError, IndexError):
            def connect(there=there):
                with contextlib.suppress(OSError), place.dial("client") as one:
                    socket.send_fds(there, [b"x"], [one.fileno()])
            child(connect)
            here.settimeout(1)
            _, files, _, _ = socket.recv_fds(here, 1, 1)
            with socket.socket(fileno=files[0]) as one:
                one.settimeout(1)
                one.sendall(request("run-begin", policy="assure", gpus=str(tally[0] % 3),
                                    set=["delta=0.3"]) + request("run-show"))
                answers = one.recv(4096)
                tally[0] += 1
                tally[GAINED] += b'"governed":true' in answers
        place.rest(0.002)


@attack("client", "trials", "runs, trials and releases on GPUs of others", known="6")
def _(tally, place):
    while True:
        with contextlib.suppress(OSError, ValueError, KeyError):
            asker = Asker(place.folder, 5)
            for gpu in "0125":
                begun = asker.ask("tune-trial-begin", gpus=gpu, selector="energy",
                                  knob="power-limit")
                if begun.get("ok"):
                    for step in range(1, 20):
                        asker.ask("tune-trial-report", trial=begun["trial"], steps=step,
                                  token=begun["token"])
                tally[GAINED] += asker.ask("run-begin", policy="assure", gpus=gpu,
                                      set=["delta=0.3"]).get("ok", False)
                asker.ask("run-end")
                tally[GAINED] += asker.ask("run-release", gpus=gpu).get("ok", False)
                tally[GAINED] += asker.ask("release", gpus=gpu).get("ok", False)
                tally[0] += 1
                place.rest(0.01)


@attack("client", "urgent", "urgent bytes, empty messages and files between parts of a request")
def _(tally, place):
    while True:
        with contextlib.suppress(OSError), place.dial("client", 1) as one:
            for piece in (b'{"comm', b'and":', b'"gpus"}', b"\n"):
                with contextlib.suppress(OSError):
                    one.send(b"!", socket.MSG_OOB)
                with contextlib.suppress(OSError):
                    socket.send_fds(one, [b""], [one.fileno()])
                one.send(piece)
            tally[0] += 1
        place.rest(0.002)


@attack("client", "sips", "large answers, read by one byte of a buffer as small as it goes")
def _(tally, place):
    some = []
    while True:
        while len(some) < place.share(64):
            with contextlib.suppress(OSError):
                some.append(place.dial("client", receive_buffer=2048))
                some[-1].setblocking(False)
                some[-1].send(request("attribution") * 64)
                tally[0] += 1
        for one in list(some):
            try:
                if one.recv(1) == b"":
                    raise OSError
            except BlockingIOError:
                pass
            except OSError:
                some.remove(one)
                one.close()
        time.sleep(0.02)
