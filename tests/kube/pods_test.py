#!/usr/bin/env python3
"""Annotations of pods to policies on simulated GPUs: a real derated and a kubelet by gRPC's own
server (pod_machine.py).

    pods_test.py BUILD [SLOWNESS] [--rounds N]
"""

import argparse
import os
import random
import re
import signal
import statistics
import sys
import threading
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from pod_machine import GPU, PREFIX, PodMachine, service_machine, uid_of, why_not  # noqa: E402

OPTIONS = argparse.Namespace(build=None, rounds=3)
GOVERNED_WITHIN = 2  # seconds, from the annotation to the policy
RESTORED_WITHIN = 10
OBSERVED = (None, None)


def say(text):
    print(text, file=sys.stderr)


def times(name, taken):
    say(f"{name}: {min(taken):.2f} / {statistics.median(taken):.2f} / {max(taken):.2f} s "
        f"(min / median / max of {len(taken)})")


def assure(loss):
    return ("assure", 1 - loss)


class Case(unittest.TestCase):
    def machine(self, **how):
        machine = self.enterContext(PodMachine(OPTIONS.build, **how))
        self.kubelet = machine.kubelet
        return machine

    def assert_only(self, machine, *gpus):
        """That no other GPU was ever written to."""
        self.assertLessEqual(set(machine.written()), set(gpus))


class Annotations(Case):
    def test_set_changed_and_removed(self):
        """Of the policy by derated's log, which has it when it is in force; the status says then
        which promise that is."""
        machine, draw = self.machine(), random.Random(1)
        self.kubelet.add("train", machine.uuids[0])
        for at in range(1, 4):
            self.kubelet.add(f"beside-{at}", machine.uuids[at])
        taken = {"set": [], "changed": [], "removed": []}
        steps = (("set", "0.1", "is governed by assure", {0: assure(0.1)}),
                 ("changed", "0.2", "is governed by assure", {0: assure(0.2)}),
                 ("removed", None, "is given back", {}))
        for _ in range(OPTIONS.rounds):
            for name, delta, words, wanted in steps:
                time.sleep(draw.uniform(0.5, 1.5))
                pattern = f"pod lab/train: GPU \\S+ {words}"
                before = machine.logged(pattern)
                self.kubelet.wish("train", delta=delta)
                taken[name].append(machine.until(lambda: machine.logged(pattern) > before,
                                                 GOVERNED_WITHIN, f"{name}: {words}"))
                machine.until_wishes(wanted, 2)
        for name, each in taken.items():
            times(f"annotation {name} to the policy", each)
        self.assert_only(machine, 0)

    def test_to_the_write(self):
        """Of what the simulator sees."""
        machine, draw = self.machine(), random.Random(2)
        for at in range(4):
            self.kubelet.add(f"pod-{at}", machine.uuids[at])
        taken = {"set": [], "removed": []}
        for _ in range(OPTIONS.rounds):
            for name, policy, wanted in (("set", "max-freq", [2]), ("removed", None, [])):
                time.sleep(draw.uniform(0, 1))
                self.kubelet.wish("pod-2", policy=policy)
                taken[name].append(machine.until(lambda w=wanted: machine.locked() == w,
                                                 GOVERNED_WITHIN, f"locked: {wanted}"))
        for name, each in taken.items():
            times(f"annotation {name} to the write", each)
        self.assertEqual(machine.written(), [2])

    def test_of_the_beta_api_and_back(self):
        machine = self.machine()
        self.kubelet.say("api", "v1beta1")
        self.kubelet.add("train", machine.uuids[1], delta="0.1")
        machine.until_wishes({1: assure(0.1)})
        self.kubelet.say("api", "v1alpha1")
        self.kubelet.wish("train", delta="0.2")
        machine.until_wishes({1: assure(0.2)})

    def test_of_all_containers_and_all_gpus_of_a_pod(self):
        machine = self.machine()
        with self.kubelet.at_once():
            self.kubelet.add("train", machine.uuids[0], delta="0.1")
            self.kubelet.say("device", "lab", "train", "second", GPU, machine.uuids[2])
            self.kubelet.say("device", "lab", "train", "second", "example.com/nic", "mlx5_0")
        machine.until_wishes({0: assure(0.1), 2: assure(0.1)})
        self.assert_only(machine, 0, 2)

    def test_of_another_prefix(self):
        machine = self.machine(kubernetes='prefix = "power.example.org"')
        self.kubelet.add("ours", machine.uuids[0], delta="0.1")
        self.kubelet.add("theirs", machine.uuids[1])
        self.kubelet.say("annotate", "lab", "theirs", "power.example.org/delta", "0.2")
        machine.until_wishes({1: assure(0.2)})

    def test_govern_false_keeps_the_configuration_away(self):
        machine = self.machine()
        config = machine.folder / "derate.toml"
        config.write_text(config.read_text().replace("[governor]", "[governor]\ngovern = true"))
        machine.daemon.send_signal(signal.SIGHUP)
        machine.until(lambda: len(machine.locked()) > 0 or all(
            gpu.get("policy") for gpu in machine.status().values()), 10, "all are governed")
        self.kubelet.add("careful", machine.uuids[3], govern="false")
        machine.until_wishes({3: OBSERVED})
        self.assertNotIn(3, machine.locked())
        self.kubelet.say("remove", "lab", "careful")
        machine.until_wishes({})
        machine.until(lambda: machine.status()[3].get("policy") == "assure", 4, "governed again")


