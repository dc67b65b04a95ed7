"""Rows of an attacker: users without rights, storms of signals. What they do is in attacker.py."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import attacker
from attacker import FOURTH, FRESH, SECOND, THIRD, Asker, Attacker, request, squat
from house import CAPPED, GOVERNED, alive, check, now, send
from scenarios import (NOTHING, TRAP, Measured, Skip, expect_code, kill_both, leave_locked,
                       others_tick, restored, row, stop)

G_ATTACKER = "An attacker"


def open_to_others(house):
    """As /run is on a machine; only root can start processes of others."""
    if not attacker.can_be_others():
        raise Skip("not root: there is no second user")
    house.folder.chmod(0o755)
    house.run_dir.chmod(0o755)


@contextlib.contextmanager
def attack(house, uid, work, *arguments):
    open_to_others(house)
    with Attacker(uid, work, str(house.run_dir), *arguments) as one:
        yield one
        check(one.alive(), "the attacker ended by itself")


def resident(pid):
    """MiB of a process's memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0


def hold_out(house, daemon, worker, seconds):
    """The worker governs on for so long: silence of 2 s would have it killed."""
    end = now() + seconds
    while now() < end:
        others_tick(house)
        check(daemon.worker() == worker and alive(worker), f"the worker is gone: {daemon.text()}")
    check(house.locked(GOVERNED), "GPU 0 is not governed")


# --- leases ---------------------------------------------------------------------------------------

@contextlib.contextmanager
def lock_waiter(house):
    """A user who opens every lock file as soon as it is there, and waits for the lock."""
    with attack(house, FRESH, squat) as one:
        yield one


def killed_before_a_waiter(house, waiter):
    daemon = house.governing()
    time.sleep(0.5)  # for the waiter to find what there is
    kill_both(daemon)
    house.until(lambda: house.leases_held() or waiter.tally[0] == 0, 5, "the waiter has a lock")
    check(not house.restored(), "somebody restored, and who could have?")


def next_start(house):
    """Restores what is left, then governs."""
    before = len(house.audit())
    daemon = house.daemon("--silence", "2", "--restore-time", "2")
    house.until(lambda: daemon.process.poll() is not None
                or {"restore", "lock"} <= {entry["what"] for entry in house.audit()[before:]}, 10,
                "the next start has restored and governs")
    check(daemon.process.poll() is None, f"the next start ended: {daemon.text()}")
    return daemon


@row("attacker.squat.restore", group=G_ATTACKER, who="derated",
     fault="a user waits for the lock of every file in the run folder",
     when="at the moment that guard and worker are killed", limit=2,
     by="`derate restore`", quick=True,
     outcome="they get none: `derate restore` restores, exit code 0, no journal is left")
def _(house):
    with lock_waiter(house) as waiter:
        killed_before_a_waiter(house, waiter)
        since = now()
        said = house.derate("restore")
        check(not house.journals(), f"exit code 0, and {house.journals()} is left: {said}")
        return restored(house, since, 5)


@row("attacker.squat.start", group=G_ATTACKER, who="derated",
     fault="a user waits for the lock of every file in the run folder",
     when="at the moment that guard and worker are killed", limit=2,
     by="worker", outcome="they get none: the next start restores, governs and gives back")
def _(house):
    with lock_waiter(house) as waiter:
        killed_before_a_waiter(house, waiter)
        return stop(house, next_start(house))


@row("attacker.squat.run", group=G_ATTACKER, who="derate run",
     fault="a user waits for the lock of every file in the run folder",
     when="while no governor lives", by="worker", limit=2,
     outcome="they get none: the command is governed, its exit code is kept")
def _(house):
    with lock_waiter(house):
        expect_code(house.run("true"), 0)
        time.sleep(0.5)  # for the waiter to find the files of that run
        program = house.running("sh", "-c", TRAP)
        house.until(lambda: "started" in program.text(), 5, "the command runs")
        since = now()
        send(program.pid, signal.SIGTERM)
        out = restored(house, since, 5)
        expect_code(program, 7)
        return out


@row("attacker.squat.old", group=G_ATTACKER, fault="a user has locked the files that an earlier "
     "version left open to all", who="derated", when="before the start", by="worker", limit=2,
     quick=True,
     outcome="they are replaced: governs, restores at the next start after a kill, gives back")
