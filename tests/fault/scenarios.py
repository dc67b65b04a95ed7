"""The faults of docs/faults.md: each a scenario that must end with every GPU as it was found."""

import dataclasses
import json
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Callable

from house import (CAPPED, CONFIG, FOREIGN, GOVERNED, HERE, DeathWatch, Failure, alive, check,
                   children, has_ended, now, send)

ROWS = []


class Skip(Exception):
    """Why a scenario cannot run here."""


@dataclasses.dataclass
class Measured:
    ms: float = 0            # from the fault, or from what ended it, to the settings as found
    by: str = ""             # who restored, by the audit log where it tells
    note: str = ""           # what else was seen, for the table
    governed: tuple = (GOVERNED,)  # GPUs of whose restore the audit log must tell


@dataclasses.dataclass
class Row:
    name: str
    group: str
    fault: str
    when: str
    who: str
    outcome: str
    by: str
    limit: float  # seconds, of `ms`
    run: Callable
    quick: bool = False
    tsan: bool = False
    chips: str = ""
    bare: bool = False  # no simulated GPUs before it begins


def row(name, **rest):
    """Registers the function as the scenario of a row."""
    def add(function):
        group = rest.pop("group", function.__module__)
        ROWS.append(Row(name=name, group=group, run=function, **rest))
        return function
    return add


WHO = {"derated": "worker", "derate run": "worker", "derated's guard": "guard",
       "derate run's guard": "guard", "derate restore": "`derate restore`"}


def restored(house, since, limit, gpu=GOVERNED, **rest):
    ms = house.until_restored(limit, since=since)
    who = []

    def told():
        who[:] = [house.restorer(gpu)]
        return who[0] is not None
    house.until(told, 5, f"the audit log tells who restored GPU {gpu}")
    return Measured(ms, WHO.get(who[0], who[0]), **rest)


def expect_code(program, wanted, limit=15):
    code = program.wait(limit * 1.0)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    check(code in wanted, f"{program.name}: exit code {code}, wanted {wanted}: {program.text()}")


def expect_text(program, *words, limit=5):
    """A program that lives may log in a moment what it has done."""
    until = now() + limit
    while (any(word not in program.text() for word in words) and now() < until
           and alive(program.pid)):
        time.sleep(0.002)
    text = program.text()
    for word in words:
        check(word in text, f"{program.name} does not say {word!r}: {text}")


def stop(house, program, code=0, limit=10, number=signal.SIGTERM):
    """Ends it as a service manager does; what it measured."""
    since = now()
    send(program.pid, number)
    out = restored(house, since, limit)
    expect_code(program, code)
    return out


def others_tick(house, rounds=4):
    """The loop goes on for the other GPUs, and their settings are as they were."""
    before, watts = house.rounds(), house.watts(CAPPED)
    house.until(lambda: house.rounds() >= before + rounds, 5, "the other GPUs' loop goes on")
    check(house.watts(CAPPED) == watts, "GPU 1's power limit was changed")
    check(house.settings(FOREIGN) == house.baseline[FOREIGN], "GPU 2 was changed")


# --- signals --------------------------------------------------------------------------------------

G_SIGNALS = "Signals and kills"


def add_daemon_stops():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        @row(f"derated.{number.name}", group=G_SIGNALS, fault=number.name, who="derated",
             when="to the guard, two GPUs governed", by="worker", limit=2,
             outcome="gives everything back, exits 0", quick=True, tsan=number == signal.SIGTERM)
        def _(house, number=number):
            return stop(house, house.governing(), number=number)

    @row("derated.SIGTERM.worker", group=G_SIGNALS, fault="SIGTERM", who="derated", by="worker",
         when="to the worker alone", limit=2, outcome="gives everything back, exits 0", quick=True)
    def _(house):
        daemon = house.governing()
        since = now()
        send(daemon.worker(), signal.SIGTERM)
        out = restored(house, since, 5)
        expect_code(daemon, 0)
        return out


add_daemon_stops()


@row("derated.SIGHUP", group=G_SIGNALS, fault="SIGHUP", who="derated", by="worker", limit=2,
     when="new configuration, then a bad one", quick=True, tsan=True,
     outcome="the new one applies, a bad one changes nothing and is reported; given back at the "
             "end")
def _(house):
    daemon = house.governing()
    before = house.locked(GOVERNED)
    house.config_file.write_text(CONFIG.replace("efficient-fix", "max-freq"))
    send(daemon.pid, signal.SIGHUP)
    house.until(lambda: (house.locked(GOVERNED) or 0) > before, 5, "the new policy's clock")
    house.config_file.write_text(CONFIG + "[nonsense]\n")
    send(daemon.pid, signal.SIGHUP)
    house.until(lambda: "the old configuration stays" in daemon.text(), 5, "the bad file is "
                                                                           "reported")
    check(house.watts(CAPPED) == 240, "the reload took GPU 1's policy")
    others_tick(house)
    return stop(house, daemon)


TRAP = "trap 'exit 7' HUP INT TERM; echo started; while :; do sleep 0.05; done"


def add_run_signals():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        @row(f"run.{number.name}", group=G_SIGNALS, fault=number.name, who="derate run",
             by="worker", when="to the guard while the command runs", limit=2,
             outcome="passed to the command; when that ends, given back; its exit code is kept",
             quick=True)
        def _(house, number=number):
            program = house.running("sh", "-c", TRAP)
            house.until(lambda: "started" in program.text(), 5, "the command runs")
            since = now()
            send(program.pid, number)
            out = restored(house, since, 5)
            expect_code(program, 7)
            return out


add_run_signals()


def add_kills():
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT):
        quick = number != signal.SIGABRT

        @row(f"derated.worker.{number.name}", group=G_SIGNALS, fault=number.name, who="derated",
             when="to the worker, two GPUs governed", by="guard", limit=2, quick=quick,
             tsan=number == signal.SIGKILL, outcome=f"the guard restores, exits {128 + number}")
        def _(house, number=number):
            daemon = house.governing()
            since = now()
            send(daemon.worker(), number)
            out = restored(house, since, 5)
            expect_code(daemon, 128 + number)
            check(house.restorer(CAPPED) == "derated's guard", "GPU 1 was not the guard's")
            return out

        @row(f"derated.guard.{number.name}", group=G_SIGNALS, fault=number.name, who="derated",
             when="to the guard, two GPUs governed", by="worker", limit=2, quick=quick,
             tsan=number == signal.SIGKILL, outcome="the worker gives everything back and ends")
        def _(house, number=number):
            daemon = house.governing()
            since = now()
            send(daemon.pid, number)
            out = restored(house, since, 5)
            expect_code(daemon, 128 + number)
            return out

        @row(f"run.worker.{number.name}", group=G_SIGNALS, fault=number.name, who="derate run",
             when="to the worker while the command runs", by="guard", limit=2, quick=quick,
             outcome="the guard restores; the command goes on, its exit code is kept")
        def _(house, number=number):
            program = house.running("sh", "-c", TRAP)
            house.until(lambda: "started" in program.text(), 5, "the command runs")
            command = house.command_of(program)
            since = now()
            send(program.worker(), number)
            out = restored(house, since, 5)
            check(alive(command), "the command did not go on")
            send(program.pid, signal.SIGTERM)
            expect_code(program, 7)
            return out

        @row(f"run.guard.{number.name}", group=G_SIGNALS, fault=number.name, who="derate run",
             when="to the guard while the command runs", by="worker", limit=2, quick=quick,
             outcome="the worker gives everything back; the command goes on")
        def _(house, number=number):
            program = house.running("sh", "-c", TRAP)
            house.until(lambda: "started" in program.text(), 5, "the command runs")
            command = house.command_of(program)
            since = now()
            send(program.pid, number)
            out = restored(house, since, 5)
            check(alive(command), "the command did not go on")
            send(command, signal.SIGTERM)
            house.until(lambda: not alive(command), 5, "the command ends")
            return out


add_kills()


def tuning(house, *command):
    """derate tune run that is measuring: GPU 0 has a limit that is not the one found."""
    program = house.start("tune", house.build / "derate", "tune", "run", "-i", GOVERNED,
                          "--highest", 260, "--", *command)
    house.until(lambda: house.watts(GOVERNED) == 260, 10, "GPU 0 is tuned")
    return program


@row("tune.worker.SIGKILL", group=G_SIGNALS, fault="SIGKILL", who="derate tune run", by="guard",
     when="to the worker while it measures", limit=2, quick=True,
     outcome="the guard restores the limit that was found; the command goes on")
def _(house):
    program = tuning(house, "sh", "-c", TRAP)
    house.until(lambda: "started" in program.text(), 5, "the command runs")
    since = now()
    send(program.worker(), signal.SIGKILL)
    out = restored(house, since, 5)
    send(program.pid, signal.SIGTERM)
    expect_code(program, 7)
    return out


@row("tune.end", group=G_SIGNALS, fault="none", who="derate tune run", by="worker",
     when="the command ends", limit=2,
     outcome="the limit that was found is back; the best one was measured by then")
def _(house):
    program = tuning(house, house.build / "derate", "sim", "job", "GeMM", "-i", GOVERNED, "--beat",
                     "--work", "90s")  # measured by then where the machine is busy, too
    program.wait(150)
    out = restored(house, now(), 5)
    expect_text(program, "best", "260 W", "energy and")
    return out



def kill_both(program, worker=None):
    """At once: neither sees the other die."""
    worker = worker or program.worker()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (program.pid, worker):
            send(pid, number)
    program.wait(5)
    # The worker is no child of ours. While one of its threads ends, its lease is still held.
    deadline = now() + 5
    while not has_ended(worker):
        check(now() < deadline, f"process {worker} has not ended")
        time.sleep(0.01)


def leave_locked(house):
    """A GPU whose governor is gone with its guard."""
    kill_both(house.governing(capped=False))
    house.until(lambda: house.journals() == [house.uuids[GOVERNED] + ".json"], 2, "its journal")
    check(house.locked(GOVERNED), "the GPU is not locked")


def both_killed(house, program):
    kill_both(program)
    check(not house.restored(), "somebody restored, and who could have?")
    since = now()
    house.derate("restore")
    return restored(house, since, 5)


@row("derated.both", group=G_SIGNALS, fault="SIGKILL", who="derated", by="`derate restore`",
     when="to guard and worker at once", limit=2, quick=True,
     outcome="stays as it is until the next start or `derate restore` (the unit's ExecStopPost)")
def _(house):
    return both_killed(house, house.governing())


@row("run.both", group=G_SIGNALS, fault="SIGKILL", who="derate run", by="`derate restore`",
     when="to guard and worker at once", limit=2, quick=True,
     outcome="stays as it is until the next start or `derate restore`; the command goes on")
def _(house):
    program = house.running("sh", "-c", TRAP)
    house.until(lambda: "started" in program.text(), 5, "the command runs")
    command = house.command_of(program)
    out = both_killed(house, program)
    check(alive(command), "the command did not go on")
    send(command, signal.SIGKILL)
    return out


# --- kills at every write -------------------------------------------------------------------------

G_POINTS = "Kills at every point"


def watched(house, program):
    house.until(lambda: program.worker() or program.process.poll() is not None, 5, "a worker")
    return DeathWatch(house, program.worker() or program.pid)


def scripted_daemon(house, extra=None):
    """Starts derated, has it write to two GPUs in every way, ends it; False where it was killed."""
    daemon = house.daemon("--silence", "5", "--restore-time", "5", extra=extra)

    def tell(*arguments, code=0):
        done = subprocess.run([str(house.build / "derate"), *map(str, arguments)],
                              env=house.environment, capture_output=True, text=True, timeout=30)
        return done.returncode == code

    def reach(holds):
        house.until(lambda: holds() or daemon.process.poll() is not None, 15, "the next step")
        return daemon.process.poll() is None
    house.daemon_of_sweep = daemon
    house.watch = watched(house, daemon)
    return (reach(lambda: house.locked(GOVERNED) and house.rounds() > 0)
            and tell("policy", "set", "power-cap", "-i", CAPPED)
            and reach(lambda: house.watts(CAPPED) == 240)
            and tell("policy", "set", "max-freq", "-i", GOVERNED)
            and reach(lambda: house.locked(GOVERNED) == 1530)
            and tell("release", "-i", CAPPED)
            and reach(lambda: house.watts(CAPPED) == 270))


def sweep_daemon(house, arm, points):
    """Kills the worker at point after point until a run sees its end; (points, slowest ms)."""
    slowest, struck, at = 0, 0, 0
    for at in points:
        extra = arm(at)
        scripted_daemon(house, extra)
        daemon = house.daemon_of_sweep
        send(daemon.pid, signal.SIGTERM)
        code = daemon.wait(15 * house.slow)
        check(code in (0, 137), f"point {at}: exit code {code}: {daemon.text()}")
        house.until_restored(5)
        slowest = max(slowest, house.watch.end())
        check(not house.journals(), f"point {at}: left {house.journals()}")
        check(not house.leases_held(), f"point {at}: leases are held")
        check(house.audit() is not None, "the audit log")
        if code == 0:
            return struck, slowest
        struck += 1
    raise Failure(f"still killed at point {at}")


