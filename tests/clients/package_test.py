#!/usr/bin/env python3
"""The Python package: against a real derated on simulated GPUs, one that hangs, and none; with
stand-ins for the frameworks that have the documented interfaces of their callbacks.

    package_test.py BUILD [SLOWNESS]
"""
import contextlib
import importlib
import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import types
import unittest
import warnings
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
import energy_test  # noqa: E402
from energy_test import ROOT, Machine  # noqa: E402

import derate  # noqa: E402
import derate_client  # noqa: E402
import derate.gpus  # noqa: E402
from derate import lines as line_module, once, trials  # noqa: E402


def forget():
    for line in list(line_module.lines.lines):
        line.close()
    line_module.lines._forget()
    once._told.clear()
    if trials.Trial._line is not None:
        trials.Trial._line.close()
        trials.Trial._line = None


class Package(Machine):
    def setUp(self):
        super().setUp()
        forget()
        self.addCleanup(forget)
        self.errors = io.StringIO()
        quiet = contextlib.redirect_stderr(self.errors)
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)

    def told(self):
        return [line for line in self.errors.getvalue().splitlines() if line]


class Import(unittest.TestCase):
    def test_it_loads_nothing_before_it_is_used(self):
        done = subprocess.run(
            [sys.executable, "-B", "-c", "import derate, sys; print(sorted(m for m in sys.modules "
             "if m.startswith('derate') or m in ('json', 'socket')))"], capture_output=True,
            text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "clients/python")})
        self.assertEqual(done.stdout, "['derate']\n", done.stderr)

    def test_the_version_is_the_project_s(self):
        project = (ROOT / "CMakeLists.txt").read_text()
        self.assertEqual(derate.__version__, re.search(r"derate VERSION (\S+)", project)[1])


BUSY = 0.4  # seconds


def view(*numbers):
    """The view of a program that sees these GPUs of a node."""
    return derate_client.View(
        {"index": index, "uuid": f"GPU-0000aa0{number}-0000-0000-0000-00000000000{number}",
         "name": "H200", "pci": f"00000000:{16 + number:02X}:00.0", "minor": number, "mig": False,
         "instances": [], "unread": False} for index, number in enumerate(numbers))


def machine_of(described):
    """The view of a program on a machine of cuda_visible.json."""
    seen = view(*range(len(described["gpus"])))
    seen.silent = described.get("silent", [])
    for gpu, what in zip(seen, described["gpus"]):
        gpu.update(name=what["name"], mig=what.get("mig", False), unread=what.get("unread", False),
                   instances=[tuple(each) for each in what.get("instances", [])])
        if "bus" in what:
            gpu["pci"] = "" if what["bus"] is None else f"00000000:{what['bus']:02X}:00.0"
    return seen


def in_uuids(value):
    """Replaces GPU-A by the beginning of its UUID, GPU-A-whole by all of it, <A> by its digits."""
    for number, letter in enumerate("ABCD"):
        uuid = view(number)[0]["uuid"]
        value = value.replace(f"GPU-{letter}-whole", uuid).replace(f"<{letter}>", uuid[4:])
        value = value.replace(f"GPU-{letter}", uuid[:12])
    return value


def places_of(value, order, seen):
    """The GPUs that a value shows, as "2 0"; "none"; "?" if they are not known."""
    try:
        found = derate.gpus.visible_to_cuda(value, order, seen)
    except derate.gpus.Unknown:
        return "?"
    return " ".join(str([gpu["uuid"] for gpu in seen].index(uuid)) for uuid in found) or "none"