def _(house):
    open_to_others(house)
    for name in ("derated", *house.uuids):
        path = house.run_dir / f"{name}.lock"
        path.write_text("derated, pid 1\n")
        path.chmod(0o644)
    with lock_waiter(house) as waiter:
        house.until(lambda: waiter.tally[1] == len(house.uuids) + 1, 10, "all are locked")
        kill_both(house.governing())
        return stop(house, next_start(house))


@row("attacker.stop.at.start", group=G_ATTACKER, fault="SIGTERM within 0 to 100 ms of a start",
     who="derated", when="after guard and worker were killed, 11 times", limit=3,
     by="next start or `derate restore`",
     outcome="restores what was left before it ends, or its exit code is not 0")
def _(house):
    slowest, codes = 0, {}
    for delay in range(0, 101, 10):
        leave_locked(house)
        house.until(lambda: not house.processes_left(), 5, "they are gone")
        since = now()
        daemon = house.daemon()
        time.sleep(delay / 1000)  # the moment itself
        send(daemon.pid, signal.SIGTERM)
        code = daemon.wait(15 * house.slow)
        codes[code] = codes.get(code, 0) + 1
        if code == 0:
            check(house.restored() and not house.journals(),
                  f"SIGTERM after {delay} ms: exit code 0, and left: {house.journals()}")
        else:
            house.derate("restore")
        slowest = max(slowest, house.until_restored(5, since=since))
    return Measured(slowest, "next start or `derate restore`",
                    ", ".join(f"{n} exit codes {code}" for code, n in sorted(codes.items())))


# --- trials ---------------------------------------------------------------------------------------

EVERYONE = '[governor]\ngovern = false\n[tune]\nusers = "everyone"\n'


def trial_of_nobody(tally, folder):
    """Trial after trial on GPU 0 of a user who has nothing there, with steps that are made up."""
    while True:
        with contextlib.suppress(OSError, ValueError):
            asker = Asker(folder)
            begun = asker.ask("tune-trial-begin", gpus="0", selector="energy", knob="power-limit")
            tally[0] += begun.get("ok", False)
            tally[1] += not begun.get("ok", False)
            for step in range(1, 1_000_000):
                answer = asker.ask("tune-trial-report", trial=begun["trial"], steps=step,
                                   token=begun["token"]) if begun.get("ok") else {}
                if not answer.get("ok"):
                    break
                time.sleep(0.02)
        time.sleep(0.02)


def ask_as(uid, house, command, **fields):
    """The answer that another user gets."""
    def work(tally):
        answer = Asker(str(house.run_dir)).ask(command, **fields)
        tally[0] = 1 if answer.get("ok") else 2
        time.sleep(5)
    with Attacker(uid, work) as one:
        house.until(lambda: one.tally[0], 25, f"{command} is answered")
        return one.tally[0] == 1


@row("attacker.trial.of.others", group=G_ATTACKER, who="derated",
     fault="a user begins trials on a GPU where they have no process",
     when="another's job runs there, `[tune] users = \"everyone\"`",
     by=NOTHING, limit=2,
     outcome="the limit is not turned for them, and the GPU's own user may begin one in its place")
def _(house):
    open_to_others(house)
    house.config_file.write_text(EVERYONE)
    house.start("job", house.build / "derate", "sim", "job", "GeMM", "-i", "0", "--work", "0",
                user=SECOND, group=SECOND, extra_groups=[])
    daemon = house.daemon("--silence", "2")
    house.until(lambda: house.gpu_state(GOVERNED).get("gpu_utilisation_ratio", 0) > 0.5, 10,
                "the job runs")
    wrong = []
    with attack(house, FRESH, trial_of_nobody) as one:
        house.until(lambda: one.tally[0] + one.tally[1] > 0, 10, "they have asked for a trial")
        began = now()

        def owner_may():
            if not house.restored():
                wrong.append(house.watts(GOVERNED))
            check(not wrong, f"the limit was turned for them: {wrong} W")
            time.sleep(1)
            return now() - began > 12 and ask_as(SECOND, house, "tune-trial-begin", gpus="0",
                                                knob="none")
        house.until(owner_may, 30, "the GPU's own user may begin a trial")
    check(house.restored(), "the settings are not as found")
    send(daemon.pid, signal.SIGTERM)
    expect_code(daemon, 0)
    return Measured(0, NOTHING, governed=())