def add_write_points():
    for moment in ("before", "after"):
        @row(f"derated.write.{moment}", group=G_POINTS, fault="SIGKILL of the worker",
             who="derated", by="guard", limit=2, quick=moment == "after",
             when=f"just {moment} each of its writes to two GPUs (locks, limits, resets)",
             outcome="the guard restores what the journal names")
        def _(house, moment=moment):
            def arm(at):
                house.fault("--clear")
                house.fault("--kill-writer", moment, "--at", at)
            struck, slowest = sweep_daemon(house, arm, range(1, 30))
            house.fault("--clear")
            check(struck >= 5, f"only {struck} writes")
            return Measured(slowest, "guard", f"{struck} writes")

        @row(f"run.write.{moment}", group=G_POINTS, fault="SIGKILL of the worker",
             who="derate run", by="guard", limit=2, quick=moment == "before",
             when=f"just {moment} each of its writes", outcome="the guard restores; the command "
             "ends by itself and its exit code is kept")
        def _(house, moment=moment):
            slowest = 0
            for at in (1, 2):
                house.fault("--kill-writer", moment, "--at", at)
                program = house.run("sh", "-c", "sleep 0.3; exit 5")
                watch = watched(house, program)
                # The first write comes before the command is started: then there is none.
                expect_code(program, 125 if at == 1 else 5)
                house.until_restored(5)
                slowest = max(slowest, watch.end())
                check(not house.journals(), "a journal is left")
            return Measured(slowest, "guard", "2 writes")

    @row("derated.write.restorer", group=G_POINTS, fault="SIGKILL of the worker and of the "
         "guard's restorer", who="derated", by="`derate restore`", limit=2, quick=True,
         when="just before the restorer's write",
         outcome="reported, the journal is kept; `derate restore` restores")
    def _(house):
        daemon = house.governing(capped=False)
        house.fault("--kill-writer", "before", "--at", 1)
        send(daemon.worker(), signal.SIGKILL)
        expect_code(daemon, 137)
        expect_text(daemon, "not restored: " + house.uuids[GOVERNED])
        check(len(house.journals()) == 1, "the journal is gone")
        since = now()
        house.derate("restore")
        return restored(house, since, 5)


add_write_points()


def kill_point(house, at, log=None):
    return {"LD_PRELOAD": str(house.build / "tests/libkill_point.so"), "DERATE_KILL_AT": str(at),
            "DERATE_KILL_LOG": str(log or house.folder / "kill.log")}


def calls_made(house):
    """What the killed workers were about to do: '12 rename GPU-....json'."""
    text = (house.folder / "kill.log").read_text()
    return {line.split()[1] for line in text.splitlines()}


@row("derated.files", group=G_POINTS, fault="SIGKILL of the worker", who="derated", by="guard",
     when="before each call that changes a file, takes a lease or reports to the guard", limit=2,
     outcome="the guard restores what the journal names; no half file misleads it")
def _(house):
    struck, slowest = sweep_daemon(house, lambda at: kill_point(house, at), range(1, 400))
    calls = calls_made(house)
    for wanted in ("open", "write", "fsync", "rename", "unlink", "sendmsg"):
        check(wanted in calls, f"no {wanted} among the calls: {calls}")
    return Measured(slowest, "guard", f"{struck} calls: {', '.join(sorted(calls))}")


@row("run.files", group=G_POINTS, fault="SIGKILL of the worker", who="derate run", by="guard",
     when="before each call that changes a file, takes a lease or reports to the guard", limit=2,
     outcome="the guard restores; the command, once started, goes on")
def _(house):
    slowest = struck = 0
    for at in range(1, 300):
        program = house.run("sh", "-c", "sleep 0.3; exit 5", extra=kill_point(house, at))
        watch = watched(house, program)
        code = program.wait(15 * house.slow)
        check(code in (5, 125), f"call {at}: exit code {code}: {program.text()}")
        house.until_restored(5)
        slowest = max(slowest, watch.end())
        check(not house.journals(), f"call {at}: left {house.journals()}")
        lines = (house.folder / "kill.log").read_text().splitlines()
        if int(lines[-1].split()[0]) < at:
            return Measured(slowest, "guard", f"{struck} calls: "
                                              f"{', '.join(sorted(calls_made(house)))}")
        struck += 1
    raise Failure("still killed")


def draw_kills(house, draws):
    random_numbers = random.Random(house.seed)
    slowest, seen = 0, {}
    for draw in range(draws):
        victim = random_numbers.choice(("worker", "guard", "both"))
        delay = random_numbers.uniform(0, 1.5)
        daemon = house.daemon("--silence", "5", "--restore-time", "5")
        house.until(lambda: daemon.worker(), 5, "the worker is there")
        worker = daemon.worker()
        time.sleep(delay)  # the moment itself is what is drawn
        since = now()
        if victim == "both":
            kill_both(daemon, worker)
            house.derate("restore")
        else:
            send(worker if victim == "worker" else daemon.pid, signal.SIGKILL)
            daemon.wait(10 * house.slow)
        house.until(lambda: not house.processes_left(), 5, f"draw {draw}: all have ended")
        slowest = max(slowest, house.until_restored(5, since=since))
        check(not house.journals(), f"draw {draw} ({victim}, {delay:.3f} s): {house.journals()}")
        seen[victim] = seen.get(victim, 0) + 1
    drawn = ", ".join(f"{count} {victim}" for victim, count in sorted(seen.items()))
    return Measured(slowest, "guard, worker or `derate restore`", drawn, governed=())


@row("derated.random.few", group=G_POINTS, fault="SIGKILL of worker, guard or both", quick=True,
     who="derated", by="guard, worker or `derate restore`", limit=3,
     when="at a random time of the first 1.5 s, 5 draws",
     outcome="restored; with both gone, by `derate restore`")
def _(house):
    return draw_kills(house, 5)


@row("derated.random", group=G_POINTS, fault="SIGKILL of worker, guard or both",
     who="derated", by="guard, worker or `derate restore`", limit=3,
     when="at a random time of the first 1.5 s, 24 draws",
     outcome="restored; with both gone, by `derate restore`")
def _(house):
    return draw_kills(house, 24)


# --- NVML errors ----------------------------------------------------------------------------------

G_ERRORS = "Driver errors"
CODES = ("no_permission", "not_supported", "gpu_is_lost", "timeout", "unknown")
# Every call that derated makes, in the order of src/device/nvml/nvml_library.cc.
OPEN_CALLS = (
    "nvmlInit_v2", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetArchitecture", "nvmlDeviceGetSupportedMemoryClocks",
    "nvmlDeviceGetSupportedGraphicsClocks", "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetPowerManagementDefaultLimit", "nvmlDeviceGetTemperatureThreshold",
    "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc")
READ_CALLS = (
    "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetClockInfo", "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetFieldValues", "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetTemperature", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetMigMode",
    "nvmlGpmSampleGet", "nvmlGpmMetricsGet")
SETTING_CALLS = ("nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetApplicationsClock")
WRITE_CALLS = ("nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks",
               "nvmlDeviceSetPowerManagementLimit")
PROCESS_WIDE = ("nvmlInit_v2", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2",
                "nvmlGpmSampleAlloc", "nvmlGpmMetricsGet", "nvmlDeviceGetHandleByIndex_v2")


def break_call(house, call, how):
    """On GPU 0 where the call names a GPU, for all where it does not."""
    where = () if call in PROCESS_WIDE else ("-i", GOVERNED)
    house.fault(*where, "--call", call, *how)


def start_with_errors(house, code, calls):
    """Starts derated once for each call that fails; it governs, observes or says why it cannot."""
    slowest, ended = 0, 0
    for call in calls:
        break_call(house, call, ("--fails", code))
        daemon = house.daemon()
        house.until(lambda: house.rounds() > 2 or daemon.process.poll() is not None, 15,
                    f"{call} fails with {code}: derated runs or ends")
        if daemon.process.poll() is None:
            check(house.settings(FOREIGN) == house.baseline[FOREIGN], f"{call}: GPU 2 was changed")
            send(daemon.pid, signal.SIGTERM)
        else:
            ended += 1
            check(len(daemon.text()) > 20, f"{call} fails with {code}: derated says nothing")
        since = now()
        exit_code = daemon.wait(15 * house.slow)
        check(exit_code < 128, f"{call} fails with {code}: exit code {exit_code}: {daemon.text()}")
        if not house.restored():
            house.fault("--clear")
            house.derate("restore")
            since = now()
        slowest = max(slowest, house.until_restored(5, since=since))
        house.fault("--clear")
        if house.journals():
            house.derate("restore")
        check(not house.journals(), f"{call} fails with {code}: left {house.journals()}")
    return Measured(slowest, "worker", f"{len(calls)} calls; with {ended} of them it cannot "
                                       "start and says why", governed=())


def errors_in_flight(house, code, calls):
    """Each call fails for a while under a derated that governs; the others go on."""
    daemon = house.governing()
    for call in calls:
        break_call(house, call, ("--fails", code))
        before = house.rounds()
        house.until(lambda: house.rounds() > before + 3 or not alive(daemon.pid), 10,
                    f"{call} fails with {code}: the loop goes on")
        check(alive(daemon.pid), f"{call} fails with {code}: derated ended: {daemon.text()}")
        check(house.watts(CAPPED) == 240, f"{call}: GPU 1 is not at its limit")
        house.fault("--clear")
    house.until(lambda: house.locked(GOVERNED), 15, "GPU 0 is governed")
    out = stop(house, daemon)
    out.note = f"{len(calls)} calls"
    return out


def error_at_restore(house, code, call, gpu):
    daemon = house.governing()
    house.fault("-i", gpu, "--call", call, "--fails", code)
    send(daemon.pid, signal.SIGTERM)
    other = CAPPED if gpu == GOVERNED else GOVERNED
    house.until_restored(3, other)
    exit_code = daemon.wait(15 * house.slow)
    check(0 < exit_code < 128, f"exit code {exit_code} though GPU {gpu} is not restored")
    expect_text(daemon, "not restored: " + house.uuids[gpu])
    check(house.journals() == [house.uuids[gpu] + ".json"], f"journals: {house.journals()}")
    code_now = house.derate("restore", code=1)
    check("not restored" in code_now, f"derate restore says {code_now}")
    house.fault("--clear")
    since = now()
    house.derate("restore")
    return restored(house, since, 5, gpu=gpu, note=f"exit code {exit_code}")


def add_errors():
    for code in CODES:
        quick = code == "unknown"

        @row(f"derated.start.{code}", group=G_ERRORS, fault=f"NVML error `{code}`", who="derated",
             when="at start, in each call that opening, reading and writing make", by="worker",
             limit=2, outcome="GPU 0 is governed, observed or left alone with a message; the "
             "others are not touched")
        def _(house, code=code):
            return start_with_errors(house, code,
                                     OPEN_CALLS + READ_CALLS + SETTING_CALLS + WRITE_CALLS)

        @row(f"derated.flight.{code}", group=G_ERRORS, fault=f"NVML error `{code}`", who="derated",
             when="in flight, in each call of reading and writing", by="worker", limit=2,
             quick=quick, outcome="the other GPUs' loop goes on; governed again; given back")
        def _(house, code=code):
            return errors_in_flight(house, code, READ_CALLS + SETTING_CALLS + WRITE_CALLS)

        @row(f"derated.reset.{code}", group=G_ERRORS, fault=f"NVML error `{code}`", who="derated",
             when="while it gives a locked clock back", by="`derate restore`", limit=2,
             quick=quick, outcome="the others are given back; reported, exit code not 0, the "
                                  "journal "
             "is kept; `derate restore` restores once the driver does")
        def _(house, code=code):
            return error_at_restore(house, code, "nvmlDeviceResetGpuLockedClocks", GOVERNED)

        @row(f"derated.limit.{code}", group=G_ERRORS, fault=f"NVML error `{code}`", who="derated",
             when="while it gives a power limit back", by="`derate restore`", limit=2,
             outcome="the others are given back; reported, exit code not 0, the journal is kept; "
             "`derate restore` restores once the driver does")
        def _(house, code=code):
            return error_at_restore(house, code, "nvmlDeviceSetPowerManagementLimit", CAPPED)

    @row("derated.start.few", group=G_ERRORS, fault="NVML error `unknown`", who="derated",
         when="at start, in a read, a write and the opening", by="worker", limit=2, quick=True,
         outcome="governed, observed or left alone with a message")
    def _(house):
        return start_with_errors(house, "unknown", (
            "nvmlInit_v2", "nvmlDeviceGetName", "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceSetGpuLockedClocks"))

    @row("run.start.no_permission", group=G_ERRORS, fault="NVML error `no_permission`", quick=True,
         who="derate run", when="in the first write", by="nobody: nothing was written", limit=2,
         outcome="the command runs ungoverned, the error is reported, its exit code is kept")
    def _(house):
        house.fault("--call", "nvmlDeviceSetGpuLockedClocks", "--fails", "no_permission")
        program = house.run("sh", "-c", "sleep 0.5; exit 5")
        expect_code(program, 5)
        expect_text(program, "ermission")
        return Measured(house.until_restored(5), "nobody: nothing was written", governed=())