class OwnGpus(unittest.TestCase):
    def test_what_the_environment_says(self):
        def own(seen=view(0, 1, 2, 3), **environment):
            return derate.gpus.own_gpus(environment, lambda: seen)

        def uuids(*gpus):
            return ",".join(gpu["uuid"] for gpu in view(*gpus))
        self.assertIsNone(own())
        for hidden in ("", "-1", "MIG-8932f937", "all"):
            with self.assertRaisesRegex(derate.gpus.Unknown, "hides every GPU"):
                own(CUDA_VISIBLE_DEVICES=hidden)
        for order in ("", "pci_bus_id", "x"):
            for others in ({}, {"SLURM_JOB_GPUS": "1"}, {"CUDA_VISIBLE_DEVICES": uuids(1)}):
                with self.assertRaisesRegex(derate.gpus.Unknown, "hides every GPU"):
                    own(CUDA_DEVICE_ORDER=order, **others)
        self.assertIsNone(own(CUDA_DEVICE_ORDER="FASTEST_FIRST"))
        self.assertEqual(own(SLURM_JOB_GPUS="0,1-3"), uuids(0, 1, 2, 3))
        self.assertEqual(own(view(3), SLURM_JOB_GPUS="x", SLURM_STEP_GPUS="0"), uuids(3))
        with self.assertRaisesRegex(derate.gpus.Unknown, "this process sees 4 GPUs"):
            own(SLURM_JOB_GPUS="0,2-3")
        self.assertEqual(own(CUDA_VISIBLE_DEVICES="1", SLURM_JOB_GPUS="0"), uuids(1))
        # A job that sees the node's GPU 2 alone, as its GPU 0.
        self.assertEqual(own(view(2), CUDA_VISIBLE_DEVICES="0", SLURM_JOB_GPUS="2"), uuids(2))
        self.assertEqual(own(view(2), SLURM_JOB_GPUS="2"), uuids(2))
        self.assertEqual(own(None, CUDA_VISIBLE_DEVICES=uuids(1, 0)), uuids(1, 0))
        for unknown in ({"CUDA_VISIBLE_DEVICES": "0"}, {"SLURM_JOB_GPUS": "0"},
                        {"CUDA_VISIBLE_DEVICES": "GPU-1"},
                        {"CUDA_VISIBLE_DEVICES": uuids(1, 1)}):
            with self.assertRaisesRegex(derate.gpus.Unknown, "without a driver"):
                own(None, **unknown)
        with self.assertRaisesRegex(derate.gpus.Unknown, "hides every GPU"):
            own(None, CUDA_VISIBLE_DEVICES="")
        # 4 GPUs are in view. The last is one of the job's, and does not answer.
        hung = view(0, 1, 2)
        hung.silent = [3]
        with self.assertRaisesRegex(derate.gpus.Unknown, "not answer"):
            own(hung, SLURM_JOB_GPUS="1,2,3")
        self.assertEqual(own(view(0), SLURM_JOB_GPUS="2"), uuids(0))
        with self.assertRaises(derate.gpus.Unknown):
            own(SLURM_JOB_GPUS="gpu:2")

    def test_numbers_of_mixed_gpus_need_pcis_order(self):
        mixed = view(0, 1)
        mixed[0]["name"] = "V100"
        with self.assertRaisesRegex(derate.gpus.Unknown, "CUDA_DEVICE_ORDER=PCI_BUS_ID"):
            derate.gpus.visible_to_cuda("0", None, mixed)
        self.assertEqual(derate.gpus.visible_to_cuda("0", "PCI_BUS_ID", mixed), [mixed[0]["uuid"]])
        self.assertEqual(len(derate.gpus.visible_to_cuda("1,0", None, mixed)), 2)

    def test_the_table_of_the_document(self):
        """The table that the C++ reader is tested against."""
        page = (ROOT / "docs/run.md").read_text(encoding="utf-8")
        table = page.split("| `CUDA_VISIBLE_DEVICES` |", 1)[1].split("\n\n")[0].splitlines()[2:]
        self.assertGreaterEqual(len(table), 20)
        seen = view(0, 1, 2, 3)
        for row in table:
            value, shown = (cell.strip() for cell in row.split("|")[1:3])
            value = "" if value == "(empty)" else value.strip("`")
            self.assertEqual(places_of(value, None, seen), shown, row)

    def test_what_the_other_reader_is_tested_with(self):
        described = json.loads((ROOT / "tests/clients/cuda_visible.json").read_text())
        for machine, value, order, shown in described["cases"]:
            seen = machine_of(described["machines"][machine])
            self.assertEqual(places_of(in_uuids(value), order, seen), shown, (machine, value))


    def test_what_a_driver_shows(self):
        measured = json.loads((ROOT / "tests/clients/cuda_driver.json").read_text())
        for machine, value, order, shown in measured["rows"]:
            seen = view(0, 1)
            for gpu, uuid in zip(seen, measured["machines"][machine]):
                gpu["uuid"] = uuid
            self.assertEqual(places_of(value, order, seen), " ".join(map(str, shown)) or "none",
                             (machine, value, order))


class FakeNvml:
    """The functions of nvml.h for names. A call for a GPU of `hangs` waits until `goes_on`."""

    def __init__(self, gpus, hangs=(), codes=None, uuids=None):
        self.gpus, self.hangs, self.codes = gpus, hangs, codes or {}
        self.uuids = uuids or range(gpus)  # numbers of view()
        self.goes_on = threading.Event()

    def __getattr__(self, name):
        if name == "nvmlDeviceGetMigMode":
            raise AttributeError(name)  # an old driver
        return lambda *arguments: 3

    def nvmlShutdown(self):
        return 0

    def nvmlDeviceGetCount_v2(self, out):
        if "count" in self.hangs:
            self.goes_on.wait(60)
        out._obj.value = self.gpus
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, out):
        if index in self.hangs:
            self.goes_on.wait(60)
        out._obj.value = index + 1
        return self.codes.get(index, 0)

    def nvmlDeviceGetUUID(self, device, out, size):
        out.value = view(self.uuids[device.value - 1])[0]["uuid"].encode()
        return 0