# --- connections ----------------------------------------------------------------------------------

@row("attacker.connects", group=G_ATTACKER, fault="75 000 connections, each closed at once",
     who="derated", when="one after another, as fast as they go", by="worker", limit=2,
     outcome="governs on, answers others, gives everything back")
def _(house):
    daemon = house.governing()
    worker = daemon.worker()
    with attack(house, FRESH, attacker.connects) as one:
        while not one.tally[2]:
            hold_out(house, daemon, worker, 0.5)
        tried = one.tally[0]
    house.until(lambda: ask_as(SECOND, house, "gpus"), 5, "another user is answered")
    out = stop(house, daemon)
    out.note = f"{tried} tries"
    return out


@row("attacker.deaf", group=G_ATTACKER, fault="clients that ask and never read", who="derated",
     when="64 connections of a user, for 8 s", by="worker", limit=2,
     outcome="they are not heard until they read: governs on, its memory stays as it is")
def _(house):
    daemon = house.governing()
    worker = daemon.worker()
    before = resident(worker)
    with attack(house, FRESH, attacker.flood, request("gpus"), 64, False):
        hold_out(house, daemon, worker, 8)
        house.until(lambda: ask_as(SECOND, house, "gpus"), 5, "another user is answered")
        grown = resident(worker) - before
    check(grown < 32, f"the worker has grown by {grown:.0f} MiB")
    out = stop(house, daemon)
    out.note = f"{grown:.1f} MiB more"
    return out


def hold_windows(tally, folder, connections=64, each=64):
    """So many windows of energy, and one more on each connection, which must be refused."""
    held = []
    for _ in range(connections):
        one = Asker(folder)
        for name in range(each + 1):
            answer = one.ask("window-begin", name=f"w{name}")
            tally[0 if answer.get("ok") else 1] += 1
        held.append(one)
    tally[2] = 1
    while True:
        time.sleep(1)


@row("attacker.windows", group=G_ATTACKER, fault="4096 open windows of energy", who="derated",
     when="64 on each of 64 connections of a user", by="worker", limit=2,
     outcome="one more is refused; governs on, and others may measure")
def _(house):
    daemon = house.governing()
    worker = daemon.worker()
    before = resident(worker)
    with attack(house, FRESH, hold_windows) as one:
        house.until(lambda: one.tally[2], 60, "the windows are open")
        check(one.tally[0] <= 4096, f"{one.tally[0]} windows are open")
        check(one.tally[1] > 0, "no window was one too many")
        hold_out(house, daemon, worker, 3)
        house.until(lambda: ask_as(SECOND, house, "window-begin", name="mine"), 5,
                    "another user may open a window")
        opened, grown = one.tally[0], resident(worker) - before
    check(grown < 64, f"the worker has grown by {grown:.0f} MiB")
    out = stop(house, daemon)
    out.note = f"{opened} opened, {grown:.0f} MiB more"
    return out


# --- heartbeats -----------------------------------------------------------------------------------

def count_beats(tally, folder):
    """One try each 20 ms, as derate beat makes it: none is repeated."""
    sock = attacker.datagrams()
    while True:
        try:
            sock.sendto(f"done={tally[0] + 1} gpu=0".encode(), f"{folder}/beat.sock")
            tally[1] += 1
        except OSError:
            tally[2] += 1
        tally[0] += 1
        time.sleep(0.02)


@row("attacker.flood", group=G_ATTACKER, fault="a flood of beats", who="derated", limit=2,
     by="worker", when="from a second user, as fast as they go, while the first one's job beats",
     outcome="governs on; what the first user says is still heard in part")
def _(house):
    open_to_others(house)
    house.start("job", house.build / "derate", "sim", "job", "GeMM", "-i", "0", "--work", "0",
                user=SECOND, group=SECOND, extra_groups=[])
    daemon = house.governing()
    worker = daemon.worker()
    heard = set()

    def listen(seconds):
        end = now() + seconds
        while now() < end:
            if (done := house.gpu_state(GOVERNED).get("beat_done")) is not None:
                heard.add(done)
            time.sleep(0.1)
    with attack(house, SECOND, count_beats) as speaker:
        listen(3)
        check(heard, "no beat is heard even without a flood")
        heard.clear()
        with attack(house, FRESH, attacker.beats), attack(house, THIRD, attacker.beats):
            tried, sent = speaker.tally[0], speaker.tally[1]
            listen(20)
            tried, sent = speaker.tally[0] - tried, speaker.tally[1] - sent
            hold_out(house, daemon, worker, 1)
        check(len(heard) >= 2, f"of {tried} tries {sent} found room, and {len(heard)} were heard")
    out = stop(house, daemon)
    out.note = f"{sent} of {tried} tries found room"
    return out