add_errors()

# --- calls that hang ------------------------------------------------------------------------------

G_HANGS = "Calls that hang"


@row("derated.hang.read", group=G_HANGS, fault="a read hangs", who="derated", by="worker",
     when="in flight, then comes back", limit=2, quick=True, tsan=True,
     outcome="that GPU is stale, the others' loop goes on; governed again; given back")
def _(house):
    daemon = house.governing()
    house.fault("-i", GOVERNED, "--call", "nvmlDeviceGetUtilizationRates", "--hangs")
    house.until(lambda: "no answer from the driver" in house.trouble(GOVERNED), 5,
                "the hang is reported")
    others_tick(house, 10)
    house.fault("--clear")
    house.until(lambda: not house.trouble(GOVERNED), 5, "GPU 0 answers again")
    return stop(house, daemon)


@row("derated.hang.read.stop", group=G_HANGS, fault="a read hangs", who="derated", by="guard",
     when="for ever, and derated is stopped", limit=3, quick=True,
     outcome="the worker gives the others back and ends; the guard restores that GPU")
def _(house):
    daemon = house.governing()
    house.fault("-i", GOVERNED, "--call", "nvmlDeviceGetUtilizationRates", "--hangs")
    house.until(lambda: "no answer from the driver" in house.trouble(GOVERNED), 5,
                "the hang is reported")
    since = now()
    send(daemon.pid, signal.SIGTERM)
    out = restored(house, since, 8)
    expect_code(daemon, (1, 15, 75))  # 75: the call hangs for less than 2 s then, as it is another
    house.fault("--clear")
    return out


@row("derated.hang.write", group=G_HANGS, fault="a write hangs", who="derated", by="worker",
     when="the first lock, then comes back", limit=2, quick=True,
     outcome="reported in the state, the other GPUs are governed; given back at the end")
def _(house):
    house.fault("-i", GOVERNED, "--call", "nvmlDeviceSetGpuLockedClocks", "--hangs")
    daemon = house.daemon("--silence", "2", "--restore-time", "2")
    house.until(lambda: "no answer from the driver" in house.trouble(GOVERNED), 10,
                "the hang is reported")
    house.derate("policy", "set", "power-cap", "-i", CAPPED)
    house.until(lambda: house.watts(CAPPED) == 240, 5, "GPU 1 is governed")
    others_tick(house)
    house.fault("--clear")
    house.until(lambda: house.locked(GOVERNED), 10, "GPU 0 is governed")
    return stop(house, daemon)


def hanging_restore(house, end):
    """The reset of GPU 0 hangs while `end` ends the daemon; GPU 1 is restored meanwhile."""
    daemon = house.governing()
    house.fault("-i", GOVERNED, "--call", "nvmlDeviceResetGpuLockedClocks", "--hangs")
    since = now()
    end(daemon)
    others = house.until_restored(3, CAPPED, since=since)
    exit_code = daemon.wait(15 * house.slow)
    ended = now() - since
    check(exit_code not in (0, 255), f"exit code {exit_code}")
    check(ended < 6 * house.slow, f"ended only after {ended:.1f} s, and a restore has 2")
    expect_text(daemon, "not restored: " + house.uuids[GOVERNED])
    check(house.locked(GOVERNED), "GPU 0 was reset")
    house.fault("--clear")
    since = now()
    house.derate("restore")
    return restored(house, since, 5, note=f"GPU 1 after {others:.0f} ms, the daemon's end after "
                                          f"{ended:.1f} s")


@row("derated.hang.restore", group=G_HANGS, fault="the reset hangs", who="derated",
     when="derated is stopped", by="`derate restore`", limit=2, quick=True, tsan=True,
     outcome="the others at once; the restorer is killed after its time, reported, the journal "
             "kept; "
     "once the driver answers `derate restore` restores")
def _(house):
    return hanging_restore(house, lambda daemon: send(daemon.pid, signal.SIGTERM))


@row("derated.hang.restore.kill", group=G_HANGS, fault="the reset hangs", who="derated",
     when="the worker is killed", by="`derate restore`", limit=2,
     outcome="the others at once; the restorer is killed after its time, reported, the journal "
             "kept; "
     "once the driver answers `derate restore` restores")
def _(house):
    return hanging_restore(house, lambda daemon: send(daemon.worker(), signal.SIGKILL))


@row("derated.hang.open", group=G_HANGS, fault="opening a GPU hangs", who="derated",
     when="at start, then comes back", by="worker", limit=2, quick=True,
     outcome="nothing is written while it hangs; governed once it opens; given back")
def _(house):
    house.fault("--call", "nvmlDeviceGetHandleByIndex_v2", "--hangs")
    daemon = house.daemon("--silence", "2")
    house.until(lambda: (house.run_dir / "control.sock").exists(), 5, "derated listens")
    time.sleep(3)  # longer than the silence after which a worker is killed
    check(alive(daemon.pid) and house.restored(), "derated ended or wrote")
    house.fault("--clear")
    house.until(lambda: house.locked(GOVERNED), 10, "GPU 0 is governed")
    return stop(house, daemon)


@row("derated.hang.open.stop", group=G_HANGS, fault="opening a GPU hangs", who="derated",
     when="for ever, and derated is stopped", by="nobody: nothing was written", limit=2,
     quick=True, outcome="ends at once, exit code 0")
def _(house):
    house.fault("--call", "nvmlDeviceGetHandleByIndex_v2", "--hangs")
    daemon = house.daemon("--silence", "2")
    house.until(lambda: (house.run_dir / "control.sock").exists(), 5, "derated listens")
    since = now()
    send(daemon.pid, signal.SIGTERM)
    expect_code(daemon, 0)
    ms = (now() - since) * 1000
    house.fault("--clear")
    return Measured(ms, "nobody: nothing was written", governed=())


@row("run.hang.open", group=G_HANGS, fault="opening a GPU hangs", who="derate run",
     when="for ever", by="nobody: nothing was written", limit=2,
     outcome="gives up after 30 s with exit code 125; the command was not started")
def _(house):
    house.fault("--call", "nvmlDeviceGetHandleByIndex_v2", "--hangs")
    program = house.run("touch", house.folder / "was-run")
    expect_code(program, 125, limit=45)
    expect_text(program, "has not answered")
    check(not (house.folder / "was-run").exists(), "the command was run")
    house.fault("--clear")
    return Measured(0, "nobody: nothing was written", governed=())


@row("run.hang.reset", group=G_HANGS, fault="the reset hangs", who="derate run",
     when="the command has ended", by="`derate restore`", limit=2,
     outcome="reported, the restorer is killed after 10 s, the command's exit code is kept; once "
             "the "
     "driver answers `derate restore` restores")
def _(house):
    program = house.running("sh", "-c", TRAP)
    house.until(lambda: "started" in program.text(), 5, "the command runs")
    house.fault("-i", GOVERNED, "--call", "nvmlDeviceResetGpuLockedClocks", "--hangs")
    send(program.pid, signal.SIGTERM)
    expect_code(program, 7, limit=25)
    expect_text(program, "not restored")
    house.fault("--clear")
    since = now()
    house.derate("restore")
    return restored(house, since, 5)


def interrupted_restorer(house, program, code, victim):
    """A Ctrl-C reaches every process of the program while a GPU is being restored."""
    house.fault("-i", GOVERNED, "--call", "nvmlDeviceResetGpuLockedClocks", "--hangs")
    worker = program.worker()
    send(worker, signal.SIGKILL)
    house.until(lambda: not alive(worker) and victim(program), 5, "a restorer is at work")
    time.sleep(0.3)  # the process that looks for journals has ended by then
    check(victim(program), "no restorer is at work")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.killpg(program.pid, number)
    since = now()
    house.fault("--clear")
    out = restored(house, since, 5)
    expect_code(program, code)
    return out


@row("derated.restorer.signals", group=G_HANGS, fault="SIGINT, SIGTERM, SIGHUP to all processes",
     who="derated", when="while the guard's restorer is in the driver", by="guard", limit=2,
     quick=True, outcome="the restorer finishes; then the guard ends")
def _(house):
    return interrupted_restorer(house, house.governing(capped=False), 137,
                                lambda program: children(program.pid))


@row("run.restorer.signals", group=G_HANGS, fault="SIGINT, SIGTERM, SIGHUP to all processes",
     who="derate run", when="while the guard's restorer is in the driver", by="guard", limit=2,
     outcome="the restorer finishes; the command's exit code is kept")
def _(house):
    program = house.running("sh", "-c", TRAP)
    house.until(lambda: "started" in program.text(), 5, "the command runs")
    return interrupted_restorer(house, program, 7, lambda program: len(children(program.pid)) > 1)


# --- what the GPU does ----------------------------------------------------------------------------

G_GPU = "The GPU and its sensors"


@row("derated.ignored.lock", group=G_GPU, fault="a lock does nothing", who="derated", by="worker",
     when="from the start, the GPU busy", limit=2, quick=True,
     outcome="an error in `derate status` within seconds; given back at the end")
def _(house):
    house.fault("-i", GOVERNED, "--writes-ignored")
    house.job(GOVERNED)
    daemon = house.daemon()
    seen = house.until(lambda: "no effect" in house.trouble(GOVERNED), 8, "the error is reported")
    house.until(lambda: "no effect" in house.derate("status"), 3, "`derate status` tells")
    out = stop(house, daemon)
    house.fault("--clear")
    out.note = f"reported after {seen:.1f} s"
    return out


@row("derated.ignored.power", group=G_GPU, fault="a power limit does nothing", who="derated",
     when="from the start", by="worker", limit=2, quick=True,
     outcome="an error in `derate status` within seconds; given back at the end")
def _(house):
    house.fault("-i", CAPPED, "--writes-ignored")
    daemon = house.daemon()
    house.until(lambda: house.locked(GOVERNED) and house.rounds(), 10, "GPU 0 is governed")
    house.derate("policy", "set", "power-cap", "-i", CAPPED)
    seen = house.until(lambda: "no effect" in house.trouble(CAPPED), 5, "the error is reported")
    out = stop(house, daemon)
    house.fault("--clear")
    out.note = f"reported after {seen:.1f} s"
    return out


def check_frozen_meter(house):
    """A counter that stands still is reported, and power readings are used instead: the energy is
    within a tenth of the truth."""
    house.until(lambda: "stands still" in house.derate("events"), 8, "meter_doubted is reported")
    measured = json.loads(house.derate("energy", "-i", GOVERNED, "--for", "6s", "--json"))
    gpu = measured["gpus"][0]
    check(gpu["energy_joules"] and gpu["integrated_joules"], f"no energy: {gpu}")
    off = gpu["energy_joules"] / gpu["integrated_joules"]
    check(0.9 < off < 1.1, f"the energy is not the power's: {gpu}")
    check(gpu["agree"] is False and gpu["source"] != "counter", f"not reported: {gpu}")


def add_sensor_faults():
    faults = {"frozen": ("--counters", "frozen"), "wrapped": ("--counters", "wrapped"),
              "jump": ("--counters", "jump"), "backwards": ("--counters", "backwards"),
              "absurd": ("--absurd",)}
    texts = {"frozen": "counters stand still", "wrapped": "counters wrap around",
             "jump": "counters jump ahead", "backwards": "counters go back",
             "absurd": "sensors read all ones"}
    for name, arguments in faults.items():
        @row(f"derated.sensors.{name}", group=G_GPU, fault=texts[name], who="derated", by="worker",
             when="in flight, the GPU busy", limit=2, quick=name == "wrapped",
             outcome="the loop goes on, no figure shown is beyond what a GPU can have; given back")
        def _(house, arguments=arguments):
            house.job(GOVERNED)
            daemon = house.governing()
            house.fault("-i", GOVERNED, *arguments)
            for _ in range(3):
                others_tick(house, 10)
                state = house.gpu_state(GOVERNED)
                check(0 <= state.get("power_watts", 0) <= 1000, f"power: {state}")
                check(0 <= state.get("sm_clock_mhz", 0) <= 3000, f"clock: {state}")
                check(0 <= state.get("temperature_celsius", 0) <= 150, f"temperature: {state}")
                check(0 <= state.get("gpu_utilisation_ratio", 0) <= 1, f"utilisation: {state}")
            if arguments[-1] == "frozen":
                check_frozen_meter(house)
            house.fault("--clear")
            return stop(house, daemon)


add_sensor_faults()
QUICK_EXPIRY = CONFIG + "[safety]\nstale_after_s = 0.5\nexpire_after_s = 0.5\n"


@row("derated.lost", group=G_GPU, fault="the GPU is lost and comes back", who="derated",
     when="a locked clock", by="worker", limit=2, quick=True,
     outcome="reported; opened anew every 10 s; governed again; given back at the end")
