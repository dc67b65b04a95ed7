#!/usr/bin/env python3
"""How late derated's loop is at 10 Hz, with four simulated GPUs governed, while users without
rights do what they can to its sockets. Beside each attack its control: the same processes at a
socket that is not Derate's, so that what the processors' share costs can be taken off. For people
to run: it prints and judges nothing. As root, or every attacker is the daemon's own user.

    attack_bench.py BUILD_DIR                       all attacks, some 10 minutes
    attack_bench.py BUILD_DIR --only wide --only deep --seconds 20
    attack_bench.py BUILD_DIR --json > attacks.json

Lateness is counted at each time that a round was due, each 0.1 s: how long from then until one
began, by the times in derated's --records. A loop that stands still for 2 s has 20 such times late.
"""
import argparse
import contextlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "fault"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kube"))

import attacker  # noqa: E402
import bad_kubelet  # noqa: E402
import daemon_bench  # noqa: E402
from attacker import FIFTH, FOURTH, FRESH, SECOND, THIRD, Attacker, request  # noqa: E402
from house import round_times  # noqa: E402

GPUS, TICK = 4, 0.1
BAR_MS = 5  # what an attack may cost the loop above its control, by docs/security.md

# name: (users, what each does, its arguments)
ATTACKS = {
    "nothing": ((), None, ()),
    "beats 200/s": ((FRESH,), attacker.beats, ("done=1", 200)),
    "beats flood": ((FRESH,), attacker.beats, ()),
    "beats of many": ((FRESH,), attacker.beats_of_many, ()),
    "beats environment": ((FRESH,), attacker.empty_environment, ()),
    "beats mprotect": ((FRESH,), attacker.busy_memory, ()),
    "wide objects": ((FRESH,), attacker.flood, (attacker.wide(), 32)),
    "deep arrays": ((FRESH,), attacker.flood, (attacker.deep(), 64)),
    "job lists": ((FRESH,), attacker.job_lists, ()),
    "windows": ((FRESH,), attacker.windows, ()),
    "attribution": ((FRESH,), attacker.flood, (request("attribution"), 64)),
    "connections": ((FRESH, SECOND, THIRD, FOURTH), attacker.flood, (request("gpus"), 64)),
    "random bytes": ((FRESH,), attacker.flood, (attacker.garbage(), 64)),
    "trials": ((FRESH, SECOND), attacker.trials, ()),
    # 1,000 requests a second, 50 readers of events, a scrape a second.
    "http use": ((FRESH, SECOND, THIRD, FOURTH, FIFTH), attacker.http_use, ()),
    "http status": ((FRESH, SECOND, THIRD, FOURTH), attacker.http_flood, ()),
    "http metrics": ((FRESH, SECOND), attacker.http_flood, ("/metrics",)),
    "http history": ((FRESH, SECOND), attacker.http_flood, ("/v1/history",)),
    # A kubelet, which is root's, while a pod has a GPU governed (tests/kube/bad_kubelet.py).
    "kubelet": ((), None, ()),
}
# The number in the first attacker's tally that is not 0 once it has begun.
BEGUN_AT = {"job lists": 7, "kubelet": 0}


HTTP_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + 2000 * b" "


# --- the two that are attacked --------------------------------------------------------------------

