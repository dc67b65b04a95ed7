"""The machine of one attack: GPUs with other users' jobs, derated, an agent, another user's page;
callers that check whether they are served; and a decoy server, which the control attacks."""

import contextlib
import json
import os
import re
import selectors
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "clients/python"))

import attack_bench  # noqa: E402
import attacker  # noqa: E402
import derate_beat  # noqa: E402
from attacker import FIFTH, FOURTH, FRESH, SECOND, THIRD, Attacker  # noqa: E402
from doors import GAINED, SUBORDINATES, Page, Place, alone, as_many, sim_job  # noqa: E402
from house import Failure, House, check, now, round_times, send  # noqa: E402

REPO = Path(__file__).resolve().parent.parent.parent
AGENT = 65527
GPUS = 6
GOVERNED = range(5)
WATCHED = 4  # its user sends beats
# Other users' jobs, by GPU: the user, the work, and how it reports its progress.
VICTIMS = {0: (THIRD, "copy", ()), 1: (THIRD, "sort", ("--launches", "train.csv")),
           2: (FOURTH, "fft", ("--beat",)), 5: (THIRD, "sort", ())}
NAMED = (0, 1, 5)  # GPUs whose jobs have PIDs that root can choose
CONFIG = f"""[governor]
govern = true
gpus = "0,1,2,3,4"
policy = "assure"
[policy.assure]
tick = 0.1
[run]
users = "everyone"
[tune]
users = "everyone"
[api]
agent = "{AGENT}"
"""
KINDS = {"stranger": "a user without rights", "subuids": "a user with 65,536 subordinate ids",
         "pair": "two users together"}
CHECKS = ("livez", "metrics", "client", "status", "agent metrics", "agent operation", "control",
          "page of derate ui")
PATIENCE = 5  # a caller counts as not served after this time, in seconds


# --- a server of nothing --------------------------------------------------------------------------

def decoy(tally, folder):
    """The decoy server. It listens on sockets of the same names and on two ports, which it writes
    to tally[0] and tally[1]. It reads as much at a time as derated, then rests for 5 ms."""
    select = selectors.DefaultSelector()
    for name in ("client.sock", "api.sock", "control.sock"):
        one = socket.socket(socket.AF_UNIX)
        one.bind(f"{folder}/{name}")
        listen(select, one)
    for at in range(2):
        one = socket.socket()
        one.bind(("127.0.0.1", 0))
        listen(select, one)
        tally[at] = one.getsockname()[1]
    for name in ("beat.sock", "launches.sock"):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        one.bind(f"{folder}/{name}")
        select.register(one, selectors.EVENT_READ, "datagrams")
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            os.chmod(f"{folder}/{name}", 0o666)
    Path(folder, "state.json").write_text("{}")
    tally[2] = 1
    known = {}
    while True:
        for key, _ in select.select(1):
            with contextlib.suppress(OSError):
                answer(select, key, known)
        time.sleep(0.005)


def listen(select, one):
    one.listen(4096)
    one.setblocking(False)
    select.register(one, selectors.EVENT_READ, "callers")


def answer(select, key, known):
    one = key.fileobj
    if key.data == "callers":
        for _ in range(80):
            caller, _ = one.accept()
            caller.setblocking(False)
            select.register(caller, selectors.EVENT_READ, "caller")
            known[caller] = b""
    elif key.data == "datagrams":
        for _ in range(256):
            _, files, _, _ = socket.recv_fds(one, 1024, 253, socket.MSG_DONTWAIT)
            for file in files:
                os.close(file)
    elif not attack_bench.answer(one, known):
        select.unregister(one)
        one.close()
        del known[one]


# --- callers that look whether they are served ----------------------------------------------------

def reach(address):
    """A connection that waits for room in the server's queue, as curl's and `derate`'s do."""
    one = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        one.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", PATIENCE, 0))
    try:
        one.connect(address)
    except OSError:
        one.close()
        raise
    return one


def ask(address, text):
    """The status of an HTTP server's answer; 0 if none came in time."""
    with contextlib.suppress(OSError), reach(address) as one:
        one.sendall(text)
        answer = b""
        while piece := one.recv(65536):
            answer += piece
        return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0
    return 0


def ok(address, path, token=None):
    return lambda: ask(address, attacker.get(path, token)) == 200


def line_answers(path, command, answer):
    def look():
        with reach(path) as one:
            one.sendall(attacker.request(command))
            return one.recv(65536).startswith(answer)
    return look


def status_answers(house):
    words = [str(house.folder / "bin/derate"), "status"]
    return lambda: subprocess.run(words, env=house.environment, capture_output=True,
                                  timeout=PATIENCE, check=False).returncode == 0


