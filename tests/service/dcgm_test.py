#!/usr/bin/env python3
"""Activity of simulated A100s from a DCGM host engine that is a process of its own: found by UUID,
shared with another client, killed, stopped, restarted and paused.

    dcgm_test.py BUILD [SLOWNESS]
"""
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import service_machine as service  # noqa: E402
from energy_test import wait_for  # noqa: E402
from service_machine import slow  # noqa: E402

BUSY, IDLE = 0, 1
BACK_WITHIN = 5  # seconds, of an engine that is there again


class Client:
    """A client of libdcgm that shares no code with Derate: its numbers and layouts are DCGM's."""

    class Parameters(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint), ("persist", ctypes.c_uint),
                    ("timeout_ms", ctypes.c_uint), ("unix_socket", ctypes.c_uint)]

    class Value(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint), ("group", ctypes.c_int), ("entity", ctypes.c_uint),
                    ("field", ctypes.c_ushort), ("type", ctypes.c_ushort),
                    ("status", ctypes.c_int), ("unused", ctypes.c_uint),
                    ("time", ctypes.c_int64), ("blob", ctypes.c_char * 4096)]

    class Pair(ctypes.Structure):
        _fields_ = [("group", ctypes.c_int), ("entity", ctypes.c_uint)]

    def __init__(self, library, path):
        self.dcgm = ctypes.CDLL(str(library))
        self.handle = ctypes.c_size_t()
        parameters = self.Parameters(0x02000010, 0, 2000, 1)
        self.check(self.dcgm.dcgmInit())
        self.check(self.dcgm.dcgmConnect_v2(str(path).encode(), ctypes.byref(parameters),
                                            ctypes.byref(self.handle)))

    @staticmethod
    def check(code):
        if code != 0:
            raise AssertionError(f"DCGM error {code}")

    def latest(self, gpu, field):
        value = self.Value()
        pair, fields = self.Pair(1, gpu), (ctypes.c_ushort * 1)(field)
        self.check(self.dcgm.dcgmEntitiesGetLatestValues(
            self.handle, ctypes.byref(pair), 1, fields, 1, 0, ctypes.byref(value)))
        return value

    def uuid(self, gpu):
        return self.latest(gpu, 54).blob.decode()

    def gpu(self, uuid):
        count, ids = ctypes.c_int(), (ctypes.c_uint * 32)()
        self.check(self.dcgm.dcgmGetAllSupportedDevices(self.handle, ids, ctypes.byref(count)))
        return next(gpu for gpu in ids[:count.value] if self.uuid(gpu) == uuid)

    def share(self, gpu, field):
        """Of the last period; None if nobody has it measured."""
        value = self.latest(gpu, field)
        if value.status != 0:
            return None
        return ctypes.c_double.from_buffer_copy(value, 32).value

    def watch(self, gpu, field, period_us):
        group, fields = ctypes.c_size_t(), ctypes.c_size_t()
        ids = (ctypes.c_ushort * 1)(field)
        self.check(self.dcgm.dcgmGroupCreate(self.handle, 1, b"a client", ctypes.byref(group)))
        self.check(self.dcgm.dcgmGroupAddEntity(self.handle, group, 1, gpu))
        self.check(self.dcgm.dcgmFieldGroupCreate(self.handle, 1, ids, b"its fields",
                                                  ctypes.byref(fields)))
        self.check(self.dcgm.dcgmWatchFields(self.handle, group, fields,
                                             ctypes.c_longlong(period_us), ctypes.c_double(5), 0))

    def close(self):
        self.dcgm.dcgmDisconnect(self.handle)