class House(daemon_bench.House):
    """Simulated GPUs and derated, in folders that other users can look into as into /run."""

    def __init__(self, build, folder, chip):
        daemon_bench.GPUS = GPUS
        super().__init__(build, folder, chip, driver_cpu=False, policy="geepafs")
        self.run, self.state = Path(f"{folder}/run"), Path(f"{folder}/state")
        Path(folder).chmod(0o755)
        self.run.mkdir(exist_ok=True)
        self.run.chmod(0o755)
        self.records = Path(f"{folder}/records")
        self.node, self.other_node = Path(f"{folder}/node"), Path(f"{folder}/other-node")
        with open(self.env["DERATE_CONFIG"], "a", encoding="utf-8") as config:
            config.write(f'[kubernetes]\npods_socket = "{self.node}/pods.sock"\n[attribute]\n'
                         f'pod_resources = "{self.node}/resources.sock"\n')
        self.daemon = self.start("derated", "--records", str(self.records))
        self.wait(lambda: self.locked() == GPUS)
        self.worker = daemon_bench.family(self.daemon.pid)[1]

    def worker_lives(self):
        return self.daemon.poll() is None

    def rounds(self):
        return round_times(self.records)

    def beats(self):
        """How many have come in."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            state = json.loads((self.run / "state.json").read_text())
            return sum(state["beats"][key] for key in ("heard", "malformed", "too_many"))
        return 0

    def megabytes_kept(self):
        """What lies in the state folder."""
        size = 0
        for path in self.state.rglob("*"):
            with contextlib.suppress(OSError):
                size += path.stat().st_size
        return size / 1e6


def decoy(_, folder):
    """A server of nothing on sockets of the same names, which hears as much at a time as derated:
    16 lines of a connection, then it rests for 5 ms."""
    calls, web = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    for one, name in ((calls, "client.sock"), (web, "api.sock")):
        one.bind(f"{folder}/{name}")
        one.listen(256)
        one.setblocking(False)
    beats = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    beats.bind(f"{folder}/beat.sock")
    for name in ("client.sock", "api.sock", "beat.sock"):
        os.chmod(f"{folder}/{name}", 0o666)
    clients = {}
    while True:
        ready, _, _ = select.select([calls, web, beats, *clients], [], [], 1)
        for one in ready:
            with contextlib.suppress(OSError):
                if one in (calls, web):
                    caller, _ = one.accept()
                    caller.setblocking(False)
                    clients[caller] = b""
                elif one is beats:
                    for _ in range(256):
                        beats.recv(1024, socket.MSG_DONTWAIT)
                elif not answer(one, clients):
                    one.close()
                    del clients[one]
        time.sleep(0.005)


def answer(one, clients):
    """Whether the caller is still there."""
    try:
        text = one.recv(1 << 17)
    except BlockingIOError:
        return True
    except OSError:
        text = b""
    lines = (clients[one] + text).split(b"\n")
    clients[one] = lines[-1][-(1 << 16):]
    heads = lines.count(b"\r")
    with contextlib.suppress(BlockingIOError):
        one.send(HTTP_ANSWER * min(heads, 16) if heads
                 else b'{"ok":true}\n' * min(len(lines) - 1, 16))
    return bool(text)


# --- measuring ------------------------------------------------------------------------------------

def lateness(times, begin, end):
    """Seconds from each time at which a round was due, within the span, to the next one's begin."""
    out, at = [], 0
    if not times:
        return out
    # The loop keeps its phase, whatever comes late: that of most rounds before the span.
    first = times[0]
    early = [time for time in times if time < begin] or times
    shifts = sorted((time - first + TICK / 2) % TICK - TICK / 2 for time in early)
    due = first + shifts[len(shifts) // 2]
    while due < end:
        while at < len(times) and times[at] < due - TICK / 10:
            at += 1
        if due >= begin:
            began = times[at] if at < len(times) else end
            out.append(max(0.0, began - due))
        due += TICK
    return out


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


def figures(times, begin, end):
    late = [1000 * value for value in lateness(times, begin, end)]
    return {f"{name}_ms": quantile(late, share)
            for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1))} | {"due": len(late)}


class KubeletProcess(Attacker):
    """Counts the kubelets that it has ended, too."""

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        ended = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
        return super().cpu_seconds() + ended


def kubelets(house, folder):
    """A kubelet with faults and one without: the first is derated's own in the attack and another
    one in the control. gRPC's client asks the other one as often as derated asks its own."""
    for node in (house.node, house.other_node):
        node.mkdir(exist_ok=True)
    gpus = json.loads(house.derate("sim", "show", "--json").stdout)["gpus"]
    nodes = [house.node, house.other_node]
    if folder != house.run:
        nodes.reverse()
    return [KubeletProcess(os.getuid(), work, str(node), str(house.build), gpus[1]["uuid"])
            for work, node in zip((bad_kubelet.bad, bad_kubelet.good), nodes)] + \
        [KubeletProcess(os.getuid(), bad_kubelet.ask, str(house.other_node), str(house.build))]


@contextlib.contextmanager
def attackers(house, name, folder):
    users, work, arguments = ATTACKS[name]
    some = kubelets(house, folder) if name == "kubelet" else \
        [Attacker(uid, work, str(folder), *arguments) for uid in users]
    try:
        yield some
    finally:
        for one in some:
            one.end()


def spell(house, name, folder, seconds):
    """The attack for so long; (begin, end, processor seconds of the attackers a second)."""
    with attackers(house, name, folder) as some:
        time.sleep(1)
        house.wait(lambda: name not in BEGUN_AT or some[0].tally[BEGUN_AT[name]])
        cpu, begin = sum(one.cpu_seconds() for one in some), time.monotonic()
        end = begin + seconds
        while time.monotonic() < end and house.worker_lives():
            time.sleep(0.05)
        took = time.monotonic() - begin
        return begin, begin + took, (sum(one.cpu_seconds() for one in some) - cpu) / took