def look_again(tally, checks, pause=0.1):
    """For each check adds to three numbers: served, not served, and the longest answer in ms."""
    while True:
        for name, holds in checks:
            at, begin, well = 3 * CHECKS.index(name), now(), False
            with contextlib.suppress(Exception):
                well = holds()
            tally[at + (0 if well else 1)] += 1
            tally[at + 2] = max(tally[at + 2], int(1000 * (now() - begin)))
            time.sleep(pause)


def use_page(tally, port, code, may_begin):
    """The page's own user: exchanges the code for a token, then reads with it."""
    while not may_begin[0]:
        time.sleep(0.05)
    text = b""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as one:
        one.sendall(attacker.exchange(port, code))
        while piece := one.recv(65536):
            text += piece
    found = re.search(rb'"token":"([^"]+)"', text)
    token = found[1].decode() if found else "none"
    look_again(tally, [("page of derate ui", ok(("127.0.0.1", port), "/v1/gpus", token))])


def beat_on(tally, place):
    """A job that sends its beats from the same process, by the client that docs/heartbeats.md
    describes."""
    work, begin = sim_job(place, WATCHED), now()
    os.environ["DERATE_RUN_DIR"] = place.folder
    while work.fileno() >= 0:
        tally[0] += derate_beat.beat(100 * (now() - begin))
        time.sleep(0.05)


def hand_over_pages(tally, place):
    """Sends a new page each second, with its number in it, as often as the library would."""
    for number in range(1, 1 << 30):
        page = Page(f"watched-{number}")
        page.gpu(0, place.uuids[WATCHED])
        until = now() + 1
        sent = False
        while now() < until and not sent:
            sent = page.send(place)
            time.sleep(0.001 if not sent else 0)
        tally[0] = number
        time.sleep(max(0, until - now()))
        page.close()


# --- the house ------------------------------------------------------------------------------------