# --- files that are sent along --------------------------------------------------------------------

def add_files_sent():
    for name, text in (("beat.sock", "beats"), ("client.sock", "requests")):
        @row(f"attacker.files.{text}", group=G_ATTACKER, who="derated", by="worker", limit=2,
             fault=f"{text} that carry a connection whose last close waits for ten minutes",
             when="five a second, for 6 s", outcome="governs on: it does not close them itself")
        def _(house, name=name):
            daemon = house.governing()
            worker = daemon.worker()
            with attack(house, FRESH, attacker.send_files, name) as one:
                house.until(lambda: one.tally[0] + one.tally[1], 5, "they have sent one")
                hold_out(house, daemon, worker, 6)
                sent = one.tally[0]
            out = stop(house, daemon)
            out.note = f"{sent} got through"
            return out


add_files_sent()


def others_are_heard(house, daemon, worker, other):
    """For 4 s, of another user who sends to `launches.sock`: how many messages were taken."""
    taken, full = other.tally[0], other.tally[1]
    hold_out(house, daemon, worker, 4)
    taken, full = other.tally[0] - taken, other.tally[1] - full
    check(taken > 10 * full, f"{taken} of the other's messages were taken, {full} were not")
    return f"{taken} of the other's {taken + full}"


@row("attacker.files.linger", group=G_ATTACKER, who="derated", by="worker", limit=2,
     fault="150 files whose last close waits for ten minutes, sent to `launches.sock`",
     when="each once, while another user sends there, too",
     outcome="what the other sends is taken; SIGTERM gives everything back at once")
def _(house):
    daemon = house.governing()
    worker = daemon.worker()
    with attack(house, FRESH, attacker.linger) as one, attack(house, SECOND, attacker.knock) as two:
        house.until(lambda: one.tally[0] >= 150 or one.tally[1] > 600, 15, "they have sent them")
        heard = others_are_heard(house, daemon, worker, two)
        sent = one.tally[0]
        out = stop(house, daemon)
    out.note = f"{sent} got through; {heard}"
    return out


@row("attacker.files.fuse", group=G_ATTACKER, who="derated", by="worker", limit=2,
     fault="files of a FUSE file system that never answers, sent to `launches.sock`",
     when="12 of them; then SIGTERM, and another start while they hang",
     outcome="what another user sends is taken; everything is given back; the next one governs")
def _(house):
    daemon = house.governing()
    file = house.folder / "fuse"
    file.touch(mode=0o666)
    try:
        with attack(house, 0, attacker.hang, file, FRESH) as one, \
                attack(house, SECOND, attacker.knock) as two:
            house.until(lambda: one.tally[2] or one.tally[3], 15, "a close of such a file hangs")
            if one.tally[3]:
                raise Skip("no FUSE here")
            heard = others_are_heard(house, daemon, daemon.worker(), two)
            hanging = one.tally[2]
            stop(house, daemon)
            out = stop(house, house.governing())
    finally:
        subprocess.run(["umount", "-l", file], check=False, capture_output=True)
    out.note = f"{hanging} hang; {heard}"
    return out


# --- who is who -----------------------------------------------------------------------------------

@row("attacker.pid.again", group=G_ATTACKER, who="derated", by="worker", limit=5,
     fault="a user's job ends, and another user's gets its process number",
     when="between two lists of processes, while a run of the first governs the GPU",
     outcome="the run ends: nothing of the first user speaks for the second one's process")
