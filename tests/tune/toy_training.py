#!/usr/bin/env python3
"""A training on a simulated GPU. How long an epoch takes is up to that GPU at its power limit: its
work is a `derate sim job`, and how far that has come is the simulator's truth. How many epochs the
target takes, and how much work is in one, is up to the batch size.

    toy_training.py DERATE LIBRARY GPU BATCH_SIZE [--log FILE] [--until FILE]
"""
import argparse
import ctypes
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fault"))
from foreign import Nvml, Truth  # noqa: E402

TARGET = 0.8
# Epochs to the target, and seconds of work in each at the full clock: small batches waste time in
# each epoch, large ones take more of them. 5, 3 and 2.4 s.
EPOCHS = {16: (5, 1.0), 32: (5, 0.6), 64: (6, 0.4)}
STEPS_A_SECOND_OF_WORK = 100
APPLICATION = "GeMM"


class Gpu:
    def __init__(self, derate, library, index):
        self.nvml = Nvml(library)
        uuid = ctypes.create_string_buffer(96)
        self.nvml.call("nvmlDeviceGetUUID", self.nvml.device(index), uuid, len(uuid))
        self.uuid = uuid.value
        libc = ctypes.CDLL(None)
        # It works for as long as we live, however we end: PR_SET_PDEATHSIG.
        self.work = subprocess.Popen([derate, "sim", "job", APPLICATION, "-i", str(index)],
                                     stdout=subprocess.DEVNULL,
                                     preexec_fn=lambda: libc.prctl(1, signal.SIGKILL, 0, 0, 0))

    def truth(self):
        out = Truth(size=ctypes.sizeof(Truth))
        self.nvml.call("nvmlDerateSimQuery", self.uuid, ctypes.byref(out))
        return out

    def end(self):
        self.work.terminate()
        self.work.wait()


class Training:
    def __init__(self, gpu, batch_size, until):
        self.gpu, self.batch_size, self.until = gpu, batch_size, until
        self.begin = gpu.truth()
        self.began = time.monotonic()
        self.limits = []
        self.told = 0

    def steps(self):
        """That the GPU has done, and under which limit."""
        truth = self.gpu.truth()
        self.limits.append(truth.power_limit_mw / 1000)
        return (truth.work_seconds - self.begin.work_seconds) * STEPS_A_SECOND_OF_WORK

    def metric(self, epoch):
        if self.until:
            return TARGET if Path(self.until).exists() else 0.1
        return TARGET * epoch / EPOCHS[self.batch_size][0]

    def run(self):
        epoch, an_epoch = 0, EPOCHS[self.batch_size][1] * STEPS_A_SECOND_OF_WORK
        while True:
            time.sleep(0.02)
            steps = self.steps()
            if steps >= (epoch + 1) * an_epoch:
                epoch += 1
                print(f"derate: epoch={epoch} steps={steps:.1f} metric={self.metric(epoch):.4f}")
                self.told = steps
            elif steps >= self.told + STEPS_A_SECOND_OF_WORK / 5:
                print(f"derate: steps={steps:.1f}")
                self.told = steps

    def account(self):
        """What the simulator says that it took."""
        end = self.gpu.truth()
        return {"batch_size": self.batch_size, "seconds": time.monotonic() - self.began,
                "joules": end.joules - self.begin.joules,
                "work_seconds": end.work_seconds - self.begin.work_seconds,
                "limits": sorted(set(self.limits)), "last_limit": self.limits[-1]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("derate")
    parser.add_argument("library")
    parser.add_argument("gpu", type=int)
    parser.add_argument("batch_size", type=int)
    parser.add_argument("--log")
    parser.add_argument("--until")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the target is reached
    gpu = Gpu(options.derate, options.library, options.gpu)
    training = Training(gpu, options.batch_size, options.until)
    try:
        training.run()
    finally:
        if options.log:
            with open(options.log, "a", encoding="utf-8") as log:
                log.write(json.dumps(training.account()) + "\n")
        gpu.end()


if __name__ == "__main__":
    main()
