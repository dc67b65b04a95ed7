"""Measures the energy of GPUs over named windows of a program; no root needed.

    import derate_client
    with derate_client.window("epoch") as w:
        train()
    print(w.time, w.joules, w.gpus)

derated answers, or `derate energy -- CMD` that started the program. The standard library only,
Linux. A GPU works on while Python goes on: synchronise it at both ends, or give its function as
`sync` (torch.cuda.synchronize). docs/energy.md of Derate says what the figures are.
"""
import json
import os
import socket
import threading
from collections import namedtuple

__all__ = ["window", "begin_window", "end_window", "cancel_window", "open_windows", "gpus",
           "Window", "GpuEnergy", "Connection", "connection",
           "Error", "NobodyListens", "Lost", "Refused"]

_PATIENCE_S = 30


class Error(Exception):
    """What went wrong, in words."""


class NobodyListens(Error):
    """Neither derated nor `derate energy` is there."""


class Lost(Error):
    """The connection ended, by a restart or a fork, and with it what was open on it."""


class Refused(Error):
    """The request made no sense to who answered; exit_code is as of `derate`."""

    def __init__(self, message, exit_code):
        super().__init__(message)
        self.exit_code = exit_code


# None is not known, never 0. uncovered: seconds that joules are not of. agree: the power readings
# say the same within 10 %; None for less than 10 s.
GpuEnergy = namedtuple("GpuEnergy", "index uuid joules mean_watts source uncovered "
                                    "integrated_joules agree")


def _paths():
    own = os.environ.get("DERATE_CLIENT_SOCKET")
    if own:
        yield own
    yield (os.environ.get("DERATE_RUN_DIR") or "/run/derate") + "/client.sock"


class Connection:
    """A line to who answers: opened when first asked, anew after a fork and after it broke.

    One is enough for a process; threads take turns. What is opened on it is its own, so whoever
    opens something keeps `epoch` and gives it to ask() later.
    """

    def __init__(self, paths=_paths):
        self._paths = paths
        self.epoch = 0  # which line this is; another one knows nothing of what was open
        self._line = None
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self):
        self._lock = threading.Lock()  # its holder is not in this process
        self._drop()  # the line itself is the parent's, and stays open there

    def _drop(self):
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def close(self):
        """Ends the line and what was opened on it."""
        with self._lock:
            self._drop()

    def _open(self):
        tried = []
        for path in self._paths():
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            line.settimeout(_PATIENCE_S)
            try:
                line.connect(path)
                self._line = line
                self.epoch += 1
                return
            except OSError as error:
                line.close()
                tried.append(f"'{path}': {error.strerror or error}")
        raise NobodyListens("nobody measures here (derated, or derate energy -- COMMAND): "
                            + "; ".join(tried))

    def _exchange(self, text):
        self._line.sendall(text)
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._line.recv(1 << 16)
            if not part:
                raise ConnectionError("the line was closed")
            answer += part
        return answer

    def ask(self, command, epoch=None, **fields):
        """The answer's fields. With an epoch: on that line, or Lost.

        Fields that are None are left out.
        """
        request = {"command": command}
        request.update((key, value) for key, value in fields.items() if value is not None)
        text = json.dumps(request).encode() + b"\n"
        with self._lock:
            for last in (False, True):
                fresh = self._line is None
                if fresh and epoch is None:
                    self._open()
                if epoch is not None and (fresh or epoch != self.epoch):
                    raise Lost(f"{command}: the connection that this was opened on has ended "
                               "(a restart, or a fork of this process)")
                try:
                    answer = json.loads(self._exchange(text))
                    break
                except TimeoutError:
                    self._drop()
                    raise Lost(f"{command}: no answer for {_PATIENCE_S} s") from None
                except (OSError, ValueError) as error:
                    self._drop()  # who restarted is asked once more, unless something was open
                    if epoch is not None or last or fresh:
                        raise Lost(f"{command}: {error}") from None
        if answer.pop("ok", False) is not True:
            raise Refused(answer.get("error", "no reason was given"), answer.get("exit_code"))
        return answer


#: The one of this process.
connection = Connection()

_epochs = {}  # of the open windows, by name


class Window:
    """What a window came to; None where nothing is known."""

    def __init__(self, name):
        self.name = name
        self.time = None    # seconds
        self.joules = None  # of all its GPUs
        self.gpus = None    # a GpuEnergy each

    def _take(self, answer):
        self.time, self.joules = answer["time_seconds"], answer["energy_joules"]
        self.gpus = [GpuEnergy(g["index"], g["uuid"], g["energy_joules"], g["mean_power_watts"],
                               g["source"], g["uncovered_seconds"], g["integrated_joules"],
                               g["agree"]) for g in answer["gpus"]]

    def __repr__(self):
        return f"Window({self.name!r}, time={self.time}, joules={self.joules})"


def begin_window(name, gpus=None, restart=False, silent=False):
    """Begins a window over GPUs ("0,1": indices, UUIDs or PCI bus ids; default: all).

    A name that is open is refused, unless restart. silent: where nobody measures nothing happens,
    and the window's end has None.
    """
    try:
        connection.ask("window-begin", name=name, gpus=None if gpus is None else str(gpus),
                       restart=restart or None)
        _epochs[name] = connection.epoch
    except (NobodyListens, Lost):
        _epochs.pop(name, None)
        if not silent:
            raise


def end_window(name, wait=True, silent=False):
    """The Window. wait: up to a tick (0.1 s) for a reading of the counter that makes it exact."""
    out = Window(name)
    epoch = _epochs.pop(name, None)
    if epoch is None and silent:
        return out
    try:
        out._take(connection.ask("window-end", epoch=epoch, name=name,
                                 wait=None if wait else False))
    except (NobodyListens, Lost):
        if not silent:
            raise
    return out


def cancel_window(name):
    """As if it had never begun."""
    connection.ask("window-cancel", epoch=_epochs.pop(name, None), name=name)


def open_windows():
    """The open windows of this process as they stand, by name."""
    out = {}
    for answer in connection.ask("windows")["windows"]:
        out[answer["name"]] = Window(answer["name"])
        out[answer["name"]]._take(answer)
    return out


def gpus():
    """What can be measured: a list of dicts with index, uuid, name."""
    return connection.ask("gpus")["gpus"]


class window(Window):
    """with window("epoch") as w: ...; then w.time, w.joules, w.gpus."""

    def __init__(self, name, gpus=None, restart=False, wait=True, silent=False, sync=None):
        super().__init__(name)
        self._begin = {"gpus": gpus, "restart": restart, "silent": silent}
        self._end = {"wait": wait, "silent": silent}
        self._sync = sync or (lambda: None)

    def __enter__(self):
        self._sync()
        begin_window(self.name, **self._begin)
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                self._sync()
            done = end_window(self.name, **self._end)
            self.time, self.joules, self.gpus = done.time, done.joules, done.gpus
        except Error:
            if kind is None:  # else the body's own error is the news
                raise
        return False