class Shared(Case):
    def test_the_strictest_wins_and_the_looser_comes_back(self):
        machine = self.machine()
        gpu = machine.uuids[1]
        self.kubelet.add("loose", f"{gpu}::0", delta="0.1")
        machine.until_wishes({1: assure(0.1)})
        self.kubelet.add("strict", f"{gpu}::1", delta="0.05")
        machine.until_wishes({1: assure(0.05)})
        self.kubelet.add("never", f"{gpu}::2", govern="false")
        machine.until_wishes({1: OBSERVED})
        self.assertEqual(machine.locked(), [])
        self.kubelet.say("remove", "lab", "never")
        machine.until_wishes({1: assure(0.05)})
        self.kubelet.say("remove", "lab", "strict")
        machine.until_wishes({1: assure(0.1)})
        self.kubelet.add("silent", f"{gpu}::3")
        machine.settle()
        self.assertEqual(machine.wishes(), {1: assure(0.1)})
        self.assert_only(machine, 1)

    def test_a_namespace_that_may_not_ask_counts_for_nothing(self):
        machine = self.machine(kubernetes='namespaces = "lab, prod"')
        self.kubelet.add("alone", machine.uuids[0], space="guest", policy="max-freq")
        self.kubelet.add("beside", f"{machine.uuids[1]}::0", space="guest", govern="false")
        self.kubelet.add("stricter", f"{machine.uuids[1]}::1", space="guest", delta="0.01")
        self.kubelet.add("ours", f"{machine.uuids[1]}::2", delta="0.1")
        machine.until_wishes({1: assure(0.1)})
        machine.settle()
        self.assertEqual(machine.wishes(), {1: assure(0.1)})
        self.assertRegex(machine.log(), "pod guest/alone: .*namespaces")
        self.assert_only(machine, 1)

    def test_a_mig_instance_is_its_gpus(self):
        machine = self.machine(chip="H200", serve=("--mig", "3g,2g"))
        parts = set()

        def found():
            document = machine.derate("attribute", "--json").stdout
            parts.update(re.findall(r"MIG-[0-9a-f-]{36}", document))
            return len(parts) == 8
        machine.until(found, 10, f"two instances of each GPU: {parts}")
        # By name: the fourth number counts 1024 for each GPU before it.
        of_gpu = [part for part in sorted(parts) if part.startswith("MIG-51a00000-0000-0000-0400-")]
        self.assertEqual(len(of_gpu), 2, parts)
        self.kubelet.add("first", of_gpu[0], policy="max-freq")
        machine.until(lambda: machine.wishes().get(1, OBSERVED)[0] == "max-freq", 4,
                      "GPU 1 is governed")
        machine.until(lambda: machine.locked() == [1], 4, f"only GPU 1: {machine.locked()}")
        self.kubelet.add("second", of_gpu[1], govern="false")
        machine.until_wishes({1: OBSERVED})
        self.assertEqual(machine.locked(), [])
        self.assert_only(machine, 1)


