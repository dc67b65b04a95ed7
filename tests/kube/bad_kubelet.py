"""A kubelet that restarts, hangs, lies and cuts its answers short, and one that does not: processes
for tests/bench/attack_bench.py."""

import random
import subprocess
import time
from pathlib import Path

from pod_machine import Kubelet

FAULTS = ("hang", "garbage", "truncate", "error", "not-in-sync", "slow")
PODS, POD_BYTES = 110, 8000  # the most that a kubelet takes by default, each of a usual size


def furnish(kubelet, uuid):
    """A full node with one pod that asks for its GPU."""
    kubelet.say("weight", POD_BYTES)
    kubelet.say("many", PODS)
    kubelet.add("train", uuid, policy="max-freq")


def good(tally, folder, build, uuid):
    kubelet = Kubelet(build, folder).start()
    furnish(kubelet, uuid)
    tally[0] = 1
    while True:
        time.sleep(60)


def bad(tally, folder, build, uuid):
    """tally[1] and tally[2]: faults and restarts so far."""
    draw = random.Random(4)
    kubelet = Kubelet(build, folder).start()
    furnish(kubelet, uuid)
    tally[0] = 1
    while True:
        for fault in draw.sample(FAULTS, len(FAULTS)):
            api = draw.choice(("fault", "resource-fault"))
            kubelet.tell(api, fault)
            time.sleep(draw.uniform(0.3, 1.5))
            kubelet.tell(api, "none")
            tally[1] += 1
            time.sleep(draw.uniform(0, 0.5))
        kubelet.kill()
        time.sleep(draw.uniform(0, 0.5))
        kubelet.start_again()
        tally[2] += 1


def ask(_, folder, build):
    """gRPC's own client at the kubelet there, as often as derated."""
    subprocess.run([str(Path(build) / "fake_kubelet"), f"{folder}/pods.sock", "ask"], check=False,
                   stdout=subprocess.DEVNULL)
