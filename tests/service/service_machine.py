"""What the tests of the service share: a folder with what is started in it, a derate-agent,
requests, and connections that misbehave."""
import http.client
import os
import re
import socket
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/clients"), str(ROOT / "tests/service")]
import energy_test  # noqa: E402
from energy_test import wait_for  # noqa: E402


def begin(arguments):
    """BUILD [SLOWNESS] of a test's command line, taken out of it."""
    energy_test.BUILD = Path(arguments.pop(1)).resolve()
    if len(arguments) > 1 and re.fullmatch(r"[0-9.]+", arguments[1]):
        energy_test.SLOW = float(arguments.pop(1))


def slow():
    return energy_test.SLOW


class Answer:
    def __init__(self, status, fields, body):
        self.status, self.fields, self.body = status, fields, body

    def __repr__(self):
        return f"{self.status} {self.fields} {self.body[:300]!r}"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(to, path, method="GET", body=None, timeout=30, **fields):
    """`to`: a port of the loopback, or the path of a unix socket."""
    if isinstance(to, int):
        connection = http.client.HTTPConnection("127.0.0.1", to, timeout=timeout * slow())
    else:
        connection = UnixConnection(to, timeout * slow())
    try:
        names = {name.replace("_", "-"): value for name, value in fields.items()}
        connection.request(method, path, body, names)
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()),
                      answer.read().decode(errors="replace"))
    finally:
        connection.close()


def raw(port, text, timeout=10):
    """What comes back of these bytes, until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout * slow()) as connection:
        connection.sendall(text if isinstance(text, bytes) else text.encode())
        out = b""
        try:
            while piece := connection.recv(65536):
                out += piece
        except (TimeoutError, ConnectionResetError):
            pass
        return out.decode(errors="replace")


class Machine(energy_test.Machine):
    def agent(self, *options, user=None):
        """Starts one; its process and its port."""
        errors = self.folder / "errors"
        before = errors.stat().st_size if errors.exists() else 0
        how = {"user": user, "group": user, "extra_groups": []} if user else {}
        listen = () if "--listen" in options else ("--listen", "127.0.0.1:0")
        process = self.start("derate-agent", *listen, *options, **how)
        found = None

        def listens():
            nonlocal found
            found = re.search(r"listening on \S+:(\d+)", errors.read_text()[before:])
            return found or process.poll() is not None
        wait_for(listens, "the agent")
        if not found:
            raise AssertionError(errors.read_text()[before:])
        return process, int(found[1])

    def is_ready(self):
        """Whether derated, in this folder, says so."""
        try:
            return ask(self.folder / "run/api.sock", "/readyz").status == 200
        except OSError:
            return False

    def errors(self):
        return (self.folder / "errors").read_text()


def memory_mib(pid):
    """Resident memory now, and the most that it was."""
    status = Path(f"/proc/{pid}/status").read_text()
    return [int(re.search(rf"{key}:\s+(\d+)", status)[1]) / 1024 for key in ("VmRSS", "VmHWM")]


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptors(pid):
    out = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            out.append(os.readlink(entry))
        except FileNotFoundError:
            pass
    return out


def open_to(to, number, text=b""):
    """So many connections, as far as they are taken."""
    out = []
    for _ in range(number):
        try:
            if isinstance(to, int):
                connection = socket.create_connection(("127.0.0.1", to), 5 * slow())
            else:
                connection = socket.socket(socket.AF_UNIX)
                connection.settimeout(5 * slow())
                connection.connect(str(to))
            if text:
                connection.sendall(text)
            out.append(connection)
        except OSError:
            pass
    return out


class Flood:
    """Requests as fast as they are answered by some threads, for a bounded time; counts answers by
    status, and 0 for a connection that was closed."""

    def __init__(self, to, requests, threads=8, seconds=5, most=100000):
        self.counts, self.lock = {}, threading.Lock()
        self.until, self.left = time.monotonic() + seconds, most
        self.threads = [threading.Thread(target=self.run, args=(to, requests, i), daemon=True)
                        for i in range(threads)]
        for thread in self.threads:
            thread.start()

    def run(self, to, requests, number):
        connection = None
        while time.monotonic() < self.until and self.left > 0:
            self.left -= 1
            path, fields = requests(number)
            number += len(self.threads)
            try:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", to, timeout=20) \
                        if isinstance(to, int) else UnixConnection(to, 20)
                connection.request("GET", path, headers=fields)
                answer = connection.getresponse()
                answer.read()
                status = answer.status
                if answer.will_close:
                    connection.close()
                    connection = None
            except (OSError, http.client.HTTPException):
                status = 0
                if connection is not None:
                    connection.close()
                connection = None
            with self.lock:
                self.counts[status] = self.counts.get(status, 0) + 1
        if connection is not None:
            connection.close()

    def wait(self):
        for thread in self.threads:
            thread.join()
        return self.counts