def _(house):
    house.config_file.write_text(QUICK_EXPIRY)
    daemon = house.governing()
    house.fault("-i", GOVERNED, "--lost")
    house.until(lambda: house.trouble(GOVERNED), 5, "the loss is reported")
    house.baseline[GOVERNED] = house.settings(GOVERNED)  # a reset GPU has its defaults
    others_tick(house, 10)
    house.fault("--clear")
    back = house.until(lambda: house.locked(GOVERNED), 25, "GPU 0 is governed again")
    out = stop(house, daemon)
    out.note = f"governed again {back:.1f} s after its return"
    return out


@row("derated.lost.power", group=G_GPU, fault="the GPU is lost and comes back", who="derated",
     when="a power limit", by="worker", limit=2,
     outcome="governed again; at the end the limit that was found, not the reset GPU's default")
def _(house):
    house.config_file.write_text(QUICK_EXPIRY)
    daemon = house.governing()
    house.fault("-i", CAPPED, "--lost")
    house.until(lambda: house.trouble(CAPPED), 5, "the loss is reported")
    house.until(lambda: house.watts(CAPPED) == 300, 5, "the limit is the factory's")
    house.fault("--clear")
    back = house.until(lambda: house.watts(CAPPED) == 240, 25, "GPU 1 is governed again")
    out = stop(house, daemon)
    out.note = f"governed again {back:.1f} s after its return"
    return out


@row("derated.lost.killed", group=G_GPU, fault="the GPU is lost, then the worker is killed",
     who="derated", when="the GPU is still lost", by="`derate restore`", limit=2,
     outcome="reported, the journal is kept; `derate restore` restores once it is back")
def _(house):
    daemon = house.governing()
    house.fault("-i", CAPPED, "--lost")
    send(daemon.worker(), signal.SIGKILL)
    expect_code(daemon, 137)
    expect_text(daemon, "not restored: " + house.uuids[CAPPED])
    house.fault("--clear")
    since = now()
    house.derate("restore")
    return restored(house, since, 5, gpu=CAPPED)


@row("derated.mig", group=G_GPU, fault="MIG is switched on under us", who="derated", by="worker",
     when="a locked clock", limit=2, chips="H200",
     outcome="that GPU is opened anew and governed again; given back at the end")
def _(house):
    house.config_file.write_text(QUICK_EXPIRY)
    daemon = house.governing(capped=False)
    house.foreign("mig:0:1")
    house.until(lambda: not house.locked(GOVERNED), 5, "the change reset the GPU")
    house.baseline[GOVERNED] = house.settings(GOVERNED)
    back = house.until(lambda: house.locked(GOVERNED), 30, "GPU 0 is governed again")
    out = stop(house, daemon)
    out.note = f"governed again after {back:.1f} s"
    return out


# --- other tools ----------------------------------------------------------------------------------

G_OTHERS = "Other tools and governors"
CAP_CONFIG = CONFIG.replace("efficient-fix", "power-cap").replace('"0"', '"1"')


def start_capped(house, config):
    house.config_file.write_text(config)
    daemon = house.daemon()
    house.until(lambda: house.watts(CAPPED) == 240, 10, "GPU 1 is governed")
    return daemon


def end_yielded(house, daemon, watts):
    """The other tool's setting stays, whatever becomes of the daemon."""
    house.baseline[CAPPED] = house.settings(CAPPED)
    check(not house.journals(), f"left to another tool, and {house.journals()}")
    check(any(entry["what"] == "yield" for entry in house.audit()),
          "the audit log does not tell that it was left to another tool")
    since = now()
    send(daemon.pid, signal.SIGTERM)
    expect_code(daemon, 0)
    check(house.watts(CAPPED) == watts, f"{house.watts(CAPPED)} W: the other tool's was {watts}")
    return Measured((now() - since) * 1000, "nobody: the other tool's setting stays", governed=())


@row("derated.drift.reassert", group=G_OTHERS, fault="another tool changes the power limit",
     who="derated", when="again and again, `on_drift = \"reassert\"`", limit=2, quick=True,
     by="nobody: the other tool's setting stays",
     outcome="set again 3 times in a minute, then left to it and reported")
def _(house):
    daemon = start_capped(house, CAP_CONFIG)
    for _ in range(3):
        house.foreign("power:1:200")
        house.until(lambda: house.watts(CAPPED) == 240, 5, "the limit is set again")
    house.foreign("power:1:200")
    house.until(lambda: "left to it" in house.trouble(CAPPED), 5, "it is left to the other tool")
    return end_yielded(house, daemon, 200)


@row("derated.drift.yield", group=G_OTHERS, fault="another tool changes the power limit",
     who="derated", when="once, `on_drift = \"yield\"`", limit=2, quick=True,
     by="nobody: the other tool's setting stays", outcome="left to it at once and reported")
def _(house):
    daemon = start_capped(house, CAP_CONFIG.replace("[governor]\n",
                                                    "[governor]\non_drift = \"yield\"\n"))
    house.foreign("power:1:200")
    house.until(lambda: "left to it" in house.trouble(CAPPED), 5, "it is left to the other tool")
    return end_yielded(house, daemon, 200)


@row("derated.drift.published", group=G_OTHERS, fault="another tool changes the clock lock",
     who="derated", when="once, a policy that runs as published, the GPU busy", limit=2,
     by="worker", outcome="counted and shown; given back at the end (the lock is reset)")
def _(house):
    house.job(GOVERNED)
    daemon = house.governing()
    time.sleep(1)  # long enough for the lock to be seen in effect
    house.foreign("lock:0:1380:1380")
    house.until(lambda: house.gpu_state(GOVERNED).get("drifts", 0) > 0, 8, "it is counted")
    return stop(house, daemon)


@row("two.daemons", group=G_OTHERS, fault="a second derated", who="derated", by="worker", limit=2,
     when="while the first governs", quick=True,
     outcome="exits 75 and names the first, which goes on")
def _(house):
    first = house.governing()
    second = house.daemon()
    expect_code(second, 75)
    expect_text(second, f"pid {first.pid}")
    others_tick(house)
    return stop(house, first)


@row("daemon.then.run", group=G_OTHERS, fault="`derate run` on a governed GPU", who="derate run",
     when="derated governs it", by="worker", limit=2, quick=True,
     outcome="exits 125 and names derated; the command is not started; derated goes on")
def _(house):
    daemon = house.governing()
    writes = house.writes(GOVERNED)
    program = house.run("touch", house.folder / "was-run")
    expect_code(program, 125)
    expect_text(program, f"derated, pid {daemon.pid}")
    check(not (house.folder / "was-run").exists(), "the command was run")
    check(house.writes(GOVERNED) == writes, "the GPU was written to")
    return stop(house, daemon)


@row("run.then.daemon", group=G_OTHERS, fault="derated on a GPU that `derate run` governs",
     who="derated", when="the run goes on, then ends", by="worker", limit=2, quick=True,
     outcome="observes it and says whose it is; governs it within 5 s of the run's end")
def _(house):
    program = house.running("sh", "-c", TRAP)
    house.until(lambda: "started" in program.text(), 5, "the command runs")
    daemon = house.daemon()
    house.until(lambda: f"pid {program.pid}" in house.trouble(GOVERNED), 10, "it names the run")
    send(program.pid, signal.SIGTERM)
    expect_code(program, 7)
    house.until(lambda: house.gpu_state(GOVERNED).get("policy") and house.locked(GOVERNED), 10,
                "derated governs it")
    return stop(house, daemon)


@row("two.runs", group=G_OTHERS, fault="a second `derate run`", who="derate run", by="worker",
     when="on the same GPU", limit=2, quick=True,
     outcome="exits 125 and names the first, which goes on")
def _(house):
    first = house.running("sh", "-c", TRAP)
    house.until(lambda: "started" in first.text(), 5, "the command runs")
    second = house.run("true")
    expect_code(second, 125)
    expect_text(second, f"pid {first.pid}")
    check(house.locked(GOVERNED), "the first run's lock is gone")
    since = now()
    send(first.pid, signal.SIGTERM)
    out = restored(house, since, 5)
    expect_code(first, 7)
    return out


# --- the disk -------------------------------------------------------------------------------------

G_DISK = "The disk and its journals"


def refuse_to_write(house, daemon, text):
    """No journal, no writes: told, and nothing was written."""
    house.until(lambda: "no journal" in house.trouble(GOVERNED), 10, "the reason is reported")
    check(text in house.trouble(GOVERNED), f"the reason: {house.trouble(GOVERNED)}")
    check(house.writes(GOVERNED) == house.writes_found, "the GPU was written to")
    others = house.rounds()
    house.until(lambda: house.rounds() > others + 5, 5, "the loop goes on")


NOTHING = "nobody: nothing was written"


@row("derated.disk.full", group=G_DISK, fault="the disk is full", who="derated", limit=2,
     when="before the first write, then there is room", by="worker", quick=True,
     outcome="no journal, no writes, reported; governed once there is room; given back at the end")
def _(house):
    house.state_dir.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", house.state_dir],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise Skip("no tmpfs may be mounted here: " + done.stderr.strip())
    ballast = house.state_dir / "ballast"
    try:
        ballast.write_bytes(bytes(8 << 20))
    except OSError:
        pass  # as full as it gets
    house.writes_found = house.writes(GOVERNED)
    daemon = house.daemon()
    refuse_to_write(house, daemon, "No space left")
    ballast.unlink()  # room for the databases and for the audit log
    house.until(lambda: house.locked(GOVERNED), 20, "GPU 0 is governed once there is room")
    return stop(house, daemon)


@row("derated.disk.fills", group=G_DISK, fault="the disk fills up", who="derated", limit=2,
     when="while it governs", by="worker",
     outcome="governs on and gives everything back; the audit log cannot tell and that is reported")
def _(house):
    house.state_dir.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", house.state_dir],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise Skip("no tmpfs may be mounted here: " + done.stderr.strip())
    daemon = house.governing()
    try:
        (house.state_dir / "ballast").write_bytes(bytes(1 << 20))
    except OSError:
        pass
    send(daemon.pid, signal.SIGTERM)
    ms = house.until_restored(5, since=now())
    expect_code(daemon, 0)
    return Measured(ms, "worker", governed=())


@row("derated.disk.filesize", group=G_DISK, fault="a file size limit of 0 bytes", who="derated",
     when="from the start", by=NOTHING, limit=2, quick=True,
     outcome="no journal, no writes, reported on standard error")
def _(house):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    before = house.writes(GOVERNED)
    daemon = house.daemon(preexec_fn=limit, stderr=subprocess.PIPE)
    code = None
    try:
        code = daemon.process.wait(4)
    except subprocess.TimeoutExpired:
        send(daemon.pid, signal.SIGTERM)
        code = daemon.process.wait(10)
    told = daemon.process.stderr.read().decode()
    check(house.writes(GOVERNED) == before, "the GPU was written to")
    check(0 <= code < 128 and "File too large" in told, f"exit code {code}: {told}")
    return Measured(0, NOTHING, note=f"exit code {code}", governed=())


@row("derated.disk.readonly", group=G_DISK, fault="a state folder that cannot be written",
     who="derated", when="from the start", by=NOTHING, limit=2, quick=True,
     outcome="no journal, no writes, reported; the GPU is observed")
def _(house):
    house.environment["DERATE_STATE_DIR"] = "/proc/derate"
    house.writes_found = house.writes(GOVERNED)
    daemon = house.daemon()
    refuse_to_write(house, daemon, "/proc/derate")
    send(daemon.pid, signal.SIGTERM)
    expect_code(daemon, 0)
    house.environment["DERATE_STATE_DIR"] = str(house.state_dir)
    return Measured(0, NOTHING, governed=())


@row("run.disk.readonly", group=G_DISK, fault="a state folder that cannot be written",
     who="derate run", when="from the start", by=NOTHING, limit=2, quick=True,
     outcome="no journal, no writes, reported; the command runs and its exit code is kept")
def _(house):
    house.environment["DERATE_STATE_DIR"] = "/proc/derate"
    before = house.writes(GOVERNED)
    program = house.run("sh", "-c", "sleep 0.5; exit 5")
    expect_code(program, 5)
    expect_text(program, "no journal")
    check(house.writes(GOVERNED) == before, "the GPU was written to")
    house.environment["DERATE_STATE_DIR"] = str(house.state_dir)
    return Measured(0, NOTHING, governed=())


@row("journal.next", group=G_DISK, fault="a journal of a dead derated", who="derated", limit=2,
     when="at the next start", by="worker", quick=True, tsan=True,
     outcome="restored before anything else is written, then governed")
def _(house):
    leave_locked(house)
    before = len(house.audit())
    house.config_file.write_text(CONFIG.replace("govern = true", "govern = false"))
    since = now()
    daemon = house.daemon()
    out = restored(house, since, 5)
    first = house.audit()[before]
    check(first["what"] == "restore" and "left by derated" in first["why"], f"first: {first}")
    expect_text(daemon, "restored what an earlier process left")
    send(daemon.pid, signal.SIGTERM)
    expect_code(daemon, 0)
    out.by = "next start"
    return out


