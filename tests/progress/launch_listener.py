"""What libderate_progress.so hands over, received and read as Derate does: for tests, and to record
what programs launch.

    launch_listener.py LIBRARY OUT.jsonl COMMAND...     ten lines a second while it runs
"""
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# progress/launch_page.h
HEAD, GPUS, KERNELS, STREAMS = struct.Struct("8sIIq40x"), 16, 128, 16
GPU_HEAD, KERNEL, STREAM = struct.Struct("16sQQQ"), struct.Struct("QQQ"), struct.Struct("QQ")
GPU_SIZE = GPU_HEAD.size + KERNELS * KERNEL.size + STREAMS * STREAM.size
PAGE_SIZE = HEAD.size + GPUS * GPU_SIZE


class Gpu:
    """A row of a page: `kernels` has (id, launches, blocks), `streams` (id, launches)."""

    def __init__(self, page, at):
        self.uuid, self.used, self.waits, self.copies = GPU_HEAD.unpack_from(page, at)
        at += GPU_HEAD.size
        rows = [KERNEL.unpack_from(page, at + i * KERNEL.size) for i in range(KERNELS)]
        self.kernels = [row for row in rows if row[1] > 0]
        at += KERNELS * KERNEL.size
        rows = [STREAM.unpack_from(page, at + i * STREAM.size) for i in range(STREAMS)]
        self.streams = [row for row in rows if row[1] > 0]

    @property
    def launches(self):
        return sum(row[1] for row in self.kernels)

    @property
    def blocks(self):
        return sum(row[2] for row in self.kernels)


class Page:
    """The counts now; `file` stays open for others."""

    def __init__(self, file):
        page = os.pread(file, PAGE_SIZE + 1, 0)
        assert len(page) == PAGE_SIZE, len(page)
        magic, size, rows, self.pid = HEAD.unpack_from(page)
        assert (magic, size, rows) == (b"DRTL0001", PAGE_SIZE, GPUS)
        gpus = [Gpu(page, HEAD.size + i * GPU_SIZE) for i in range(GPUS)]
        self.gpus = [gpu for gpu in gpus if gpu.used == 2]
        self.seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)


class Ear:
    """A socket `launches.sock` in that folder."""

    def __init__(self, folder):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(Path(folder) / "launches.sock"))
        self.socket.setblocking(False)

    def close(self):
        self.socket.close()

    def files(self):
        """Those that have come since."""
        out = []
        while True:
            try:
                text, files, _flags, _from = socket.recv_fds(self.socket, 64, 4)
            except BlockingIOError:
                return out
            assert (text, len(files)) == (b"launches", 1)
            out += files


def preloading(library, folder):
    return {**os.environ, "LD_PRELOAD": str(library), "DERATE_RUN_DIR": str(folder)}


def record(library, out, command):
    with tempfile.TemporaryDirectory() as folder, open(out, "w", encoding="utf-8") as lines:
        ear = Ear(folder)
        files = []
        program = subprocess.Popen(command, env=preloading(library, folder))
        while program.poll() is None:
            time.sleep(0.1)
            files += ear.files()
            for file in files:
                page, now = Page(file), time.monotonic()
                for i, gpu in enumerate(page.gpus):
                    lines.write(json.dumps({
                        "time_s": round(now, 4), "pid": page.pid, "gpu": i,
                        "launches": gpu.launches, "blocks": gpu.blocks, "waits": gpu.waits,
                        "copies": gpu.copies,
                        "kernels": {f"{row[0]:016x}": row[1] for row in gpu.kernels}}) + "\n")
        return program.returncode


if __name__ == "__main__":
    sys.exit(record(sys.argv[1], sys.argv[2], sys.argv[3:]))
