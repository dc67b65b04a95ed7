#!/usr/bin/env python3
"""Which GPUs `derate energy`, `derate run` and the Python package take, in random environments on a
machine of six GPUs of two kinds, whole and in views. The expected GPUs follow NVIDIA's guides,
computed from the whole machine and CUDA's own order, which none of the programs can query.

    choice_test.py BUILD [SLOWNESS]

DERATE_ENVIRONMENTS: how many (60).
"""
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import unittest
import unittest.mock
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import energy_test  # noqa: E402
from energy_test import Machine, wait_for  # noqa: E402

import derate.gpus  # noqa: E402
import derate_client  # noqa: E402

BUILD, SLOW = Path(), 1.0
CHIPS = ["V100-SXM2", "H200", "V100-SXM2", "H200", "H200", "V100-SXM2"]
REFUSED = "refused"


def fastest_first(gpu):
    """CUDA C++ Programming Guide, CUDA_DEVICE_ORDER: "FASTEST_FIRST causes CUDA to enumerate the
    available devices in fastest to slowest order"."""
    return "H200" not in gpu["name"], gpu["pci"]


def meant_by(item, devices, names):
    """The device of an item, None where it is invalid: "integer indices", or "GPU UUID strings ...
    abbreviated forms are allowed; simply specify enough digits from the beginning"."""
    if names:
        found = [gpu for gpu in devices if item != "GPU-" and gpu["uuid"].startswith(item)]
        return found[0] if len(found) == 1 and item.startswith("GPU-") else None
    try:
        number = int(item)
    except ValueError:
        return None
    return devices[number] if 0 <= number < len(devices) else None


def shown_by_cuda(value, order, view):
    """"Only the devices whose index is present in the sequence are visible ... If one of the
    indices is invalid, only the devices whose index precedes the invalid index are visible". That
    a device which comes twice before that hides all was measured (cuda_driver.json)."""
    by_pci = order == "PCI_BUS_ID"
    devices = sorted(view, key=(lambda gpu: gpu["pci"]) if by_pci else fastest_first)
    out = []
    for item in value.split(","):
        meant = meant_by(item, devices, value.startswith("GPU-"))
        if meant is None:
            break
        out.append(meant["uuid"])
    return out if len(set(out)) == len(out) else []


class Choice(Machine):
    def setUp(self):
        super().setUp()
        self.start("derate", "sim", "serve", "--chip", ",".join(CHIPS))
        wait_for(lambda: subprocess.run([str(BUILD / "derate"), "sim", "show"],
                                        capture_output=True).returncode == 0, "simulated GPUs")
        for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "SLURM_JOB_GPUS",
                     "SLURM_STEP_GPUS"):
            os.environ.pop(name, None)
        derate_client._looks.clear()
        self.addCleanup(derate_client._looks.clear)
        self.node = list(derate_client.seen_gpus())
        self.assertEqual(len(self.node), len(CHIPS))

    def draw(self, dice):
        """Environment variables, and the UUIDs of the GPUs that the command can use with them."""
        numbers = sorted(dice.sample(range(len(CHIPS)), dice.randint(1, len(CHIPS))))
        if dice.random() < 0.3:
            numbers = list(range(len(CHIPS)))
        view = [self.node[number] for number in numbers]
        variables = {"DERATE_SIM_VIEW": ",".join(map(str, numbers))}
        if dice.random() < 0.2:
            job = sorted(dice.sample(numbers, dice.randint(1, len(numbers))))
            # They follow neither NVML nor device files (docs/slurm.md).
            places = dice.sample(range(len(CHIPS)), len(job))
            variables[dice.choice(["SLURM_JOB_GPUS", "SLURM_STEP_GPUS"])] = \
                ",".join(map(str, places))
            return variables, [self.node[number]["uuid"] for number in job]
        order = dice.choice([None, None, "PCI_BUS_ID", "FASTEST_FIRST"])
        if order:
            variables["CUDA_DEVICE_ORDER"] = order
        chosen = dice.sample(range(len(view)), dice.randint(1, len(view)))
        chosen += dice.choices(chosen, k=dice.random() < 0.15)  # a repeat
        style = dice.choice("nu")
        value = ",".join(self.item(dice, view, style, number) for number in chosen)
        variables["CUDA_VISIBLE_DEVICES"] = value
        return variables, shown_by_cuda(value, order, view)

    def item(self, dice, view, style, number):
        if dice.random() < 0.1:
            return dice.choice(["", "-1", "7", "one", "GPU-", "GPU-0000", "99999999999"])
        return str(number) if style == "n" else view[number]["uuid"][:dice.choice([40, 40, 40, 20])]

    def may_refuse(self, variables):
        """Whether a program may refuse: numbers select some GPUs of several kinds, in CUDA's own
        order, or Slurm's places some of a larger view."""
        numbers = variables["DERATE_SIM_VIEW"].split(",")
        for name in ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS"):
            if name in variables:
                return variables[name].count(",") + 1 < len(numbers)
        kinds = {self.node[int(number)]["name"] for number in numbers}
        return (len(kinds) > 1 and variables.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
                and not variables.get("CUDA_VISIBLE_DEVICES", "GPU-").startswith("GPU-"))

    def run_program(self, number, verb, variables):
        """The UUIDs in the program's account, or REFUSED."""
        account = self.folder / f"account-{number}"
        options = ["--dry-run", "--no-launches", "--shared"] if verb == "run" else []
        done = subprocess.run([str(BUILD / "derate"), verb, *options, "--json", "-o", str(account),
                               "--", "true"], capture_output=True, text=True,
                              env=os.environ | variables, timeout=60 * SLOW)
        if done.returncode == 125:
            self.assertIn("_", done.stderr)  # the message names the variable
            return REFUSED
        self.assertEqual(done.returncode, 0, (variables, done.stderr))
        if "hides every GPU" in done.stderr:
            return []
        return [gpu["uuid"] for gpu in json.loads(account.read_text())["gpus"]]

    def by_package(self, variables):
        with unittest.mock.patch.dict(os.environ, variables):
            derate_client._looks.clear()
            try:
                return derate.gpus.own_gpus().split(",")
            except derate.gpus.Unknown as why:
                return [] if "hides every GPU" in str(why) else REFUSED

    def check(self, who, variables, reached, found):
        said = f"{who}: {variables}"
        if found == REFUSED:
            self.assertTrue(self.may_refuse(variables), said)
        else:
            self.assertEqual(sorted(found), sorted(reached), said)

    def test_nothing_is_taken_that_the_command_cannot_reach(self):
        dice = random.Random(38)
        drawn = [self.draw(dice) for _ in range(int(os.environ.get("DERATE_ENVIRONMENTS", "60")))]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() + 1) as pool:
            runs = [pool.submit(self.run_program, number, "run" if number % 10 == 0 else "energy",
                                variables) for number, (variables, _) in enumerate(drawn)]
            found = [run.result() for run in runs]
        refused = 0
        for (variables, reached), by_program in zip(drawn, found):
            self.check("derate", variables, reached, by_program)
            self.check("the package", variables, reached, self.by_package(variables))
            refused += by_program == REFUSED
        # Each outcome was drawn often enough to say something.
        self.assertGreater(refused, len(drawn) // 20)
        self.assertLess(refused, len(drawn) * 2 // 3)


if __name__ == "__main__":
    BUILD = energy_test.BUILD = Path(sys.argv[1]).resolve()
    SLOW = energy_test.SLOW = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    unittest.main(argv=sys.argv[:1])