class Dcgm(service.Machine):
    use = "on"

    def setUp(self):
        super().setUp()
        self.library = service.energy_test.BUILD / "fakedcgm/4/libdcgm.so.4"
        self.socket = self.folder / "sim/hostengine"
        os.environ["DERATE_DCGM_LIBRARY"] = str(self.library)
        (self.folder / "derate.toml").write_text(
            f'[governor]\npolicy = "assure"\ngovern = true\n'
            f'[dcgm]\nuse = "{self.use}"\naddress = "unix:{self.socket}"\n')
        self.start("derate", "sim", "serve", "--chip", "A100-SXM4", "--gpus", "2")
        wait_for(lambda: self.derate("sim", "show").returncode == 0, "simulated GPUs")
        self.engine = self.start_engine()
        self.start("derated")
        wait_for(self.is_ready, "derated is ready")
        self.start("derate", "sim", "job", "stencil", "-i", str(BUSY))

    def start_engine(self):
        engine = self.start("derate", "sim", "dcgm")
        wait_for(self.socket.exists, "the host engine")
        return engine

    def derate(self, *arguments):
        return subprocess.run([str(service.energy_test.BUILD / "derate"), *arguments], text=True,
                              capture_output=True, timeout=60 * slow())

    def gpu(self, index):
        return json.loads(self.derate("status", "--json").stdout)["gpus"][index]

    def source(self, field, index=BUSY):
        rows = self.gpu(index).get("sources", [])
        return next((row for row in rows if row["field"] == field), None)

    def age(self, index=BUSY):
        """Of the activity; None if there was never any."""
        activity = self.source("activity", index)
        if activity is None:
            return None
        self.assertEqual(activity["source"], "dcgm")
        return activity["age_seconds"]

    def has_activity(self):
        age = self.age()
        return age is not None and age < 1 * slow()

    def client(self):
        client = Client(self.library, self.socket)
        self.addCleanup(client.close)
        return client


class On(Dcgm):
    def test_the_gpu_at_work_is_measured_and_the_idle_one_is_not(self):
        wait_for(self.has_activity, "activity")
        self.assertIn("counters, DCGM", self.derate("status").stdout)
        self.assertEqual(self.source("energy")["source"], "nvml")
        client = self.client()
        busy, idle = (client.gpu(self.gpu(index)["uuid"]) for index in (BUSY, IDLE))
        # A stencil of the measured A100 has its SMs busy for 98 % of the time, at each clock.
        self.assertGreater(client.share(busy, 1002), 0.9)
        wait_for(lambda: client.share(idle, 1002) is None, "the idle GPU is left alone")
        self.assertIn("measures its activity", self.derate("doctor", "-v").stdout)

    def test_an_engine_that_is_killed_is_used_again_when_it_is_back(self):
        wait_for(self.has_activity, "activity")
        self.engine.kill()
        self.engine.wait()
        wait_for(lambda: self.age() > 1, "it grows old")
        self.assertIn("policy", self.gpu(BUSY))
        self.socket.unlink()
        self.start_engine()
        begun = time.monotonic()
        wait_for(self.has_activity, "activity again")
        self.assertLess(time.monotonic() - begun, BACK_WITHIN * slow())

    def test_nothing_waits_for_an_engine_that_hangs(self):
        wait_for(self.has_activity, "activity")
        self.engine.send_signal(signal.SIGSTOP)
        try:
            wait_for(lambda: self.age() > 3, "it grows old")
            self.assertLess(self.source("utilisation")["age_seconds"], 1 * slow())
            self.assertTrue(self.is_ready())
        finally:
            self.engine.send_signal(signal.SIGCONT)
        begun = time.monotonic()
        wait_for(self.has_activity, "activity again")
        self.assertLess(time.monotonic() - begun, BACK_WITHIN * slow())

    def test_what_a_paused_or_a_frozen_engine_gives_is_not_used(self):
        for fault in ("paused", "zeros", "frozen", "late=2"):
            wait_for(self.has_activity, "activity")
            self.assertEqual(self.derate("sim", "dcgm-fault", fault).returncode, 0)
            wait_for(lambda: self.age() > 2, f"{fault}: it grows old")
            self.assertEqual(self.derate("sim", "dcgm-fault").returncode, 0)


class Auto(Dcgm):
    use = "auto"

    def test_an_engine_is_joined_once_another_program_has_it_measure(self):
        client = self.client()
        busy = client.gpu(self.gpu(BUSY)["uuid"])
        time.sleep(3)
        self.assertIsNone(self.age())
        self.assertIsNone(client.share(busy, 1002))
        self.assertIn("for no other program", self.derate("doctor", "-v").stdout)
        client.watch(busy, 1002, 1_000_000)
        wait_for(self.has_activity, "activity")


if __name__ == "__main__":
    service.begin(sys.argv)
    unittest.main(verbosity=2)
