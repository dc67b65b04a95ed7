"""A node of Kubernetes on this machine: simulated GPUs, a derated that reads annotations of pods,
and a kubelet by gRPC's own server (fake_kubelet.cc), which does what the test says."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO / "tests/service"))
import service_machine  # noqa: E402
from service_machine import ask, cpu_seconds  # noqa: E402

PREFIX = "derate.dev"
GPU = "nvidia.com/gpu"
CONFIG = """[governor]
policy = "assure"
[kubernetes]
pods_socket = "{folder}/pods.sock"
{kubernetes}
[attribute]
pod_resources = "{folder}/resources.sock"
"""


class Failure(AssertionError):
    """What did not hold."""


def check(holds, what):
    if not holds:
        raise Failure(what)


def children(pid):
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


class Kubelet:
    """A fake kubelet in `folder`. `state` has the commands by which another becomes the same."""

    def __init__(self, build, folder):
        self.program, self.folder = Path(build) / "fake_kubelet", Path(folder)
        self.state, self.process = [], None

    def start(self, fault="none"):
        with open(self.folder / "kubelet.err", "ab") as errors:
            self.process = subprocess.Popen(
                [str(self.program), str(self.folder / "pods.sock"), "serve",
                 str(self.folder / "resources.sock"), fault], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors, text=True)
        check(self.process.stdout.readline() == "ready\n", "the kubelet did not start")
        return self

    def tell(self, *words):
        """One command; the numbers in its answer."""
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        check(answer and answer[0] == "ok", f"fake_kubelet: {words}: {' '.join(answer)}")
        return [int(word) for word in answer[1:]]

    def say(self, *words):
        self.state.append(words)
        return self.tell(*words)

    @contextlib.contextmanager
    def at_once(self):
        """What is said inside is seen at once."""
        self.tell("begin")
        yield
        self.tell("end")

    def add(self, name, device=None, space="lab", uid=None, phase="Running", **wish):
        """A pod with a device and annotations of our prefix; uid: one of its own."""
        self.say("pod", space, name, uid or uid_of(f"{space}/{name}"), phase)
        if device:
            self.say("device", space, name, "main", GPU, device)
        self.wish(name, space, **wish)

    def wish(self, name, space="lab", **wish):
        """Sets annotations; None removes one."""
        for key, value in wish.items():
            if value is None:
                self.say("unannotate", space, name, f"{PREFIX}/{key}")
            else:
                self.say("annotate", space, name, f"{PREFIX}/{key}",
                         urllib.parse.quote(value, safe=""))

    def calls(self):
        """How often the Pods API and the pod-resources API were asked."""
        return self.tell("calls")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def start_again(self):
        """A new process, which is not in sync until it has all pods."""
        self.start("not-in-sync")
        time.sleep(1.5)
        for words in self.state:
            self.tell(*words)
        self.tell("resource-fault", "none")
        self.tell("fault", "none")

    def end(self):
        if self.process and self.process.poll() is None:
            self.kill()


def uid_of(text):
    """A UID that stays the same."""
    number = sum(ord(char) * 31 ** at for at, char in enumerate(text)) % 16 ** 12
    return f"0a0a0a0a-0000-4000-8000-{number:012x}"


class PodMachine:
    def __init__(self, build, chip="V100-SXM2", gpus=4, kubernetes="", serve=()):
        """`kubernetes`: more lines of that section; `serve`: more options of `derate sim serve`."""
        self.build = Path(build).resolve()
        self.chip, self.count, self.serve_options = chip, gpus, serve
        self.folder = Path(tempfile.mkdtemp(prefix="dkube-"))
        self.folder.chmod(0o755)
        (self.folder / "run").mkdir()
        (self.folder / "derate.toml").write_text(
            CONFIG.format(folder=self.folder, kubernetes=kubernetes))
        self.environment = os.environ | {
            "DERATE_SIM": f"{self.folder}/sim", "DERATE_RUN_DIR": f"{self.folder}/run",
            "DERATE_STATE_DIR": f"{self.folder}/state",
            "DERATE_CONFIG": f"{self.folder}/derate.toml",
            "DERATE_NVML_LIBRARY": f"{self.build}/fakenvml/libnvidia-ml.so.1"}
        self.environment.pop("DERATE_CLIENT_SOCKET", None)
        self.programs = []
        self.kubelet = Kubelet(self.build, self.folder)
        self.daemon = None

    # --- programs

    def start(self, name, *arguments):
        with open(self.folder / f"{name}.log", "ab") as out:
            program = subprocess.Popen([str(self.build / arguments[0]), *map(str, arguments[1:])],
                                       env=self.environment, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=out, start_new_session=True)
        self.programs.append(program)
        return program

    def derate(self, *arguments):
        return subprocess.run([str(self.build / "derate"), *map(str, arguments)],
                              env=self.environment, capture_output=True, text=True, check=False,
                              timeout=60 * service_machine.slow(), stdin=subprocess.DEVNULL)

    def start_daemon(self):
        self.daemon = self.start("derated", "derated")
        self.until(lambda: len(self.status()) == self.count, 20, "derated has its GPUs")

    def worker(self):
        return children(self.daemon.pid)[0]

    def up(self):
        self.start("serve", "derate", "sim", "serve", "--chip", self.chip, "--gpus", self.count,
                   *self.serve_options)
        self.until(lambda: self.derate("sim", "show").returncode == 0, 20, "simulated GPUs")
        self.uuids = [gpu["uuid"] for gpu in self.gpus()]
        self.writes = [gpu["writes"] for gpu in self.gpus()]
        self.kubelet.start()
        self.start_daemon()
        return self

    def down(self):
        for program in reversed(self.programs):
            if program.poll() is None:
                program.terminate()
        end = time.monotonic() + 15 * service_machine.slow()
        for program in self.programs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(max(0.1, end - time.monotonic()))
        for program in self.programs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        self.kubelet.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        try:
            return self.up()
        except BaseException:
            print(self.log()[-4000:], file=sys.stderr)
            self.down()
            raise

    def __exit__(self, kind, *_):
        if kind is not None:
            print(self.log()[-4000:], file=sys.stderr)
        self.down()

    # --- what there is

    def gpus(self):
        """As the simulator has them."""
        return json.loads(self.derate("sim", "show", "--json").stdout)["gpus"]

    def locked(self):
        """The indices of GPUs whose clock is locked."""
        return [at for at, gpu in enumerate(self.gpus()) if "locked_highest_mhz" in gpu]

    def written(self):
        """The indices of GPUs that anybody has written to since the machine began."""
        return [at for at, gpu in enumerate(self.gpus()) if gpu["writes"] != self.writes[at]]

    def status(self):
        """The GPUs by index, as derated reports them once a second; empty: it does not answer."""
        try:
            answer = ask(self.folder / "run/api.sock", "/v1/status")
            return {gpu["index"]: gpu for gpu in json.loads(answer.body).get("gpus", [])}
        except (OSError, ValueError):
            return {}

    def wishes(self):
        """What pods have brought about, by GPU: the policy and the promised performance, both None
        where the GPU is only observed for a pod. Empty: derated does not answer."""
        return {at: (gpu.get("policy") or None, gpu.get("promised_performance_ratio"))
                for at, gpu in self.status().items() if gpu.get("assigned", {}).get("by") == "pod"}

    def log(self):
        path = self.folder / "derated.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def logged(self, pattern):
        """How often it is in derated's log."""
        return len(re.findall(pattern, self.log()))

    def loop(self):
        """The loop's own figures: rounds, and how late they began."""
        return json.loads((self.folder / "run/state.json").read_text())["loop"]

    def cpu(self):
        """Processor seconds of the guard and the worker."""
        return sum(cpu_seconds(pid) for pid in [self.daemon.pid, *children(self.daemon.pid)])

    # --- waiting

    def until(self, holds, limit, what):
        """Waits until it holds; how long that took in seconds."""
        begin = time.monotonic()
        while not holds():
            if time.monotonic() - begin > limit * service_machine.slow():
                raise Failure(f"after {limit:g} s not yet: {what}")
            time.sleep(0.01)
        return time.monotonic() - begin

    def until_wishes(self, wanted, limit=4):
        """Two seconds to govern, one until it is published, and one for a busy machine."""
        return self.until(lambda: self.wishes() == wanted, limit,
                          f"{wanted}: {self.wishes()}")

    def hold(self, wanted, seconds):
        """That they stay so for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            status = self.wishes()
            check(status == wanted, f"{status} in place of {wanted}")
            time.sleep(0.1)

    def settle(self, lists=4):
        """Waits until the kubelet was asked so often again, and derated has published since."""
        before = self.kubelet.calls()[0]
        self.until(lambda: self.kubelet.calls()[0] >= before + lists, 10 + lists,
                   "the kubelet is asked")
        time.sleep(1.2)


def why_not(build):
    """Why there can be no such machine; None: there can."""
    if not (Path(build) / "fake_kubelet").exists():
        return "the build has no fake_kubelet: gRPC or libnghttp2 was not there"
    return None