class Seen(unittest.TestCase):
    """The view of a program whose driver hangs or denies access."""

    def look(self, **how):
        nvml = FakeNvml(3, **how)
        self.addCleanup(nvml.goes_on.set)
        for name, value in {"_nvml": lambda: nvml, "_looks": [], "_DRIVER_PATIENCE_S": 0.3}.items():
            patch = mock.patch.object(derate_client, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def test_a_gpu_that_hangs_is_silent(self):
        self.look(hangs=[1], codes={2: 4})
        seen = derate_client.seen_gpus()
        self.assertEqual([gpu["index"] for gpu in seen], [0])  # access to GPU 2 is denied
        self.assertEqual(seen.silent, [1])
        self.assertEqual(derate_client.by_uuid(0), view(0)[0]["uuid"])
        for number, why in ((1, "does not answer"), (2, "is not here")):
            with self.assertRaisesRegex(derate_client.Refused, why):
                derate_client.by_uuid(number)
        with self.assertRaisesRegex(derate.gpus.Unknown, "not answer"):
            derate.gpus.own_gpus({"CUDA_VISIBLE_DEVICES": "0"})

    def test_gpus_that_share_a_uuid_are_silent(self):
        self.look(uuids=[0, 1, 0])
        seen = derate_client.seen_gpus()
        self.assertEqual([gpu["index"] for gpu in seen], [1])
        self.assertEqual(seen.silent, [0, 2])
        with self.assertRaisesRegex(derate_client.Refused, "a UUID of its own"):
            derate_client.by_uuid(2)

    def test_a_driver_that_hangs_holds_nobody_up(self):
        self.look(hangs=["count"])
        began = time.monotonic()
        with self.assertRaisesRegex(derate_client.Refused, "has not answered"):
            derate_client.by_uuid(0)
        self.assertLess(time.monotonic() - began, 20)
        with self.assertRaises(derate_client.Refused):
            derate.gpus.own_gpus({"CUDA_VISIBLE_DEVICES": "0"})

    def test_a_driver_without_a_gpu_gives_no_number_to_others(self):
        self.look()
        derate_client._nvml = lambda: FakeNvml(0)
        with self.assertRaisesRegex(derate_client.Refused, "is not here"):
            derate_client.by_uuid(0)

    def test_a_daemon_that_does_not_answer_is_not_asked_for_all_gpus(self):
        self.look()
        windows = importlib.import_module("derate.windows")
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("CUDA_", "SLURM_", "DERATE_CLIENT"))}
        with mock.patch.object(windows, "_measured", lambda: None), \
                mock.patch.dict(os.environ, kept, clear=True):
            self.assertEqual(windows.default_gpus(),
                             ",".join(gpu["uuid"] for gpu in view(0, 1, 2)))


