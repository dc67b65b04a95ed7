#!/usr/bin/env python3
"""Another tool that turns GPUs' knobs: NVML through ctypes, nothing of Derate's.

    foreign.py LIBRARY OPERATION...     lock:GPU:LOW:HIGH  reset:GPU  power:GPU:WATTS
                                        milliwatts:GPU:MILLIWATTS  memory:GPU:LOW:HIGH
                                        application:GPU:MEMORY:SM  persistence:GPU:0|1  mig:GPU:0|1
"""

import ctypes
import sys


class Nvml:
    """A client of its own; every call that fails raises."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.call("nvmlInit_v2")

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise OSError(f"{name}: NVML error {code}")

    def device(self, index):
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
        return handle

    def clocks(self, gpu):
        """The GPU's memory clocks, and the SM clocks of the first of them, in MHz."""
        def listed(name, *arguments):
            count, values = ctypes.c_uint(1024), (ctypes.c_uint * 1024)()
            self.call(name, self.device(gpu), *arguments, ctypes.byref(count), values)
            return values[:count.value]
        memory = listed("nvmlDeviceGetSupportedMemoryClocks")
        return memory, listed("nvmlDeviceGetSupportedGraphicsClocks", memory[0])

    def perform(self, operation):
        name, gpu, *values = operation.split(":")
        device, values = self.device(int(gpu)), [int(value) for value in values]
        if name == "lock":
            self.call("nvmlDeviceSetGpuLockedClocks", device, *values)
        elif name == "reset":
            self.call("nvmlDeviceResetGpuLockedClocks", device)
        elif name == "power":
            self.call("nvmlDeviceSetPowerManagementLimit", device, values[0] * 1000)
        elif name == "milliwatts":
            self.call("nvmlDeviceSetPowerManagementLimit", device, *values)
        elif name == "memory":
            self.call("nvmlDeviceSetMemoryLockedClocks", device, *values)
        elif name == "application":
            self.call("nvmlDeviceSetApplicationsClocks", device, *values)
        elif name == "persistence":
            self.call("nvmlDeviceSetPersistenceMode", device, *values)
        elif name == "mig":
            code = ctypes.c_uint()
            self.call("nvmlDeviceSetMigMode", device, values[0], ctypes.byref(code))
        else:
            raise ValueError(operation)


class Truth(ctypes.Structure):
    """SimTruth of fakenvml/exports.h; all ones is what is not set."""
    _fields_ = [(name, ctypes.c_uint) for name in (
        "size", "locked_lowest_mhz", "locked_highest_mhz", "memory_locked_lowest_mhz",
        "memory_locked_highest_mhz", "application_sm_mhz", "application_memory_mhz",
        "power_limit_mw", "persistence", "sm_clock_mhz")] + [
        ("writes", ctypes.c_ulonglong), ("work_seconds", ctypes.c_double),
        ("joules", ctypes.c_double)]


if __name__ == "__main__":
    nvml = Nvml(sys.argv[1])
    for one in sys.argv[2:]:
        nvml.perform(one)