ROWS[-1].by = "next start"


def as_of_first_version(path):
    """Rewrites the journal as 0.1.0 would have written it."""
    entry = json.loads(path.read_text())
    knobs = entry.pop("knobs")
    lock = knobs.pop("clock_lock_mhz")
    found = {name: knob["found"] for name, knob in knobs.items() if "found" in knob}
    for key in ("sha256", "pid_started"):
        entry.pop(key, None)
    path.write_text(json.dumps(entry | {
        "version": 1, "uuid": entry.pop("domain").removeprefix("gpu:"), "found": found,
        "clock_written": lock["written"],
        "power_written": knobs["power_limit_watts"]["written"]}))


@row("journal.next.old", group=G_DISK, fault="a journal of a dead derated, written by 0.1.0",
     who="derated", when="at the next start", by="worker", limit=2, quick=True,
     outcome="restored before anything else is written")
def _(house):
    leave_locked(house)
    as_of_first_version(house.journal_dir / (house.uuids[GOVERNED] + ".json"))
    house.config_file.write_text(CONFIG.replace("govern = true", "govern = false"))
    since = now()
    daemon = house.daemon()
    out = restored(house, since, 5)
    expect_text(daemon, "restored what an earlier process left")
    send(daemon.pid, signal.SIGTERM)
    expect_code(daemon, 0)
    out.by = "next start"
    return out


ROWS[-1].by = "next start"


@row("journal.next.governs", group=G_DISK, fault="a journal of a dead derated", who="derated",
     when="at the next start, which governs", by="worker", limit=2, quick=True,
     outcome="restored before anything else is written; the same settings count as found")
def _(house):
    leave_locked(house)
    before = len(house.audit())
    daemon = house.daemon()
    house.until(lambda: len(house.audit()) >= before + 2, 10, "restored and governed")
    kinds = [entry["what"] for entry in house.audit()[before:]]
    check(kinds[:2] == ["restore", "lock"], f"the order of writes: {kinds}")
    house.until(lambda: house.rounds() > 1, 5, "the loop runs")
    return stop(house, daemon)


@row("journal.next.run", group=G_DISK, fault="a journal of a dead derated", who="derate run",
     when="at the next `derate run`", by="worker", limit=2, quick=True,
     outcome="restored before anything else is written")
def _(house):
    leave_locked(house)
    since = now()
    program = house.run("true")
    expect_code(program, 0)
    expect_text(program, "restored what an earlier process left: derated")
    return restored(house, since, 5)


def unusable(house, spoil, text, kept=False, matters=False):
    """A journal that may not be applied is set aside or kept, and reported, and the GPU is not
    touched. If it may be of this boot (here without a second copy), no end is clean until it is
    settled."""
    leave_locked(house)
    path = house.journal_dir / (house.uuids[GOVERNED] + ".json")
    path = spoil(path) or path
    shutil.rmtree(house.run_dir / "journal")
    locked, writes = house.locked(GOVERNED), house.writes(GOVERNED)
    house.config_file.write_text(CONFIG.replace("govern = true", "govern = false"))
    daemon = house.daemon()
    house.until(lambda: house.rounds() > 2, 10, "derated runs")
    expect_text(daemon, text, "kept" if kept else "set aside, not applied")
    send(daemon.pid, signal.SIGTERM)
    expect_code(daemon, 74 if matters else 0)
    check(house.locked(GOVERNED) == locked and house.writes(GOVERNED) == writes,
          "the journal was applied")
    if matters:
        house.derate("restore", code=1)
        house.derate("restore", "--reset")
    else:
        house.foreign("reset:0")
    house.expected_left = {path.name if kept else path.name + ".aside"}
    check(set(house.journals()) == house.expected_left, f"journals: {house.journals()}")
    return Measured(0, "nobody: not applied", governed=())


def edit(path, **changes):
    """Changes an entry, as version 2 without a checksum."""
    entry = json.loads(path.read_text()) | changes | {"version": 2}
    for key in ("sha256", "pid_started"):
        entry.pop(key, None)
    path.write_text(json.dumps(entry))


def cut(path, size):
    os.truncate(path, size)


def other_gpu(path):
    uuid = "GPU-00000000-0000-0000-0000-000000000000"
    edit(path, domain="gpu:" + uuid)
    return path.rename(path.with_name(uuid + ".json"))


def link_away(path):
    shutil.copy(path, path.parents[2] / "elsewhere.json")
    path.unlink()
    path.symlink_to(path.parents[2] / "elsewhere.json")


def other_owner(path):
    try:
        os.chown(path, 65534, 65534)
    except PermissionError:
        raise Skip("not root: no file can be given away") from None


MATTERS = ("half", "empty", "tail", "owner", "writable", "link")  # journals whose boot is not known


def add_unusable():
    cases = {
        "boot": ("a journal of an earlier boot",
                 lambda path: edit(path, boot_id="11111111-2222-3333-4444-555555555555"),
                 "is of an earlier boot"),
        "driver": ("a journal of an earlier load of the driver",
                   lambda path: edit(path, driver_load="1"), "earlier load of the driver"),
        "half": ("half a journal",
                 lambda path: cut(path, path.stat().st_size // 2),
                 "is not whole"),
        "empty": ("an empty journal", lambda path: cut(path, 0), "is not whole"),
        "tail": ("a journal without its last bytes",
                 lambda path: cut(path, path.stat().st_size - 3), "is not whole"),
        "owner": ("a journal of another user", other_owner, "belongs to user 65534"),
        "writable": ("a journal that others may write", lambda path: path.chmod(0o666),
                     "may be written by others"),
        "link": ("a symbolic link for a journal", link_away, "is no plain file")}
    for name, (text, spoil, told) in cases.items():
        @row(f"journal.{name}", group=G_DISK, fault=text, who="derated", limit=2,
             when="at the next start", by="nobody: not applied",
             quick=name in ("boot", "half", "owner", "link"),
             outcome="never applied: set aside and reported; exit code 74 until `derate restore "
                     "--reset`" if name in MATTERS else "never applied: set aside and reported")
        def _(house, spoil=spoil, told=told, name=name):
            return unusable(house, spoil, told, matters=name in MATTERS)

    @row("journal.gone", group=G_DISK, fault="a journal of a GPU that is not there",
         who="derated", when="at the next start", by="nobody: not applied", limit=2, quick=True,
         outcome="kept for the day it is back, and reported")
    def _(house):
        return unusable(house, other_gpu, "a GPU that is not here", kept=True)


add_unusable()


@row("journal.found", group=G_DISK, fault="SIGKILL to guard and worker", who="derated",
     when="the configuration names the lock that was found", by="`derate restore`", limit=2,
     quick=True, outcome="restored to that lock, not to none")
def _(house):
    house.foreign("lock:0:1005:1305")
    house.note_baseline()
    low, high = house.settings(GOVERNED)[:2]
    house.config_file.write_text(
        CONFIG + f"[found]\nlocked_lowest_mhz = {low}\nlocked_highest_mhz = {high}\n")
    daemon = house.daemon()
    house.until(lambda: house.locked(GOVERNED) not in (None, low), 10, "GPU 0 is governed")
    kill_both(daemon)
    since = now()
    house.derate("restore")
    return restored(house, since, 5)


SPOILT = {"models-simulated.db": 0x64726d6f, "tune.db": 0x64727475, "usage.db": 0x64727573}


def begun_anew(house, words):
    """derated that governs by `assure`, which opens all databases."""
    house.config_file.write_text(CONFIG.replace("efficient-fix", "assure"))
    job = house.job(GOVERNED)
    daemon = house.daemon("--silence", "2", "--restore-time", "2")
    house.until(lambda: house.locked(GOVERNED), 20, "GPU 0 is governed")
    for name in SPOILT:
        house.until(lambda: f"{name}': {words}" in daemon.text(), 20, f"{name} is set aside")
    out = stop(house, daemon)
    job.kill_all()
    return out


@row("derated.db.version", group=G_DISK, fault="databases with a negative version", who="derated",
     when="at start", by="worker", limit=2, quick=True,
     outcome="set aside and begun anew, reported; governs and gives back")
def _(house):
    house.state_dir.mkdir()
    for name, whose in SPOILT.items():
        with sqlite3.connect(house.state_dir / name) as file:
            file.executescript(f"CREATE TABLE a (b); PRAGMA application_id = {whose}; "
                               "PRAGMA user_version = -1000")
    out = begun_anew(house, "not ")
    for name in SPOILT:
        check(len(list(house.state_dir.glob(f"{name}.aside-*Z"))) == 1, f"{name} is not kept")
    return out


@row("derated.db.crashes", group=G_DISK, who="derated", by="worker", limit=2, quick=True,
     fault="databases that two processes died of", when="while they opened and read them",
     outcome="set aside under a name with the time and begun anew, reported; governs and gives "
             "back")
def _(house):
    house.state_dir.mkdir()
    for name in SPOILT:
        (house.state_dir / name).write_bytes(b"deadly")
        (house.state_dir / f"{name}.opening").write_text("opened by process 7\n" * 2)
    out = begun_anew(house, "2 processes in a row ended")
    for name in SPOILT:
        kept = list(house.state_dir.glob(f"{name}.aside-*Z"))
        check([path.read_bytes() for path in kept] == [b"deadly"], f"{name}: kept is {kept}")
        check(not (house.state_dir / f"{name}.opening").exists(), f"{name}.opening is left")
    return out


# --- the surroundings -----------------------------------------------------------------------------

G_AROUND = "The surroundings"


def add_clock_jumps():
    for name, shift in (("forward", 3600), ("back", -3600)):
        @row(f"derated.clock.{name}", group=G_AROUND, fault=f"the wall clock jumps an hour {name}",
             who="derated", when="while it governs", by="worker", limit=2, quick=shift > 0,
             outcome="nothing happens: Derate counts on monotonic time")
        def _(house, shift=shift):
            jump = house.folder / "jump"
            daemon = house.governing(extra=kill_point(house, 0) | {
                "DERATE_KILL_CLOCK": str(jump), "DERATE_KILL_LOG": ""})
            jump.write_text(str(shift))
            house.until(lambda: abs(house.state().get("time_unix_seconds", 0) - time.time()) > 3000,
                        5, "derated sees the new time")
            others_tick(house, 20)
            return stop(house, daemon)


add_clock_jumps()


def close_standard_files():
    for fd in (0, 1, 2):
        os.close(fd)


@row("derated.closed", group=G_AROUND, fault="standard input, output and error closed",
     who="derated", when="at start", by="worker", limit=2, quick=True,
     outcome="governs and gives back; what it says goes nowhere, and into no other file")
def _(house):
    daemon = house.daemon("--silence", "2", preexec_fn=close_standard_files)
    house.until(lambda: house.locked(GOVERNED), 10, "GPU 0 is governed")
    for fd in (0, 1, 2):
        for pid in (daemon.pid, daemon.worker()):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            check(target == "/dev/null", f"fd {fd} of a process is {target}")
    out = stop(house, daemon)
    for path in [*house.run_dir.glob("*.lock")]:
        check(path.read_text().startswith("derated, pid"), f"{path.name}: {path.read_text()}")
    return out


@row("run.closed", group=G_AROUND, fault="standard input, output and error closed",
     who="derate run", when="at start", by="worker", limit=2, quick=True,
     outcome="governs, gives back, the command's exit code is kept")
def _(house):
    program = house.run("sh", "-c", "sleep 0.5; exit 5", preexec_fn=close_standard_files)
    house.until(lambda: house.locked(GOVERNED), 10, "GPU 0 is governed")
    for fd in (0, 1, 2):
        for pid in (program.pid, program.worker()):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            check(target == "/dev/null", f"fd {fd} of a process is {target}")
    since = now()
    expect_code(program, 5)
    return restored(house, since, 5)


@row("derated.pipe", group=G_AROUND, fault="the reader of its output goes away", who="derated",
     when="while it governs", by="worker", limit=2, quick=True,
     outcome="governs on and gives back")
def _(house):
    reader, writer = os.pipe()
    daemon = house.daemon(stderr=writer, stdout=writer)
    os.close(writer)
    house.until(lambda: house.locked(GOVERNED) and house.rounds(), 10, "GPU 0 is governed")
    os.close(reader)
    house.derate("policy", "set", "power-cap", "-i", CAPPED)
    house.until(lambda: house.watts(CAPPED) == 240, 5, "GPU 1 is governed")
    return stop(house, daemon)


@row("derated.nodriver", group=G_AROUND, fault="no NVIDIA driver", who="derated", limit=2,
     when="at start", by=NOTHING, quick=True, bare=True, outcome="exits 9 and says so")
def _(house):
    daemon = house.daemon()
    expect_code(daemon, 9)
    expect_text(daemon, "driver")
    return Measured((now() - daemon.started) * 1000, NOTHING, governed=())


@row("derated.nolibrary", group=G_AROUND, fault="no libnvidia-ml.so.1", who="derated", limit=2,
     when="at start", by=NOTHING, quick=True, bare=True, outcome="exits 12 and says so")
def _(house):
    daemon = house.daemon(extra={"DERATE_NVML_LIBRARY": "/nowhere/libnvidia-ml.so.1"})
    expect_code(daemon, 12)
    expect_text(daemon, "libnvidia-ml.so.1")
    return Measured((now() - daemon.started) * 1000, NOTHING, governed=())


@row("derated.stopped.worker", group=G_AROUND, fault="the worker hangs (SIGSTOP)", who="derated",
     when="while it governs", by="guard", limit=3.5, quick=True, tsan=True,
     outcome="killed after `--silence` (2 s here, 10 s by default), the guard restores, exits 137")
def _(house):
    daemon = house.governing()
    since = now()
    send(daemon.worker(), signal.SIGSTOP)
    out = restored(house, since, 8)
    expect_code(daemon, 137)
    expect_text(daemon, "has said nothing")
    return out


@row("derated.stopped.guard", group=G_AROUND, fault="the guard hangs (SIGSTOP)", who="derated",
     when="twice as long as `--silence`, then goes on", by="worker", limit=2, quick=True,
     outcome="the worker governs on, and nothing is killed when the guard comes back")
def _(house):
    daemon = house.governing()
    worker = daemon.worker()
    send(daemon.pid, signal.SIGSTOP)
    end = now() + 4
    while now() < end:
        others_tick(house)
    send(daemon.pid, signal.SIGCONT)
    end = now() + 2
    while now() < end:
        others_tick(house)
    check(alive(worker) and daemon.worker() == worker, "the worker was killed")
    return stop(house, daemon)


class PowerFiles:
    """Made-up /sys and /proc of GPUs that Linux may power down."""

    def __init__(self, house):
        self.folders = []
        for gpu in range(len(house.uuids)):
            bus = f"0000:{16 + gpu:02x}:00.0"  # as fakenvml numbers them
            self.folders.append(house.folder / "sys/bus/pci/devices" / bus / "power")
            self.folders[-1].mkdir(parents=True)
            (self.folders[-1] / "control").write_text("auto\n")
            driver = house.folder / "proc/driver/nvidia/gpus" / bus
            driver.mkdir(parents=True)
            (driver / "power").write_text("Runtime D3 status:          Enabled (fine-grained)\n")
        self.environment = {"DERATE_SYSFS": str(house.folder / "sys"),
                            "DERATE_PROC": str(house.folder / "proc")}
        self.set("active")

    def set(self, status):
        for folder in self.folders:
            (folder / "runtime_status").write_text(status + "\n")


def has_driver_open(house, pid):
    """Whether the process has a file or a socket of the stand-in open."""
    served = str(house.folder / "sim")
    links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")
             if os.path.islink(f"/proc/{pid}/fd/{fd}")]
    maps = Path(f"/proc/{pid}/maps").read_text()
    return any(link.startswith(served) for link in links) or f" {served}" in maps