def _(house):
    open_to_others(house)
    house.config_file.write_text(
        '[governor]\ngovern = false\npolicy = "efficient-fix"\n[run]\nusers = "everyone"\n')
    job = [str(house.build / "derate"), "sim", "job", "GeMM", "-i", "0", "--work", "0"]
    first = attacker.start_as(SECOND, job, house.environment, house.folder)
    daemon = house.daemon("--silence", "2")
    house.until(lambda: house.rounds() > 0, 10, "derated publishes its state")
    with attack(house, SECOND, attacker.run_on, "0") as one:
        house.until(lambda: one.tally[0] or one.tally[1] < 0, 15, "the run governs the GPU")
        check(one.tally[1] > 0, "the run was refused")
        send(first, signal.SIGKILL)
        os.waitpid(first, 0)
        second = attacker.start_as(THIRD, job, house.environment, house.folder, pid=first)
        since = now()
        try:
            if second != first:
                raise Skip("process numbers cannot be chosen here")
            house.until(lambda: not one.tally[0], 5, "the run governs no more")
            milliseconds = house.until_restored(5, since=since)
            hold_out_released(house, 3)
        finally:
            if second:
                send(second, signal.SIGKILL)
    stop(house, daemon)
    return Measured(milliseconds, "worker")


def hold_out_released(house, seconds):
    end = now() + seconds
    while now() < end:
        check(house.restored(), "the GPU is governed again, for a user who has no process there")
        time.sleep(0.05)


SUBORDINATES = 200_000  # the first of 65,536 ids of user 60000


def with_subuids(house, *words):
    """The command line of a program for which user 60000 has these ids in /etc/subuid."""
    ranges = house.folder / "subuid"
    ranges.write_text(f"60000:{SUBORDINATES}:65536\n")
    mount = f"mount --bind {ranges} /etc/subuid"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], check=False,
                      capture_output=True).returncode != 0:
        raise Skip("another /etc/subuid cannot be mounted here")
    return "unshare", "-m", "sh", "-c", f"{mount} && exec {' '.join(map(str, words))}"


@row("attacker.subuids", group=G_ATTACKER, who="derated", by="worker", limit=2,
     fault="300 subordinate ids of one user hold a connection each", when="two GPUs governed",
     outcome="they are one user: others are served, root too")
def _(house):
    open_to_others(house)
    daemon = house.start("derated", *with_subuids(house, house.build / "derated", "--silence", "2"))
    house.until(lambda: house.locked(GOVERNED), 10, "GPU 0 is governed")
    worker = daemon.worker()
    with attack(house, 0, attacker.subordinate_ids, SUBORDINATES, 300) as one:
        house.until(lambda: one.tally[1] >= 3, 20, "they have connected")
        for _ in range(5):
            for uid in (SECOND, 0):
                check(ask_as(uid, house, "gpus"), f"user {uid} is not served")
        hold_out(house, daemon, worker, 1)
    return stop(house, daemon)


# --- derate-agent ---------------------------------------------------------------------------------

def agent_of(house, uid, *options, subuids=False, **extra):
    """Starts an agent as that user, who may not read the build's folder; `subuids`: it sees the
    ranges of with_subuids(). Returns the program."""
    open_to_others(house)
    program = house.folder / "derate-agent"
    shutil.copy(house.build / "derate-agent", program)
    own = house.folder / f"home-{uid}"
    own.mkdir(mode=0o700)
    os.chown(own, uid, uid)
    words, extra = (program, "--listen", "127.0.0.1:0", *options), {"XDG_RUNTIME_DIR": str(own),
                                                                    **extra}
    if subuids:  # root mounts
        become = ("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups")
        return house.start("agent", *with_subuids(house, *become, *words), extra=extra)
    return house.start("agent", *words, extra=extra, user=uid, group=uid, extra_groups=[])


def found_in(house, program, pattern):
    house.until(lambda: re.search(pattern, program.text()), 10, f"{pattern}: {program.text()}")
    return re.search(pattern, program.text())


@row("attacker.ui.code", group=G_ATTACKER, who="derated", by="worker", limit=2,
     fault="a user reads all command lines, and has the code of another's `derate ui`",
     when="while that user's browser starts, for 2 s",
     outcome="no command line has the code, every try is answered with 403 or not at all; the "
     "user whose page it is has it")