class Measured(Package):
    def setUp(self):
        super().setUp()
        self.serve_gpus()
        self.daemon()

    def test_windows(self):
        with derate.window("outer") as outer:
            with derate.window("inner", gpus=0) as inner:
                time.sleep(0.5)
        self.assertEqual((len(outer.gpus), len(inner.gpus)), (2, 1))
        # The daemon takes the time when it reads a message: a busy machine shifts either end.
        self.assertGreaterEqual(outer.time, inner.time - BUSY)
        self.assertGreaterEqual(inner.time, 0.5 - BUSY)
        self.assertPower(inner.joules, inner.time)
        self.assertEqual(self.told(), [])

    def test_neighbours_do_not_wait_for_each_other(self):
        windows = []
        for _ in range(12):
            with derate.window("step") as one:
                time.sleep(0.01)
            windows.append(one)
        for one in windows:
            self.assertIsNotNone(one.joules)
        self.assertLessEqual(len(line_module.lines.lines), line_module.Lines.MOST)

    def test_a_refusal_is_told_once(self):
        for _ in range(2):
            with derate.window("x", gpus=99) as one:
                pass
            self.assertIsNone(one.joules)
        self.assertEqual(len(self.told()), 1, self.told())

    def test_a_fork_knows_nothing_of_the_parent_s(self):
        with derate.window("whole") as whole:
            def work():
                with derate.window("child") as child:
                    time.sleep(0.2)
                return child.joules is not None
            self.assertEqual(self.in_a_child(work), "True")
        self.assertIsNotNone(whole.joules)

    def test_a_restart_loses_a_window_and_no_more(self):
        with derate.window("lost") as lost:
            line_module.lines.lines[0].sock.shutdown(socket.SHUT_RDWR)
        self.assertIsNone(lost.joules)
        with derate.window("next") as following:
            time.sleep(0.1)
        self.assertIsNotNone(following.time)

    def test_loops(self):
        loop = derate.Loop(range(3))
        self.assertEqual([item for item in loop], [0, 1, 2])
        self.assertTrue(all(one.time is not None for one in loop.windows))

    def test_a_cell(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            self.cell("x = 1\nimport time\ntime.sleep(0.2)")
        self.assertRegex(printed.getvalue(), r"^derate: 0\.\d\d s, \d+ J\n$")

    def cell(self, text):
        class Shell:
            def register_magic_function(self, function, magic_kind, magic_name):
                assert (magic_kind, magic_name) == ("cell", "derate")
                self.magic = function

            def run_cell(self, cell):
                exec(cell, {})
        shell = Shell()
        derate.load_ipython_extension(shell)
        shell.magic("", text)

    def test_how_long_it_takes_is_printed(self):
        took = []
        for _ in range(200):
            begin = time.perf_counter()
            with derate.window("step"):
                pass
            took.append(time.perf_counter() - begin)
            time.sleep(0.002)
        took.sort()
        print(f"begin and end: median {took[100] * 1e6:.0f} us, p95 {took[190] * 1e6:.0f} us",
              file=sys.__stderr__)
        self.assertEqual(self.told(), [])


class Entries:
    """Every entry, where nobody answers."""

    def enter_all(self):
        with derate.window("a") as one:
            pass
        self.assertEqual((one.joules, one.gpus), (None, []))
        self.assertGreaterEqual(one.time, 0)
        self.assertTrue(one.done())

        @derate.window("b")
        def decorated():
            return 7
        self.assertEqual(decorated(), 7)
        derate.beat(1)
        self.assertEqual(list(derate.Loop([1, 2])), [1, 2])
        with derate.Trial("bert", without=32) as trial:
            self.assertEqual((trial.batch_size, trial.step(), trial.epoch(0.5)), (32, False, False))

    def check(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            begin = time.monotonic()
            self.enter_all()
            first = time.monotonic() - begin
            told = self.told()
            self.enter_all()
        self.assertEqual(self.told(), told)
        return first, told


class Nobody(Entries, Package):
    def test_it_is_told_once_and_the_program_goes_on(self):
        _, told = self.check()
        self.assertTrue(any("nobody measures here" in line for line in told), told)
        self.assertTrue(any("batch size 32" in line for line in told), told)
        self.assertTrue(any("no beat is heard" in line for line in told), told)

    def test_an_error_of_the_body_is_its_own(self):
        with self.assertRaises(KeyError):
            with derate.window("a"):
                raise KeyError("mine")
        with self.assertRaises(KeyError):
            with derate.Trial("bert", without=1):
                raise KeyError("mine")

    def test_strict_modules_stay_strict(self):
        with self.assertRaises(energy_test.derate_client.NobodyListens):
            energy_test.derate_client.begin_window("a")


class Hung(Entries, Package):
    """Somebody listens, and never answers."""

    def test_it_is_told_once_and_the_program_goes_on(self):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(self.folder / "run/client.sock"))
            server.listen(64)
            first, told = self.check()
        self.assertTrue(any("no answer for" in line for line in told), told)
        self.assertLess(first, 20 * energy_test.SLOW)  # and not 30 s an entry


WINDOWS = """
import os, time
import derate
time.sleep(1.5)                       # until the run has readings
with derate.window("outer") as outer:
    with derate.window("inner") as inner:
        time.sleep(1)
    time.sleep(1)
if "DERATE_CLIENT_SOCKET" in os.environ:  # who measures windows only begins no trial
    import derate_client
    with derate_client.Trial("bert", without=32) as trial:
        assert trial.batch_size == 32, trial
print(os.environ.get("DERATE_CLIENT_SOCKET", "none"))
print(outer.time, outer.joules, [gpu.source for gpu in outer.gpus], inner.joules)
"""


@unittest.skipIf(os.geteuid() != 0, "only root may set clocks")
class BelowRun(Package):
    """`derate run` of GPUs behind the stand-in NVML, under its guard."""

    def run_windows(self, *options):
        done = subprocess.run(
            [str(energy_test.BUILD / "derate"), "run", "-i", "0", "--as-root", *options, "--",
             sys.executable, "-B", "-c", WINDOWS], capture_output=True, text=True,
            timeout=60 * energy_test.SLOW)
        self.assertEqual(done.returncode, 0, done.stderr)
        where, figures = done.stdout.splitlines()
        found = re.fullmatch(r"(\S+) (\S+) \['(\w+)'\] (\S+)", figures)
        self.assertIsNotNone(found, done.stdout + done.stderr)
        outer, joules, source, inner = found.groups()
        watts = float(joules) / float(outer)
        # Of GeMM on a simulated V100, at whichever clock: above idle, below the power limit.
        self.assertTrue(60 < watts < 305, figures)
        self.assertEqual(source, "counter")
        self.assertTrue(0 < float(inner) < float(joules), figures)
        return where

    def test_it_measures_where_no_daemon_does(self):
        self.serve_gpus()
        for options in ([], ["--dry-run"]):
            self.assertRegex(self.run_windows(*options), r"/run/run-\d+\.sock$")
        self.assertEqual(list((self.folder / "run").glob("run-*.sock")), [])

    def test_a_daemon_goes_before_it(self):
        self.serve_gpus()
        self.daemon()
        # A daemon's windows are of the program's own GPUs. A whole UUID needs no driver: a Python
        # without a sanitizer's runtime cannot load a stand-in library that has one.
        os.environ["CUDA_VISIBLE_DEVICES"] = derate_client.gpus()[0]["uuid"]
        self.assertEqual(self.run_windows("--dry-run"), "none")


class Callbacks(Package):
    def test_lightning(self):
        package, module = types.ModuleType("lightning"), types.ModuleType("lightning.pytorch")
        module.Callback = type("Callback", (), {})
        sys.modules.update({"lightning": package, "lightning.pytorch": module})
        self.addCleanup(lambda: [sys.modules.pop(name, None) for name in
                                 ("lightning", "lightning.pytorch", "derate.lightning")])
        from derate.lightning import EnergyCallback
        trial = types.SimpleNamespace(step=lambda: False, epoch=lambda metric: metric > 0.5)
        callback = EnergyCallback(trial=trial, metric="acc")
        self.assertIsInstance(callback, module.Callback)
        trainer = types.SimpleNamespace(global_step=0, should_stop=False, sanity_checking=True,
                                        callback_metrics={"acc": 0.9})
        callback.on_validation_end(trainer, None)
        self.assertFalse(trainer.should_stop)
        trainer.sanity_checking = False
        callback.on_train_start(trainer, None)
        for epoch in range(2):
            callback.on_train_epoch_start(trainer, None)
            trainer.global_step += 1
            callback.on_train_batch_end(trainer, None, None, None, 0)
            trainer.callback_metrics = {"acc": 0.3 + 0.3 * epoch}
            callback.on_validation_end(trainer, None)
            self.assertEqual(trainer.should_stop, epoch == 1)
            callback.on_train_epoch_end(trainer, None)
        callback.on_train_end(trainer, None)
        self.assertEqual(len(callback.watch.epochs), 2)

    def test_hugging_face(self):
        module = types.ModuleType("transformers")
        module.TrainerCallback = type("TrainerCallback", (), {})
        sys.modules["transformers"] = module
        self.addCleanup(lambda: [sys.modules.pop(name, None) for name in
                                 ("transformers", "derate.huggingface")])
        from derate.huggingface import EnergyCallback
        trial = types.SimpleNamespace(step=lambda: False, epoch=lambda metric: metric < 0.2)
        callback = EnergyCallback(trial=trial, metric="eval_loss")
        state = types.SimpleNamespace(global_step=5)
        control = types.SimpleNamespace(should_training_stop=False)
        callback.on_train_begin(None, state, control, model=None)
        callback.on_epoch_begin(None, state, control, model=None)
        callback.on_step_end(None, state, control, model=None)
        callback.on_evaluate(None, state, control, metrics={"eval_loss": 0.5}, model=None)
        self.assertFalse(control.should_training_stop)
        callback.on_evaluate(None, state, control, metrics={"eval_loss": 0.1}, model=None)
        self.assertTrue(control.should_training_stop)
        callback.on_epoch_end(None, state, control, model=None)
        callback.on_train_end(None, state, control, model=None)
        self.assertEqual(len(callback.watch.epochs), 1)


if __name__ == "__main__":
    energy_test.BUILD = Path(sys.argv[1]).resolve()
    energy_test.SLOW = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