@row("derated.asleep", group=G_AROUND, fault="Linux powers the machine's GPUs down", who="derated",
     when="while one is governed and nobody uses them", by="worker", limit=2,
     outcome="given back and closed before it; governed again when another program wakes one")
def _(house):
    house.foreign(*(f"persistence:{gpu}:0" for gpu in range(len(house.uuids))))
    house.note_baseline()
    files = PowerFiles(house)
    house.config_file.write_text(CONFIG + "[sampling]\nclose_idle_after_s = 2\n")
    daemon = house.governing(extra=files.environment, capped=False)
    worker = daemon.worker()
    check(has_driver_open(house, worker), "the driver is not open: the test sees nothing")
    house.until(lambda: not has_driver_open(house, worker), 20, "the driver is closed")
    out = restored(house, now(), 1)
    files.set("suspended")
    house.until(lambda: house.state().get("asleep"), 10, "derated says that they are asleep")
    check("asleep" in house.derate("status"), "derate status does not say it")
    before = len(house.audit())
    time.sleep(3)
    check(not has_driver_open(house, worker), "derated opened the driver while they were asleep")
    check(len(house.audit()) == before, "something was written while they were asleep")
    files.set("active")
    house.until(lambda: house.locked(GOVERNED), 10, "GPU 0 is governed again")
    stop(house, daemon)
    return out


def with_host_engine(house):
    """derated that governs an A100 by the activity of a DCGM host engine; both programs."""
    socket = house.folder / "sim/hostengine"
    engine = house.start("engine", house.build / "derate", "sim", "dcgm")
    house.until(socket.exists, 5, "the host engine listens")
    house.config_file.write_text(
        '[governor]\ngovern = true\ngpus = "0"\npolicy = "assure"\n'
        f'[dcgm]\nuse = "on"\naddress = "unix:{socket}"\n')
    house.start("job", house.build / "derate", "sim", "job", "stencil", "-i", GOVERNED)
    daemon = house.daemon("--silence", "2", "--restore-time", "2", extra={
        "DERATE_DCGM_LIBRARY": str(house.build / "fakedcgm/4/libdcgm.so.4")})
    house.until(lambda: house.locked(GOVERNED), 60, "GPU 0 is governed")
    house.until(lambda: "measures the GPU's activity" in daemon.text(), 10, "activity comes")
    return daemon, engine


def has_rounds(house):
    before = house.rounds()
    house.until(lambda: house.rounds() > before + 20, 10, "the rounds go on")
    house.until(lambda: house.locked(GOVERNED), 10, "GPU 0 is governed as before")


for number, fault, words in (
        (signal.SIGSTOP, "hangs (SIGSTOP)", "the host engine has not answered for"),
        (signal.SIGKILL, "dies (SIGKILL)", "host engine is not valid any longer")):
    def _(house, number=number, words=words):
        daemon, engine = with_host_engine(house)
        send(engine.pid, number)
        has_rounds(house)
        house.until(lambda: words in daemon.text(), 20, f"derated logs {words!r}")
        out = stop(house, daemon)
        engine.kill_all()
        return out
    row(f"derated.dcgm.{number.name[3:].lower()}", group=G_AROUND,
        fault=f"the DCGM host engine {fault}", who="derated", chips="A100-SXM4",
        when="while its activity is used; then SIGTERM", by="worker", limit=2,
        outcome="governed by NVML's counters; the log says it")(_)


# What people and programs ask while nobody answers: the words, the exit code, what must be said.
CLIENTS_OF_HUNG = (
    (("status",), 15, "has said nothing for"),
    (("status", "--json"), 15, "has said nothing for"),
    (("top", "--rounds", "1"), 15, "has said nothing for"),
    (("policy", "set", "max-freq", "-i", "0"), 15, "has not answered for 10 s"),
    (("release", "-i", "0"), 15, "has not answered for 10 s"),
    (("energy", "--for", "1s"), None, ""),  # by its own readings
    (("attribute", "--for", "1s"), 15, "has not answered for 10 s"),
    (("tune", "job", "list"), 15, "has not answered for 10 s"),
)


@row("derated.stopped.worker.asked", group=G_AROUND, fault="the worker hangs (SIGSTOP)",
     who="derated", when="while programs ask it, and `--silence` is long", by="worker", limit=2,
     outcome="each gives up within its patience (10 s), names the daemon and "
     "exits 15; the daemon goes on when it comes back")
def _(house):
    daemon = house.daemon("--silence", "120")
    house.until(lambda: house.locked(GOVERNED) and house.rounds() > 0, 10, "GPU 0 is governed")
    worker = daemon.worker()
    send(worker, signal.SIGSTOP)
    stopped = now()
    house.until(lambda: now() - stopped > 5.5, 10, "its state is old")
    asked = [(words, code, text, house.start("client", house.build / "derate", *words))
             for words, code, text in CLIENTS_OF_HUNG]
    for words, code, text, client in asked:
        ended = client.wait(45 * house.slow)
        if code is None:
            check(ended != 124 and ended < 128, f"derate {' '.join(words)}: exit code {ended}")
            continue
        check(ended == code, f"derate {' '.join(words)}: exit code {ended}: {client.text()}")
        check(text in client.text(), f"derate {' '.join(words)} does not say {text!r}: "
                                     f"{client.text()}")
    check(alive(worker) and daemon.worker() == worker, "the worker was killed")
    send(worker, signal.SIGCONT)
    house.until(lambda: house.derate("status", code=None) and house.gpu_state(GOVERNED), 10,
                "it goes on")
    house.derate("policy", "set", "efficient-fix", "-i", GOVERNED)
    return stop(house, daemon)


@row("derated.stopped.guard.asked", group=G_AROUND, fault="the guard hangs (SIGSTOP)",
     who="derated", when="while programs ask the worker for what needs a lease", by="worker",
     limit=2, outcome="the GPU that has a lease is governed, the other's failure is reported "
                      "within "
     "10 s with exit code 5, and everything else is answered; a lease is had again afterwards")
def _(house):
    daemon = house.governing(capped=False)
    house.until(lambda: house.rounds() > 0, 5, "derated publishes its state")
    send(daemon.pid, signal.SIGSTOP)
    said = house.derate("policy", "set", "max-freq", "-i", f"{GOVERNED},{CAPPED}", code=5)
    check(f"GPU {GOVERNED} is governed by max-freq" in said, said)
    check(f"derate: GPU {CAPPED}: not governed: " in said, said)
    check(house.locked(CAPPED) is None, "GPU 1 was locked without a lease")
    for words in (("status",), ("attribute", "--for", "1s"), ("energy", "--for", "1s")):
        house.derate(*words)
    send(daemon.pid, signal.SIGCONT)
    house.until(lambda: house.derate("policy", "set", "power-cap", "-i", CAPPED, code=None) and
                house.watts(CAPPED) == 240, 10, "GPU 1 is governed")
    return stop(house, daemon)


# What programs do that have the clients, while nobody answers; each prints a line. Those that would
# wait more than once are less patient.
PYTHON_OF_HUNG = {
    "gpus": ("""
        try:
            derate_client.gpus()
        except derate_client.Lost as error:
            print(error)
        """, "gpus: no answer for 30 s"),
    "window": ("""
        with derate_client.window("body", silent=True) as w:
            pass
        print("the body was run,", w.joules)
        """, "the body was run, None"),
    "trial": ("""
        try:
            with derate_client.Trial("bert", gpus=1):
                pass
        except derate_client.Lost as error:
            print(error)
        """, "tune-trial-begin: no answer for 30 s"),
}
C_OF_HUNG = {"window_client": "begin body", "trial_client": "begin bert 1"}
# It goes on when the file is there, prints more than a pipe holds, and says that it is through.
TRAINING_OF_HUNG = """
import pathlib, sys, time
print("derate: epoch=1 metric=0.1", flush=True)
pathlib.Path("begun").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.02)
for epoch in range(2, 3000):
    print(f"derate: epoch={epoch} metric=0.1", "x" * 100)
sys.stdout.flush()
pathlib.Path("trained").touch()
sys.exit(3)
"""


def start_clients(house):
    """Of a daemon that hangs: (program, exit code, what it must print) of each."""
    out = []
    path = {"PYTHONPATH": str(HERE.parents[1] / "clients/python")}
    for name, (script, text) in PYTHON_OF_HUNG.items():
        script = "import derate_client\n" + textwrap.dedent(script)
        out.append((house.start(name, sys.executable, "-B", "-c", script, extra=path), 0, text))
    for name, line in C_OF_HUNG.items():
        client = house.start(name, house.build / "tests" / name, stdin=subprocess.PIPE)
        client.process.stdin.write(line.encode() + b"\n")
        client.process.stdin.close()
        out.append((client, 0, "2 no answer for 30 s"))
    late = house.start("late", house.build / "derate", "tune", "run", "--job", "bert", "-i", CAPPED,
                       "--", "touch", house.folder / "was-run")
    out.append((late, 125, "has not answered for 10 s"))
    return out


@row("derated.stopped.clients", group=G_AROUND, fault="guard and worker hang (SIGSTOP)",
     who="derated", when="while programs with the Python module, the C header and under "
     "`derate tune run` ask", by="worker", limit=2,
     outcome="the training goes on at once and its exit code is kept; each request ends within its "
     "patience (10 s of `derate tune run`, 30 s of the clients) as lost; a run that would begin "
     "exits 125 without its command")
