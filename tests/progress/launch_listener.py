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

# src/wire/launch_page.h
HEAD, ROWS, KERNELS, STREAMS = struct.Struct("8sIIq40x"), 32, 128, 16
ROW_HEAD, KERNEL, STREAM = struct.Struct("16sQQQ"), struct.Struct("QQQ"), struct.Struct("QQ")
ROW_SIZE = ROW_HEAD.size + KERNELS * KERNEL.size + STREAMS * STREAM.size
PAGE_SIZE = HEAD.size + ROWS * ROW_SIZE
COLLECTIVE = 1 << 63  # in a kernel's blocks


def added(rows, page, at, row, count):
    """To rows by id, those of a table of the page that have launched."""
    for i in range(count):
        name, *counts = row.unpack_from(page, at + i * row.size)
        counts = [count & ~COLLECTIVE for count in counts]
        if counts[0] > 0:
            rows[name] = [a + b for a, b in zip(rows.get(name, [0] * len(counts)), counts)]


class Gpu:
    """What all threads have done on it: by id, `kernels` has [launches, blocks], `streams`
    [launches]; `collectives` are those of the launches that their kernels' names say to be such."""

    def __init__(self, uuid):
        self.uuid, self.rows, self.waits, self.copies, self.collectives = uuid, 0, 0, 0, 0
        self.kernels, self.streams = {}, {}

    def add(self, page, at):
        _uuid, _used, waits, copies = ROW_HEAD.unpack_from(page, at)
        self.rows, self.waits, self.copies = self.rows + 1, self.waits + waits, self.copies + copies
        at += ROW_HEAD.size
        for i in range(KERNELS):
            _name, launches, blocks = KERNEL.unpack_from(page, at + i * KERNEL.size)
            self.collectives += launches if blocks & COLLECTIVE else 0
        added(self.kernels, page, at, KERNEL, KERNELS)
        added(self.streams, page, at + KERNELS * KERNEL.size, STREAM, STREAMS)

    @property
    def launches(self):
        return sum(row[0] for row in self.kernels.values())

    @property
    def blocks(self):
        return sum(row[1] for row in self.kernels.values())


class Page:
    """The counts now; `file` stays open for others."""

    def __init__(self, file):
        page = os.pread(file, PAGE_SIZE + 1, 0)
        assert len(page) == PAGE_SIZE, len(page)
        magic, size, rows, self.pid = HEAD.unpack_from(page)
        assert (magic, size, rows) == (b"DRTL0001", PAGE_SIZE, ROWS)
        gpus = {}
        for at in range(HEAD.size, PAGE_SIZE, ROW_SIZE):
            uuid, used, _waits, _copies = ROW_HEAD.unpack_from(page, at)
            if used == 2:
                gpus.setdefault(uuid, Gpu(uuid)).add(page, at)
        self.gpus = list(gpus.values())
        self.seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)


class Ear:
    """A socket `launches.sock` in that folder."""

    def __init__(self, folder):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(Path(folder) / "launches.sock"))
        self.socket.setblocking(False)

    def close(self):
        self.socket.close()

    def fill(self):
        """Fills the queue until it takes no more messages; forget() empties it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                while True:
                    sender.sendto(b"x", self.socket.getsockname())
            except BlockingIOError:
                pass

    def forget(self):
        try:
            while True:
                self.socket.recv(64)
        except BlockingIOError:
            pass

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


def record(library, out, command, stdout=None):
    with tempfile.TemporaryDirectory() as folder, open(out, "w", encoding="utf-8") as lines:
        ear = Ear(folder)
        files = []
        program = subprocess.Popen(command, env=preloading(library, folder),
                                   stdout=stdout)
        while program.poll() is None:
            time.sleep(0.1)
            files += ear.files()
            for file in files:
                page, now = Page(file), time.monotonic()
                for i, gpu in enumerate(page.gpus):
                    lines.write(json.dumps({
                        "time_s": round(now, 4), "pid": page.pid, "gpu": i,
                        "launches": gpu.launches, "blocks": gpu.blocks, "waits": gpu.waits,
                        "copies": gpu.copies, "kernels": {
                            f"{name:016x}": row[0] for name, row in gpu.kernels.items()}}) + "\n")
        return program.returncode


if __name__ == "__main__":
    sys.exit(record(sys.argv[1], sys.argv[2], sys.argv[3:]))