def measure(options, name):
    """One attack and its control, against a daemon that is new."""
    with tempfile.TemporaryDirectory(prefix="dattack-") as folder:
        house = House(options.build.resolve(), folder, options.chip)
        other = Path(folder, "other")
        other.mkdir()
        other.chmod(0o755)
        nothing = Attacker(os.getuid(), decoy, str(other))
        try:
            house.wait(lambda: (other / "beat.sock").exists())
            time.sleep(1)
            control = spell(house, name, other, options.seconds)
            time.sleep(0.5)
            pids = daemon_bench.family(house.daemon.pid)
            before, kept = daemon_bench.memory(pids, "Rss"), house.megabytes_kept()
            attack = spell(house, name, house.run, options.seconds)
            lives = house.worker_lives()
            grown = daemon_bench.memory(pids, "Rss") - before if lives else None
            kept = house.megabytes_kept() - kept
            beats = house.beats() if lives else None
            time.sleep(2 * TICK)
            times = house.rounds()
        finally:
            nothing.end()
            house.end()
    out = {"attack": name, "worker_alive": lives, "memory_grown_mib": grown,
           "state_grown_megabytes": kept, "beats": beats, "seconds": attack[1] - attack[0],
           "control": figures(times, *control[:2]) | {"attackers_cores": control[2]},
           "attacked": figures(times, *attack[:2]) | {"attackers_cores": attack[2]}}
    if out["control"]["due"] and out["attacked"]["due"]:
        out["p99_above_control_ms"] = out["attacked"]["p99_ms"] - out["control"]["p99_ms"]
    return out


# --- printing -------------------------------------------------------------------------------------

def number(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def line_of(out):
    words = [out["attack"]]
    for part in ("control", "attacked"):
        words += [number(out[part][key]) for key in ("p50_ms", "p99_ms", "max_ms")]
        words.append(number(out[part]["attackers_cores"], 2))
    words.append(number(out.get("p99_above_control_ms")))
    words.append("lives" if out["worker_alive"] else f"killed after {out['seconds']:.1f} s")
    words += [number(out["memory_grown_mib"]), number(out["state_grown_megabytes"])]
    return ("{:18}" + "{:>8}{:>8}{:>9}{:>7}" * 2 + "{:>10}  {:18}{:>8}{:>10}").format(*words)


HEAD = ("{:18}{:>8}{:>8}{:>9}{:>7}{:>8}{:>8}{:>9}{:>7}{:>10}  {:18}{:>8}{:>10}".format(
    "late by, ms", "control", "", "", "", "attack", "", "", "", "p99 above", "", "memory", "state")
    + "\n" + "{:18}{:>8}{:>8}{:>9}{:>7}{:>8}{:>8}{:>9}{:>7}{:>10}  {:18}{:>8}{:>10}".format(
    "attack", "p50", "p99", "max", "cores", "p50", "p99", "max", "cores", "control", "worker",
    "+MiB", "+MB"))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--seconds", type=float, default=20, help="of each attack and control")
    parser.add_argument("--only", action="append", metavar="NAME",
                        help=f"attacks whose name begins so: {', '.join(ATTACKS)}")
    parser.add_argument("--chip", default="H200")
    parser.add_argument("--json", action="store_true", help="a list of objects, no table")
    return parser.parse_args()


def main():
    options = parse_arguments()
    names = [name for name in ATTACKS
             if not options.only or any(name.startswith(wanted) for wanted in options.only)]
    if not names:
        sys.exit(f"attack_bench: no such attack: allowed are {', '.join(ATTACKS)}")
    if "kubelet" in names and not (options.build / "fake_kubelet").exists():
        print("attack_bench: kubelet left out: the build has no fake_kubelet", file=sys.stderr)
        names.remove("kubelet")
    if not attacker.can_be_others():
        print("attack_bench: not root: every attacker is the daemon's own user", file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    done = []
    if not options.json:
        print(HEAD, flush=True)
    for name in names:
        done.append(measure(options, name))
        if not options.json:
            print(line_of(done[-1]), flush=True)
    if options.json:
        print(json.dumps(done, indent=1))
    else:
        print(f"\n{GPUS} x {options.chip}, geepafs at 10 Hz, {options.seconds:.0f} s each; an "
              f"attack may cost {BAR_MS} ms more than its control")


if __name__ == "__main__":
    main()
