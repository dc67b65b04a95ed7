"""Windows whose begin and end are sent, and whose result is read when it is asked for."""
import functools
import os
import time

import derate_client
from derate.gpus import Unknown, own_gpus
from derate.lines import lines
from derate.once import tell

_SIMULATED = "GPU-51a00000-"  # simulated GPUs, which no driver shows
_KNOWN_FOR_S = 60
_line = derate_client.Connection(patience_s=1)
_known = []  # when the daemon was last queried for its GPUs, and their UUIDs


def _measured():
    """The UUIDs of the GPUs that the daemon measures; None if it does not answer within 1 s."""
    if not _known or time.monotonic() - _known[0] > _KNOWN_FOR_S:
        try:
            _known[:] = time.monotonic(), [gpu["uuid"] for gpu in _line.ask("gpus")["gpus"]]
        except derate_client.Error:
            _known[:] = time.monotonic(), None
        _line.close()
    return _known[1]


def default_gpus():
    """The GPUs of a window that names none: this program's own (derate.gpus), else the measured
    GPUs that its driver shows. None: all measured GPUs."""
    if os.environ.get("DERATE_CLIENT_SOCKET"):
        return None  # `derate energy` and `derate run` measure their command's GPUs
    own = own_gpus()
    if own is not None:
        return own
    seen = derate_client.seen_gpus()
    if seen is None:
        return None
    uuids, known = [gpu["uuid"] for gpu in seen], _measured()
    if known is None:  # the measured GPUs can be more than this program's
        mine, all_mine = uuids, False
    else:
        mine = [uuid for uuid in known if uuid in uuids or uuid.startswith(_SIMULATED)]
        all_mine = len(mine) == len(known)
    if all_mine:
        return None
    if seen.silent:
        raise Unknown(f"{len(seen.silent)} GPUs do not answer with UUIDs of their own: whether "
                      "they are this program's is not known; name GPUs by UUID")
    if not mine:
        raise Unknown("none of the GPUs that are measured is one of this program's")
    return ",".join(mine)


class window:
    """with derate.window("epoch") as w: ...; then w.time (s), w.joules, w.gpus (a list). Where
    nobody measures, joules is None and gpus is empty. The first look at them waits for the answer,
    0.1 s as a rule and 1 s at most; done() does not wait. Also a decorator:
    @derate.window("validate").

    gpus: "0,1" or UUIDs; by default those of default_gpus(). sync: as of derate_client.window().
    wait=False: figures as they stand at the end, without the reading of the counter that makes
    them exact.
    """

    def __init__(self, name, gpus=None, wait=True, sync=None):
        self.name, self._gpus, self._wait, self._sync = str(name), gpus, wait, sync
        self._line = self._reply = self._result = None
        self._began = self._ended = None

    def __enter__(self):
        self._ended = None
        try:
            self._synchronise()
            self._result = self._reply = None
            self._began = time.monotonic()
            request = {"command": "window-begin", "name": self.name, "restart": True}
            if self._gpus is None:
                gpus = default_gpus()
            else:
                gpus = derate_client.gpus_of_window(self._gpus)
            if gpus is not None:
                request["gpus"] = gpus
            self._line = lines.begin(request)
        except Exception as error:
            tell("window", f"window {self.name!r} is not measured: {error}")
        return self

    def __exit__(self, kind, error, trace):
        line, self._line = self._line, None
        try:
            if kind is None:
                self._synchronise()
            self._ended = time.monotonic()
            if line is not None:
                request = {"command": "window-end", "name": self.name}
                self._reply = lines.end(line, request, self._wait)
        except Exception as wrong:
            tell("window", f"window {self.name!r} is not measured: {wrong}")
        return False

    def __call__(self, function):
        @functools.wraps(function)
        def measured(*arguments, **named):
            with window(self.name, self._gpus, self._wait, self._sync):
                return function(*arguments, **named)
        return measured

    def _synchronise(self):
        if self._sync is not None:
            self._sync()

    def done(self):
        """Whether the figures are there, or will never be."""
        if self._reply is not None:
            lines.poll(self._reply)
        return self._reply is None or self._reply.line is None

    def _read(self):
        if self._result is None and self._reply is not None:
            answer = lines.read(self._reply)
            if answer is not None:
                self._result = derate_client.Window(self.name)
                self._result._take(answer)
        return self._result

    def _figure(self, name):
        try:
            return getattr(self._read(), name, None)
        except Exception as error:
            tell("window", f"window {self.name!r} has no figures: {error}")
            return None

    def _seconds(self):
        told = self._figure("time")
        if told is not None or self._began is None:
            return told
        return (time.monotonic() if self._ended is None else self._ended) - self._began

    time = property(_seconds, doc="Seconds; by this process's own clock where nobody measures.")
    joules = property(lambda self: self._figure("joules"), doc="Of all its GPUs.")
    gpus = property(lambda self: self._figure("gpus") or [], doc="A GpuEnergy each.")

    def __repr__(self):
        if self._ended is None or not self.done():
            return f"window({self.name!r})"
        return f"window({self.name!r}: {self.time:.3f} s, {self.joules} J)"