class Refused(Case):
    def test_values_that_do_not_parse(self):
        machine = self.machine()
        bad = [{"delta": value} for value in (
            "0,1", "nan", "inf", "10%", "-0.1", "0.6", "", "0.1\n", "0.1\0", "0x1p-4",
            "0.1 0.1", "\u0660.1", "1" * (256 << 10), "0." + "1" * 300)]
        bad += [{"govern": value} for value in ("False", "0", "no", "true\n")]
        bad += [{"policy": value} for value in ("", "../etc", "assure;max-freq", "a" * 70000,
                                                "nope")]
        # One bad value takes the pod's other wishes with it.
        bad += [{"delta": "0.1", "policy": "no such one"}, {"policy": "max-freq", "delta": "1"}]
        for at, wish in enumerate(bad):
            self.kubelet.add(f"bad-{at}", machine.uuids[at % 3], **wish)
        self.kubelet.add("good", machine.uuids[3], delta="0.1")
        machine.until_wishes({3: assure(0.1)})
        machine.settle()
        self.assertEqual(machine.wishes(), {3: assure(0.1)})
        log = machine.log()
        for at, wish in enumerate(bad):
            self.assertRegex(log, rf"pod lab/bad-{at}\b", wish)
        self.assertTrue(all(len(line) < 1000 for line in log.splitlines()))
        self.assert_only(machine, 3)

    def test_keys_that_only_look_like_ours(self):
        machine = self.machine()
        self.kubelet.add("train", machine.uuids[0])
        for key in ("derate.dev.evil.org/delta", "xderate.dev/delta", "derate.dev", "delta",
                    f"{PREFIX}/Delta", f"{PREFIX}/delta/x"):
            self.kubelet.say("annotate", "lab", "train", key, "0.1")
        machine.settle()
        self.assertEqual(machine.wishes(), {})
        self.assert_only(machine)

    def test_devices_that_are_not_proven(self):
        machine = self.machine()
        for at, device in enumerate(("0", "1::0", "nvidia1", "GPU-0", "GPU-51a00000",
                                     machine.uuids[1][:-1], machine.uuids[1] + "0",
                                     "MIG-00000000-0000-0000-0000-000000000000")):
            self.kubelet.add(f"pod-{at}", device, policy="max-freq")
        self.kubelet.add("good", machine.uuids[3], delta="0.1")
        machine.until_wishes({3: assure(0.1)})
        machine.settle()
        self.assertEqual(machine.wishes(), {3: assure(0.1)})
        self.assertRegex(machine.log(), "pod lab/pod-0: device '0' is not proven")
        self.assert_only(machine, 3)

    def test_two_pods_with_one_uid(self):
        machine = self.machine()
        uid = uid_of("the same")
        with self.kubelet.at_once():
            self.kubelet.add("one", machine.uuids[0], uid=uid, policy="max-freq")
            self.kubelet.add("two", machine.uuids[1], uid=uid, policy="max-freq")
        machine.settle()
        self.assertEqual(machine.wishes(), {})
        self.assertRegex(machine.log(), "pod lab/(one|two): .*UID")
        self.assert_only(machine)

    def test_two_unfinished_pods_of_one_name(self):
        machine = self.machine()
        with self.kubelet.at_once():
            self.kubelet.add("train", machine.uuids[0], uid=uid_of("first"))
            self.kubelet.say("twin", "lab", "train", uid_of("second"), "Pending")
            self.kubelet.wish("train", policy="max-freq")
        machine.settle()
        self.assertEqual(machine.wishes(), {})
        self.assertRegex(machine.log(), "pod lab/train: ")
        self.assert_only(machine)

    def test_finished_pods_do_not_count(self):
        machine = self.machine()
        for at, phase in enumerate(("Succeeded", "Failed", "Pending", "Running")):
            self.kubelet.add(f"pod-{at}", machine.uuids[at], phase=phase, delta="0.1")
        machine.until_wishes({2: assure(0.1), 3: assure(0.1)})
        machine.settle()
        self.assertEqual(machine.wishes(), {2: assure(0.1), 3: assure(0.1)})
        self.kubelet.say("pod", "lab", "pod-3", uid_of("lab/pod-3"), "Failed")
        machine.until_wishes({2: assure(0.1)})
        self.assert_only(machine, 2, 3)