def _(house):
    daemon = house.governing()
    browser = house.folder / "xdg-open"
    browser.write_text('#!/bin/sh\necho "$@" > "$XDG_RUNTIME_DIR/opened"\nsleep 2\n')
    browser.chmod(0o755)
    program = agent_of(house, SECOND, "--page", "--open", PATH=f"{house.folder}:/usr/bin:/bin")
    port, code = found_in(house, program, r"http://127\.0\.0\.1:(\d+)/ui#(\S+)").groups()
    with attack_of(house, FRESH, attacker.take_page, int(port), code) as one:
        opened = house.folder / f"home-{SECOND}/opened"
        house.until(lambda: opened.exists() and opened.read_text(), 5, "the browser was started")
        page = Path(opened.read_text().strip().removeprefix("file://"))
        check(code in page.read_text(), "the browser is not led on")
        check(page.stat().st_mode & 0o777 == 0o600, f"{page} can be read by others")
        hold_out(house, daemon, daemon.worker(), 2)
        tries, taken, seen = one.tally[0], one.tally[1], one.tally[2]
        check(tries > 5 and taken == 0, f"{taken} of {tries} tries got an answer")
        check(seen == 0, f"{seen} command lines had the code")
    with Attacker(SECOND, answer_of, attacker.exchange(int(port), code), int(port)) as user:
        house.until(lambda: user.tally[0], 5, "the user has asked")
        check(user.tally[0] == 200, f"the user's own browser was answered {user.tally[0]}")
    house.until(lambda: not page.exists(), 2, "what led to the page is gone")
    send(program.pid, signal.SIGTERM)
    out = stop(house, daemon)
    out.note = f"{tries} tries"
    return out


def answer_of(tally, text, port):
    tally[0] = attacker.http(port, text) or -1
    time.sleep(60)


@contextlib.contextmanager
def attack_of(house, uid, work, *arguments):
    """Runs an attacker without access to the run folder."""
    open_to_others(house)
    with Attacker(uid, work, *arguments) as one:
        yield one
        check(one.alive(), "the attacker ended by itself")


@row("attacker.agent.gate", group=G_ATTACKER, who="derated", by="worker", limit=2,
     fault="a user makes derate-agent pass on wrong tokens in heads that do not fit derated, and "
     "another one guesses tokens", when="64 of the first, then both without a pause, for 5 s",
     outcome="`/metrics` and operations with a token, an old and a new one, are all answered")
def _(house):
    house.config_file.write_text(house.config_file.read_text() + f'[api]\nagent = "{FOURTH}"\n')
    daemon = house.governing()
    secrets = [json.loads(house.derate("token", "create", name, "--json"))["token"]
               for name in ("old", "new")]
    program = agent_of(house, FOURTH, "--socket", house.run_dir / "api.sock")
    port = int(found_in(house, program, r"listening on \S+:(\d+)")[1])
    ask = lambda path, token=None: attacker.http(port, attacker.get(path, token))
    check(ask("/v1/gpus", secrets[0]) == 200, "the token is good for nothing")
    with attack_of(house, FRESH, attacker.poison_gate, port) as one, \
            attack_of(house, SECOND, attacker.guess_tokens, port) as two:
        house.until(lambda: one.tally[0] > 64, 20, "the gate has heard 64 wrong tokens")
        end, answers = now() + 5, []
        while now() < end:
            answers += [ask("/v1/gpus", secrets[0]), ask("/v1/gpus", secrets[1]), ask("/metrics")]
            time.sleep(0.1)
        check(set(answers) == {200}, f"of {len(answers)} answers {sorted(set(answers))}")
        hold_out(house, daemon, daemon.worker(), 1)
        sent = one.tally[0] + two.tally[0]
    send(program.pid, signal.SIGTERM)
    out = stop(house, daemon)
    out.note = f"{sent} wrong tokens, {len(answers)} answers"
    return out


@contextlib.contextmanager
def served_by_agent(house, port, tokens, what):
    """Checks that the agent answers a user and root, who ask meanwhile. Yields a list that has the
    count of answers at the end."""
    answers = []
    with Attacker(SECOND, attacker.use_agent, port, *tokens) as user, \
            Attacker(0, attacker.use_agent, port, *tokens) as root:
        yield answers
        for name, one in (("a user", user), ("root", root)):
            house.until(lambda one=one: sum(one.tally[:2]) >= 12, 20, f"{name} has asked 12 times")
            good, bad = one.tally[0], one.tally[1]
            check(bad == 0, f"{what}: {bad} of {good + bad} asked by {name} failed")
            answers.append(good)