def _(house):
    daemon = house.governing(capped=False)
    house.derate("tune", "job", "create", "bert", "--batch-sizes", "8,16", "--default", 16,
                 "--target", 0.6, "--max-epochs", 9999, "--knob", "none")
    training = house.start("training", house.build / "derate", "tune", "run", "--job", "bert",
                           "-i", CAPPED, "--", sys.executable, "-B", "-c", TRAINING_OF_HUNG)
    house.until((house.folder / "begun").exists, 10, "the training has begun")
    stopped = (daemon.pid, daemon.worker())
    for pid in stopped:
        send(pid, signal.SIGSTOP)
    (house.folder / "go").touch()
    house.until((house.folder / "trained").exists, 5, "the training is through")
    clients = [(training, 3, "has not answered for 10 s"), *start_clients(house)]
    patience = now() + 30 + 8 * house.slow
    for client, code, text in clients:
        expect_code(client, code, max(0.1, patience - now()))
        expect_text(client, text)
    check(training.text().count("derate: epoch=") == 2999, "a line of the training is missing")
    check(not (house.folder / "was-run").exists(), "a command was run without a trial")
    for pid in stopped:
        send(pid, signal.SIGCONT)
    house.until(lambda: house.derate("tune", "job", "show", "bert", code=None), 10, "it goes on")
    check(alive(stopped[1]) and daemon.worker() == stopped[1], "the worker was killed")
    return stop(house, daemon)


@row("run.stopped.worker", group=G_AROUND, fault="the worker hangs (SIGSTOP)", who="derate run",
     when="while the command runs", by="guard", limit=12.5,
     outcome="killed after 10 s, the guard restores; the command goes on, its exit code is kept")
def _(house):
    program = house.running("sh", "-c", TRAP)
    house.until(lambda: "started" in program.text(), 5, "the command runs")
    command = house.command_of(program)
    since = now()
    send(program.worker(), signal.SIGSTOP)
    out = restored(house, since, 20)
    check(alive(command), "the command did not go on")
    send(program.pid, signal.SIGTERM)
    expect_code(program, 7)
    return out


# --- slow settings --------------------------------------------------------------------------------

SLOWEST = CONFIG.replace("efficient-fix", "assure") + """
[sampling]
observe_every_s = 60
[policy.assure]
tick = 10
"""


def messages_of(house):
    """How many messages the worker has sent to its guard."""
    log = house.folder / "kill.log"
    text = log.read_text() if log.exists() else ""
    return sum("sendmsg" in line for line in text.splitlines())


def add_slow_settings():
    for silence in (2, 0.5):
        @row(f"derated.slow.{silence:g}", group=G_AROUND, who="derated", by="worker", limit=2,
             fault="the longest periods that the configuration allows", quick=silence == 2,
             when=f"`--silence {silence:g}`, four times as long as that",
             outcome="nothing is killed, commands are answered; given back at the end")
        def _(house, silence=silence):
            house.config_file.write_text(SLOWEST)
            daemon = house.daemon("--silence", silence)
            house.until(lambda: "ready" in daemon.text(), 10, "derated has its GPUs")
            worker, end = daemon.worker(), now() + 4 * silence
            while now() < end:
                house.derate("policy", "set", "power-cap", "-i", CAPPED)
                house.until(lambda: house.watts(CAPPED) == 240, 2, "the command is carried out")
                house.derate("release", "-i", CAPPED)
            check(alive(worker) and daemon.worker() == worker, f"killed: {daemon.text()}")
            since = now()
            send(daemon.pid, signal.SIGTERM)
            out = restored(house, since, 5, gpu=CAPPED, governed=(CAPPED,))
            expect_code(daemon, 0)
            return out


add_slow_settings()


@row("run.slow", group=G_AROUND, fault="the longest period that a policy has", who="derate run",
     when="one period long", by="worker", limit=2,
     outcome="the guard hears from the worker each second; the command's exit code is kept")
def _(house):
    program = house.run("sh", "-c", TRAP, options=("--policy", "assure", "--set", "tick=10",
                                                   "-i", GOVERNED), extra=kill_point(house, 0))
    house.until(lambda: "started" in program.text(), 10, "the command runs")
    before, end = messages_of(house), now() + 10
    house.until(lambda: now() > end, 11, "a period has passed")
    heard = messages_of(house) - before
    check(heard >= 7, f"{heard} messages in 10 s")
    since = now()
    send(program.pid, signal.SIGTERM)
    ms = house.until_restored(5, since=since)
    expect_code(program, 7)
    return Measured(ms, "worker", f"heard {heard} times in 10 s", governed=())


# --- an attacker ----------------------------------------------------------------------------------

G_ATTACKER = "An attacker"
NOBODY = 65534
SQUAT = """
import fcntl, os, sys, threading, time
def take(path):
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return print("refused", path, flush=True)
    print("opened", path, flush=True)
    fcntl.flock(file, fcntl.LOCK_EX)
    print("locked", path, flush=True)
    time.sleep(9e9)
uid = int(sys.argv[1])
if uid != os.getuid():
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
for path in sys.argv[2:]:
    threading.Thread(target=take, args=(path,)).start()
"""


def squatter(house, word, paths, uid=os.getuid()):
    """A process that locks these files, or waits until it can; it has come so far for each."""
    program = house.start("squatter", sys.executable, "-B", "-c", SQUAT, uid, *paths)
    house.until(lambda: program.text().count(word) == len(paths), 5, f"each file is {word}")
    return program


def another_user(house):
    if os.geteuid() != 0:
        raise Skip("not root: nobody else can be")
    house.folder.chmod(0o755)
    return NOBODY


def leases(house):
    return [house.run_dir / f"{uuid}.lock" for uuid in house.uuids[:2]] + [
        house.run_dir / "derated.lock"]


@row("attacker.lease", group=G_ATTACKER, fault="another user locks the leases", who="derated",
     when="while it governs; then guard and worker are killed", by="`derate restore`", limit=2,
     quick=True, outcome="refused; `derate restore` restores, the next start governs")
def _(house):
    who = another_user(house)
    daemon = house.governing()
    squatter(house, "refused", leases(house), who)
    kill_both(daemon)
    since = now()
    house.derate("restore")
    out = restored(house, since, 5)
    stop(house, house.governing())
    return out


@row("attacker.lease.old", group=G_ATTACKER, who="derated", by="`derate restore`", limit=2,
     fault="another user has locked the leases of an earlier version, which all could read",
     when="guard and worker are gone", quick=True,
     outcome="the files are replaced: `derate restore` restores, the next start governs")
def _(house):
    who = another_user(house)
    leave_locked(house)
    for path in leases(house):
        path.unlink(missing_ok=True)
        path.write_text("derated, pid 1999999")
        path.chmod(0o644)
    thief = squatter(house, "locked", leases(house), who)
    since = now()
    house.derate("restore")
    out = restored(house, since, 5)
    stop(house, house.governing())
    check(alive(thief.pid), "the other user's process is gone")
    thief.kill_all()
    return out


@row("attacker.lease.waits", group=G_ATTACKER, who="derated", by="next start", limit=3,
     fault="another user waits for the leases of an earlier version", quick=True,
     when="that one still has them, then is killed; the next start",
     outcome="reported whose they are while it lives; then the files are replaced, and it restores")
def _(house):
    who = another_user(house)
    leave_locked(house)
    for path in leases(house):
        path.unlink(missing_ok=True)
        path.write_text("")
        path.chmod(0o644)
    earlier = squatter(house, "locked", leases(house))
    for path in leases(house):
        path.write_text(f"derated, pid {earlier.pid}")
    thief = squatter(house, "opened", leases(house), who)
    check(f"governed by derated, pid {earlier.pid}" in house.derate("restore", code=75),
          "`derate restore` does not name the governor")
    second = house.daemon()
    expect_code(second, 75)
    expect_text(second, f"one runs already: derated, pid {earlier.pid}")
    earlier.kill_all()
    house.until(lambda: thief.text().count("locked") == 3, 5, "the other user has the leases")
    house.config_file.write_text(CONFIG.replace("govern = true", "govern = false"))
    since = now()
    daemon = house.daemon()
    out = restored(house, since, 5)
    out.by = "next start"
    house.config_file.write_text(CONFIG)
    house.until(lambda: "ready" in daemon.text(), 5, "derated has its GPUs")
    send(daemon.pid, signal.SIGHUP)
    house.until(lambda: house.locked(GOVERNED), 10, "GPU 0 is governed")
    stop(house, daemon)
    thief.kill_all()
    return out


@row("attacker.lease.unknown", group=G_ATTACKER, who="derated", by="`derate restore`", limit=2,
     fault="a process that is no governor holds a lease", when="guard and worker are gone",
     quick=True, outcome="reported; `derate restore` exits 1 and the next start's end 75, the "
                         "journal "
     "is kept; `derate restore` restores once the lease is free")
def _(house):
    leave_locked(house)
    holder = squatter(house, "locked", leases(house)[:1])
    said = house.derate("restore", code=1)
    check("held by an unknown process" in said, f"`derate restore` says {said}")
    daemon = house.daemon()
    house.until(lambda: "held by an unknown process" in house.trouble(GOVERNED), 10, "it is "
                                                                                     "reported")
    send(daemon.pid, signal.SIGTERM)
    expect_code(daemon, 75)
    check(len(house.journals()) == 1, f"journals: {house.journals()}")
    holder.kill_all()
    since = now()
    house.derate("restore")
    return restored(house, since, 5)


# --- an early end ---------------------------------------------------------------------------------

def early_end(house):
    """derated that is told to end while it opens its GPUs, one of which was left locked."""
    leave_locked(house)
    socket = house.run_dir / "control.sock"
    socket.unlink()
    house.fault("--call", "nvmlDeviceGetHandleByIndex_v2", "--hangs")
    daemon = house.daemon("--silence", "5", "--restore-time", "2")
    house.until(socket.exists, 5, "derated listens")
    worker = daemon.worker()
    send(daemon.pid, signal.SIGTERM)
    house.until(lambda: daemon.worker() not in (None, worker), 5, "the guard restores")
    return daemon


@row("derated.early", group=G_SIGNALS, fault="SIGTERM", who="derated", by="guard", limit=2,
     when="before its GPUs are open, a journal of a dead derated", quick=True,
     outcome="the guard restores what was left, exits 0")
def _(house):
    daemon = early_end(house)
    since = now()
    house.fault("--clear")
    out = restored(house, since, 5)
    expect_code(daemon, 0)
    return out


@row("derated.early.hang", group=G_SIGNALS, fault="SIGTERM", who="derated", limit=2,
     when="before its GPUs are open, a journal of a dead derated, the driver hangs",
     by="`derate restore`", outcome="reported, exits 1, the journal is kept; `derate restore` "
                                    "restores "
     "once the driver answers")
def _(house):
    daemon = early_end(house)
    expect_code(daemon, 1)
    expect_text(daemon, "a journal is left")
    house.fault("--clear")
    since = now()
    house.derate("restore")
    return restored(house, since, 5)


@row("derated.early.random", group=G_SIGNALS, fault="SIGTERM", who="derated", limit=3,
     when="in the first 0.4 s, a journal of a dead derated, 16 draws", by="worker, guard or "
     "`derate restore`", outcome="exits 0 only where what was left is restored")
def _(house):
    slowest, kept = 0, 0
    for draw in range(16):
        leave_locked(house)
        daemon = house.daemon()
        time.sleep(draw * 0.025)  # the moment itself is what is tried
        send(daemon.pid, signal.SIGTERM)
        since = now()
        code = daemon.wait(15 * house.slow)
        house.until(lambda: not house.processes_left(), 5, f"draw {draw}: all have ended")
        check(code != 0 or not house.journals(), f"draw {draw}: exits 0 and has left a journal")
        kept += code != 0
        if house.journals():
            house.derate("restore")
        slowest = max(slowest, house.until_restored(5, since=since))
    return Measured(slowest, "worker, guard or `derate restore`", f"{kept} with another exit code",
                    governed=())


# --- an attacker at the client socket -------------------------------------------------------------

FLOODER = (Path(__file__).resolve().parent / "flooder.py").read_text()
# An interpreter that other users may run, too.
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
SILENCE_S = 2  # of House.governing(): after that the guard kills a worker


def attack(house, what, connections, uid=60001):
    """The socket's user; another one where this may become others."""
    for folder in (house.folder, house.run_dir):
        folder.chmod(0o755)
    as_user = {"user": uid, "group": uid, "extra_groups": []} if os.geteuid() == 0 else {}
    program = house.start("attacker", PYTHON, "-B", "-c", FLOODER,
                          house.run_dir / "client.sock", what, connections, **as_user)
    house.until(lambda: "ready" in program.text(), 20, "the attacker is there")
    return program


def served(house, uid=None):
    """Whether the client socket answers that user, root if none."""
    script = ("import socket; s = socket.socket(socket.AF_UNIX); s.settimeout(20); "
              f"s.connect('{house.run_dir}/client.sock'); "
              "s.sendall(b'{\"command\":\"gpus\"}\\n'); print(s.recv(99999).decode())")
    as_user = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, **as_user)
    return done.stdout.startswith('{"ok":true,"gpus":[{')


def stands(house, daemon, worker, others=(None,)):
    """The worker lives through several times what its guard waits for, and serves the others."""
    end = now() + 3 * SILENCE_S * house.slow
    while now() < end:
        others_tick(house)
        for uid in others:
            check(served(house, uid), f"user {uid} is not served")
    check(daemon.worker() == worker and alive(worker), f"the worker was killed: {daemon.text()}")