class SameName(Case):
    def test_another_uid_on_another_gpu(self):
        """Whatever derated asks between the old pod's end and the new one's begin: the old GPU is
        never governed as the new pod requests, nor the new GPU as the old one did."""
        machine, draw = self.machine(), random.Random(3)
        for number in range(OPTIONS.rounds):
            self.kubelet.add("train", machine.uuids[0], uid=uid_of(f"old {number}"),
                             policy="max-freq")
            machine.until(lambda: machine.locked() == [0], 4, "the old pod's GPU")
            time.sleep(draw.uniform(0, 1))
            self.replace(machine, number, draw)
            machine.until_wishes({1: assure(0.2)}, 6)
            machine.until(lambda: machine.locked() in ([], [1]), 2, "the old GPU is given back")
            self.kubelet.say("remove", "lab", "train")
            machine.until_wishes({})
        self.assertEqual(machine.logged("pod lab/train: GPU 0 is governed by assure"), 0)
        self.assertEqual(machine.logged("pod lab/train: GPU 1 is governed by max-freq"), 0)
        self.assert_only(machine, 0, 1)

    def replace(self, machine, number, draw):
        """At once, or as a kubelet does it: the devices of the new pod come later."""
        late = draw.random() < 0.5
        with self.kubelet.at_once():
            self.kubelet.say("undevice", "lab", "train")
            self.kubelet.add("train", None if late else machine.uuids[1],
                             uid=uid_of(f"new {number}"), delta="0.2")
        if late:
            time.sleep(draw.uniform(0, 1.5))
            self.kubelet.say("device", "lab", "train", "main", GPU, machine.uuids[1])


class Faults(Case):
    """A kubelet that does not answer as it should: the last answer holds, and the loop goes on."""

    def begin(self):
        machine = self.machine()
        self.kubelet.add("train", machine.uuids[1], delta="0.1")
        self.kubelet.add("beside", machine.uuids[2])
        machine.until_wishes({1: assure(0.1)})
        return machine

    def hold(self, machine, seconds):
        before, begin = machine.loop()["rounds"], time.monotonic()
        machine.hold({1: assure(0.1)}, seconds)
        time.sleep(1)  # the figures are published once a second
        loop = machine.loop()
        done = (loop["rounds"] - before) / (time.monotonic() - begin)
        self.assertGreater(done, 1, "rounds a second")
        return f"{done:.1f} rounds/s, late by {1e3 * loop['late_p99_seconds']:.1f} ms (p99)"

    def test_answers_that_are_none(self):
        machine = self.begin()
        for api in ("fault", "resource-fault"):
            for fault, seconds in (("error", 2.5), ("not-in-sync", 2.5), ("truncate", 2.5),
                                   ("garbage", 2.5), ("slow", 3), ("hang", 7)):
                with self.subTest(api=api, fault=fault):
                    self.kubelet.tell(api, fault)
                    say(f"{api} {fault}: {self.hold(machine, seconds)}")
                    self.kubelet.tell(api, "none")
        self.kubelet.wish("train", delta="0.2")
        machine.until_wishes({1: assure(0.2)}, 6)
        self.assert_only(machine, 1)

    def test_no_fault_makes_a_wish(self):
        """A pod that asks while the kubelet lies is governed only after an answer that is whole."""
        machine = self.begin()
        for fault in ("truncate", "garbage"):
            self.kubelet.tell("fault", fault)
            self.kubelet.wish("beside", policy="max-freq")
            self.hold(machine, 3)
            self.kubelet.wish("beside", policy=None)
            self.kubelet.tell("fault", "none")
        self.assert_only(machine, 1)

    def test_it_restarts(self):
        machine = self.begin()
        over, wrong = threading.Event(), []

        def watch():
            while not over.wait(0.1):
                wishes = machine.wishes()
                if wishes != {1: assure(0.1)}:
                    wrong.append(wishes)
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            for _ in range(OPTIONS.rounds):
                self.kubelet.kill()
                time.sleep(1.5)
                self.kubelet.start_again()
                machine.settle(2)
        finally:
            over.set()
            watcher.join()
        self.assertEqual(wrong, [])
        self.kubelet.wish("train", delta="0.2")
        machine.until_wishes({1: assure(0.2)}, 6)
        self.assert_only(machine, 1)

    def test_a_pod_that_ends_meanwhile_is_given_back(self):
        machine = self.begin()
        self.kubelet.kill()
        self.kubelet.state.append(("remove", "lab", "train"))
        time.sleep(1)
        self.kubelet.start_again()
        machine.until_wishes({}, 6)