@row("attacker.agent.subuids", group=G_ATTACKER, who="derated", by="worker", limit=2,
     fault="1000 subordinate ids of one user send wrong tokens to derate-agent, each another one, "
     "and 600 hold a connection each", when="5 s of guesses, then 5 s of both",
     outcome="they are one user: derated hears 10 of their tokens a second; `/metrics` and "
     "operations of another user and of root, with an old and a new token, are all answered")
def _(house):
    house.config_file.write_text(house.config_file.read_text() + f'[api]\nagent = "{FOURTH}"\n')
    daemon = house.governing()
    token = lambda name: json.loads(house.derate("token", "create", name, "--json"))["token"]
    program = agent_of(house, FOURTH, "--socket", house.run_dir / "api.sock", subuids=True)
    port = int(found_in(house, program, r"listening on \S+:(\d+)")[1])
    old = token("old")
    known = attacker.http(port, attacker.get("/v1/gpus", old))
    check(known == 200, "the token is good for nothing")
    with attack_of(house, 0, attacker.guess_as_ids, port, SUBORDINATES, 1000) as guesses:
        house.until(lambda: guesses.tally[2] > 0, 20, "the agent has refused a guess")
        before, began = list(guesses.tally[:2]), now()
        with served_by_agent(house, port, (old, token("second")), "guesses") as first:
            hold_out(house, daemon, daemon.worker(), 5)
        tries, heard = (guesses.tally[at] - before[at] for at in range(2))
        seconds = now() - began
        check(tries > 20 * seconds, f"only {tries} guesses in {seconds:.1f} s")
        check(heard <= 10 * seconds + 10, f"derated heard {heard} guesses in {seconds:.1f} s")
        with attack_of(house, 0, attacker.hold_agent, port, SUBORDINATES + 2000, 600) as places:
            house.until(lambda: places.tally[1] >= 2, 20, "they have connected")
            with served_by_agent(house, port, (old, token("third")), "places") as second:
                hold_out(house, daemon, daemon.worker(), 5)
            held = places.tally[2]
            check(held > 400, f"only {held} connections were held")
    send(program.pid, signal.SIGTERM)
    out = stop(house, daemon)
    out.note = (f"{heard} of {tries} tokens in {seconds:.0f} s; {held} connections held, "
                f"{sum(first + second)} answers")
    return out


# --- signals --------------------------------------------------------------------------------------

@contextlib.contextmanager
def storm(pids, number, a_second):
    over = threading.Event()

    def blow():
        while not over.wait(1 / a_second):
            for pid in pids:
                send(pid, number)
    thread = threading.Thread(target=blow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@row("attacker.signals", group=G_ATTACKER, fault="SIGHUP 100 times a second, for 10 s", limit=2,
     who="derated", by="worker",
     when="to guard and worker, while GPUs are taken and released by command",
     outcome="every command does what it says; a GPU that `derate run` has is refused each time; "
     "no lease is taken for another")
def _(house):
    held = house.run("sh", "-c", TRAP, options=("--policy", "power-cap", "-i", CAPPED))
    house.until(lambda: house.watts(CAPPED) == 240 and "started" in held.text(), 10,
                "GPU 1 is governed by the run")
    daemon = house.governing(capped=False)
    pids, rounds = (daemon.pid, daemon.worker()), 0
    with storm(pids, signal.SIGHUP, 100):
        end = now() + 10
        while now() < end:
            house.derate("policy", "set", "max-freq", "-i", GOVERNED)
            house.derate("policy", "set", "efficient-fix", "-i", CAPPED, code=75)
            house.derate("release", "-i", GOVERNED)
            rounds += 1
        house.derate("policy", "set", "max-freq", "-i", GOVERNED)
    check(daemon.worker() == pids[1], f"the worker is gone: {daemon.text()}")
    for gpu, owner in ((GOVERNED, daemon), (CAPPED, held)):
        said = house.derate("policy", "set", "power-cap", "-i", gpu, code=None)
        check(gpu == GOVERNED or f"pid {held.pid}" in said, f"GPU {gpu} is {owner.name}'s: {said}")
    check(house.watts(CAPPED) == 240, "the run's limit is gone")
    send(held.pid, signal.SIGTERM)
    expect_code(held, 7)
    out = stop(house, daemon)
    out.note = f"{rounds} times {len(pids)} commands and a refusal"
    return out