class AttackHouse(House):
    def __init__(self, build, seed=1):
        super().__init__(build, seed)
        self.folder.chmod(0o755)
        self.run_dir.chmod(0o755)
        self.config_file.write_text(CONFIG)
        self.scratch = self.folder / "scratch"
        self.scratch.mkdir()
        self.scratch.chmod(0o1777)
        self.other = self.folder / "other"
        self.other.mkdir(mode=0o755)
        self.records = self.folder / "records"
        self.pids, self.watchers = {}, {}
        self.usual = None  # work of the last control, by GPU
        self.copy_programs()

    def copy_programs(self):
        """Copies the programs, as other users may not reach the build's folder."""
        programs, progress = self.folder / "bin", self.scratch / "progress"
        programs.mkdir()
        for name in ("derate", "derate-agent"):
            shutil.copy(self.build / name, programs)
        shutil.copy(REPO / "tests/fixtures/h200-launches/train.csv", programs)
        progress.mkdir()
        for name in ("launch_client", "libderate_progress.so"):
            for found in (self.build / "progress" / name, self.build / name):
                if found.exists():
                    shutil.copy(found, progress)
                    break
        for library in (self.build / "progress/stub").glob("*"):
            if library.is_file():
                shutil.copy(library, progress / library.name)

    def begin_once(self, late_page):
        if self.server is None:
            self.begin(late_page)

    def settle(self, most):
        """Waits until the work of each GPU differs little from that of the seconds before."""
        begin, steady, before = now(), 0, None
        while steady < 2 and now() < begin + most:
            work, at = self.figures_now(), now()
            time.sleep(3)
            rates = {gpu: (done - work[gpu]) / (now() - at)
                     for gpu, done in self.figures_now().items()}
            steady = steady + 1 if before and all(abs(rates[gpu] - before[gpu]) < 0.006
                                                  for gpu in rates) else 0
            before = rates

    def begin(self, late_page):
        self.serve("H200", GPUS)
        self.elsewhere = self.start("serve", self.build / "derate", "sim", "serve", "--chip",
                                    "H200", "--gpus", GPUS,
                                    extra={"DERATE_SIM": str(self.other / "sim")})
        self.note_baseline()
        (self.folder / "subuid").write_text(f"60000:{SUBORDINATES}:65536\n")
        self.daemon_program = self.start_daemon()
        self.decoy = Attacker(os.getuid(), decoy, str(self.other))
        self.until(lambda: self.decoy.tally[2], 10, "the server of nothing listens")
        self.begin_jobs({})
        token = json.loads(self.derate("token", "create", "watcher", "--json"))["token"]
        self.agent_port = int(self.of_user("agent", AGENT, r"listening on \S+:(\d+)")[1])
        page = self.of_user("ui", THIRD, r"http://127\.0\.0\.1:(\d+)/ui#(\S+)", "--page")
        self.ui_port, self.code = int(page[1]), page[2]
        self.may_begin = attacker.mmap.mmap(-1, 4096)
        self.may_begin[0] = 0 if late_page else 1
        self.watch(token)

    def start_daemon(self):
        mounted = (f"mount --bind {self.folder / 'subuid'} /etc/subuid && exec "
                   f"{self.build / 'derated'} --silence 10 --records {self.records}")
        out = self.start("derated", "unshare", "-m", "sh", "-c", mounted)
        self.until(lambda: out.process.poll() is not None
                   or all(self.locked(gpu) for gpu in GOVERNED), 30,
                   f"all GPUs are governed: {out.text()}")
        check(out.process.poll() is None, f"derated ended: {out.text()}")
        self.worker = out.worker()
        return out

    def of_user(self, name, uid, pattern, *options):
        own = self.folder / f"home-{uid}"
        own.mkdir(mode=0o700, exist_ok=True)
        os.chown(own, uid, uid)
        # The agent sees the same ranges of ids as derated.
        mounted = (f"mount --bind {self.folder / 'subuid'} /etc/subuid && exec setpriv --reuid "
                   f"{uid} --regid {uid} --clear-groups {self.folder / 'bin/derate-agent'} "
                   f"--listen 127.0.0.1:0 --socket {self.run_dir / 'api.sock'} "
                   f"{' '.join(options)}")
        program = self.start(name, "unshare", "-m", "sh", "-c", mounted,
                             extra={"XDG_RUNTIME_DIR": str(own)})
        self.until(lambda: re.search(pattern, program.text()), 10, f"{name}: {program.text()}")
        return re.search(pattern, program.text())

    def watch(self, token):
        run, agent = str(self.run_dir), ("127.0.0.1", self.agent_port)
        api, here = f"{run}/api.sock", self.place()
        self.watchers = {
            "user": Attacker(FIFTH, look_again, [
                ("livez", ok(api, "/livez")), ("metrics", ok(api, "/metrics")),
                ("client", line_answers(f"{run}/client.sock", "gpus", b'{"ok":true'))]),
            "status": Attacker(FIFTH, look_again, [("status", status_answers(self))], 0.5),
            "agent": Attacker(FIFTH, look_again, [
                ("agent metrics", ok(agent, "/metrics")),
                ("agent operation", ok(agent, "/v1/gpus", token))]),
            "root": Attacker(0, look_again, [("control", line_answers(
                f"{run}/control.sock", "resume", b"{"))], 0.5),
            "page": Attacker(THIRD, use_page, self.ui_port, self.code, self.may_begin),
            "beats": Attacker(FIFTH, beat_on, here),
            "pages": Attacker(FIFTH, hand_over_pages, here)}

    def place(self, control=False):
        ports = {"agent": self.decoy.tally[0], "ui": self.decoy.tally[1]} if control else \
            {"agent": self.agent_port, "ui": self.ui_port}
        return Place(folder=str(self.other if control else self.run_dir), ports=ports,
                     sim=str(self.other / "sim") if control else self.environment["DERATE_SIM"],
                     uuids=self.uuids, victims=[self.pids[gpu] for gpu in NAMED], code=self.code,
                     scratch=str(self.scratch))

    # --- jobs of others

    def begin_jobs(self, numbers):
        """`numbers`: the jobs' PIDs by GPU, which root chooses."""
        for gpu, (uid, work, options) in VICTIMS.items():
            if gpu in self.pids:
                continue
            words = [str(self.folder / "bin/derate"), "sim", "job", work, "-i", str(gpu), "--work",
                     "0", *options]
            made = attacker.start_as(uid, words, self.environment, self.folder / "bin",
                                     pid=numbers.get(gpu))
            check(made, f"no process of the number {numbers.get(gpu)} can be made")
            self.pids[gpu] = made

    def end_jobs(self, gpus):
        for gpu in gpus:
            send(self.pids[gpu], 9)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pids.pop(gpu), 0)

    def wait_for_numbers(self, numbers):
        """Waits until no process has these PIDs: a parent may still have to wait for one."""
        for gpu in NAMED:
            del self.pids[gpu]
        self.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in numbers.values()), 5,
                   "the numbers are free")

    def free_numbers(self):
        taken = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        free = [pid for pid in range(32_000, 20_000, -7) if pid not in taken]
        return dict(zip(NAMED, free))

    # --- an attack

    def attackers(self, attack, kind, ids, control):
        place = self.place(control)
        if kind == "subuids":
            place.uid, place.count, place.many = SUBORDINATES + 1000, ids, True  # of one range
            return [Attacker(0, as_many, attack.work, attack.by_root, place)]
        users = {"stranger": (FRESH,), "pair": (FRESH, SECOND)}[kind]
        out = []
        for number, uid in enumerate(users):
            one = self.place(control)
            one.uid, one.number, one.count = uid, number, len(users)
            out.append(Attacker(0, alone, attack.work, attack.by_root, one))
        return out

    def figures_now(self):
        return {gpu: self.truth(gpu).work_seconds for gpu in VICTIMS}

    def checks_now(self):
        out = {}
        for name, watcher in (("user", CHECKS[:3]), ("status", CHECKS[3:4]), ("agent", CHECKS[4:6]),
                              ("root", CHECKS[6:7]), ("page", CHECKS[7:])):
            for each in watcher:
                at = 3 * CHECKS.index(each)
                out[each] = list(self.watchers[name].tally[at:at + 2])
        return out

    def pages_held(self):
        """The numbers of the watched job's pages that derated has open."""
        out = set()
        for entry in os.scandir(f"/proc/{self.worker}/fd"):
            with contextlib.suppress(OSError):
                found = re.match(r"/memfd:watched-(\d+)", os.readlink(entry.path))
                if found:
                    out.add(int(found[1]))
        return out

    def spell(self, attack, kind, ids, seconds, control):
        """Plays the attack or its control. Returns what was measured meanwhile, and the
        attackers."""
        if attack.again:
            self.end_jobs(NAMED)
            numbers = self.free_numbers()
            self.pids |= numbers
        some = self.attackers(attack, kind, ids, control)
        try:
            if attack.again:
                begin = now()
                while not all(one.tally[7] for one in some) and now() < begin + 12:
                    time.sleep(0.01)
                self.wait_for_numbers(numbers)
                self.begin_jobs(numbers)
                time.sleep(4)
            time.sleep(1)
            if kind == "subuids":
                time.sleep(min(3, ids / 50))
            if not control:
                self.may_begin[0] = 1
            seen = self.look(seconds)
            seen["tries"] = sum(one.tally[0] for one in some)
            seen["gained"] = sum(one.tally[GAINED] for one in some)
            seen["tally"] = [list(one.tally[:8]) for one in some]
            return seen, some
        except BaseException:
            end(some)
            raise

    def look(self, seconds):
        begin, work, checks = now(), self.figures_now(), self.checks_now()
        beats, pages = set(), set()
        while now() < begin + seconds and self.lives():
            with contextlib.suppress(OSError):
                pages |= self.pages_held()
            if (done := self.gpu_state(WATCHED).get("beat_done")) is not None:
                beats.add(done)
            time.sleep(0.1)
        took, after, served = now() - begin, self.figures_now(), self.checks_now()
        return {
            "begin": begin, "seconds": took, "alive": self.lives(), "load": os.getloadavg()[0],
            "work": {gpu: (after[gpu] - work[gpu]) / took for gpu in VICTIMS},
            "checks": {name: [served[name][0] - checks[name][0], served[name][1] - checks[name][1]]
                       for name in CHECKS},
            "beats": max(0, len(beats) - 1), "pages": max(0, len(pages) - 1)}

    def lives(self):
        return self.daemon_program.process.poll() is None

    def round_times(self):
        return round_times(self.records)

    def late(self, seen, times):
        """How late the loop was, p99 in ms."""
        found = attack_bench.figures(times, seen["begin"], seen["begin"] + seen["seconds"])
        return found["p99_ms"]

    # --- the end, while the attack goes on

    def stop_and_start(self):
        """Stops and starts derated. Returns the seconds until all GPUs are restored, until derated
        has ended, and until the next one governs."""
        begin, out = now(), {}
        send(self.daemon_program.pid, 15)
        limit = begin + 40
        while now() < limit and not ("restored" in out and "ended" in out):
            if "restored" not in out and self.restored():
                out["restored"] = now() - begin
            if "ended" not in out and not self.lives():
                out["ended"] = now() - begin
            time.sleep(0.01)
        out["code"] = self.daemon_program.process.poll()
        self.records = self.folder / "records-again"
        begin = now()
        try:
            self.daemon_program = self.start_daemon()
            out["governs again"] = now() - begin
        except Failure as why:
            out["why"] = str(why)[-600:]
        return out

    def close(self):
        end(self.watchers.values())
        self.end_jobs(list(self.pids))
        if hasattr(self, "decoy"):
            self.decoy.end()
        for path in self.scratch.glob("*-[0-9]*"):
            subprocess.run(["umount", "-l", path], check=False, capture_output=True)
        if self.probe is not None:
            self.probe.call("nvmlShutdown")  # the next house has other GPUs
        super().close()


def end(some):
    for one in some:
        family = attacker.children_of(one.pid)
        one.end()
        for pid in family:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, 9)