def add_attacks():
    attacks = {"wide": (32, "32 connections that send objects of 8000 keys"),
               "deep": (64, "64 connections that send lists 65 000 levels deep"),
               "lists": (64, "64 connections that ask for all of 100 jobs")}
    for what, (connections, text) in attacks.items():
        @row(f"attacker.{what}", group=G_ATTACKER, fault=text, who="derated", by="worker", limit=2,
             when="two GPUs governed", quick=what == "wide",
             outcome="governs on, serves the others; SIGTERM then gives everything back")
        def _(house, what=what, connections=connections):
            daemon = house.governing()
            worker = daemon.worker()
            for i in range(100 if what == "lists" else 0):
                house.derate("tune", "job", "create", f"job{i}", "--batch-sizes", "8,16",
                             "--default", "8", "--target", "1", "--max-epochs", "9")
            others = (None, 60002) if os.geteuid() == 0 else (None,)
            attacker = attack(house, what, connections)
            stands(house, daemon, worker, others)
            check(alive(attacker.pid), f"the attacker gave up: {attacker.text()}")
            attacker.kill_all()
            return stop(house, daemon)


add_attacks()


@row("attacker.places", group=G_ATTACKER, fault="4 users hold 64 connections each", who="derated",
     when="two GPUs governed", by="worker", limit=2,
     outcome="a fifth user and root are served all the same")
def _(house):
    if os.geteuid() != 0:
        raise Skip("needs several users")
    daemon = house.governing()
    worker = daemon.worker()
    attackers = [attack(house, "places", 64, uid) for uid in range(60001, 60005)]
    stands(house, daemon, worker, (None, 60005))
    for attacker in attackers:
        attacker.kill_all()
    return stop(house, daemon)


# --- an attacker among files and logs -------------------------------------------------------------

ATTACKER, VICTIM = 65533, 65534


def become(user):
    """For preexec_fn."""
    def change():
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    return change


def need_users(house):
    if os.geteuid() != 0:
        raise Skip("only root can become other users")
    house.folder.chmod(0o711)
    reach = house.start("reach", house.build / "derate", "--version", preexec_fn=become(VICTIM))
    if reach.wait(10) != 0:
        raise Skip("other users cannot start what was built")


def squat(house, folder):
    """What the other user prepares: links of the names that the victim's files would have, to a
    file of the victim's, and an ear."""
    precious = house.folder / "precious"
    precious.write_text("mine")
    os.chown(precious, VICTIM, VICTIM)
    folder.mkdir()
    for pid in range(os.getpid(), os.getpid() + 4000):
        for name in (f"run-{pid}.json.{pid}.tmp", f"run-{pid}.json", f"{pid}.tmp"):
            os.symlink(precious, folder / name)
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.bind(str(folder / "beat.sock"))
    for path in (*folder.iterdir(), folder):
        os.chown(path, ATTACKER, ATTACKER, follow_symlinks=False)
    (folder / "beat.sock").chmod(0o666)
    folder.chmod(0o777)
    ear.settimeout(0)
    return precious, ear


@row("attacker.folder", group=G_ATTACKER, who="derate run", quick=True, limit=2, by="worker",
     fault="another user owns the run folder of last resort, with links to files and an ear",
     when="before the command begins",
     outcome="nothing is written or said there, which is reported; the command runs and its exit "
             "code "
             "is kept; derated is not touched by it")
def _(house):
    need_users(house)
    daemon = house.governing()
    temporary = house.folder / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    squatted = temporary / f"derate-{VICTIM}"
    precious, ear = squat(house, squatted)
    before = sorted(path.name for path in squatted.iterdir())
    alone = {"TMPDIR": str(temporary), "DERATE_RUN_DIR": "", "DERATE_STATE_DIR": "", "HOME": "",
             "XDG_RUNTIME_DIR": ""}
    with ear:
        program = house.start("run", house.build / "derate", "run", "--sim", "H200", "--", "sh",
                              "-c", "sleep 1.5; exit 5", extra=alone, preexec_fn=become(VICTIM))
        expect_code(program, 5)
        told = f"'{squatted}' belongs to user {ATTACKER}, who is neither root nor user {VICTIM}"
        expect_text(program, f"no state for `derate status`: {told}", f"no heartbeats: {told}",
                    f"models of work: {told}", "name a folder of your own by DERATE_RUN_DIR")
        beat = house.start("beat", house.build / "derate", "beat", "--done", "1", "--max-loss",
                           "0.01", extra=alone, preexec_fn=become(VICTIM))
        code = beat.wait(10)
        expect_text(beat, "no beat is sent: ", f"belongs to user {ATTACKER}")
        check(code == 4, f"derate beat: exit code {code}")
        try:
            check(False, f"the other user has heard {ear.recv(1000)}")
        except BlockingIOError:
            pass
    check(precious.read_text() == "mine", f"the victim's file says {precious.read_text()}")
    check(sorted(path.name for path in squatted.iterdir()) == before, "the folder has changed")
    others_tick(house)
    return stop(house, daemon)


FORGED = "x\n<0>derated: GPU 0 is on fire\r\x1b]0;owned\a\x1b[2J\x7f\u009b" + "A" * 8000


@row("attacker.log", group=G_ATTACKER, who="derated", quick=True, limit=2, by="worker",
     fault="a process's DERATE_DELTA holds line ends, priorities and escapes, 8 kB of them",
     when="while it governs",
     outcome="each line of the log is one of derated's, in printing ASCII and below 2 kB")
def _(house):
    jobs = [house.start("job", house.build / "derate", "sim", "job", "GeMM", "-i", gpu, "--work",
                        "0", extra={"DERATE_DELTA": FORGED}) for gpu in (GOVERNED, CAPPED)]
    daemon = house.governing()
    house.until(lambda: "is on fire" in daemon.text() or "DERATE_DELTA" in daemon.text(), 10,
                "derated tells of a word that it does not understand")
    others_tick(house)
    out = stop(house, daemon)
    for job in jobs:
        job.kill_all()
    for line in daemon.err.read_bytes().splitlines(keepends=True):
        check(line.startswith(b"derated: ") or line.startswith(b"derate: "), f"forged: {line!r}")
        check(len(line) <= 2001 and line.endswith(b"\n"), f"{len(line)} bytes: {line[:80]!r}")
        check(all(0x20 <= byte <= 0x7e for byte in line[:-1]), f"does not print: {line!r}")
    return out


# --- an attacker at the databases -----------------------------------------------------------------


FLOOD = """
import json, os, socket, sys, time
os.setgid(65534), os.setuid(65534)
wire = socket.socket(socket.AF_UNIX)
wire.connect(sys.argv[1])
lines = wire.makefile("rw")
def ask(command, **fields):
    lines.write(json.dumps({"command": command, **fields}) + "\\n")
    lines.flush()
    return json.loads(lines.readline())
ask("tune-job-create", spec={"name": "flood", "batch_sizes": [8, 16], "default": 8,
                             "target": 0.9, "max_epochs": 1000000})
begun = refused = 0
until = time.monotonic() + 10
while time.monotonic() < until:
    trial = ask("tune-trial-begin", job="flood", gpus="0")
    if "token" not in trial:
        refused += 1
        continue
    begun += 1
    who = {"trial": trial["trial"], "token": trial["token"]}
    for epoch in range(20):
        ask("tune-trial-report", epoch=epoch, metric=epoch / 1e6, **who)
    ask("tune-trial-end", outcome="missed", **who)
print("begun", begun, "refused", refused, flush=True)
"""


@row("attacker.trials", group=G_ATTACKER, who="derated", by="worker", limit=2,
     fault="another user begins, reports and ends trials without a pause", when="for 10 s",
     outcome="refused beyond 120 a minute; tune.db and its log stay below 20 MiB; given back")
def _(house):
    if os.geteuid() != 0:
        raise Skip("only root can be another user")
    house.folder.chmod(0o711)
    house.run_dir.chmod(0o755)
    daemon = house.governing(capped=False)
    house.until(lambda: (house.run_dir / "client.sock").exists(), 5, "the client socket")
    attacker = house.start("attacker", sys.executable, "-c", FLOOD, house.run_dir / "client.sock")
    longest = 0
    while attacker.process.poll() is None:
        longest = max(longest, sum(path.stat().st_size for path in house.state_dir.glob("tune.db*")
                                   if path.exists()))
        time.sleep(0.05)
    words = attacker.text().split()
    check(words[:1] == ["begun"], f"the attacker: {attacker.text()}")
    begun, refused = int(words[1]), int(words[3])
    check(0 < begun <= 150 and refused > 0, f"{begun} begun, {refused} refused")
    check(longest < 20 << 20, f"tune.db and its log grew to {longest >> 20} MiB")
    out = stop(house, daemon)
    out.note = f"{longest / 2**20:.1f} MiB"
    return out


# --- an attacker at the beat socket ---------------------------------------------------------------


# Any user may send beats. Both say "ready" when the attack begins.
NULS = """
import socket, sys, time
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
begin, end = int(fields[50 - 3]), int(fields[51 - 3])  # proc(5): env_start, env_end
with open("/proc/self/mem", "r+b", buffering=0) as memory:
    memory.seek(begin)
    memory.write(bytes(end - begin))
print("ready", end - begin, flush=True)
ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
while True:
    try:
        ear.sendto(b"done=1", sys.argv[1])
    except BlockingIOError:
        pass
    time.sleep(0.005)
"""

# Its child holds the lock of its own memory, which who reads its environment or arguments awaits.
LOCKED_MEMORY = """
import ctypes, mmap, os, signal, socket, sys, time
GIB = 16
child = os.fork()
if child == 0:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    for call in (libc.madvise, libc.mprotect):
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    size = GIB << 30
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000
    area = libc.mmap(None, size, mmap.PROT_READ, private, -1, 0)
    libc.madvise(area, size, 15)  # no huge pages
    if libc.madvise(area, size, 22) != 0:  # all of it the page of zeros: costs no memory
        os._exit(1)
    print("ready", flush=True)
    while True:
        libc.mprotect(area, size, 0)
        libc.mprotect(area, size, mmap.PROT_READ)
ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
while True:
    try:
        ear.sendto(b"done=1 pid=%d" % child, sys.argv[1])
    except BlockingIOError:
        pass
    if os.waitpid(child, os.WNOHANG)[0] != 0:
        print("no such memory here", flush=True)
        break
    time.sleep(0.005)
"""


def attacked(house, script, extra=None):
    """Governs on under the attack for three times `--silence`, by the same worker."""
    daemon = house.governing()
    worker = daemon.worker()
    attacker = house.start("attacker", sys.executable, "-c", script, house.run_dir / "beat.sock",
                           extra=extra)
    house.until(lambda: attacker.text(), 60, "the attack begins")
    if "no such" in attacker.text():
        raise Skip("this kernel has no MADV_POPULATE_READ")
    check("ready" in attacker.text(), f"the attacker failed: {attacker.text()}")
    end = now() + 6
    while now() < end:
        others_tick(house)
    check(alive(worker) and daemon.worker() == worker, "the worker was killed")
    check(alive(attacker.pid), f"the attacker ended: {attacker.text()}")
    check(house.state()["beats"]["heard"] > 100, "the beats did not come")
    attacker.kill_all()
    return stop(house, daemon)


@row("attacker.environment", group=G_ATTACKER, who="derated", when="while it governs", by="worker",
     fault="200 beats a second of a process whose environment is a MiB of NULs", limit=2,
     quick=True, outcome="governs on: a beat does not cost an environment")
def _(house):
    return attacked(house, NULS, extra={f"FILL{i}": "x" * 120_000 for i in range(9)})


@row("attacker.memory", group=G_ATTACKER, who="derated", when="while it governs", by="worker",
     fault="200 beats a second for a process that holds the lock of its memory", limit=2,
     outcome="governs on: nothing of a process is read on the loop's thread")
def _(house):
    return attacked(house, LOCKED_MEMORY)


@row("attacker.log.environment", group=G_ATTACKER, who="derated", when="while it governs",
     by="worker", fault="`DERATE_DELTA` with line ends, escapes and 20 kB", limit=2, quick=True,
     outcome="said in one line of printing characters, 32 of them the value's")
def _(house):
    daemon = house.governing(capped=False)
    house.start("job", house.build / "derate", "sim", "job", "GeMM", "-i", 0, "--work", "0", extra={
        "DERATE_DELTA": "x\n<0>derated: GPU 0 is on fire\x1b]0;owned\a\x1b[2J" + "y" * 20_000})
    house.until(lambda: "DERATE_DELTA" in daemon.text(), 10, "it is reported")
    for line in daemon.text().splitlines():
        check(line.startswith("derated: ") and line.isprintable(), f"in the log: {line[:200]!r}")
        check(len(line) < 200, f"in the log are {len(line)} characters of a line")
    expect_text(daemon, "DERATE_DELTA 'x?<0>derated: GPU 0 is on fire?]...'")
    return stop(house, daemon)