class Ends(Case):
    """Of derated."""

    def begin(self):
        machine = self.machine()
        self.kubelet.add("train", machine.uuids[1], policy="max-freq")
        machine.until(lambda: machine.locked() == [1], 4, "GPU 1 is governed")
        return machine

    def test_it_is_killed(self):
        machine = self.begin()
        for _ in range(OPTIONS.rounds):
            os.kill(machine.worker(), signal.SIGKILL)
            taken = machine.until(lambda: machine.locked() == [], RESTORED_WITHIN,
                                  "the guard restores the GPU")
            say(f"restored {taken:.2f} s after the worker was killed")
            machine.until(lambda: machine.daemon.poll() is not None, 10, "the guard ends")
            machine.start_daemon()
            machine.until(lambda: machine.locked() == [1], 4, "the next one governs it")
        self.assertEqual(machine.written(), [1])

    def test_it_is_stopped(self):
        machine = self.begin()
        begin = time.monotonic()
        machine.daemon.terminate()
        machine.daemon.wait(RESTORED_WITHIN * service_machine.slow())
        say(f"stopped after {time.monotonic() - begin:.2f} s")
        self.assertEqual(machine.locked(), [])
        self.assertEqual(machine.written(), [1])

    def test_it_is_stopped_while_the_kubelet_hangs(self):
        machine = self.begin()
        self.kubelet.tell("fault", "hang")
        time.sleep(1.5)
        begin = time.monotonic()
        machine.daemon.terminate()
        machine.daemon.wait(RESTORED_WITHIN * service_machine.slow())
        say(f"stopped after {time.monotonic() - begin:.2f} s")
        self.assertEqual(machine.locked(), [])


class Many(Case):
    def test_what_110_pods_of_8_kb_cost(self):
        """The usual most of a node, against none; of the pods one has an annotation."""
        machine = self.machine()

        def share():
            cpu, begin = machine.cpu(), time.monotonic()
            time.sleep(10)
            return (machine.cpu() - cpu) / (time.monotonic() - begin)
        none = share()
        self.kubelet.say("weight", 8000)
        self.kubelet.say("many", 109)
        self.kubelet.add("train", machine.uuids[2], delta="0.1")
        machine.until(lambda: machine.wishes() == {2: assure(0.1)}, 30, "it is governed")
        say(f"110 pods of 8 kB: {100 * share():.1f} % of a core; no pods: {100 * none:.1f} %; "
            f"both with 4 simulated GPUs")
        self.assert_only(machine, 2)

    def test_ten_thousand_pods_of_8_kb(self):
        machine = self.machine()
        self.kubelet.say("weight", 8000)
        self.kubelet.say("many", 10000)
        self.kubelet.add("train", machine.uuids[2], delta="0.1")
        taken = machine.until(lambda: machine.wishes() == {2: assure(0.1)}, 30, "it is governed")
        calls, cpu, begin = self.kubelet.calls()[0], machine.cpu(), time.monotonic()
        time.sleep(10)
        spent, seconds = machine.cpu() - cpu, time.monotonic() - begin
        loop = machine.loop()
        say(f"10,000 pods of 8 kB: governed after {taken:.1f} s; {spent:.2f} CPU s of derated in "
            f"{seconds:.1f} s, {self.kubelet.calls()[0] - calls} lists; "
            f"{service_machine.memory_mib(machine.worker())[1]:.0f} MiB at most; rounds late by "
            f"{1e3 * loop['late_p99_seconds']:.1f} ms (p99)")
        self.assertEqual(machine.wishes(), {2: assure(0.1)})
        self.assert_only(machine, 2)


def main():
    arguments = sys.argv
    service_machine.begin(arguments)
    OPTIONS.build = service_machine.energy_test.BUILD
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="of each way to change or to end")
    _, rest = parser.parse_known_args(arguments[1:], namespace=OPTIONS)
    missing = why_not(OPTIONS.build)
    if missing:
        print(f"skipped: {missing}")
        return 0
    unittest.main(argv=[arguments[0], "-v", *rest])


if __name__ == "__main__":
    sys.exit(main())
